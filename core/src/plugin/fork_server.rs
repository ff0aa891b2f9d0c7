//! A process beside the tracker in which a plugin may crash.
//!
//! It is a fork of the tracker, made while that has one thread. It waits: for each life of the plugin it forks once
//! more, at the first request, and tells the tracker when that process has ended. It has no exit signal, so that a wait
//! for the job's processes never finds it, and it is no part of the job's tree. Orphans of the plugin come to it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};

use super::line::Line;

/// The number of a message that answers no question: the plugin's process has ended.
const DIED: u32 = 0;
/// The number of the message that ends a life.
const END: u32 = u32::MAX;
/// The number of the message that tells the fork server to close standard output.
const LEAVE_STDOUT: u32 = u32::MAX - 1;

pub(super) struct ForkServer {
    pid: i32,
    asker: Mutex<Asker>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The plugin's process has ended; what was open in it is gone.
    Died(String),
    /// It cannot be asked.
    Lost(anyhow::Error),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoAnswer::Died(how) => write!(f, "its process {how}"),
            NoAnswer::Lost(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for NoAnswer {}

impl ForkServer {
    /// Starts it. `answer` answers one request after the other in the plugin's process.
    pub(super) fn start(answer: impl FnMut(&[u8]) -> Vec<u8> + Clone) -> anyhow::Result<Self> {
        let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
        ensure!(threads.is_ok_and(|count| count == 1), "isolation has to begin before the process has threads");
        ensure!(
            !next_child_is_init(),
            "in isolation it would be the first process of another pid namespace, which the command is to be: start the \
             tracker with `unshare --pid --fork`, or set plugins.isolate = false"
        );
        let (line, far) = Line::pair().context("cannot make a pair of sockets")?;
        let tracker = std::process::id();
        // SAFETY: without a stack and flags it is a fork, of a process with one thread, so that no lock is held in the
        // copy. All that the copy does before it forks once more is wait.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        match pid {
            0 => {
                end_with(tracker);
                keep(far, answer)
            }
            pid if pid < 0 => Err(io::Error::last_os_error()).context("cannot fork"),
            pid => Ok(Self { pid: pid as i32, asker: Mutex::new(Asker { line, life: 0, number: DIED }) }),
        }
    }

    /// Asks, and waits for the answer, but not longer than `limit`.
    pub(super) fn ask(&self, request: &[u8], limit: Option<Duration>) -> Result<Vec<u8>, NoAnswer> {
        self.with_asker(|asker| asker.ask(request, limit))
    }

    /// Ends this life of the plugin; the next request begins another one.
    pub(super) fn end_life(&self, limit: Duration) -> Result<(), NoAnswer> {
        match self.with_asker(|asker| asker.send(END, &[], Some(limit))) {
            Ok(_) | Err(NoAnswer::Died(_)) => Ok(()),
            Err(lost) => Err(lost),
        }
    }

    /// Closes standard output in the lives that follow, and in the fork server itself.
    pub(super) fn leave_stdout(&self) -> anyhow::Result<()> {
        self.with_asker(|asker| asker.line.send(asker.life, LEAVE_STDOUT, &[])).context(GONE)
    }

    fn with_asker<R>(&self, ask: impl FnOnce(&mut Asker) -> R) -> R {
        ask(&mut self.asker.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for ForkServer {
    fn drop(&mut self) {
        // SAFETY: the process is ours and was not waited for yet; nobody waits for it who does not ask for clones.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE);
        }
    }
}

fn next_child_is_init() -> bool {
    let namespace = |name: &str| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    namespace("pid").is_some_and(|own| namespace("pid_for_children") != Some(own))
}

const GONE: &str = "its process is gone";

/// The tracker's side of the line.
struct Asker {
    line: Line,
    /// The life that the next request is for: as many lives have ended, as far as the tracker knows.
    life: u32,
    number: u32,
}

impl Asker {
    fn ask(&mut self, request: &[u8], limit: Option<Duration>) -> Result<Vec<u8>, NoAnswer> {
        self.number = if self.number + 1 < LEAVE_STDOUT { self.number + 1 } else { DIED + 1 };
        self.send(self.number, request, limit)
    }

    fn send(&mut self, number: u32, request: &[u8], limit: Option<Duration>) -> Result<Vec<u8>, NoAnswer> {
        let lost = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => anyhow!("its process does not answer"),
            io::ErrorKind::InvalidData => anyhow!("what it answers cannot be read: {error}"),
            _ => anyhow::Error::new(error).context(GONE),
        };
        self.line.send(self.life, number, request).map_err(lost).map_err(NoAnswer::Lost)?;
        loop {
            let (header, text) = self.line.receive(self.life, limit).map_err(lost).map_err(NoAnswer::Lost)?;
            match header.number {
                _ if header.life != self.life => (),
                DIED => {
                    self.life = self.life.wrapping_add(1);
                    return Err(NoAnswer::Died(String::from_utf8_lossy(&text).into_owned()));
                }
                answered if answered == number => return Ok(text),
                // An answer that came too late.
                _ => (),
            }
        }
    }
}

/// The main loop of the fork server.
fn keep(line: Line, answer: impl FnMut(&[u8]) -> Vec<u8> + Clone) -> ! {
    let own_pid = std::process::id();
    become_helper(&line);
    let mut life = 0;
    // Until the tracker has gone.
    while let Ok(next) = line.wait(life) {
        if next.number == LEAVE_STDOUT {
            let _ = line.receive(life, None);
            replace_by_null(libc::STDOUT_FILENO);
            continue;
        }
        // SAFETY: this process has one thread.
        let pid = match unsafe { libc::fork() } {
            0 => {
                end_with(own_pid);
                serve(&line, life, answer)
            }
            pid => pid,
        };
        let how = if pid < 0 { format!("could not be made: {}", io::Error::last_os_error()) } else { end_of(pid) };
        if line.send(life, DIED, how.as_bytes()).is_err() {
            break;
        }
        life += 1;
    }
    exit(0)
}

/// Waits for a life, and says how it ended. Orphans of the plugin that end meanwhile are reaped as well.
fn end_of(pid: i32) -> String {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid to write to.
        let ended = unsafe { libc::waitpid(-1, &mut status, 0) };
        if ended == pid {
            break;
        }
        if ended < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return "was lost".into();
        }
    }
    match libc::WIFSIGNALED(status) {
        true => format!("was ended by signal {}", libc::WTERMSIG(status)),
        false => format!("ended with exit code {}", libc::WEXITSTATUS(status)),
    }
}

/// One life of the plugin.
fn serve(line: &Line, life: u32, mut answer: impl FnMut(&[u8]) -> Vec<u8>) -> ! {
    while let Ok((header, request)) = line.receive(life, None) {
        if header.number == END || line.send(life, header.number, &answer(&request)).is_err() {
            break;
        }
    }
    exit(0)
}

/// Gives up what the fork has from the tracker and the plugin must not have: a place in the job's process group,
/// signals that are blocked or ignored, and descriptors. Orphans of the plugin stay here. A copy of the job's standard
/// input, or of a pipe, would keep other processes waiting for its end.
fn become_helper(line: &Line) {
    // SAFETY: system calls on numbers, and on a set of signals that `sigemptyset` has made.
    unsafe {
        // A signal of the terminal to the tracker's group must not reach it.
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as libc::c_ulong);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    replace_by_null(libc::STDIN_FILENO);
    close_all_but(line.as_raw_fd());
}

/// Closes all descriptors but the standard ones and this one, without asking which there are: a program with capabilities of
/// its file may not read `/proc/self/fd`.
fn close_all_but(kept: i32) {
    for (first, last) in [(libc::STDERR_FILENO + 1, kept - 1), (kept + 1, i32::MAX)] {
        // SAFETY: system calls on numbers; whoever has opened these descriptors does not run in this process.
        unsafe {
            // Before kernel 5.9 there is no such call.
            if first <= last && libc::syscall(libc::SYS_close_range, first, last, 0) != 0 {
                (first..=last.min(4096)).for_each(|descriptor| _ = libc::close(descriptor));
            }
        }
    }
}

/// Reads from a descriptor find the end, and writes to it go nowhere. Without a `/dev` both fail, as if it was closed.
fn replace_by_null(descriptor: i32) {
    let null = File::options().read(true).write(true).open("/dev/null");
    let Ok(null) = null.or_else(|_| File::options().read(true).custom_flags(libc::O_PATH).open("/")) else { return };
    // SAFETY: nobody in this process owns a standard descriptor.
    unsafe { libc::dup2(null.as_raw_fd(), descriptor) };
}

/// Ends this process with its parent, so that nothing is left behind when that is killed.
fn end_with(parent: u32) {
    // SAFETY: they set and read a number.
    let has_gone = unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong);
        libc::getppid() as u32 != parent
    };
    // The parent ended before the signal was asked for.
    if has_gone {
        exit(0)
    }
}

fn exit(code: i32) -> ! {
    // SAFETY: ends the process without what the tracker registered for its own end.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a fork, because it closes the descriptors of all other code.
    #[test]
    fn all_is_closed_but_one_and_the_standard_ones() {
        let [before, kept, behind] = [(); 3].map(|()| File::open("/").unwrap());
        let far = 3000;
        // SAFETY: the child makes nothing but system calls, and ends by `_exit`.
        let status = unsafe {
            let mut status = 0;
            match libc::fork() {
                0 => {
                    let is_open = |descriptor: i32| libc::fcntl(descriptor, libc::F_GETFD) >= 0;
                    let far = libc::fcntl(behind.as_raw_fd(), libc::F_DUPFD, far);
                    let expected = [(0, true), (1, true), (2, true), (kept.as_raw_fd(), true)];
                    let closed = [before.as_raw_fd(), behind.as_raw_fd(), far].map(|descriptor| (descriptor, false));
                    let were_open = expected.iter().chain(&closed).all(|(descriptor, _)| is_open(*descriptor));
                    close_all_but(kept.as_raw_fd());
                    let is_right =
                        expected.iter().chain(&closed).all(|(descriptor, open)| is_open(*descriptor) == *open);
                    libc::_exit(i32::from(!(were_open && is_right)))
                }
                pid => _ = libc::waitpid(pid, &mut status, 0),
            }
            status
        };
        assert_eq!(status, 0);
    }

    /// The far side played by hand: a life that dies inside an answer, and the one after it.
    #[test]
    fn a_life_that_dies_inside_an_answer_harms_no_other() {
        let (line, far) = Line::pair().unwrap();
        let mut asker = Asker { line, life: 0, number: DIED };
        let limit = Some(Duration::from_secs(60));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (asked, _) = far.receive(0, limit).unwrap();
                far.send_torn(0, asked.number);
                far.send(0, DIED, b"was ended by signal 6").unwrap();
                let (asked, text) = far.receive(1, limit).unwrap();
                far.send(1, asked.number, &text).unwrap();
            });
            let died = asker.ask(b"first", limit).unwrap_err();
            assert_eq!(died.to_string(), "its process was ended by signal 6");
            assert_eq!(asker.ask(b"second", limit).unwrap(), b"second");
        });
    }
}
