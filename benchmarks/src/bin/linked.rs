//! Reads the sources of example plugins as they are when they are linked in; beside `benchmarks plugin`, which loads them.
//! `linked NAME TIMES [KEY=VALUE]` prints the nanoseconds of CPU time of one reading.

// Linking them registers their sources.
use fake_fields as _;
use infiniband as _;

#[path = "../readings.rs"]
mod readings;

use resource_tracker_core::registry::Registry;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!("{}", readings::time(Registry::new(), &arguments)?);
    Ok(())
}
