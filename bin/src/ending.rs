//! How the program ends: as its command did.

use std::ffi::c_int;
use std::io::Write;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use resource_tracker_core::{PATIENCE, Running};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::inherited::Inherited;

/// How the command has ended, once it has, and from when on a request to stop ends the program at once.
static SETTLED: OnceLock<(Ending, Instant)> = OnceLock::new();

/// Requests to stop.
const STOPS: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
/// Within this time, a request that has reached one process reaches another, also on a busy machine.
const SAME_REQUEST: Duration = Duration::from_millis(250);

/// Takes the last sample, of the state at the end.
pub(crate) fn take_last_sample(running: &Running) {
    if !running.take_last_sample(PATIENCE) {
        log::warn!("the last sample could not be taken");
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Exited(c_int),
    /// By this signal.
    Killed(c_int),
}

impl Ending {
    /// From now on the program ends this way, whatever happens. The next request to stop ends it at once: what the run
    /// still waits for is not worth more than the user's patience. A request that is pending counts as well, unless the
    /// command was ended by one: batch systems and service managers send it to every process of a job, and it can reach
    /// the command first.
    pub(crate) fn settle(self) {
        match self.is_by_request() {
            true => self.settle_as_told(),
            false => self.settle_before(Instant::now()),
        }
    }

    /// As `settle`, after a request to stop: what comes within a moment is the same request. (`timeout` sends it to the
    /// program, and then to the group.)
    pub(crate) fn settle_as_told(self) {
        self.settle_before(Instant::now() + SAME_REQUEST);
    }

    /// Whether it is the end of who was asked to stop, or of a shell whose command was.
    fn is_by_request(self) -> bool {
        let (Self::Killed(signal) | Self::Exited(signal)) = self;
        let signal = if matches!(self, Self::Exited(_)) { signal - 128 } else { signal };
        STOPS.iter().any(|stop| *stop as c_int == signal)
    }

    fn settle_before(self, heeded: Instant) {
        let _ = SETTLED.set((self, heeded));
        let heeds = |stop: &Signal| {
            let action = SigAction::new(SigHandler::Handler(end_as_settled), SaFlags::empty(), SigSet::all());
            // SAFETY: the handler reads a clock, and makes nothing but system calls.
            !Inherited::ignores(*stop) && unsafe { sigaction(*stop, &action) }.is_ok()
        };
        let stops: SigSet = STOPS.into_iter().filter(heeds).collect();
        // If this fails, the user waits.
        let _ = stops.thread_unblock();
    }

    /// The ending that was settled.
    pub(crate) fn settled() -> Option<Self> {
        SETTLED.get().map(|(ending, _)| *ending)
    }

    /// Ends this process in the same way, without the finalisers of libraries: a thread may still be inside one of a GPU
    /// vendor or a plugin, and must not find it taken down, which would cost the command its exit code.
    pub(crate) fn end(self) -> ! {
        // Nobody is left to tell if that fails.
        let _ = std::io::stdout().flush();
        self.end_at_once()
    }

    /// As `end`, with nothing but system calls.
    pub(crate) fn end_at_once(self) -> ! {
        if let Self::Killed(signal) = self {
            die_of(signal);
        }
        // SAFETY: it does not return.
        unsafe { libc::_exit(self.code()) }
    }

    /// The exit code that a shell shows for it.
    fn code(self) -> c_int {
        match self {
            Self::Exited(code) => code,
            Self::Killed(signal) => 128 + signal,
        }
    }
}

extern "C" fn end_as_settled(_: c_int) {
    if let Some((ending, heeded)) = SETTLED.get()
        && Instant::now() >= *heeded
    {
        ending.end_at_once();
    }
}

/// Ends this process by the signal. It returns where that does not work: the first process of a container is not ended
/// by its own signals.
fn die_of(signal: c_int) {
    // Only the command's core dump is of use. A `core_pattern` with a pipe heeds only the second of these calls.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // SAFETY: it sets a number.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    // SAFETY: plain system calls on values of this function; for both types zeros are a value, the default action
    // without flags and the empty set. (The safe wrappers do not know real-time signals.)
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, &default, std::ptr::null_mut());
        // It goes to this thread: another thread may read signals to the process.
        libc::raise(signal);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_that_a_shell_shows() {
        assert_eq!([Ending::Exited(7).code(), Ending::Killed(15).code()], [7, 143]);
    }
}
