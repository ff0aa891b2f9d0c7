//! The tracker as a plugin sees it.

use std::ffi::c_void;
use std::ptr::NonNull;

use super::abi::{HostTable, RT_ABI_MINOR, RT_HOST_WRAPS_COMMAND, RT_LOG_ERROR, RT_LOG_WARN, Text};
use super::call_result::one_line;
use crate::source::Host;

/// What a component may use from `open` until it is closed: a table in a place of its own.
///
/// It is kept by a pointer and never as a value, because to move a `Box` asserts that nothing else points into it.
pub(super) struct HostContext(NonNull<Shared>);

/// What the plugin points into. Only read once it is there.
struct Shared {
    table: HostTable,
    component: String,
    procfs: String,
    sysfs: String,
}

// SAFETY: it owns what it points to, which is only read, on any thread.
unsafe impl Send for HostContext {}

impl HostContext {
    /// `component` is how messages name it, such as `source fans`.
    pub(super) fn new(component: String, host: &Host, wraps_command: bool) -> Self {
        let [procfs, sysfs] = [&host.procfs, &host.sysfs].map(|path| path.to_string_lossy().into_owned());
        let table = HostTable {
            size: size_of::<HostTable>(),
            abi_minor: RT_ABI_MINOR.into(),
            flags: if wraps_command { RT_HOST_WRAPS_COMMAND } else { 0 },
            context: std::ptr::null_mut(),
            log: Some(log),
            procfs: Text::new(""),
            sysfs: Text::new(""),
        };
        let shared = Box::new(Shared { table, component, procfs, sysfs });
        let place = NonNull::from(Box::leak(shared));
        // SAFETY: nobody else has the pointer yet.
        let shared = unsafe { &mut *place.as_ptr() };
        shared.table.procfs = Text::new(&shared.procfs);
        shared.table.sysfs = Text::new(&shared.sysfs);
        shared.table.context = place.as_ptr().cast();
        Self(place)
    }

    pub(super) fn table(&self) -> *const HostTable {
        // SAFETY: it is there for as long as `self`.
        unsafe { &raw const (*self.0.as_ptr()).table }
    }
}

impl Drop for HostContext {
    fn drop(&mut self) {
        // SAFETY: it was leaked from a box, and the plugin has closed what used it.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// # Safety
/// `context` is that of a host whose plugin has not closed; it is only read, on any thread.
unsafe extern "C" fn log(context: *mut c_void, level: u32, message: Text) {
    // SAFETY: the caller's promise.
    let host = unsafe { &*context.cast_const().cast::<Shared>() };
    let level = match level {
        RT_LOG_ERROR => log::Level::Error,
        RT_LOG_WARN => log::Level::Warn,
        _ => log::Level::Info,
    };
    // SAFETY: the plugin's promise.
    log::log!(level, "{}: {}", host.component, unsafe { one_line(message) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_used_wherever_it_is_moved() {
        let host = HostContext::new("source fans".into(), &Host::new("/host/proc", "/sys"), true);
        let table = host.table();
        let say = || {
            // SAFETY: the host is there.
            let table = unsafe { &*table };
            // SAFETY: a call as a plugin makes it.
            unsafe { table.log.unwrap()(table.context, RT_LOG_WARN, Text::new("turning")) };
            // SAFETY: the text lives as long as the host.
            unsafe { table.procfs.as_str() }
        };
        assert_eq!(say(), Ok("/host/proc"));
        let moved = Box::new(Some(host));
        assert_eq!(say(), Ok("/host/proc"));
        let elsewhere = std::thread::spawn(move || moved.is_some_and(|host| !host.table().is_null()));
        assert!(elsewhere.join().unwrap());
    }
}
