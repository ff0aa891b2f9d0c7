//! What procfs shows of an open descriptor.

use std::fs;
use std::path::Path;

/// How a descriptor of a process was opened: the `O_` flags, from `fdinfo`. `process` is the folder of the process in procfs.
pub(crate) fn flags(process: &Path, number: impl AsRef<Path>) -> Option<i32> {
    let information = fs::read_to_string(process.join("fdinfo").join(number)).ok()?;
    let flags = information.lines().find_map(|line| line.strip_prefix("flags:"))?;
    i32::from_str_radix(flags.trim(), 8).ok()
}
