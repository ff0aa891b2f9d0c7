//! A child in the tracker's process group that blocks every signal and does nothing: what is pending there was sent to
//! the whole group.
//!
//! The kernel goes through a group from its youngest member to its oldest, so what the tracker has got of such a signal
//! the witness has had before. It also wakes a tracker that stopped itself together with the command: nobody who is
//! stopped can notice that the other one goes on.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
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
    job: Pid,
    command_line: CommandLine,
    /// It and the line to it, if there could be one.
    present: Option<Present>,
}

struct Present {
    pid: libc::pid_t,
    line: UnixStream,
    /// Of the last question, which its answer repeats.
    number: u8,
}

impl Witness {
    /// Starts it, from the thread that reads the signals, when the command runs already.
    pub(super) fn of(job: Pid, command_line: CommandLine) -> Self {
        Self { job, command_line, present: Present::start(job, command_line).ok() }
    }

    /// Whether this signal, which has arrived here, went to the whole group. Each one is told of once.
    /// `None` where that is not known.
    pub(super) fn group_had(&mut self, signal: i32) -> Option<bool> {
        self.ask(u8::try_from(signal).ok()?)
    }

    /// From now on it wakes this process when that is stopped and the command is not. `false` when it cannot.
    pub(super) fn watch(&mut self) -> bool {
        self.ask(WATCH).unwrap_or(false)
    }

    /// This process goes on.
    pub(super) fn end_watch(&mut self) {
        self.ask(ENOUGH);
    }

    /// Whether this is its process id.
    pub(super) fn is(&self, pid: i32) -> bool {
        self.present.as_ref().is_some_and(|present| present.pid == pid)
    }

    fn ask(&mut self, question: u8) -> Option<bool> {
        let answer = self.present.as_mut()?.ask(question);
        // One that gives no answer was killed, or stopped alone.
        answer.inspect_err(|_| self.present = Present::start(self.job, self.command_line).ok()).ok()
    }
}

impl Present {
    fn start(job: Pid, command_line: CommandLine) -> io::Result<Self> {
        let (line, far) = UnixStream::pair()?;
        line.set_read_timeout(Some(PATIENCE))?;
        let stat = |pid: Pid| Some(OwnedFd::from(File::open(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?));
        let tracker = rustix::process::getpid();
        let (job, own) = (stat(job), stat(tracker));
        // SAFETY: without a stack and flags it is a fork; the copy makes nothing but system calls and ends by `_exit`.
        // Without an exit signal it is no child that anybody waits for, and no part of the command's tree.
        match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as libc::pid_t {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let fallback = far.as_fd();
                let stats = [&job, &own].map(|stat| stat.as_ref().map_or(fallback, AsFd::as_fd));
                // SAFETY: the copy has no other thread, and this one is past reading its arguments.
                unsafe { command_line.replace(NAME) };
                testify(far.as_fd(), stats, tracker)
            }
            pid => Ok(Self { pid, line, number: 0 }),
        }
    }

    fn ask(&mut self, question: u8) -> io::Result<bool> {
        self.number = self.number.wrapping_add(1);
        self.line.write_all(&[self.number, question])?;
        loop {
            let mut answer = [0; 2];
            self.line.read_exact(&mut answer)?;
            if answer[0] == self.number {
                return Ok(answer[1] != 0);
            }
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        // SAFETY: the process is ours and was not waited for yet; nobody else waits for children without an exit signal.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE);
        }
    }
}

/// The witness's life. It has a copy of one thread of many, so it makes nothing but system calls.
fn testify(line: BorrowedFd<'_>, stats: [BorrowedFd<'_>; 2], tracker: Pid) -> ! {
    settle(line, stats, tracker);
    // SAFETY: these are what `settle` has put there.
    let [line, job, own] = [0, 1, 2].map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let mut watches = false;
    loop {
        let limit = watches.then_some(&LOOK);
        match poll(&mut [PollFd::new(&line, PollFlags::IN)], limit) {
            Ok(0) => {
                if is_stopped(own) == Some(true) && is_stopped(job) != Some(true) {
                    // SAFETY: a system call on numbers; it is the parent, with whom this process would have ended.
                    unsafe { libc::kill(tracker.as_raw_nonzero().get(), libc::SIGCONT) };
                }
            }
            Err(rustix::io::Errno::INTR) => (),
            _ => {
                let mut request = [0; 2];
                if rustix::io::read(line, &mut request) != Ok(request.len()) {
                    exit()
                }
                let [number, question] = request;
                let answer = match question {
                    WATCH => is_stopped(own).is_some() && is_stopped(job).is_some(),
                    ENOUGH => {
                        [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].iter().for_each(|stop| _ = take_pending(*stop));
                        true
                    }
                    signal => take_pending(signal.into()),
                };
                match question {
                    WATCH => watches = answer,
                    ENOUGH => watches = false,
                    _ => (),
                }
                if rustix::io::write(line, &[number, answer.into()]).is_err() {
                    exit()
                }
            }
        }
    }
}

/// Keeps three descriptors and nothing else: the command's pipes are not to be held open. All signals are blocked
/// already, as they are in the tracker.
fn settle(line: BorrowedFd<'_>, stats: [BorrowedFd<'_>; 2], tracker: Pid) {
    // SAFETY: system calls on numbers and a constant text. The descriptors that go are those of this copy, and the three
    // that stay have numbers above those that they get.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != tracker.as_raw_nonzero().get() {
            exit();
        }
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        for (number, descriptor) in [line, stats[0], stats[1]].into_iter().enumerate() {
            libc::dup2(descriptor.as_raw_fd(), number as i32);
        }
        // Before kernel 5.9 there is no such call.
        if libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) != 0 {
            (3..4096).for_each(|descriptor| _ = libc::close(descriptor));
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

/// What a process's `stat` file says; `None` when it cannot be read, as that of one that is gone.
fn is_stopped(stat: BorrowedFd<'_>) -> Option<bool> {
    let mut text = [0; 256];
    let length = rustix::io::pread(stat, &mut text, 0).ok()?;
    // The name before it may hold anything, what follows are numbers.
    let end = text[..length].iter().rposition(|byte| *byte == b')')?;
    Some(matches!(text.get(end + 2)?, b'T' | b't'))
}

fn exit() -> ! {
    // SAFETY: ends the process without what the tracker registered for its own end.
    unsafe { libc::_exit(0) }
}
