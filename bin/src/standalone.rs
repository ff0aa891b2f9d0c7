//! A run without a command: it goes on until it is told to stop, or until nobody reads.

use std::sync::Mutex;

use nix::sys::signal::{SigSet, Signal};
use resource_tracker_core::{Outcome, Tracker};
use rustix::event::{PollFd, PollFlags, poll};

use crate::inherited::Inherited;
use crate::signals::Signals;

pub(crate) fn run(tracker: Tracker) -> anyhow::Result<i32> {
    // A signal that was ignored from the start (`nohup`) stays so.
    let stops = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let signals = Signals::block(&stops.into_iter().filter(|signal| !Inherited::ignores(*signal)).collect::<SigSet>())?;
    let (closed, closer) = std::io::pipe()?;
    let closer = Mutex::new(Some(closer));
    let running = tracker.when_all_sinks_closed(move || drop(closer.lock().map(|mut closer| closer.take()))).start()?;
    let mut ready = [PollFd::new(&signals, PollFlags::IN), PollFd::new(&closed, PollFlags::IN)];
    while poll(&mut ready, None) == Err(rustix::io::Errno::INTR) {}
    signals.end_at_the_next(0);
    running.finish(Outcome::default());
    Ok(0)
}
