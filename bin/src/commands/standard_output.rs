//! Where the tools print to.

use std::io::{self, Write};

/// Prints to standard output. A reader that is gone is no error.
pub(super) fn print(text: &[u8]) -> anyhow::Result<i32> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
}
