//! How the cost of a sample grows with the machine, on machines that are not there.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cost::{Watched, measure};
use crate::launch::tracker;
use crate::machine::{Machine, ROOT, Size};
use crate::table;

const INTERVAL: Duration = Duration::from_secs(1);
const SMALL: Size = Size { cpus: 4, disks: 2, interfaces: 2, members: 10, others: 100 };

pub(crate) fn print() -> anyhow::Result<()> {
    table::head("Cost of a sample as the machine grows", ["machine", "floor, µs", "tracker, µs", "tracker / floor"]);
    let sizes = [
        ("4 CPUs, 2 disks, 2 interfaces, 10 of 110 processes".to_owned(), SMALL),
        ("512 CPUs".into(), Size { cpus: 512, ..SMALL }),
        ("64 disks".into(), Size { disks: 64, ..SMALL }),
        ("128 interfaces".into(), Size { interfaces: 128, ..SMALL }),
        ("1000 processes of 2000".into(), Size { members: 1000, others: 1000, ..SMALL }),
        ("10000 processes of 20000".into(), Size { members: 10_000, others: 10_000, ..SMALL }),
        ("all of that".into(), Size { cpus: 512, disks: 64, interfaces: 128, members: 10_000, others: 10_000 }),
    ];
    for (name, size) in sizes {
        row(&name, &Machine::make(size)?)?;
    }
    table::note(
        "At 1 s, without PSS. The files lie in memory, as large as those of such machines, and do not change. The floor reads the same \
         files as in the table of costs, there.",
    );
    gpus()
}

fn row(name: &str, machine: &Machine) -> anyhow::Result<()> {
    let set = |key: &str, folder: &str| format!("tracker.{key}={}", machine.root().join(folder).display());
    let (procfs, sysfs, root) = (set("procfs", "proc"), set("sysfs", "sys"), ROOT.to_string());
    let no_pss = "sources.process.pss_budget_pct=0";
    let options = ["--set", &procfs, "--set", &sysfs, "--set", no_pss, "--pid", &root];
    let pids: Vec<u32> = machine.members().map(|pid| pid as u32).collect();
    let watched = Watched { options: &options, pids: &pids, procfs: &machine.root().join("proc") };
    let (floor, tracker, ratio) = measure(INTERVAL, &watched, |_| ())?;
    table::row([name.into(), format!("{floor:.0}"), format!("{tracker:.0}"), format!("{ratio:.2}")]);
    Ok(())
}

/// A part is the stand-in's own: it looks up its environment and the age of its script at each call.
fn gpus() -> anyhow::Result<()> {
    let library = tracker().with_file_name("libfake_nvml.so");
    if !library.exists() {
        println!("{} is not there (cargo build --release -p fake-nvml), so GPUs are left out.\n", library.display());
        return Ok(());
    }
    table::head("And with GPUs", ["GPUs, of a stand-in", "floor, µs", "tracker, µs", "each GPU, µs"]);
    let folder = tempfile::tempdir()?;
    std::os::unix::fs::symlink(fs::canonicalize(library)?, folder.path().join("libnvidia-ml.so.1"))?;
    let mut without = 0.0;
    for count in [0, 1, 8, 32] {
        let script = folder.path().join(format!("{count}.json"));
        let device = serde_json::json!({ "uuid": "GPU-1", "name": "A GPU" });
        let devices = if count == 0 { serde_json::json!([]) } else { serde_json::json!([device]) };
        let copies = (count > 0).then_some(count);
        fs::write(&script, serde_json::json!({ "devices": devices, "copies": copies }).to_string())?;
        let prepare = |command: &mut Command| {
            command.env("LD_LIBRARY_PATH", folder.path()).env("FAKE_NVML", &script).stderr(Stdio::null());
        };
        let watched = Watched { options: &[], pids: &[], procfs: Path::new("/proc") };
        let (floor, tracker, _) = measure(INTERVAL, &watched, prepare)?;
        if count == 0 {
            without = tracker;
        }
        let each = if count == 0 { String::new() } else { format!("{:.1}", (tracker - without) / count as f64) };
        table::row([count.to_string(), format!("{floor:.0}"), format!("{tracker:.0}"), each]);
    }
    table::note(
        "At 1 s. The stand-in looks up its environment and the age of its script at each call, so a part of this is its own.",
    );
    Ok(())
}
