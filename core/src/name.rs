//! Names that come from outside and are kept for good.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Names of programs and sections, of which there are few, kept for good.
pub(crate) fn name_forever(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None => {
            let kept: &'static str = name.to_owned().leak();
            names.insert(kept);
            kept
        }
    }
}
