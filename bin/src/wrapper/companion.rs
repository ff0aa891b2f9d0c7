//! A small process of the tracker's own beside the command: a copy of the tracker that answers questions, and ends with
//! it.

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

/// How long an answer takes at most, on a machine that is very busy.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How often one that was killed is replaced. Where something kills it at once, each time, there is none.
const LIVES: u8 = 100;

/// Before it there is a question, if there is one at all.
const QUESTION: usize = 2;

/// What a companion does, in a copy of one thread of many: it must make nothing but system calls.
pub(super) trait Life: Copy {
    /// What `ps` shows, so that who looks for the tracker or its command by name does not find the companion.
    const NAME: &'static CStr;

    /// Lives, as a child of the tracker, with the line as standard input, this file, if any, as standard output, and
    /// no other.
    fn live(self, line: Line, tracker: Pid) -> !;

    /// A file that it keeps.
    fn keeps(&self) -> Option<BorrowedFd<'_>>;
}

/// One that is there, or none, where there was no process for it.
pub(super) struct Companion {
    command_line: CommandLine,
    lives: u8,
    present: Option<Present>,
}

struct Present {
    pid: libc::pid_t,
    line: UnixStream,
    /// Of the last question, which its answer repeats.
    number: u8,
}

impl Companion {
    /// Starts it, when all signals are blocked, from the thread that started the command or will.
    pub(super) fn start(command_line: CommandLine, life: impl Life) -> Self {
        Self { command_line, lives: LIVES, present: Present::start(command_line, life).ok() }
    }

    /// There is none, and will be none.
    pub(super) fn none(command_line: CommandLine) -> Self {
        Self { command_line, lives: 0, present: None }
    }

    /// Its process id.
    pub(super) fn pid(&self) -> Option<i32> {
        self.present.as_ref().map(|present| present.pid)
    }

    /// What hangs up when it is gone.
    pub(super) fn line(&self) -> Option<BorrowedFd<'_>> {
        self.present.as_ref().map(|present| present.line.as_fd())
    }

    /// Starts another one where this one is gone.
    pub(super) fn revive(&mut self, life: impl Life) {
        let is_gone = |line| {
            let mut file = [PollFd::from_borrowed_fd(line, PollFlags::empty())];
            poll(&mut file, Some(&Timespec::default())).is_ok() && !file[0].revents().is_empty()
        };
        if self.line().is_some_and(is_gone) {
            self.replace(life);
        }
    }

    /// What it answers. One that gives no answer was killed, or stopped alone, and is replaced.
    pub(super) fn ask(&mut self, question: u8, life: impl Life) -> Option<bool> {
        let answer = self.present.as_mut()?.ask(question);
        answer.inspect_err(|_| self.replace(life)).ok()
    }

    /// It ends, and is none from now on. `false` when it was none already.
    pub(super) fn give_up(&mut self) -> bool {
        self.present.take().is_some()
    }

    /// It is not needed any more, and ends while this process does something else.
    pub(super) fn dismiss(&self) {
        if let Some(present) = &self.present {
            present.kill();
        }
    }

    fn replace(&mut self, life: impl Life) {
        self.present = None;
        if let Some(left) = self.lives.checked_sub(1) {
            self.lives = left;
            self.present = Present::start(self.command_line, life).ok();
        }
    }
}

impl Present {
    fn start<L: Life>(command_line: CommandLine, life: L) -> io::Result<Self> {
        let (line, far) = UnixStream::pair()?;
        line.set_read_timeout(Some(ANSWER_LIMIT))?;
        let tracker = rustix::process::getpid();
        // SAFETY: without a stack and flags it is a fork; the copy makes nothing but system calls and ends by `_exit`.
        // Without an exit signal it is no child that anybody waits for, and no part of the command's tree.
        match unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) } as libc::pid_t {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: the copy has no other thread, and this one is past reading its arguments.
                unsafe { command_line.replace(L::NAME) };
                settle(far.as_fd(), life.keeps(), L::NAME, tracker);
                life.live(Line, tracker)
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
        // SAFETY: the process is ours and was not waited for yet; nobody else waits for children without an exit signal.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.kill();
        // Where a sandbox lets nobody be killed, it ends because nobody asks any more.
        let _ = self.line.shutdown(Shutdown::Both);
        // SAFETY: as above; what it used is of no interest.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE) };
    }
}

/// The companion's end of the line.
pub(super) struct Line;

impl Line {
    /// Reads one question and answers it. Without a line there is no tracker any more, and the process ends.
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
        // SAFETY: `settle` has put it there, and it stays.
        unsafe { BorrowedFd::borrow_raw(0) }
    }
}

/// Keeps the line, what else is to be kept, and nothing more: the command's pipes are not to be held open. All signals
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
