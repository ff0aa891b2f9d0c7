//! A run without a command: it goes on until a signal stops it, until no sink has a reader, or until the process that
//! it watches has ended.

use std::sync::{Mutex, mpsc};
use std::time::Instant;

use nix::sys::signal::{SigSet, Signal};
use resource_tracker_core::{Host, Outcome, Tracker};
use resource_tracker_sources::{JobObserver, RunEnd, TrackedJob};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::attached::Attached;
use crate::ending::{Ending, take_last_sample};
use crate::inherited::Inherited;
use crate::signals::Signals;

pub(crate) fn run(mut tracker: Tracker, host: Host, inherited: &Inherited, end: &RunEnd) -> anyhow::Result<Ending> {
    // A signal that was ignored from the start (`nohup`) stays so.
    let stops = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let stops: SigSet = stops.into_iter().filter(|signal| !Inherited::ignores(*signal)).collect();
    let signals = Signals::block(&stops)?;
    inherited.let_through_all_but(&stops)?;
    let mut attached = None;
    if let Some(pid) = tracker.run().pid {
        let interval = tracker.run().interval;
        let (tell, joins) = mpsc::channel();
        attached = Some(Attached::new(pid, &host.procfs, joins, interval));
        tracker = tracker.observer(JobObserver::new(TrackedJob::attached(pid), host).tell_joins(tell));
    }
    let (closed, closer) = std::io::pipe()?;
    let closer = Mutex::new(Some(closer));
    let running = tracker.when_all_sinks_closed(move || drop(closer.lock().map(|mut closer| closer.take()))).start()?;
    let began = Instant::now();
    let mut was_told = false;
    while !was_told && !attached.as_mut().is_some_and(Attached::has_ended) {
        let mut ready = vec![PollFd::new(&signals, PollFlags::IN), PollFd::new(&closed, PollFlags::IN)];
        let (process, look) = attached.as_ref().map(Attached::next_look).unzip();
        ready.extend(process.flatten().map(|process| PollFd::from_borrowed_fd(process, PollFlags::IN)));
        let limit = look.map(|look| Timespec { tv_sec: look.as_secs() as i64, tv_nsec: look.subsec_nanos().into() });
        was_told = poll(&mut ready, limit.as_ref()).is_ok() && ready[..2].iter().any(|file| !file.revents().is_empty());
    }
    if was_told {
        // Signals that have arrived by now ask for this very stop.
        while signals.next_if_any().is_some() {}
        Ending::Exited(0).settle_as_told();
    } else {
        Ending::Exited(0).settle();
        end.tell(Outcome::default(), began.elapsed());
        take_last_sample(&running);
    }
    running.finish(Outcome::default());
    Ok(Ending::Exited(0))
}
