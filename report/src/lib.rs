//! What a run of resource-tracker took: its statistics, made in one pass over live or recorded samples, and a summary
//! of them for a person.
//!
//! [`RunStatistics`] takes samples and gives a [`Summary`]; [`read_runs`] does so for files. [`text()`], [`markdown()`] and [`json()`] write
//! it. The sink `summary` does all of it at the end of a run. Linking this crate registers that sink.

mod advice;
mod bound;
mod cgroup;
mod compare;
mod conclusions;
mod condition;
mod counter;
mod fields;
mod figures;
mod gpu;
mod job;
mod kinds;
mod machine;
mod markdown;
mod offer;
mod other_sections;
mod outcome;
mod parts;
mod phases;
mod programs;
mod readable;
mod recorded;
mod recording;
mod rows;
mod run;
mod run_statistics;
mod servers;
mod sink;
mod space;
mod spans;
mod statistics;
mod summary;
#[cfg(test)]
mod tests;
mod text;
mod units;

use rows::is_unprintable;
use serde::Serialize;

pub use advice::{Advice, GpuVendor};
pub use bound::{Bound, Resource};
pub use cgroup::CgroupSummary;
pub use compare::{ConditionResult, Difference, Of, Verdict, compare, comparison_markdown, comparison_text};
pub use condition::Condition;
pub use fields::CpuFields;
pub use figures::{FIGURES, Figures, NamedFigure, Unit};
pub use gpu::GpuSummary;
pub use job::JobSummary;
pub use kinds::{Kinds, MetricKind};
pub use machine::MachineSummary;
pub use markdown::markdown;
pub use offer::{Offer, Present, Server, ServerRequirement, offer_markdown, offer_text};
pub use other_sections::{Figure, other_figures};
pub use outcome::OutcomeSummary;
pub use phases::PhaseSummary;
pub use programs::ProgramSummary;
pub use readable::Readable;
pub use recorded::{LeftOut, RecordedSample, sample_of};
pub use recording::{BAD_LINES, LONGEST_LINE, RecordedRun, RunVisitor, check_names, read_runs, visit_runs};
pub use rows::{Row, Rows, printable, signal_name};
pub use run::RunSummary;
pub use run_statistics::RunStatistics;
pub use servers::{cheapest_server, least_price, wanted_gpus};
pub use sink::{SummaryConfig, SummaryFormat};
pub use space::{FullFileSystem, is_image};
pub use spans::{Span, Spans};
pub use statistics::Spread;
pub use summary::{Summary, Times};
pub use text::{Look, text};
pub use units::{bytes, memory, time};

/// A summary, or what has it in it, as one line of JSON. Characters that a terminal acts on, or that change the reading
/// direction, are escaped.
///
/// # Errors
/// When it cannot be serialised.
pub fn json(summary: &impl Serialize) -> serde_json::Result<String> {
    let mut line = String::new();
    for char in serde_json::to_string(summary)?.chars() {
        match is_unprintable(char) {
            // Such characters occur in texts only, and four digits are enough for all of them.
            true => line.push_str(&format!("\\u{:04x}", u32::from(char))),
            false => line.push(char),
        }
    }
    Ok(line + "\n")
}
