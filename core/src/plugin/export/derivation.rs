//! Derivations of this library as the tracker calls them.

use std::ffi::c_void;
use std::sync::Arc;

use super::super::abi::{DerivationTable, HostTable, RT_OK, Reply, Text, TickTable};
use super::super::prefix::known_part;
use super::call::{self, Written, close, guarded, text};
use super::exported::Exported;
use crate::derivation::{Derivation, DerivationEntry};
use crate::job::Run;
use crate::name::name_forever;
use crate::sample::Sample;

pub(super) fn table(entry: &'static DerivationEntry) -> *const DerivationTable {
    let table = DerivationTable {
        size: size_of::<DerivationTable>(),
        name: Text::new(entry.name),
        description: Text::new(entry.description),
        open: Some(open),
        derive: Some(derive),
        close: Some(close::<Open>),
    };
    Exported::forever(table, entry)
}

struct Open {
    derivation: Box<dyn Derivation>,
    run: Arc<Run>,
    written: Written,
    /// It is there until `close` has returned.
    host: *const HostTable,
}

unsafe extern "C" fn open(
    this: *const DerivationTable,
    host: *const HostTable,
    run: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    // SAFETY: the contract: `this` is a table of ours, and the rest is that of the call.
    unsafe {
        guarded(host, reply, || {
            let run = Arc::new(Run::from_json(&serde_json::from_str(text(run)?)?));
            let derivation = Exported::<_, DerivationEntry>::entry(this).build();
            let open = Open { derivation, run, written: Written::default(), host };
            *state = Box::into_raw(Box::new(open)).cast();
            Ok(RT_OK)
        })
    }
}

unsafe extern "C" fn derive(state: *mut c_void, tick: *const TickTable, sample: Text, reply: *const Reply) -> i32 {
    // SAFETY: the contract: a state of ours that nobody else uses, and the rest is that of the call.
    unsafe {
        let Open { derivation, run, written, host } = &mut *state.cast::<Open>();
        let table = known_part(tick);
        guarded(*host, reply, || {
            let sample = Sample::of_run(text(sample)?, run, name_forever)?;
            let tick = call::tick(&table);
            written.answer(reply, |out| derivation.derive(&tick, &sample, out))
        })
    }
}
