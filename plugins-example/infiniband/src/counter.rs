//! What a port has carried, from counters that wrap, stop at their end or are reset.
//!
//! How wide a counter is, its file does not say. The kernel's `drivers/infiniband/core/sysfs.c` has the rule. A port has
//! either the attribute PortCounters, with 32 bits for data and packets, or PortCountersExtended, with 64; in both
//! cases the files have the same names. So they are taken for 32 bits until it is seen that they have 64:
//!
//! - it is in `counters_ext`: older drivers (OFED before 4.0) have the 64 bits there;
//! - `counters` has the unicast and multicast packets, which only PortCountersExtended knows;
//! - or one of them is beyond 32 bits: some adapters have PortCountersExtended without these packets.

#[cfg(test)]
mod tests;

/// How many bits the counters of data and packets of a port have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    Bits32,
    Bits64,
}

/// What a counter has counted, and how fast.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Count {
    pub(crate) total: u64,
    /// `None` the first time.
    pub(crate) per_sec: Option<f64>,
}

/// A counter that is read again and again. The total starts with what it shows first, and never falls.
#[derive(Debug, Default)]
pub(crate) struct Total {
    before: Option<u64>,
    /// Since then.
    secs: f64,
    total: u64,
}

impl Total {
    /// Takes what is read now, `secs` after the last time. What could not be read then is in the next rate.
    pub(crate) fn advance(&mut self, now: Option<u64>, width: Width, secs: f64) -> Option<Count> {
        self.secs += secs;
        let now = now?;
        let secs = std::mem::take(&mut self.secs);
        let Some(before) = self.before.replace(now) else {
            self.total = now;
            return Some(Count { total: now, per_sec: None });
        };
        let added = added(before, now, width);
        self.total = self.total.saturating_add(added);
        Some(Count { total: self.total, per_sec: (secs > 0.0).then(|| added as f64 / secs) })
    }
}

/// What was counted between two readings.
fn added(before: u64, now: u64, width: Width) -> u64 {
    if let Some(added) = now.checked_sub(before) {
        return added;
    }
    // It fell. No link makes 64 bits wrap, so these were reset, and what is there now came since. The specification has
    // 32 bits stop at their end until they are reset, and most drivers do so; some (ocrdma) go on from 0. It went on
    // when that is the shorter way round, as sequence numbers are compared (RFC 1982).
    let around = u64::from((now as u32).wrapping_sub(before as u32));
    match width {
        Width::Bits32 if before < u32::MAX.into() && around < 1 << 31 => around,
        _ => now,
    }
}
