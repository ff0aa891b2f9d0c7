//! What the program was started with and the command must get unchanged: arguments, descriptors, signal dispositions,
//! the signal mask, the parent-death signal, the limits that it changes, whether it adopts orphans, and how it is scheduled.

use std::ffi::{CStr, OsString, c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::fs::{Mode, OFlags};
use rustix::io::{FdFlags, fcntl_getfd};

use crate::fork_mark::ForkMark;
use crate::stack_limit::StackLimit;

/// Signal handling as it was found. The tracker itself needs SIGCHLD not to be ignored, and SIGPIPE to be.
pub(crate) struct Inherited {
    command_line: CommandLine,
    /// Descriptors beside the standard ones.
    descriptors: Vec<RawFd>,
    mask: SigSet,
    /// The signal that this process gets when its parent ends; 0 for none.
    death_signal: c_int,
    /// Whether it adopts orphans: `exec` keeps that, and `fork` does not hand it on.
    adopts: c_int,
    /// How it is scheduled, where `fork` does not hand that on.
    scheduling: Option<libc::sched_attr>,
    mark: Option<ForkMark>,
    stack: Option<StackLimit>,
    child: Option<SigAction>,
    pipe: Option<SigAction>,
}

/// The place of the arguments that `ps` shows: one after the other, as the kernel puts them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandLine {
    start: *mut u8,
    length: usize,
}

impl CommandLine {
    /// # Safety
    /// As for [`arguments`].
    pub(crate) unsafe fn of(count: c_int, arguments: *const *mut c_char) -> Self {
        let (mut start, mut length) = (std::ptr::null_mut::<u8>(), 0);
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the index is below the count, by the caller's promise.
            let argument = unsafe { *arguments.add(index) };
            if index == 0 {
                start = argument.cast();
            } else if argument.addr() != start.addr() + length {
                // They were moved elsewhere.
                break;
            }
            // SAFETY: it is a string, by the caller's promise.
            length += unsafe { CStr::from_ptr(argument) }.to_bytes_with_nul().len();
        }
        Self { start, length }
    }

    /// Replaces the arguments by this one word, as far as there is room. Async-signal-safe.
    ///
    /// # Safety
    /// Nothing else may use the arguments that C's `main` got.
    pub(crate) unsafe fn replace(self, word: &CStr) {
        let word = word.to_bytes();
        // SAFETY: the caller's promise; the arguments are memory of the process that may be written to.
        unsafe {
            std::ptr::write_bytes(self.start, 0, self.length);
            std::ptr::copy_nonoverlapping(word.as_ptr(), self.start, word.len().min(self.length.saturating_sub(1)));
        }
    }
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
    pub(crate) fn take(command_line: CommandLine) -> Self {
        let stack = StackLimit::raise();
        let descriptors = further_descriptors();
        keep_standard_descriptors();
        let (mut death_signal, mut adopts) = (0, 0);
        // SAFETY: each writes one number, which outlives the call.
        unsafe {
            libc::prctl(libc::PR_GET_PDEATHSIG, &mut death_signal);
            libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &mut adopts);
        }
        let mask = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
        Self {
            command_line,
            descriptors,
            mask,
            death_signal,
            adopts,
            scheduling: scheduling_that_a_fork_resets(),
            mark: ForkMark::set(),
            stack,
            child: replace(Signal::SIGCHLD, SigHandler::SigDfl),
            pipe: replace(Signal::SIGPIPE, SigHandler::SigIgn),
        }
    }

    /// The place of the arguments that `ps` shows.
    pub(crate) fn command_line(&self) -> CommandLine {
        self.command_line
    }

    /// The mark of all processes that this program forks, except the command.
    pub(crate) fn fork_mark(&self) -> Option<u64> {
        self.mark.as_ref().map(ForkMark::value)
    }

    /// Whether a signal is ignored because the program was started so (`nohup`, `&` in a script).
    pub(crate) fn ignores(signal: Signal) -> bool {
        // SAFETY: zeros are a value of the type, into which the call writes what is in force.
        let mut found: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: `found` is valid to write to; without a new action nothing changes.
        let asked = unsafe { libc::sigaction(signal as c_int, std::ptr::null(), &mut found) };
        asked == 0 && found.sa_sigaction == libc::SIG_IGN
    }

    /// Puts back what SIGABRT did when the program was started: no handler is inherited. Async-signal-safe.
    pub(crate) fn restore_abort() {
        if !Self::ignores(Signal::SIGABRT) {
            let _ = replace(Signal::SIGABRT, SigHandler::SigDfl);
        }
    }

    /// Unblocks all signals in this thread that were not blocked when the program started, except these.
    pub(crate) fn let_through_all_but(&self, signals: &SigSet) -> nix::Result<()> {
        let mut mask = self.mask;
        mask.extend(signals);
        mask.thread_set_mask()
    }

    /// Hands the parent-death signal on to the calling process, a child of `tracker`, if there is one.
    /// Async-signal-safe.
    pub(crate) fn die_with(&self, tracker: c_int) {
        if self.death_signal == 0 {
            return;
        }
        // SAFETY: system calls on numbers.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, self.death_signal as libc::c_ulong);
            // The tracker may have ended before the call.
            if libc::getppid() != tracker {
                libc::kill(libc::getpid(), self.death_signal);
            }
        }
    }

    /// Leaves all descriptors but standard error to the command alone: a reader, or a program that waits for a lock,
    /// finds them closed when the command has closed them. A sink that writes to one of them has a duplicate.
    pub(crate) fn leave_descriptors(&self) {
        if let Ok(nowhere) = nowhere() {
            let _ = rustix::stdio::dup2_stdin(&nowhere);
            let _ = rustix::stdio::dup2_stdout(&nowhere);
        }
        for descriptor in &self.descriptors {
            // SAFETY: it was open before the program began, and nothing in it knows of it.
            unsafe { libc::close(*descriptor) };
        }
    }

    /// Puts everything back, in the process that becomes the command. Async-signal-safe: plain system calls.
    pub(crate) fn restore(&self) -> nix::Result<()> {
        restore(Signal::SIGCHLD, self.child);
        restore(Signal::SIGPIPE, self.pipe);
        // It is heeded before the command's program begins as well.
        Self::restore_abort();
        if let Some(mark) = &self.mark {
            mark.take_off();
        }
        if let Some(stack) = &self.stack {
            stack.put_back();
        }
        // SAFETY: system calls on numbers, each as wide as the kernel reads it, and on a value that outlives the call.
        unsafe {
            libc::prctl(libc::PR_SET_CHILD_SUBREAPER, self.adopts as libc::c_ulong, 0, 0, 0);
            // The call may be refused, because it needs permissions that this process may not have. Then the command is
            // scheduled as after any fork.
            if let Some(scheduling) = &self.scheduling {
                libc::syscall(libc::SYS_sched_setattr, 0, scheduling, 0);
            }
        }
        self.mask.thread_set_mask()
    }
}

fn scheduling_that_a_fork_resets() -> Option<libc::sched_attr> {
    // SAFETY: all fields are numbers, for which zero is a value; the kernel writes so many bytes at most.
    let (asked, found) = unsafe {
        let mut found: libc::sched_attr = std::mem::zeroed();
        (libc::syscall(libc::SYS_sched_getattr, 0, &mut found, size_of::<libc::sched_attr>(), 0), found)
    };
    (asked == 0 && found.sched_flags & libc::SCHED_FLAG_RESET_ON_FORK as u64 != 0).then_some(found)
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

/// The descriptors beside the standard ones that the program inherited. Those that it opens itself are not handed on.
fn further_descriptors() -> Vec<RawFd> {
    let numbers: Vec<RawFd> = match std::fs::read_dir("/proc/self/fd") {
        Ok(entries) => entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect(),
        // Without `/proc`, as far as is cheap to try.
        Err(_) => {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            (0..limit.unwrap_or(u64::MAX).min(4096) as RawFd).collect()
        }
    };
    let is_inherited = |number: &RawFd| {
        // SAFETY: only flags are asked for, which fails where it is not open; no other thread opens or closes any.
        let flags = fcntl_getfd(unsafe { BorrowedFd::borrow_raw(*number) });
        *number > 2 && flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
    };
    numbers.into_iter().filter(is_inherited).collect()
}

/// A file that reads as empty and drops what is written to it, close-on-exec. Without a `/dev`, as in a bare chroot, it
/// can be neither read nor written, as if it was closed.
fn nowhere() -> rustix::io::Result<OwnedFd> {
    let open = |path: &str, how: OFlags| rustix::fs::open(path, how | OFlags::CLOEXEC, Mode::empty());
    open("/dev/null", OFlags::RDWR).or_else(|_| open("/", OFlags::PATH))
}

/// A standard descriptor that is closed must not be given to a file that is opened later. It is filled with
/// `/dev/null`, close-on-exec, so that the command finds it closed.
fn keep_standard_descriptors() {
    // The lowest free number is what `open` gives.
    while let Ok(file) = nowhere() {
        if file.as_raw_fd() > 2 {
            return;
        }
        // It stays open for as long as the program runs.
        let _ = file.into_raw_fd();
    }
}
