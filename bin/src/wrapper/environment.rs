//! Variables with the id of the process that they are meant for, as systemd sets them: they must name the command.

use std::ffi::{CStr, c_char};

use nix::libc;

const OF_PROCESS: [&str; 3] = ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"];

/// It holds the number of the inode of a process's pidfd, beside `LISTEN_PID`.
const OF_PIDFD: &str = "LISTEN_PIDFDID";

/// A number of 64 bits, and the null byte.
const ROOM: usize = 21;

/// The environment of the command, made before the fork, after which no memory may be asked for.
pub(super) struct Environment {
    /// What `environ` is to point to, ended by a null.
    variables: Vec<*mut c_char>,
    /// Where the numbers go that only the command's process knows.
    pids: Vec<*mut c_char>,
    pidfd: Option<*mut c_char>,
    /// The texts that are pointed to beside the tracker's own environment. They come from `Box::into_raw`, because
    /// pointers into a box are not valid once it is moved.
    texts: Vec<*mut [u8]>,
}

unsafe extern "C" {
    static mut environ: *const *mut c_char;
}

impl Environment {
    /// `None` when no variable is meant for this process, and the environment can stay as it is.
    pub(super) fn naming_the_command() -> Option<Self> {
        let own = std::process::id().to_string();
        let mut made = Self { variables: Vec::new(), pids: Vec::new(), pidfd: None, texts: Vec::new() };
        // SAFETY: nobody changes the environment while there is no command, and it is ended by a null.
        let mut next = unsafe { environ };
        // SAFETY: as above; each variable is a string.
        while let Some(variable) = unsafe { next.as_ref() }.copied().filter(|variable| !variable.is_null()) {
            // SAFETY: as above.
            let text = unsafe { CStr::from_ptr(variable) }.to_bytes();
            let of = |name: &&str| text.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"="));
            let names_this = |name: &&str| of(name) && text[name.len() + 1..] == *own.as_bytes();
            let copy = if let Some(name) = OF_PROCESS.iter().find(|name| names_this(name)) {
                let (copy, value) = made.copy(name);
                made.pids.push(value);
                copy
            } else if of(&OF_PIDFD) {
                let (copy, value) = made.copy(OF_PIDFD);
                made.pidfd = Some(value);
                copy
            } else {
                variable
            };
            made.variables.push(copy);
            // SAFETY: this one was not the null at the end.
            next = unsafe { next.add(1) };
        }
        made.variables.push(std::ptr::null_mut());
        (!made.pids.is_empty()).then_some(made)
    }

    /// A variable whose value is still to be written: where it begins, and where its value does.
    fn copy(&mut self, name: &str) -> (*mut c_char, *mut c_char) {
        let text = Box::into_raw([name.as_bytes(), b"=", &[0; ROOM]].concat().into_boxed_slice());
        self.texts.push(text);
        let start = text.cast::<c_char>();
        // SAFETY: the text is longer than that.
        (start, unsafe { start.add(name.len() + 1) })
    }

    /// Makes it the environment of the calling process, and writes the numbers of that process into it.
    /// Async-signal-safe.
    pub(super) fn enter(&self) {
        // SAFETY: the places have room for any number; the process has one thread, or is about to be replaced.
        unsafe {
            for place in &self.pids {
                write(*place, libc::getpid() as u64);
            }
            if let Some(place) = self.pidfd {
                write(place, pidfd_inode().unwrap_or_default());
            }
            environ = self.variables.as_ptr();
        }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for text in self.texts.drain(..) {
            // SAFETY: it came from a box, and nobody points to it any more.
            drop(unsafe { Box::from_raw(text) });
        }
    }
}

/// The number by which a kernel from 6.9 on tells processes apart for good.
fn pidfd_inode() -> Option<u64> {
    let pidfd = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty()).ok()?;
    Some(rustix::fs::fstat(&pidfd).ok()?.st_ino)
}

/// # Safety
/// There is room for [`ROOM`] bytes.
unsafe fn write(place: *mut c_char, number: u64) {
    // SAFETY: the caller's promise.
    let room = unsafe { std::slice::from_raw_parts_mut(place.cast::<u8>(), ROOM) };
    room.fill(0);
    // Formatting a number asks for no memory.
    let _ = std::io::Write::write_fmt(&mut &mut *room, format_args!("{number}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_can_be_written_to_when_it_is_kept() {
        let mut made = Environment { variables: Vec::new(), pids: Vec::new(), pidfd: None, texts: Vec::new() };
        let copies = OF_PROCESS.map(|name| (name, made.copy(name)));
        for (number, (name, (copy, value))) in copies.into_iter().enumerate() {
            // SAFETY: there is the room.
            unsafe { write(value, number as u64) };
            // SAFETY: it was ended by a null.
            let text = unsafe { CStr::from_ptr(copy) };
            assert_eq!(text.to_str(), Ok(format!("{name}={number}").as_str()));
        }
    }

    #[test]
    fn numbers_as_text() {
        for number in [0, 7, 4242, u64::MAX] {
            let mut place = [b'x' as c_char; ROOM];
            // SAFETY: there is the room.
            unsafe { write(place.as_mut_ptr(), number) };
            // SAFETY: it was ended by a null.
            let text = unsafe { CStr::from_ptr(place.as_ptr()) };
            assert_eq!(text.to_str(), Ok(number.to_string().as_str()));
        }
    }
}
