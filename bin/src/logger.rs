//! Messages on standard error, one line each.

use std::io::{self, Write};

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let kind = if record.level() == Level::Error { "error" } else { "warning" };
        let text = record.args().to_string().replace('\n', " ");
        let line = format!("{}: {kind}: {text}\n", crate::PROGRAM);
        // A reader that does not read must not hold up the command, so a message that finds no room is dropped.
        let stderr = io::stderr();
        if poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
            let _ = stderr.lock().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
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
