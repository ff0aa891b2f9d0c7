//! The command line of resource-tracker: arguments in, exit code out.
//!
//! It is a library so that a program of a few lines can add its own components to the whole command line:
//!
//! ```ignore
//! #![no_main]
//! use my_hardware as _; // registers its sources
//! resource_tracker::main!();
//! ```

mod attached;
mod cli;
mod commands;
mod completion;
mod ending;
mod family;
mod fdinfo;
mod fork_mark;
mod heap;
mod inherited;
mod logger;
mod manual;
mod outputs;
mod plan;
mod plugins;
mod ranks;
mod run;
mod servers;
mod settings;
mod signals;
mod stack_limit;
mod standalone;
mod surroundings;
mod tables;
mod tools;
mod variables;
mod waits_for_us;
mod wrapper;

use std::ffi::{OsString, c_char, c_int};

// Linking them registers their components.
use resource_tracker_page as _;
use resource_tracker_report as _;
use resource_tracker_sinks as _;
use resource_tracker_sources as _;

use cli::Cli;
use ending::Ending;
#[doc(hidden)]
pub use heap::Heap;
use inherited::{CommandLine, Inherited};
use tools::Action;

/// The exit code for a usage or configuration error; no command was started.
const USAGE: i32 = 2;

/// The program's name, in messages and in the version key of a sample.
const PROGRAM: &str = env!("CARGO_PKG_NAME");

/// Defines the program's `main`, and its allocator: the system's, with a reserve for the thread that returns the
/// command's exit code.
///
/// It is C's `main` and not Rust's, because the start-up code of Rust's ignores SIGPIPE and opens descriptors that were
/// closed, and a command that is wrapped would inherit both.
#[macro_export]
macro_rules! main {
    () => {
        #[global_allocator]
        static HEAP: $crate::Heap = $crate::Heap;

        /// # Safety
        /// Called by the C start-up code, with the program's arguments.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn main(
            count: ::std::ffi::c_int,
            arguments: *const *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: the arguments are those of the C start-up code.
            unsafe { $crate::start(count, arguments) }
        }
    };
}

/// Runs the program with the arguments of C's `main`; for [`main!`].
///
/// # Safety
/// `arguments` must point to `count` strings that end with a null byte.
pub unsafe fn start(count: c_int, arguments: *const *const c_char) -> c_int {
    // Already reading the arguments takes memory.
    heap::outlive_want();
    // SAFETY: the caller's promise.
    let (line, arguments) =
        unsafe { (CommandLine::of(count, arguments.cast()), inherited::arguments(count, arguments)) };
    let inherited = Inherited::take(line);
    heap::share();
    logger::install();
    std::panic::catch_unwind(|| run(arguments, &inherited)).unwrap_or(Ending::Exited(USAGE)).end()
}

fn run(arguments: Vec<OsString>, inherited: &Inherited) -> Ending {
    let cli = match Cli::parse(arguments) {
        Ok(cli) => cli,
        Err(error) => return Ending::Exited(cli::report(&error)),
    };
    if cli.command.is_empty() {
        heap::end_in_want_as_usual();
    }
    let result = match &cli.action {
        // It has written nothing that waits in a buffer.
        None => run::run(&cli, inherited).unwrap_or_else(|error| refuse(&error)).end_at_once(),
        Some(Action::Components) => commands::components(&cli),
        Some(Action::Config { action }) => commands::config(&cli, action),
        Some(Action::Summary(tool)) => commands::summary(&cli, tool),
        Some(Action::Report { files }) => commands::report(&cli, files),
        Some(Action::Compare(tool)) => commands::compare(&cli, tool),
        Some(Action::View { speed, file }) => commands::view(&cli, inherited, file.as_deref(), *speed),
        Some(Action::Mark { begin, end, name }) => commands::mark(name.as_deref(), *begin, *end),
        Some(Action::Schema { metrics: true, .. }) => commands::metrics(&cli),
        Some(Action::Schema { markdown, .. }) => commands::schema(&cli, *markdown),
        Some(Action::Upload { dry_run, directory }) => commands::upload(&cli, *dry_run, directory.as_deref()),
        Some(Action::Completions { shell, at: None, .. }) => commands::completions(*shell),
        Some(Action::Completions { shell, at: Some(place), words }) => {
            commands::completions_at(&cli, *shell, *place, words)
        }
        Some(Action::ManPage { dir: Some(dir), .. }) => commands::man_pages(dir),
        Some(Action::ManPage { dir: None, tool }) => commands::man_page(tool),
    };
    result.map_or_else(|error| refuse(&error), Ending::Exited)
}

/// A usage or configuration error.
fn refuse(error: &anyhow::Error) -> Ending {
    log::error!("{error:#}");
    Ending::Exited(USAGE)
}
