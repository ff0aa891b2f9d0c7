//! Messages on standard error, one line each.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};
use resource_tracker_report::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

struct Stderr;

/// The deferred messages, while something else is on the terminal.
static KEPT: Mutex<Option<Kept>> = Mutex::new(None);

/// More messages than these are not printed later.
const MOST: usize = 100;

struct Kept {
    lines: Vec<String>,
    show: Box<dyn Fn(String) + Send>,
}

/// While this lives, messages are shown in another way, and printed only when it ends.
pub(crate) struct DeferredMessages;

impl DeferredMessages {
    pub(crate) fn while_shown_by(show: impl Fn(String) + Send + 'static) -> Self {
        *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Kept { lines: Vec::new(), show: Box::new(show) });
        Self
    }
}

impl Drop for DeferredMessages {
    fn drop(&mut self) {
        let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).take();
        kept.into_iter().flat_map(|kept| kept.lines).for_each(|line| print(&line));
    }
}

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let kind = if record.level() == Level::Error { "error" } else { "warning" };
        // The name of a file, or what a plugin says, can hold anything.
        let message = printable(&record.args().to_string());
        let line = format!("{}: {kind}: {message}\n", crate::PROGRAM);
        match &mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(kept) => {
                (kept.show)(message);
                if kept.lines.len() < MOST {
                    kept.lines.push(line);
                }
            }
            None => print(&line),
        }
    }

    fn flush(&self) {}
}

/// A reader that does not read must not hold up the command, so a message is dropped if it cannot be written at once.
fn print(line: &str) {
    let stderr = io::stderr();
    if poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let _ = stderr.lock().write_all(line.as_bytes());
    }
}

pub(crate) fn install() {
    // A program that embeds the command line may have a logger of its own.
    if log::set_logger(&Stderr).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
    std::panic::set_hook(Box::new(|panic| {
        // A component's panic is caught, and the core says so.
        if !resource_tracker_core::is_guarded() {
            log::error!("internal error, please report it: {panic}");
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_that_a_terminal_only_shows() {
        assert_eq!(printable("a\nb\rc\x1b[2Jd\u{9b}1me\tf\u{7f}é\u{202e}g"), "a b c [2Jd 1me f ég");
    }
}
