//! Sinks of this library as the tracker calls them.

use std::ffi::c_void;
use std::sync::Arc;

use super::super::abi::{HostTable, RT_HOST_WRAPS_COMMAND, RT_OK, Reply, SinkTable, Text};
use super::call::{self, close, guarded, parse, text};
use super::exported::{Exported, defaults, schema};
use crate::job::{Outcome, Run};
use crate::name::name_forever;
use crate::sample::Sample;
use crate::sink::{Sink, SinkConfig, SinkContext, SinkEntry};

pub(super) fn table(entry: &'static SinkEntry) -> *const SinkTable {
    let configured = parse::<Box<dyn SinkConfig>>(entry.name, "{}");
    let table = SinkTable {
        size: size_of::<SinkTable>(),
        name: Text::new(entry.name),
        description: Text::new(entry.description),
        default_config: defaults(entry.defaults),
        config_schema: schema(entry.schema),
        patience_ns: configured.map_or(0, |config| config.patience().as_nanos().try_into().unwrap_or(u64::MAX)),
        open: Some(open_sink),
        start: Some(start),
        write: Some(write),
        finish: Some(finish),
        close: Some(close::<OpenSink>),
        check: Some(check_sink),
    };
    Exported::forever(table, entry)
}

struct OpenSink {
    sink: Box<dyn Sink>,
    run: Arc<Run>,
    /// It is there until `close` has returned.
    host: *const HostTable,
}

unsafe extern "C" fn check_sink(this: *const SinkTable, config: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(std::ptr::null(), reply, || {
            let entry = Exported::<_, SinkEntry>::entry(this);
            parse::<Box<dyn SinkConfig>>(entry.name, text(config)?)?.check()?;
            Ok(RT_OK)
        })
    }
}

unsafe extern "C" fn open_sink(
    this: *const SinkTable,
    host: *const HostTable,
    config: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(host, reply, || {
            let entry = Exported::<_, SinkEntry>::entry(this);
            let config: Box<dyn SinkConfig> = parse(entry.name, text(config)?)?;
            let wraps_command = (*host).flags & RT_HOST_WRAPS_COMMAND != 0;
            let context = SinkContext::new(wraps_command).with_host(call::machine(host)?);
            let open = OpenSink { sink: config.build(&context)?, run: Arc::default(), host };
            *state = Box::into_raw(Box::new(open)).cast();
            Ok(RT_OK)
        })
    }
}

unsafe extern "C" fn start(state: *mut c_void, run: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let open = &mut *state.cast::<OpenSink>();
        guarded(open.host, reply, || {
            open.run = Arc::new(Run::from_json(&serde_json::from_str(text(run)?)?));
            open.sink.start(&open.run).map(|()| RT_OK)
        })
    }
}

unsafe extern "C" fn write(state: *mut c_void, sample: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let open = &mut *state.cast::<OpenSink>();
        guarded(open.host, reply, || {
            let sample = Sample::of_run(text(sample)?, &open.run, name_forever)?;
            open.sink.write(&sample).map(|()| RT_OK)
        })
    }
}

unsafe extern "C" fn finish(state: *mut c_void, outcome: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let open = &mut *state.cast::<OpenSink>();
        guarded(open.host, reply, || {
            open.sink.finish(&Outcome::from_json(&serde_json::from_str(text(outcome)?)?)).map(|()| RT_OK)
        })
    }
}
