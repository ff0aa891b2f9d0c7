//! A token or a key.

use std::fmt;

use serde::Deserialize;

/// A token, a key or a password: it is sent to the service or the store, and never printed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it can stand in a header.
    pub(crate) fn is_header(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
    }

    /// Whether it can stand in a header and in a signature.
    pub(crate) fn is_printable(&self) -> bool {
        !self.0.is_empty() && self.0.bytes().all(|byte| byte.is_ascii_graphic())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_shown() {
        assert_eq!(format!("{:?} {:#?}", Secret::new("abc"), Some(Secret::new("abc"))), "*** Some(\n    ***,\n)");
        assert!(!Secret::new("a\nb").is_printable() && !Secret::new("").is_printable());
        assert!(Secret::new("a+/=").is_printable());
    }
}
