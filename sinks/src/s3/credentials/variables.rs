//! The variables that Amazon's tools have.

/// A variable of this process; an empty one counts as none.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
