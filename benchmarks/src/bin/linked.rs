//! Reads the sources of example plugins as they are when they are linked in; beside `benchmarks plugin`, which loads them.
//! `linked NAME TIMES [KEY=VALUE]` prints the nanoseconds of CPU time of one reading.

// Linking it registers its source.
use infiniband as _;

// By its source: its crate is a plugin as well, of which one program can link one.
#[path = "../../../tests/fakes/fields/src/fields.rs"]
mod fields;
#[path = "../readings.rs"]
mod readings;

use resource_tracker_core::registry::Registry;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", readings::time(Registry::new(), &arguments)?);
    Ok(())
}
