//! Signals as a file: they are blocked, read one at a time, and tell who sent them.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::inherited::Inherited;

/// `si_code` of a signal that the kernel itself sent, such as the Ctrl-C of a terminal: the whole foreground group
/// has got it.
const SI_KERNEL: i32 = 0x80;

pub(crate) struct Signals {
    file: SignalFd,
}

/// One signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Its number; real-time signals have no name.
    pub(crate) number: i32,
    /// Whether the kernel sent it, and not a process.
    pub(crate) by_kernel: bool,
}

impl Signals {
    /// Blocks these signals, in this thread and the ones it starts, and reads them from now on.
    pub(crate) fn block(signals: &SigSet) -> nix::Result<Self> {
        signals.thread_block()?;
        Ok(Self { file: SignalFd::with_flags(signals, SfdFlags::SFD_CLOEXEC)? })
    }

    /// Waits for the next one.
    pub(crate) fn next(&self) -> nix::Result<Arrived> {
        loop {
            match self.file.read_signal() {
                Ok(Some(info)) => return Ok(Arrived::from(&info)),
                Ok(None) | Err(nix::Error::EINTR) => (),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Signals {
    /// From now on the next request to stop ends the program at once, with this code: what the run still waits for is
    /// not worth more than the user's patience. Requests that have arrived already were heard.
    pub(crate) fn end_at_the_next(self, code: i32) {
        while poll(&mut [PollFd::new(&self, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            // It is ready, so this does not wait.
            if self.next().is_err() {
                return;
            }
        }
        let mut stops = vec![Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];
        stops.retain(|stop| !Inherited::ignores(*stop));
        let listen = move || {
            while let Ok(arrived) = self.next() {
                if stops.iter().any(|stop| *stop as i32 == arrived.number) {
                    crate::end(code);
                }
            }
        };
        // Without a thread the user waits.
        let _ = std::thread::Builder::new().name("stop".into()).spawn(listen);
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<&siginfo> for Arrived {
    fn from(info: &siginfo) -> Self {
        Self { number: info.ssi_signo as i32, by_kernel: info.ssi_code == SI_KERNEL }
    }
}

/// What a wrapper passes on: all but those that report an error of the program itself, and those of job control,
/// which stop and continue the tracker together with the command.
pub(crate) fn for_wrapper() -> SigSet {
    let mut signals = SigSet::all();
    for own in [
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGFPE,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGSYS,
        Signal::SIGABRT,
        Signal::SIGTSTP,
        Signal::SIGTTIN,
        Signal::SIGTTOU,
        Signal::SIGCONT,
    ] {
        signals.remove(own);
    }
    signals
}
