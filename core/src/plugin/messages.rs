//! Messages of a plugin that is written in Rust: what it gives to the `log` facade goes to the tracker.

use std::cell::Cell;

use log::{Level, LevelFilter, Log, Metadata, Record};

use super::abi::{HostTable, RT_LOG_ERROR, RT_LOG_INFO, RT_LOG_WARN, Text};

thread_local! {
    /// The tracker whose call this thread is in.
    static HOST: Cell<*const HostTable> = const { Cell::new(std::ptr::null()) };
}

struct ToHost;

impl Log for ToHost {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // The host is taken away meanwhile: a tracker that uses the same facade must not come back here.
        let host = HOST.replace(std::ptr::null());
        if host.is_null() {
            return;
        }
        let level = match record.level() {
            Level::Error => RT_LOG_ERROR,
            Level::Warn => RT_LOG_WARN,
            _ => RT_LOG_INFO,
        };
        let message = record.args().to_string();
        // SAFETY: it is there during the call that `with_host` is in; the message lives during this one.
        unsafe {
            if let Some(log) = (*host).log {
                log((*host).context, level, Text::new(&message));
            }
        }
        HOST.set(host);
    }

    fn flush(&self) {}
}

/// From now on messages go to the tracker. Each plugin has a facade of its own.
pub(super) fn install() {
    // Only the first one counts, and there is none before.
    if log::set_logger(&ToHost).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

/// Runs a call. Messages of this thread meanwhile go to `host`. `body` does not unwind.
pub(super) fn with_host<R>(host: *const HostTable, body: impl FnOnce() -> R) -> R {
    let before = HOST.replace(host);
    let result = body();
    HOST.set(before);
    result
}
