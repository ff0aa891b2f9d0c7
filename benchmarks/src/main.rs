//! Measures the tracker and prints tables: `cargo build --release && cargo run --release -p benchmarks`, with the names
//! of tables to print only those (`cost growth sinks syscalls ticks accuracy size launch stream gpu plugin compare`). `TRACKER=FILE` measures another binary.
//! `fleet FOLDER` writes the recordings of a fleet, for engines to be tried on. `gpu --check` says, on a machine with an NVIDIA GPU, whether the tracker's figures of it are right.
//!
//! Every figure is a ratio or a difference of two that were taken in the same run, side by side. Nothing is asserted.

mod accuracy;
mod compare;
mod cost;
mod cputime;
mod fleet;
mod floor;
mod gpu;
mod growth;
mod jobs;
mod launch;
mod machine;
mod plugin;
mod readings;
mod sinks;
mod size;
mod start;
mod stream;
mod syscalls;
mod table;
mod ticks;
mod tree;

use anyhow::{Context, bail};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words = arguments.iter().map(String::as_str);
    // The programs that are measured beside the tracker are this one as well.
    match words.next() {
        Some("floor") => return floor::run(words),
        Some("tree") => return tree::run(words),
        Some("clock") => {
            println!("{}", size::now());
            return Ok(());
        }
        Some("fleet") => return fleet::run(words),
        Some("load") => return plugin::load(&arguments[1..]),
        Some("cuda") => return gpu::work(words),
        // What is not for machines without a GPU has a flag.
        Some("gpu") if arguments.get(1).is_some_and(|flag| flag == "--check") => return gpu::check(),
        Some("job") => return jobs::run(words.next().context("which job?")?),
        _ => (),
    }
    type Print = fn() -> anyhow::Result<()>;
    let tables: [(&str, Print); 12] = [
        ("cost", cost::print),
        ("growth", growth::print),
        ("sinks", sinks::print),
        ("syscalls", syscalls::print),
        ("ticks", ticks::print),
        ("accuracy", accuracy::print),
        ("size", size::print),
        ("launch", start::print),
        ("stream", stream::print),
        ("gpu", gpu::print),
        ("plugin", plugin::print),
        ("compare", compare::print),
    ];
    if let Some(unknown) = arguments.iter().find(|name| !tables.iter().any(|(table, _)| table == name)) {
        bail!("no table is called {unknown}; there are {}", tables.map(|(name, _)| name).join(", "));
    }
    println!("{}\n", launch::machine());
    for (name, print) in tables {
        if arguments.is_empty() || arguments.iter().any(|wanted| wanted == name) {
            print().with_context(|| format!("table {name}"))?;
        }
    }
    Ok(())
}
