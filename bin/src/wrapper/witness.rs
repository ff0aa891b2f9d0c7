//! A child in the tracker's process group that blocks every signal and does nothing: what is pending there was sent to
//! the whole group.
//!
//! The kernel goes through a group from its youngest member to its oldest, so what the tracker has got of such a signal
//! the witness has had before. It is older than the command, so it knows of all that the command can have got; what it
//! got before the command was born, the command makes up for.
//!
//! It also wakes a tracker that stopped itself together with the command: nobody who is stopped can notice that the
//! other one goes on.

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::inherited::CommandLine;

/// What `ps` shows, so that who looks for the tracker or its command by name does not find the witness, which would take
/// their signal for one to the group.
const NAME: &CStr = c"signal-witness";

/// How long an answer takes at most, on a machine that is very busy. A witness that was stopped alone gives none.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the witness looks whether a command that is stopped goes on.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// What can be asked beside the numbers of signals: whether it can watch over a stop, from then on; and the end of that.
const WATCH: u8 = 128;
const ENOUGH: u8 = 129;

pub(super) struct Witness {
    command_line: CommandLine,
    /// Without a process for it there is none.
    present: Option<Present>,
}

struct Present {
    pid: libc::pid_t,
    line: UnixStream,
    /// Of the last question, which its answer repeats.
    number: u8,
}

impl Witness {
    /// Starts it, when all signals are blocked, from the thread that will start the command.
    pub(super) fn start(command_line: CommandLine) -> Self {
        Self { command_line, present: Present::start(command_line).ok() }
    }

    /// Makes room for a process of more use. `false` when there was none already.
    pub(super) fn give_up(&mut self) -> bool {
        self.present.take().is_some()
    }

    /// Sends the calling process, which becomes the command, what the group was sent before there was that process.
    /// Async-signal-safe.
    pub(super) fn catch_up(&self) {
        let Some(Present { pid, .. }) = &self.present else { return };
        // In this order: what comes in between is only here.
        let (witness, own) = (pending_of(*pid), pending_of(rustix::process::getpid().as_raw_nonzero().get()));
        let missed = witness.unwrap_or_default() & !own.unwrap_or(u64::MAX);
        for signal in (1..=64).filter(|signal| missed & (1 << (signal - 1)) != 0) {
            // SAFETY: a system call on numbers.
            unsafe { libc::kill(libc::getpid(), signal) };
        }
    }

    /// Whether this signal, which has arrived here, went to the whole group. Each one is told of once.
    /// `None` where that is not known.
    pub(super) fn group_had(&mut self, signal: i32) -> Option<bool> {
        self.ask(u8::try_from(signal).ok()?, 0)
    }

    /// From now on it wakes this process when that is stopped and the command is not. `false` when it cannot.
    pub(super) fn watch(&mut self, command: Pid) -> bool {
        self.ask(WATCH, command.as_raw_nonzero().get()).unwrap_or(false)
    }

    /// This process goes on.
    pub(super) fn end_watch(&mut self) {
        self.ask(ENOUGH, 0);
    }

    /// Whether this is its process id.
    pub(super) fn is(&self, pid: i32) -> bool {
        self.present.as_ref().is_some_and(|present| present.pid == pid)
    }

    /// It is not needed any more, and ends while this process does something else.
    pub(super) fn dismiss(&self) {
        if let Some(present) = &self.present {
            present.kill();
        }
    }

    fn ask(&mut self, question: u8, pid: i32) -> Option<bool> {
        let answer = self.present.as_mut()?.ask(question, pid);
        // One that gives no answer was killed, or stopped alone.
        answer.inspect_err(|_| self.present = Present::start(self.command_line).ok()).ok()
    }
}

impl Present {
    fn start(command_line: CommandLine) -> io::Result<Self> {
        let (line, far) = UnixStream::pair()?;
        line.set_read_timeout(Some(PATIENCE))?;
        let tracker = rustix::process::getpid();
        // SAFETY: without a stack and flags it is a fork; the copy makes nothing but system calls and ends by `_exit`.
        // Without an exit signal it is no child that anybody waits for, and no part of the command's tree.
        match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as libc::pid_t {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: the copy has no other thread, and this one is past reading its arguments.
                unsafe { command_line.replace(NAME) };
                testify(far.as_fd(), tracker)
            }
            pid => {
                let present = Self { pid, line, number: 0 };
                // Without that, what the group gets before the command is born would be lost.
                pending_of(pid).map(|_| present).ok_or_else(|| io::ErrorKind::NotFound.into())
            }
        }
    }

    fn ask(&mut self, question: u8, pid: i32) -> io::Result<bool> {
        self.number = self.number.wrapping_add(1);
        let [a, b, c, d] = pid.to_ne_bytes();
        self.line.write_all(&[self.number, question, a, b, c, d])?;
        loop {
            let mut answer = [0; 2];
            self.line.read_exact(&mut answer)?;
            if answer[0] == self.number {
                return Ok(answer[1] != 0);
            }
        }
    }

    fn kill(&self) {
        // SAFETY: the process is ours and was not waited for yet; nobody else waits for children without an exit signal.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.kill();
        // SAFETY: as above; what it used is of no interest.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE) };
    }
}

/// The witness's life. It has a copy of one thread of many, so it makes nothing but system calls.
fn testify(line: BorrowedFd<'_>, tracker: Pid) -> ! {
    settle(line, tracker);
    // SAFETY: it is what `settle` has put there.
    let line = unsafe { BorrowedFd::borrow_raw(0) };
    let mut watched = None;
    loop {
        let limit = watched.is_some().then_some(&LOOK);
        match poll(&mut [PollFd::new(&line, PollFlags::IN)], limit) {
            Ok(0) => wake(tracker, watched),
            Err(rustix::io::Errno::INTR) => (),
            _ => {
                let mut request = [0; 6];
                if rustix::io::read(line, &mut request) != Ok(request.len()) {
                    exit()
                }
                let [number, question, pid @ ..] = request;
                let answer = match question {
                    WATCH => {
                        let command = i32::from_ne_bytes(pid);
                        let tracker = tracker.as_raw_nonzero().get();
                        watched = (is_stopped(tracker).is_some() && is_stopped(command).is_some()).then_some(command);
                        watched.is_some()
                    }
                    ENOUGH => {
                        watched = None;
                        // What the group was stopped by is done with.
                        [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].iter().for_each(|stop| _ = take_pending(*stop));
                        true
                    }
                    signal => take_pending(signal.into()),
                };
                if rustix::io::write(line, &[number, answer.into()]).is_err() {
                    exit()
                }
            }
        }
    }
}

/// Continues the tracker when only that is stopped.
fn wake(tracker: Pid, command: Option<i32>) {
    let tracker = tracker.as_raw_nonzero().get();
    if is_stopped(tracker) == Some(true) && command.and_then(is_stopped) != Some(true) {
        // SAFETY: a system call on numbers; it is the parent, with whom this process would have ended.
        unsafe { libc::kill(tracker, libc::SIGCONT) };
    }
}

/// Keeps the line and nothing else: the command's pipes are not to be held open. All signals are blocked already, as
/// they are in the tracker.
fn settle(line: BorrowedFd<'_>, tracker: Pid) {
    // SAFETY: system calls on numbers and a constant text; the descriptors that go are those of this copy.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != tracker.as_raw_nonzero().get() {
            exit();
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        libc::dup2(line.as_raw_fd(), 0);
        // Before kernel 5.9 there is no such call.
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) != 0 {
            (1..4096).for_each(|descriptor| _ = libc::close(descriptor));
        }
    }
}

/// Whether the signal was pending here. It is no longer.
fn take_pending(signal: i32) -> bool {
    // SAFETY: the set is valid, for which zeros are a value, and both outlive the call, which does not wait.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut set, signal);
        let at_once: libc::timespec = std::mem::zeroed();
        libc::sigtimedwait(&set, std::ptr::null_mut(), &at_once) == signal
    }
}

/// Whether a process is stopped; `None` when it is gone, or there is no telling.
fn is_stopped(pid: i32) -> Option<bool> {
    let mut text = [0; 256];
    let stat = read(pid, "stat", &mut text)?;
    // The name before it may hold anything, what follows are numbers.
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(matches!(stat.get(end + 2)?, b'T' | b't'))
}

/// The signals that are pending for a process, the lowest bit for the first.
fn pending_of(pid: i32) -> Option<u64> {
    let mut text = [0; 4096];
    let status = read(pid, "status", &mut text)?;
    let set = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(std::str::from_utf8(line).ok()?.trim(), 16).ok()
    };
    Some(set(b"SigPnd:")? | set(b"ShdPnd:")?)
}

/// The beginning of a file of `/proc`, read without asking for memory.
fn read<'a>(pid: i32, name: &str, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 32];
    write!(&mut path[..], "/proc/{pid}/{name}").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let file: OwnedFd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let length = rustix::io::read(&file, &mut *text).ok()?;
    Some(&text[..length])
}

fn exit() -> ! {
    // SAFETY: ends the process without what the tracker registered for its own end.
    unsafe { libc::_exit(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_procfs_says_of_a_process() {
        assert_eq!(is_stopped(std::process::id() as i32), Some(false));
        assert_eq!((is_stopped(i32::MAX), pending_of(i32::MAX)), (None, None));
        let mut child = std::process::Command::new("sh").args(["-c", "kill -STOP $$"]).spawn().unwrap();
        let pid = child.id() as i32;
        while is_stopped(pid) != Some(true) {
            std::thread::yield_now();
        }
        // SAFETY: a system call on numbers; the child was not waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        assert_eq!(pending_of(pid), Some(1 << (libc::SIGTERM - 1)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
