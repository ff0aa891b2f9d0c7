//! A run around a command, which must not notice the tracker.

mod cgroup;
mod children;
mod companion;
mod environment;
mod fork;
mod guardian;
mod spawn;
mod state;
mod stop;
mod supervise;
mod wait;
mod witness;

use std::ffi::OsString;
use std::time::Instant;

use nix::sys::signal::SigSet;
use resource_tracker_core::{Host, Outcome, Prepared, Tracker};
use resource_tracker_sources::{JobObserver, RunEnd, TrackedJob, child_pid};

use crate::ending::{Ending, take_last_sample};
use crate::heap;
use crate::inherited::Inherited;
use crate::signals::Signals;
use cgroup::OwnCgroup;
use children::Children;
use spawn::Spawned;
use supervise::Supervisor;

/// No process has this id.
const NOBODY: i32 = 0;

/// What a run around a command may do to the system.
pub(crate) struct Options {
    /// Adopt orphans.
    pub(crate) subreaper: bool,
    /// Make a cgroup for the command.
    pub(crate) cgroup: bool,
    /// The machine that is looked at.
    pub(crate) host: Host,
}

/// Runs the command to its end, and says how it ended.
pub(crate) fn run(
    tracker: Tracker,
    command: &[OsString],
    inherited: &Inherited,
    options: &Options,
    end: &RunEnd,
) -> Ending {
    // This includes the signals of the program's own errors: the kernel delivers those even where they are blocked.
    let signals = match Signals::block(&SigSet::all()).and_then(|signals| wait::is_allowed().map(|()| signals)) {
        Ok(signals) => signals,
        Err(error) => {
            drop(tracker);
            return Ending::Exited(spawn::replace_tracker(command, inherited, &error.into()));
        }
    };
    let parent = rustix::process::getppid();
    let mut adopts = rustix::process::getpid().is_init();
    if options.subreaper {
        match rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            Ok(()) => adopts = true,
            Err(error) => {
                log::warn!("cannot adopt orphans of the command ({error}); those that leave its tree are not counted");
            }
        }
    }
    let mut cgroup = if options.cgroup { OwnCgroup::make(&options.host.procfs) } else { OwnCgroup::default() };
    let mut children = Children::before_the_command(inherited.fork_mark(), &options.host.procfs);
    let mut supervisor = Supervisor::new(parent, signals, inherited.command_line());
    let began = Instant::now();
    let (mut tracker, mut prepared) = (Some(tracker), None);
    // Before the fork it would be in the way: a fork with threads at work costs more than is won.
    let mut prepare = || prepared = prepared.take().or_else(|| tracker.take().map(Tracker::prepare));
    let child = loop {
        match spawn::spawn(command, inherited, &mut cgroup, &mut supervisor, &mut children, &mut prepare) {
            Spawned::Child(child) => break child,
            Spawned::NoRoom(_) if supervisor.give_up_companions() => (),
            Spawned::NoRoom(error) => {
                // An exec would leave these behind: directories, and processes that nothing waits for.
                drop(supervisor);
                drop(cgroup);
                drop((tracker, prepared));
                return Ending::Exited(spawn::replace_tracker(command, inherited, &error));
            }
            Spawned::Failed(code) => return Ending::Exited(code),
        }
    };
    inherited.leave_descriptors();
    let pid = child.as_raw_nonzero().get();
    let pid_in_procfs = child_pid(&options.host.procfs, pid);
    if pid_in_procfs.is_none() {
        log::warn!(
            "the command is not found in {}, which shows another pid namespace; what is known of it stays null but for its end",
            options.host.procfs.display()
        );
    }
    let mut job = TrackedJob::spawned(pid_in_procfs.unwrap_or(NOBODY));
    (job.began, job.adopts_orphans, job.fork_mark, job.cgroup) =
        (Some(began), adopts, inherited.fork_mark(), cgroup.job());
    let ledger = job.ledger.clone();
    let start = |prepared: Prepared| prepared.pid(pid).observer(JobObserver::new(job, options.host.clone())).start();
    let running = prepared.and_then(|prepared| match prepared {
        Ok(prepared) => Some(start(prepared)),
        Err(error) => {
            log::warn!("no thread to sample with ({error}); the command runs unrecorded");
            None
        }
    });
    // This goes on while the sampler begins.
    cgroup.sweep();
    let ending = supervisor.until_exit(child, &mut children, &ledger);
    let wall = began.elapsed();
    supervisor.witness.dismiss();
    // This comes before anything that takes time.
    ending.settle();
    let outcome = match ending {
        Ending::Exited(code) => Outcome::exited(code),
        Ending::Killed(signal) => Outcome::killed(signal),
    };
    end.tell(outcome, wall);
    // A thread that got no memory never ends.
    let running = running.filter(|_| !heap::is_in_want());
    if let Some(running) = &running {
        take_last_sample(running);
    }
    // They close while the cgroup is removed.
    let closing = running.map(|running| running.close(outcome));
    drop(cgroup);
    if let Some(closing) = closing {
        closing.wait();
    }
    ending
}
