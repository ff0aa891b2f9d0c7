//! A derivation that does what it is told by `FAKE_DERIVATION`, and is not there without.

use std::ffi::c_void;

use super::{Text, fail};
use resource_tracker_core::plugin::abi::*;

pub(super) fn table() -> Option<DerivationTable> {
    let behaviour = std::env::var("FAKE_DERIVATION").ok()?;
    Some(DerivationTable {
        size: size_of::<DerivationTable>(),
        name: Text::new(if behaviour == "taken" { "host" } else { "fake-derived" }),
        description: Text::new("What it is told"),
        open: Some(open),
        derive: (behaviour != "none").then_some(derive),
        close: Some(close),
    })
}

struct State {
    behaviour: String,
    samples: u64,
}

unsafe extern "C" fn open(
    _: *const DerivationTable,
    _: *const HostTable,
    _: Text,
    state: *mut *mut c_void,
    reply: *const Reply,
) -> i32 {
    let behaviour = std::env::var("FAKE_DERIVATION").unwrap_or_default();
    if behaviour == "no-open" {
        return fail(reply, "nothing follows");
    }
    // SAFETY: the place of this call.
    unsafe { *state = Box::into_raw(Box::new(State { behaviour, samples: 0 })).cast() };
    RT_OK
}

unsafe extern "C" fn derive(state: *mut c_void, _: *const TickTable, sample: Text, reply: *const Reply) -> i32 {
    // SAFETY: a state of ours that nobody else uses, and the reply of this call.
    let (state, writer) = unsafe { (&mut *state.cast::<State>(), &*reply) };
    state.samples += 1;
    let answer = match state.behaviour.as_str() {
        _ if state.samples <= 3 => format!("{{\"fake\":{{\"tick\":{},\"pids\":{}}}}}", state.samples, sample.length),
        "hang" => loop {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        },
        "abort" => std::process::abort(),
        "garbage" => "{\"fake\": {,".to_owned(),
        "foreign" => "{\"memory\":{}}".to_owned(),
        _ => return fail(reply, "it does not add up"),
    };
    // SAFETY: the text lives during the call.
    unsafe { (writer.write.unwrap())(writer.context, Text::new(&answer)) };
    RT_OK
}

unsafe extern "C" fn close(state: *mut c_void) {
    // SAFETY: a state of ours that nobody uses any more.
    drop(unsafe { Box::from_raw(state.cast::<State>()) });
}
