//! Runs with a plugin.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::{Recording, command, shared_library, tracker};

/// A run around a short command, with the samples on standard output.
pub fn run(plugin: &Path, arguments: &[&str]) -> Output {
    let mut tracker = command(tracker());
    tracker.arg("--plugin").arg(plugin).args(["-i", "0.1", "--output=/dev/stdout"]).args(arguments);
    tracker.output().unwrap()
}

/// A tracker with the stand-in, which describes itself as said.
pub fn fake(kind: &str, arguments: &[&str]) -> Command {
    let mut tracker = command(tracker());
    tracker.env("FAKE_PLUGIN", kind).arg("--plugin").arg(shared_library("fake-plugin")).args(arguments);
    tracker
}

/// A job that ends after a second.
pub const SLEEP: [&str; 3] = ["--", "sleep", "1"];

/// Runs the source of the stand-in, behaving as said, at twenty samples a second, around a script.
pub fn behaving(recording: &Recording, behaviour: &str, more: &[&str], script: &str) -> Output {
    let set = format!("--set=sources.fake.behaviour={behaviour}");
    let mut tracker = fake("", &["--enable=fake", &set, "-i", "50ms", "-o"]);
    recording.run(tracker.arg(recording.path()).args(more).args(["--", "sh", "-c", script]))
}

/// Makes a sysfs with one adapter of InfiniBand, and tells the plugin of it.
pub fn adapters(root: &Path) -> String {
    let port = root.join("class/infiniband/mlx5_0/ports/1");
    fs::create_dir_all(port.join("counters")).unwrap();
    for (name, text) in [
        ("state", "4: ACTIVE\n"),
        ("rate", "100 Gb/sec (4X EDR)\n"),
        ("counters/port_rcv_data", "250\n"),
        ("counters/port_rcv_packets", "25\n"),
        ("counters/unicast_rcv_packets", "24\n"),
        ("counters/port_xmit_discards", "2\n"),
        ("counters/port_xmit_wait", "1\n"),
        ("counters/symbol_error", "3\n"),
    ] {
        fs::write(port.join(name), text).unwrap();
    }
    format!("--set=sources.infiniband.root={}", root.display())
}
