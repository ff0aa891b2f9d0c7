//! Errors of the system, with what was being done.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

/// One error with the text of the whole chain, of the kind that the system gave.
pub(super) fn io_error(chain: anyhow::Error) -> io::Error {
    let errno = chain.downcast_ref::<Errno>().map(|errno| errno.kind());
    let kind = errno.or_else(|| chain.downcast_ref().map(io::Error::kind)).unwrap_or(ErrorKind::Other);
    io::Error::new(kind, format!("{chain:#}"))
}
