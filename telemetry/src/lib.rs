//! The samples of resource-tracker by the names, units and attributes of OpenTelemetry.
//!
//! The schema of a sample says how each field is called ([`unit`](resource_tracker_core::unit)); from it comes one table of
//! [`Names`], which takes samples apart into [`Point`]s. What only grows is summed up from the start of the run by [`Sums`].

mod conventions;
mod names;
pub mod otlp;
mod points;
pub mod prometheus;
pub mod remote_write;
mod resource;
mod sums;
#[cfg(test)]
mod tests;
mod unit;

pub use names::{Field, Instrument, Metric, Names};
pub use points::Point;
pub use resource::Resource;
pub use sums::{MOST_SERIES, Sums};
