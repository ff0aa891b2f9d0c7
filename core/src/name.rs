//! Names that come from outside and are kept for good.

use std::sync::{Mutex, PoisonError};

/// Names of programs and sections, of which there are few, kept for good.
pub(crate) fn name_forever(name: &str) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.iter().find(|known| **known == name) {
        Some(known) => known,
        None => {
            let kept: &'static str = name.to_owned().leak();
            names.push(kept);
            kept
        }
    }
}
