//! A framework of collectors: it knows how to sample, and nothing about what or where to.
//!
//! A reading comes from a [`Source`], everything that leaves goes through a [`Sink`]. Both are built from a small
//! serde configuration ([`SourceConfig`], [`SinkConfig`]), registered at link time with [`register_source!`] and
//! [`register_sink!`], and chosen by one [`Settings`]. The [`Tracker`] reads the sources at absolute ticks, puts what
//! they saw into a [`Sample`], and hands it to the sinks.
//!
//! The crate keeps no global state, installs no signal handler and never ends the process: several trackers can run
//! in one program. Messages go to the [`log`] facade.

mod answer_watch;
pub mod background;
mod build_error;
mod clock;
pub mod config;
pub mod derivation;
#[doc(hidden)]
pub mod fuzzing;
mod guard;
pub mod job;
mod name;
pub mod observer;
mod owned_tick;
mod parts;
mod patience;
pub mod plugin;
mod pool;
pub mod prelude;
pub mod registry;
pub mod sample;
mod schema;
mod section;
pub mod sink;
mod sink_context;
mod sink_entry;
pub mod source;
pub mod tracker;
pub mod trust;
pub mod unit;
mod worker_threads;

pub use build_error::BuildError;
pub use config::{ConfigError, Settings};
pub use derivation::{Derivation, DerivationEntry};
pub use guard::is_guarded;
pub use job::{Group, Job, Outcome, Run};
pub use observer::{Moment, Observation, ObservedJob, Observer};
pub use patience::PATIENCE;
pub use sample::{Sample, Section, SectionEntry, Sections, SourceState};
pub use schema::sample_schema;
pub use sink::{Sink, SinkConfig, SinkContext, SinkEntry};
pub use source::{Cadence, Host, Schedule, Source, SourceConfig, SourceEntry, Tick};
pub use tracker::{Closing, Prepared, Running, Tracker};

/// What the registration macros expand to; not meant for people.
#[doc(hidden)]
pub mod reexport {
    pub use inventory;
    pub use serde;
    pub use serde_json;

    pub use crate::plugin::export::table as plugin_table;
}
