//! The tracker as a plugin sees it.

use std::ffi::c_void;
use std::path::Path;

use super::abi::{HostTable, RT_ABI_MINOR, RT_HOST_WRAPS_COMMAND, RT_LOG_ERROR, RT_LOG_WARN, Text};
use super::answer::one_line;

/// What the table points to. It stays in its place, because a plugin may keep the pointer until it closes.
pub(super) struct HostContext {
    table: HostTable,
    component: String,
    procfs: String,
    sysfs: String,
}

// SAFETY: the pointers in the table are to this very box; what they point to is only read.
unsafe impl Send for HostContext {}

impl HostContext {
    /// `component` is how messages name it, such as `source fans`.
    pub(super) fn new(component: String, procfs: &Path, sysfs: &Path, wraps_command: bool) -> Box<Self> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let table = HostTable {
            size: size_of::<HostTable>(),
            abi_minor: RT_ABI_MINOR.into(),
            flags: if wraps_command { RT_HOST_WRAPS_COMMAND } else { 0 },
            context: std::ptr::null_mut(),
            log: Some(log),
            procfs: Text::new(""),
            sysfs: Text::new(""),
        };
        let mut host = Box::new(Self { table, component, procfs: text(procfs), sysfs: text(sysfs) });
        host.table.procfs = Text::new(&host.procfs);
        host.table.sysfs = Text::new(&host.sysfs);
        host.table.context = (&raw mut *host).cast();
        host
    }

    pub(super) fn table(&self) -> *const HostTable {
        &raw const self.table
    }
}

/// # Safety
/// `context` is that of a host whose plugin has not closed; it is only read, on any thread.
unsafe extern "C" fn log(context: *mut c_void, level: u32, message: Text) {
    // SAFETY: the caller's promise.
    let host = unsafe { &*context.cast_const().cast::<HostContext>() };
    let level = match level {
        RT_LOG_ERROR => log::Level::Error,
        RT_LOG_WARN => log::Level::Warn,
        _ => log::Level::Info,
    };
    // SAFETY: the plugin's promise.
    log::log!(level, "{}: {}", host.component, unsafe { one_line(message) });
}
