//! The tools beside running: what is there, what is configured, what a sample looks like.

mod compare;
mod components;
mod config;
mod mark;
mod schema;
mod summary;
mod upload;
mod view;

use std::io::{self, Write};

use clap_complete::Shell;

pub(crate) use compare::{Limits, compare};
pub(crate) use components::components;
pub(crate) use config::config;
pub(crate) use mark::mark;
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

pub(crate) fn completions(shell: Shell) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut crate::cli::command(), crate::PROGRAM, &mut script);
    if shell == Shell::Bash {
        // clap_complete 4.6 writes the hyphen of the program's name in two ways, and so completes nothing behind a tool's name.
        let [one, other] = ["__subcmd__", "__"].map(|hyphen| crate::PROGRAM.replace('-', hyphen) + "__");
        script = String::from_utf8(script)?.replace(&one, &other).into_bytes();
    }
    print(&script)
}

pub(crate) fn man_page() -> anyhow::Result<i32> {
    let mut page = Vec::new();
    clap_mangen::Man::new(crate::cli::command()).render(&mut page)?;
    print(&page)
}
