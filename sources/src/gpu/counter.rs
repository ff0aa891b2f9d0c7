//! Counters of devices.

/// What a counter gained since it was last read, and keeps its new value; nothing the first time or after a reset.
pub(super) fn gained(before: &mut Option<u64>, now: Option<u64>) -> Option<u64> {
    let now = now?;
    let before = before.replace(now).unwrap_or(now);
    Some(now.saturating_sub(before))
}
