use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::unit::{Gauge, Info};

use super::list_section;

list_section! {
    /// What the command said of itself: `marks`. They are in the sample in whose interval they were said, and in no other one is there
    /// such a section; what is more than 1000 is in the samples after.
    Marks(Mark), "marks"
}

/// A moment to which the command gave a name, with `resource-tracker mark` or through the tracker's pipe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mark {
    /// What the command calls it.
    #[schemars(transform = Info)]
    pub name: String,
    /// What begins or ends there.
    #[schemars(transform = Info)]
    pub kind: MarkKind,
    /// When it was said, in milliseconds since the Unix epoch.
    #[schemars(transform = Gauge("milliseconds"))]
    pub at_ms: u64,
}

/// What a mark says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum MarkKind {
    /// A phase begins, and the one before ends.
    #[default]
    Next,
    /// A phase begins, beside those that go on.
    Begin,
    /// That phase ends.
    End,
}
