//! Signals as a file: they are blocked, read one at a time, and come with their sender.

use std::os::fd::{AsFd, BorrowedFd};

use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// `si_code` of a signal that the kernel itself sent.
const SI_KERNEL: i32 = 0x80;

pub(crate) struct Signals {
    file: SignalFd,
}

/// One signal that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Its number; real-time signals have no name.
    pub(crate) number: i32,
    /// `si_code`: where it comes from.
    code: i32,
    /// The process that sent it.
    pub(crate) sender: i32,
}

impl Arrived {
    fn is_by_kernel(&self) -> bool {
        self.code == SI_KERNEL
    }

    /// Whether the kernel reports a child that has ended, stopped or gone on. A process can send the same signal.
    pub(crate) fn is_of_child(&self) -> bool {
        self.number == Signal::SIGCHLD as i32 && self.code > 0
    }

    /// Whether a terminal sent it, which sends to the whole foreground group.
    pub(crate) fn is_of_terminal(&self) -> bool {
        let keys = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTSTP];
        self.is_by_kernel() && keys.iter().any(|key| *key as i32 == self.number)
    }

    /// Whether it came of something that this process did itself: it wrote where nobody reads or past a limit, or used
    /// up its own CPU time.
    pub(crate) fn is_own_fault(&self) -> bool {
        let number = |signal: Signal| self.number == signal as i32;
        let of_write = number(Signal::SIGPIPE) || number(Signal::SIGXFSZ);
        (of_write && self.sender == std::process::id() as i32) || (number(Signal::SIGXCPU) && self.is_by_kernel())
    }
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
    /// The lowest number of those that have arrived.
    pub(crate) fn pending(&self) -> Option<i32> {
        // SAFETY: zeros are a value of the set, which the call writes to.
        unsafe {
            let mut pending: libc::sigset_t = std::mem::zeroed();
            libc::sigpending(&mut pending);
            (1..=libc::SIGRTMAX()).find(|number| libc::sigismember(&pending, *number) == 1)
        }
    }

    /// The next one of this number that has arrived already.
    pub(crate) fn take(&self, number: i32) -> Option<Arrived> {
        // SAFETY: zeros are values of the types; all outlive the call, which does not wait. The sender is where it is read.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let at_once: libc::timespec = std::mem::zeroed();
            libc::sigaddset(&mut set, number);
            let taken = libc::sigtimedwait(&set, &mut info, &at_once) == number;
            let has_sender = [libc::SI_USER, libc::SI_QUEUE, libc::SI_TKILL].contains(&info.si_code);
            let sender = if has_sender { info.si_pid() } else { 0 };
            taken.then_some(Arrived { number, code: info.si_code, sender })
        }
    }

    /// The next one that has arrived already.
    pub(crate) fn next_if_any(&self) -> Option<Arrived> {
        let ready = poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&Timespec::default()));
        // It is ready, so this does not wait.
        ready.is_ok_and(|ready| ready > 0).then(|| self.next().ok())?
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<&siginfo> for Arrived {
    fn from(info: &siginfo) -> Self {
        Self { number: info.ssi_signo as i32, code: info.ssi_code, sender: info.ssi_pid as i32 }
    }
}
