//! A run around a command, which must not be able to tell.

mod cgroup;
mod fork;
mod spawn;
mod supervise;
mod wait;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use resource_tracker_core::{Outcome, Tracker};

use crate::inherited::Inherited;
use crate::signals::{Signals, for_wrapper};
use cgroup::OwnCgroup;
use spawn::Spawned;
use wait::Ending;

/// How long the end of the command waits for a source that hangs before there is a last sample.
const LAST_SAMPLE: Duration = Duration::from_secs(2);

/// What a run around a command may do to the system.
pub(crate) struct Options {
    /// Adopt orphans.
    pub(crate) subreaper: bool,
    /// Make a cgroup for the command, found by way of this procfs.
    pub(crate) cgroup: Option<PathBuf>,
}

/// Runs the command to its end and returns its exit code.
///
/// # Errors
/// When signals cannot be set up; the command was not started.
pub(crate) fn run(
    mut tracker: Tracker,
    command: &[OsString],
    inherited: &Inherited,
    options: &Options,
) -> anyhow::Result<i32> {
    let signals = Signals::block(&for_wrapper())?;
    let mut adopts = rustix::process::getpid().is_init();
    if options.subreaper {
        match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            Ok(()) => adopts = true,
            Err(error) => {
                log::warn!("cannot adopt orphans of the command ({error}); those that leave its tree are not counted");
            }
        }
    }
    if adopts {
        tracker.set_adopts_orphans();
    }
    let mut cgroup = options.cgroup.as_deref().map(OwnCgroup::make).unwrap_or_default();
    let child = match spawn::spawn(command, inherited, &mut cgroup) {
        Spawned::Child(child) => child,
        Spawned::Failed(code) => return Ok(code),
    };
    tracker.run_mut().pid = Some(child.as_raw_nonzero().get());
    tracker.set_cgroup(cgroup.job());
    let ledger = tracker.ledger();
    let running = tracker.start();
    if let Err(error) = &running {
        log::warn!("no thread to sample with ({error}); the command runs unrecorded");
    }
    cgroup.sweep();
    let ending = supervise::until_exit(child, &signals, &ledger);
    if let Ok(running) = &running
        && !running.take_last_sample(LAST_SAMPLE)
    {
        log::warn!("the last sample could not be taken");
    }
    drop(cgroup);
    let outcome = match ending {
        Ending::Exited(code) => Outcome { exit_code: Some(code), signal: None },
        Ending::Killed(signal) => Outcome { exit_code: None, signal: Some(signal) },
    };
    let code = match ending {
        Ending::Exited(code) => code,
        Ending::Killed(signal) => 128 + signal,
    };
    signals.end_at_the_next(code);
    if let Ok(running) = running {
        running.finish(outcome);
    }
    Ok(code)
}
