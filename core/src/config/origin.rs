//! Where a value is from, which decides what wins.

/// Where a value is from. The value of the highest rank counts, and within a rank the last one: defaults, the site's file, the
/// file, the environment, the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub(super) rank: Rank,
    pub(super) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Default,
    Site,
    File,
    Environment,
    CommandLine,
}

impl Origin {
    /// A flag, or the program itself, such as `--interval`.
    pub fn flag(name: impl Into<String>) -> Self {
        Self { rank: Rank::CommandLine, name: name.into() }
    }

    /// A variable of the environment.
    pub fn variable(name: impl Into<String>) -> Self {
        Self { rank: Rank::Environment, name: name.into() }
    }

    /// A default, which `name` explains. Of several the first counts.
    pub fn default_of(name: impl Into<String>) -> Self {
        Self { rank: Rank::Default, name: name.into() }
    }

    pub(super) fn site(name: impl Into<String>) -> Self {
        Self { rank: Rank::Site, name: name.into() }
    }

    pub(super) fn file(name: impl Into<String>) -> Self {
        Self { rank: Rank::File, name: name.into() }
    }
}

impl From<&str> for Origin {
    fn from(flag: &str) -> Self {
        Self::flag(flag)
    }
}
