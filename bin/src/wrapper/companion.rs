//! A small process beside the command: a copy of the tracker that answers its questions, and ends with it.

use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::inherited::CommandLine;

/// The longest time that an answer takes, on a machine that is very busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How often a companion that was killed is replaced. If something kills each one at once, the tracker does without.
const MOST_RESTARTS: u8 = 100;

/// The bytes of a question: its number, and what is asked. An answer has as many: the number, and the answer.
const QUESTION: usize = 2;

/// What a companion does. It runs in a copy of one thread of a process with many, so it must make nothing but system
/// calls.
pub(super) trait CompanionTask: Copy {
    /// What `ps` shows: a search for the tracker or its command by name does not find the companion.
    const NAME: &'static CStr;

    /// Runs as a child of the tracker. Standard input is the line, standard output is `inherited_file`, if any, and no
    /// other file is open.
    fn run(self, line: Line, tracker: Pid) -> !;

    /// The file that it needs beside the line.
    fn inherited_file(&self) -> Option<BorrowedFd<'_>>;
}

/// A companion, or none where no process could be made for it.
pub(super) struct Companion {
    command_line: CommandLine,
    restarts_left: u8,
    present: Option<Present>,
}

struct Present {
    pid: libc::pid_t,
    line: UnixStream,
    /// The number of the last question, which its answer repeats.
    number: u8,
}

impl Companion {
    /// Starts it. All signals must be blocked, and the calling thread must be the one that starts the command, or has
    /// started it.
    pub(super) fn start(command_line: CommandLine, task: impl CompanionTask) -> Self {
        Self { command_line, restarts_left: MOST_RESTARTS, present: Present::start(command_line, task).ok() }
    }

    /// No companion, now and later.
    pub(super) fn none(command_line: CommandLine) -> Self {
        Self { command_line, restarts_left: 0, present: None }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Option<i32> {
        self.present.as_ref().map(|present| present.pid)
    }

    /// The line, which hangs up when the companion ends.
    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.present.as_ref().map(|present| present.line.as_fd())
    }

    /// Starts another one if this one has ended.
    pub(super) fn revive(&mut self, task: impl CompanionTask) {
        let is_gone = |line| {
            let mut file = [PollFd::from_borrowed_fd(line, PollFlags::empty())];
            poll(&mut file, Some(&Timespec::default())).is_ok() && !file[0].revents().is_empty()
        };
        if self.line().is_some_and(is_gone) {
            self.replace(task);
        }
    }

    /// Its answer. A companion that does not answer was killed, or stopped alone: it is replaced.
    pub(super) fn ask(&mut self, question: u8, task: impl CompanionTask) -> Option<bool> {
        let answer = self.present.as_mut()?.ask(question);
        answer.inspect_err(|_| self.replace(task)).ok()
    }

    /// Ends it for good. `false` when there was none.
    pub(super) fn give_up(&mut self) -> bool {
        self.present.take().is_some()
    }

    /// Kills it without waiting for its end: it is not needed any more.
    pub(super) fn dismiss(&self) {
        if let Some(present) = &self.present {
            present.kill();
        }
    }

    fn replace(&mut self, task: impl CompanionTask) {
        self.present = None;
        if let Some(left) = self.restarts_left.checked_sub(1) {
            self.restarts_left = left;
            self.present = Present::start(self.command_line, task).ok();
        }
    }
}

impl Present {
    fn start<T: CompanionTask>(command_line: CommandLine, task: T) -> io::Result<Self> {
        let (line, far) = UnixStream::pair()?;
        line.set_read_timeout(Some(ANSWER_LIMIT))?;
        let tracker = rustix::process::getpid();
        // SAFETY: without a stack and flags it is a fork; the copy makes nothing but system calls and ends by `_exit`.
        // Without an exit signal, an ordinary `wait` does not see it, and it is no part of the command's tree.
        match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as libc::pid_t {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: the copy has no other thread, and this one has read its arguments.
                unsafe { command_line.replace(T::NAME) };
                settle(far.as_fd(), task.inherited_file(), T::NAME, tracker);
                task.run(Line, tracker)
            }
            pid => Ok(Self { pid, line, number: 0 }),
        }
    }

    fn ask(&mut self, question: u8) -> io::Result<bool> {
        self.number = self.number.wrapping_add(1);
        self.line.write_all(&[self.number, question])?;
        loop {
            let mut answer = [0; QUESTION];
            self.line.read_exact(&mut answer)?;
            if answer[0] == self.number {
                return Ok(answer[1] != 0);
            }
        }
    }

    fn kill(&self) {
        // SAFETY: the process is ours and was not waited for yet; nothing else waits for children without an exit
        // signal.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.kill();
        // Where a sandbox forbids to kill it, it ends because the line hangs up.
        let _ = self.line.shutdown(Shutdown::Both);
        // SAFETY: as above; its usage is not needed.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE) };
    }
}

/// The companion's end of the line.
pub(super) struct Line;

impl Line {
    /// Reads one question and answers it. When the line hangs up, the tracker has ended, and so does this process.
    pub(super) fn answer(&self, answer: impl FnOnce(u8) -> bool) {
        let mut question = [0; QUESTION];
        if rustix::io::read(self, &mut question) != Ok(question.len()) {
            exit()
        }
        if rustix::io::write(self, &[question[0], answer(question[1]).into()]).is_err() {
            exit()
        }
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `settle` put the line at this descriptor, and it stays there.
        unsafe { BorrowedFd::borrow_raw(0) }
    }
}

/// Keeps the line and the inherited file, and closes all else: the command's pipes must not stay open here. All signals
/// are blocked already, as they are in the tracker.
fn settle(line: BorrowedFd<'_>, kept: Option<BorrowedFd<'_>>, name: &CStr, tracker: Pid) {
    // SAFETY: system calls on numbers and a constant text; the descriptors that go are those of this copy. Both that
    // stay are above 2: these were filled when the program started.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        if libc::getppid() != tracker.as_raw_nonzero().get() {
            exit();
        }
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        libc::dup2(line.as_raw_fd(), 0);
        let first = match kept {
            Some(kept) => libc::dup2(kept.as_raw_fd(), 1) + 1,
            None => 1,
        };
        // Before kernel 5.9 there is no such call.
        if libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) != 0 {
            (first..4096).for_each(|descriptor| _ = libc::close(descriptor));
        }
    }
}

fn exit() -> ! {
    // SAFETY: ends the process without what the tracker registered for its own end.
    unsafe { libc::_exit(0) }
}
