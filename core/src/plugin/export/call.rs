//! What every call of the tracker needs: arguments, an answer, and a stop for panics.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::{Map, Value as Json};

use super::super::abi::{HostTable, RT_FAILED, RT_OK, RT_TICK_LAST, RT_TICK_SPAWNED, Reply, Text, TickTable};
use super::super::messages;
use crate::guard::{self, panic_message};
use crate::observer::ObservedJob;
use crate::sample::Sections;
use crate::source::{Host, Tick};

/// A configuration, by way of the plugin's own typetag registry.
pub(super) fn parse<T: serde::de::DeserializeOwned>(name: &str, config: &str) -> anyhow::Result<T> {
    let mut values: Map<String, Json> = serde_json::from_str(config)?;
    values.insert("type".into(), name.into());
    Ok(serde_json::from_value(values.into())?)
}

/// Runs what a call is to do. An error or a panic becomes a message and a code; messages meanwhile go to `host`.
///
/// # Safety
/// `reply` is that of the call, and `host` is there during the call, or null.
pub(super) unsafe fn guarded(
    host: *const HostTable,
    reply: *const Reply,
    body: impl FnOnce() -> anyhow::Result<i32>,
) -> i32 {
    let message = match messages::with_host(host, || guard::guarded(body)) {
        Ok(Ok(code)) => return code,
        Ok(Err(error)) => format!("{error:#}"),
        Err(panic) => format!("it panicked: {}", panic_message(&*panic)),
    };
    // SAFETY: the caller's promise.
    let reply = unsafe { &*reply };
    if let Some(fail) = reply.fail {
        // SAFETY: the contract; the message lives during the call.
        unsafe { fail(reply.context, Text::new(&message)) };
    }
    RT_FAILED
}

/// A text of a call.
///
/// # Safety
/// It lives during the call.
pub(super) unsafe fn text<'a>(text: Text) -> anyhow::Result<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { text.as_str() }.map_err(|problem| anyhow!(problem))
}

/// The machine that the tracker reads.
///
/// # Safety
/// `host` is that of a call.
pub(super) unsafe fn machine(host: *const HostTable) -> anyhow::Result<Host> {
    // SAFETY: the caller's promise, and the texts live as long as the host.
    unsafe { Ok(Host::new(text((*host).procfs)?, text((*host).sysfs)?)) }
}

/// A moment as a component of this library sees it.
///
/// # Safety
/// `table` is that of a call, and lives with its list during the call.
pub(super) unsafe fn tick<'a>(table: &TickTable) -> Tick<'a> {
    let pids = match table.pid_count {
        0 => &[],
        // SAFETY: the caller's promise.
        count => unsafe { std::slice::from_raw_parts(table.pids, count) },
    };
    let is_spawned = table.flags & RT_TICK_SPAWNED != 0;
    let job = (table.root_pid != 0).then(|| ObservedJob::new(table.root_pid, is_spawned, pids));
    let (elapsed, interval) = (Duration::from_nanos(table.elapsed_ns), Duration::from_nanos(table.interval_ns));
    let last = table.flags & RT_TICK_LAST != 0;
    Tick { last, job, ..Tick::new(table.number, Instant::now(), elapsed, interval) }
}

/// Sections on their way to the tracker.
#[derive(Default)]
pub(super) struct Written {
    sections: Sections,
    text: Vec<u8>,
    /// The panic of the code that writes them, after which its state may be anything.
    panicked: Option<String>,
}

impl Written {
    /// Lets `write` fill the sections anew, and hands them over.
    ///
    /// # Safety
    /// `reply` is that of a call.
    pub(super) unsafe fn answer(
        &mut self,
        reply: *const Reply,
        write: impl FnOnce(&mut Sections) -> anyhow::Result<()>,
    ) -> anyhow::Result<i32> {
        if let Some(message) = &self.panicked {
            bail!("{message}");
        }
        self.sections.clear();
        let sections = &mut self.sections;
        match catch_unwind(AssertUnwindSafe(|| write(sections))) {
            Ok(result) => result?,
            Err(panic) => {
                let message = format!("it panicked: {}", panic_message(&*panic));
                self.panicked = Some(message.clone());
                bail!("{message}");
            }
        }
        self.text.clear();
        self.sections.write_json(&mut self.text)?;
        let text = Text { bytes: self.text.as_ptr(), length: self.text.len() };
        // SAFETY: the caller's promise.
        let reply = unsafe { &*reply };
        let write = reply.write.context("the tracker takes no answer")?;
        // SAFETY: the contract; the text lives during the call.
        unsafe { write(reply.context, text) };
        Ok(RT_OK)
    }
}

/// # Safety
/// `state` is a `T` of ours that nobody uses any more.
pub(super) unsafe extern "C" fn close<T>(state: *mut c_void) {
    // SAFETY: the caller's promise. A panic while it is dropped has nobody to tell.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(unsafe { Box::from_raw(state.cast::<T>()) })));
}
