//! What the program was started with and the command must get unchanged: arguments, standard descriptors, signal
//! dispositions and the signal mask.

use std::ffi::{CStr, OsString, c_char, c_int};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStringExt;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::fs::{Mode, OFlags};

/// Signal handling as it was found. The tracker itself needs SIGCHLD not to be ignored, and SIGPIPE to be.
#[derive(Clone, Copy)]
pub(crate) struct Inherited {
    mask: SigSet,
    child: Option<SigAction>,
    pipe: Option<SigAction>,
}

/// The arguments as C's `main` gets them.
///
/// # Safety
/// `arguments` must point to `count` strings that end with a null byte.
pub(crate) unsafe fn arguments(count: c_int, arguments: *const *const c_char) -> Vec<OsString> {
    let argument = |index: usize| {
        // SAFETY: the index is below the count, and each is a string, by the caller's promise.
        let text = unsafe { CStr::from_ptr(*arguments.add(index)) };
        OsString::from_vec(text.to_bytes().to_vec())
    };
    (0..usize::try_from(count).unwrap_or(0)).map(argument).collect()
}

impl Inherited {
    pub(crate) fn take() -> Self {
        keep_standard_descriptors();
        let mask = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
        Self {
            mask,
            child: replace(Signal::SIGCHLD, SigHandler::SigDfl),
            pipe: replace(Signal::SIGPIPE, SigHandler::SigIgn),
        }
    }

    /// Whether a signal is ignored because whoever started the program wished it (`nohup`, `&` in a script).
    pub(crate) fn ignores(signal: Signal) -> bool {
        let found = replace(signal, SigHandler::SigDfl);
        let ignored = found.is_some_and(|action| matches!(action.handler(), SigHandler::SigIgn));
        restore(signal, found);
        ignored
    }

    /// Puts everything back, in the child that becomes the command. Async-signal-safe: plain system calls.
    pub(crate) fn restore(&self) -> nix::Result<()> {
        restore(Signal::SIGCHLD, self.child);
        restore(Signal::SIGPIPE, self.pipe);
        self.mask.thread_set_mask()
    }
}

fn replace(signal: Signal, handler: SigHandler) -> Option<SigAction> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: neither the default nor ignoring runs any code of ours.
    unsafe { sigaction(signal, &action) }.ok()
}

fn restore(signal: Signal, action: Option<SigAction>) {
    if let Some(action) = action {
        // SAFETY: an action that was in force when the program started has no handler of the program.
        let _ = unsafe { sigaction(signal, &action) };
    }
}

/// A standard descriptor that is closed must not be given to a file that is opened later. It is filled with
/// `/dev/null`, close-on-exec, so that the command finds it closed.
fn keep_standard_descriptors() {
    loop {
        // The lowest free number is what `open` gives.
        let Ok(file) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else { return };
        if file.as_raw_fd() > 2 {
            return;
        }
        // It stays open for as long as the program runs.
        let _ = file.into_raw_fd();
    }
}
