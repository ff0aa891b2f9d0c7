//! A process beside the tracker in which a plugin may crash.
//!
//! It is a fork of the tracker, made while that has one thread, and waits: for each life of the plugin it forks once more,
//! tells the tracker when that has ended, and begins anew with the next request. It has no exit signal, so whoever
//! waits for the processes of the job never meets it, and it is no part of the job's tree.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

/// Longer than anything that is asked or answered.
const LONGEST: usize = 64 << 20;

/// The number of a message that nobody asked for: the plugin's process has ended.
const DIED: u32 = 0;

pub(super) struct Keeper {
    pid: i32,
    line: Mutex<Line>,
}

struct Line {
    stream: UnixStream,
    number: u32,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Silence {
    /// The plugin's process has ended; what was open in it is gone.
    Died(String),
    /// It cannot be asked.
    Lost(anyhow::Error),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Silence::Died(how) => write!(f, "its process {how}"),
            Silence::Lost(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for Silence {}

impl Keeper {
    /// Starts it. `answer` answers one request after the other in the plugin's process.
    pub(super) fn start(answer: impl FnMut(&[u8]) -> Vec<u8> + Clone) -> anyhow::Result<Self> {
        let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
        ensure!(threads.is_ok_and(|count| count == 1), "isolation has to begin before the process has threads");
        let (stream, far) = UnixStream::pair().context("cannot make a pair of sockets")?;
        // SAFETY: without a stack and flags it is a fork, of a process with one thread, so that no lock is held in the
        // copy. All that the copy does before it forks once more is wait.
        let pid = unsafe { libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) };
        match pid {
            0 => {
                drop(stream);
                keep(far, answer)
            }
            pid if pid < 0 => Err(io::Error::last_os_error()).context("cannot fork"),
            pid => Ok(Self { pid: pid as i32, line: Mutex::new(Line { stream, number: DIED }) }),
        }
    }

    /// Asks, and waits for the answer, but not longer than `limit`.
    pub(super) fn ask(&self, request: &[u8], limit: Option<Duration>) -> Result<Vec<u8>, Silence> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.ask(request, limit).map_err(Silence::Lost)?
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // SAFETY: the process is ours and was not waited for yet; nobody waits for it who does not ask for clones.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WCLONE);
        }
    }
}

impl Line {
    fn ask(&mut self, request: &[u8], limit: Option<Duration>) -> anyhow::Result<Result<Vec<u8>, Silence>> {
        self.number = self.number.checked_add(1).unwrap_or(DIED + 1);
        self.stream.set_read_timeout(limit)?;
        send(&mut self.stream, self.number, request).context("its process is gone")?;
        loop {
            match receive(&mut self.stream) {
                Ok((DIED, how)) => return Ok(Err(Silence::Died(String::from_utf8_lossy(&how).into_owned()))),
                Ok((number, answer)) if number == self.number => return Ok(Ok(answer)),
                // To a question that nobody waits for any more.
                Ok(_) => (),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => bail!("its process does not answer"),
                Err(error) => return Err(error).context("its process is gone"),
            }
        }
    }
}

fn send(stream: &mut UnixStream, number: u32, text: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(text.len() + 8);
    message.extend_from_slice(&number.to_ne_bytes());
    message.extend_from_slice(&(text.len() as u32).to_ne_bytes());
    message.extend_from_slice(text);
    stream.write_all(&message)
}

fn receive(stream: &mut UnixStream) -> io::Result<(u32, Vec<u8>)> {
    let (mut number, mut length) = ([0; 4], [0; 4]);
    stream.read_exact(&mut number)?;
    stream.read_exact(&mut length)?;
    let length = u32::from_ne_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok((u32::from_ne_bytes(number), text))
}

/// The keeper's life.
fn keep(mut stream: UnixStream, answer: impl FnMut(&[u8]) -> Vec<u8> + Clone) -> ! {
    end_with_parent();
    // SAFETY: a signal that the terminal sends to the tracker's group is none of its business.
    unsafe { libc::setpgid(0, 0) };
    loop {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            0 => {
                end_with_parent();
                serve(stream, answer)
            }
            pid if pid < 0 => exit(1),
            pid => {
                let mut status = 0;
                // SAFETY: `status` is valid to write to.
                while unsafe { libc::waitpid(pid, &mut status, 0) } < 0 {}
                if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 {
                    exit(0);
                }
                let how = match libc::WIFSIGNALED(status) {
                    true => format!("was ended by signal {}", libc::WTERMSIG(status)),
                    false => format!("ended with exit code {}", libc::WEXITSTATUS(status)),
                };
                if send(&mut stream, DIED, how.as_bytes()).is_err() || !is_asked(&stream) {
                    exit(0);
                }
            }
        }
    }
}

/// Waits for the next request, and leaves it there. False when there will be none.
fn is_asked(stream: &UnixStream) -> bool {
    use std::os::fd::AsRawFd;
    let mut byte = 0u8;
    // SAFETY: `byte` is valid to write one byte to.
    unsafe { libc::recv(stream.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_PEEK) == 1 }
}

/// One life of the plugin.
fn serve(mut stream: UnixStream, mut answer: impl FnMut(&[u8]) -> Vec<u8>) -> ! {
    while let Ok((number, request)) = receive(&mut stream) {
        let answer = answer(&request);
        if send(&mut stream, number, &answer).is_err() {
            break;
        }
    }
    exit(0)
}

/// Nothing is left behind when the tracker is killed.
fn end_with_parent() {
    // SAFETY: it sets a number.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn exit(code: i32) -> ! {
    // SAFETY: ends the process without what the tracker registered for its own end.
    unsafe { libc::_exit(code) }
}
