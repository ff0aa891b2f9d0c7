//! What a file with a source or a derivation begins with: `use resource_tracker_core::prelude::*`.

pub use schemars::JsonSchema;
pub use serde::{Deserialize, Serialize};

pub use crate::derivation::{Derivation, DerivationEntry};
pub use crate::sample::{Sample, Section, Sections};
pub use crate::source::{Cadence, Host, Schedule, Source, SourceConfig, SourceEntry, Tick};
pub use crate::unit::{Counter, Delta, Gauge, Info};
pub use crate::{from_json, register_derivation, register_section, register_source};
