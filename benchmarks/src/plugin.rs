//! What it costs that a source is loaded and not linked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use resource_tracker_core::plugin::Isolation;
use resource_tracker_core::registry::Registry;

use crate::launch::spread;
use crate::readings;
use crate::table;

const ROUNDS: usize = 9;

pub(crate) fn print() -> anyhow::Result<()> {
    let root = tempfile::tempdir()?;
    adapters(root.path())?;
    let set = format!("sources.infiniband.root={}", root.path().display());
    table::head("A source that is loaded", ["source", "linked, µs", "loaded, µs", "more, µs", "ratio"]);
    for (name, library, times, keys) in
        [("fields", "fake_fields", "100000", vec![]), ("infiniband", "infiniband", "2000", vec![set])]
    {
        let (mut linked, mut loaded) = (Vec::new(), Vec::new());
        let arguments: Vec<String> = [name.to_owned(), times.to_owned()].into_iter().chain(keys).collect();
        // In turn, so that both meet the same neighbours.
        for _ in 0..ROUNDS {
            linked.push(run("linked", &arguments)?);
            loaded.push(run("benchmarks", &[&["load".to_owned(), library.to_owned()], &arguments[..]].concat())?);
        }
        let (linked, loaded) = (spread(linked).0, spread(loaded).0);
        table::row([
            name.into(),
            format!("{linked:.2}"),
            format!("{loaded:.2}"),
            format!("{:.2}", loaded - linked),
            format!("{:.2}", loaded / linked),
        ]);
    }
    table::note(
        "CPU time of one reading, the median of 9 runs in turn. `fields` is a section of twenty numbers that costs nothing \
         to read, so what is more is the way over the interface, JSON included; `infiniband` reads four ports of two adapters.",
    );
    Ok(())
}

/// One run of `readings`, in a process of its own, because a name can be linked or loaded and not both.
fn run(program: &str, arguments: &[String]) -> anyhow::Result<f64> {
    let output = Command::new(beside(program)?).args(arguments).output()?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().parse::<f64>()? / 1e3)
}

fn beside(program: &str) -> anyhow::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(program))
}

/// `benchmarks load LIBRARY NAME TIMES [KEY=VALUE]`.
pub(crate) fn load(arguments: &[String]) -> anyhow::Result<()> {
    let (library, arguments) = arguments.split_first().context("which library?")?;
    let mut registry = Registry::new();
    // Cargo puts the libraries that a program depends on there.
    registry.load(&beside("deps")?.join(format!("lib{library}.so")), Isolation::None)?;
    println!("{}", readings::time(registry, arguments)?);
    Ok(())
}

fn adapters(root: &Path) -> anyhow::Result<()> {
    for device in ["mlx5_0", "mlx5_1"] {
        for port in ["1", "2"] {
            let path = root.join("class/infiniband").join(device).join("ports").join(port);
            for name in ["state", "phys_state", "rate", "link_layer"] {
                fs::create_dir_all(&path)?;
                fs::write(path.join(name), "4: ACTIVE\n")?;
            }
            for (folder, count) in [("counters", 20), ("hw_counters", 15)] {
                fs::create_dir_all(path.join(folder))?;
                for number in 0..count {
                    fs::write(path.join(folder).join(format!("counter_{number}")), "123456789\n")?;
                }
            }
            for name in ["port_rcv_data", "port_xmit_data", "port_rcv_packets", "port_xmit_packets"] {
                fs::write(path.join("counters").join(name), "98765432109\n")?;
            }
        }
    }
    Ok(())
}
