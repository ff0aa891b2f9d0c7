//! The tools, for all but a run: what is there, what is configured, what a sample looks like.

mod compare;
mod completions;
mod components;
mod config;
mod man_page;
mod mark;
mod metrics;
mod report;
mod schema;
mod standard_output;
mod summary;
mod upload;
mod view;

pub(crate) use compare::compare;
pub(crate) use completions::{completions, completions_at};
pub(crate) use components::components;
pub(crate) use config::config;
pub(crate) use man_page::{man_page, man_pages};
pub(crate) use mark::mark;
pub(crate) use metrics::metrics;
pub(crate) use report::report;
pub(crate) use schema::schema;
pub(crate) use summary::summary;
pub(crate) use upload::upload;
pub(crate) use view::view;
