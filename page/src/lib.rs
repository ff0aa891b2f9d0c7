//! Runs of resource-tracker as one HTML page that needs no network: what `summary` says of them, and charts of their samples.
//!
//! [`RunCharts`] takes the samples of a run as they come; [`write_page`] writes the page of one run or of several. The sink
//! `report` does both at the end of a run. Linking this crate registers that sink.

mod charts;
mod destination;
mod page;
mod rounded;
mod sink;
mod timeline;

pub use charts::RunCharts;
pub use destination::{Destination, IfThere};
pub use page::{PageRun, write_page};
pub use sink::ReportConfig;
