//! Recordings of older versions, as they are in `tests/recordings`, with the fields of their time.

use std::path::Path;

use resource_tracker_tests::{text, track};
use serde_json::{Value as Json, json};

fn summary(name: &str) -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings").join(name);
    let output = track(["summary", "--json", path.to_str().unwrap()]);
    assert!(output.status.success() && output.stderr.is_empty(), "{name}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The figures by their paths, of the version that has them all.
const FIGURES: [(&str, f64); 15] = [
    ("/job/user_secs", 2.0),
    ("/job/disk_read_bytes", 4000.0),
    ("/job/voluntary_context_switches", 40.0),
    ("/machine/cpus", 2.0),
    ("/machine/iowait_cores", 0.1),
    ("/machine/memory_total_mib", 16384.0),
    ("/machine/peak_swap_mib", 128.0),
    ("/machine/busiest_disk_pct/mean", 25.0),
    ("/machine/fullest_file_system/used_pct", 50.0),
    ("/machine/cpu_pressure_pct", 2.0),
    ("/gpus/0/utilization_pct/mean", 40.0),
    ("/machine/cores/mean", 1.5),
    ("/machine/memory_mib/mean", 4096.0),
    ("/machine/disk_read_bytes", 16384.0),
    ("/machine/network_rx_bytes", 2000.0),
];

#[test]
fn an_older_recording_lacks_only_what_came_later() {
    let edges =
        ["/machine/cores/mean", "/machine/memory_mib/mean", "/machine/disk_read_bytes", "/machine/network_rx_bytes"];
    let no_beginning = "its beginning is not here, or it is of a version that tells of none: sums are of these samples";
    let no_end = "its end is not here, or it is of a version that tells of none: sums are of these samples";
    for (name, lacking, problems) in [
        ("2026-11-21.jsonl", &edges[..], json!([no_beginning])),
        ("2026-11-22-morning.jsonl", &edges, json!([no_end])),
        ("2026-11-22-evening.jsonl", &[], json!([no_end])),
        ("2026-11-23.jsonl", &[], json!([])),
    ] {
        let summary = summary(name);
        for (path, figure) in FIGURES {
            let found = summary.pointer(path).and_then(Json::as_f64);
            assert_eq!(found, (!lacking.contains(&path)).then_some(figure), "{name}: {path}");
        }
        assert_eq!(summary["problems"], problems, "{name}");
    }
    assert_eq!(summary("2026-11-22-morning.jsonl")["run"]["labels"]["job_name"], "build");
    assert_eq!(summary("2026-11-23.jsonl")["outcome"]["exit_code"], 0);
}
