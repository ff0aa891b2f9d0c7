//! Sources of this library as the tracker calls them.

use std::ffi::c_void;

use super::super::abi::{
    HostTable, RT_ABSENT, RT_EVERY_TICK, RT_OK, RT_ONCE, RT_SOURCE_BLOCKS, RT_SOURCE_ON_BY_DEFAULT, Reply, SourceTable,
    Text, TickTable,
};
use super::super::prefix::known_part;
use super::call::{self, Written, close, guarded, parse, text};
use super::exported::{Exported, defaults, schema};
use crate::source::{Cadence, Source, SourceConfig, SourceEntry};

pub(super) fn table(entry: &'static SourceEntry) -> *const SourceTable {
    let configured = parse::<Box<dyn SourceConfig>>(entry.name, "{}");
    let schedule = configured.map(|config| config.schedule()).unwrap_or_default();
    let on = if entry.on_by_default { RT_SOURCE_ON_BY_DEFAULT } else { 0 };
    let table = SourceTable {
        size: size_of::<SourceTable>(),
        name: Text::new(entry.name),
        description: Text::new(entry.description),
        default_config: defaults(entry.defaults),
        config_schema: schema(entry.schema),
        flags: on | if schedule.blocking { RT_SOURCE_BLOCKS } else { 0 },
        order: entry.order,
        cadence_ns: match schedule.cadence {
            Cadence::EveryTick => RT_EVERY_TICK,
            Cadence::Once => RT_ONCE,
            Cadence::Every(time) => time.as_nanos().try_into().unwrap_or(RT_ONCE - 1),
        },
        open: Some(open_source),
        collect: Some(collect),
        close: Some(close::<OpenSource>),
        check: Some(check_source),
    };
    Exported::forever(table, entry)
}

struct OpenSource {
    source: Box<dyn Source>,
    written: Written,
    /// Whether the baseline primes it; else it is the one reading.
    is_primed: bool,
    /// It is there until `close` has returned.
    host: *const HostTable,
}

unsafe extern "C" fn check_source(this: *const SourceTable, config: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(std::ptr::null(), reply, || {
            let entry = Exported::<_, SourceEntry>::entry(this);
            parse::<Box<dyn SourceConfig>>(entry.name, text(config)?).map(|_| RT_OK)
        })
    }
}

unsafe extern "C" fn open_source(
    this: *const SourceTable,
    host: *const HostTable,
    config: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(host, reply, || {
            let entry = Exported::<_, SourceEntry>::entry(this);
            let config: Box<dyn SourceConfig> = parse(entry.name, text(config)?)?;
            let Some(source) = config.build(&call::machine(host)?)? else { return Ok(RT_ABSENT) };
            let is_primed = config.schedule().cadence != Cadence::Once;
            let open = OpenSource { source, written: Written::default(), is_primed, host };
            *state = Box::into_raw(Box::new(open)).cast();
            Ok(RT_OK)
        })
    }
}

unsafe extern "C" fn collect(state: *mut c_void, tick: *const TickTable, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let OpenSource { source, written, is_primed, host } = &mut *state.cast::<OpenSource>();
        let table = known_part(tick);
        guarded(*host, reply, || {
            let tick = call::tick(&table);
            written.answer(reply, |out| match tick.number {
                0 if *is_primed => source.prime(&tick, out),
                _ => source.collect(&tick, out),
            })
        })
    }
}
