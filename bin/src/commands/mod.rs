//! The tools beside running: what is there, what is configured, what a sample looks like.

mod compare;
mod completions;
mod components;
mod config;
mod man_page;
mod mark;
mod report;
mod schema;
mod summary;
mod upload;
mod view;

use std::io::{self, Write};

pub(crate) use compare::{Limits, compare};
pub(crate) use completions::{completions, completions_at};
pub(crate) use components::components;
pub(crate) use config::config;
pub(crate) use man_page::{man_page, man_pages};
pub(crate) use mark::mark;
pub(crate) use report::report;
pub(crate) use schema::schema;
pub(crate) use summary::summary;
pub(crate) use upload::upload;
pub(crate) use view::view;

/// Prints to standard output; that nobody reads any more is no error.
fn print(text: &[u8]) -> anyhow::Result<i32> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(0),
    }
}
