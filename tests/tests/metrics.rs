//! What samples say (specification 6.1.1 to 6.1.4, 7 and 11), on this machine.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::OnceLock;

use resource_tracker_tests::{command, number, samples, stop_after, text, track, tracker};
use serde_json::Value as Json;

/// A run of the machine, which most tests here look at.
fn machine() -> &'static [Json] {
    static SAMPLES: OnceLock<Vec<Json>> = OnceLock::new();
    SAMPLES.get_or_init(|| samples(&stop_after(4, command(tracker()).args(["-i", "0.5"])).stdout))
}

fn list<'a>(sample: &'a Json, section: &str) -> &'a [Json] {
    sample[section].as_array().unwrap()
}

#[test]
fn t_cpu_01_utilisation_is_in_cores() {
    let cores = std::fs::read_to_string("/proc/cpuinfo").unwrap().matches("processor\t").count() as f64;
    for sample in machine() {
        assert!((0.0..=cores).contains(&number(sample, "/cpu/utilization_pct")));
        assert!(
            sample["cpu"]["per_core_pct"]
                .as_array()
                .unwrap()
                .iter()
                .all(|share| (0.0..=100.0).contains(&share.as_f64().unwrap()))
        );
    }
}

#[test]
fn t_cpu_02_each_logical_cpu_has_its_share() {
    let cores = std::fs::read_to_string("/proc/cpuinfo").unwrap().matches("processor\t").count();
    assert!(machine().iter().all(|sample| sample["cpu"]["per_core_pct"].as_array().unwrap().len() == cores));
}

#[test]
fn t_cpu_03_without_a_pid_the_fields_of_the_process_are_null() {
    for sample in machine() {
        let cpu = sample["cpu"].as_object().unwrap();
        let fields: Vec<_> =
            cpu.iter().filter(|(name, _)| name.starts_with("process_") && *name != "process_count").collect();
        assert_eq!(fields.len(), 39);
        assert!(fields.iter().all(|(_, value)| value.is_null()), "{fields:?}");
    }
}

#[test]
fn t_cpu_04_a_process_that_runs_can_be_tracked() {
    let pid = std::process::id().to_string();
    for sample in samples(&stop_after(3, command(tracker()).args(["-i", "0.2", "--pid", &pid])).stdout) {
        assert!(number(&sample, "/cpu/process_cores_used") >= 0.0);
        assert!(number(&sample, "/cpu/process_rss_mib") > 1.0);
        assert!(number(&sample, "/cpu/process_thread_count") >= 1.0);
        assert_eq!(sample["pid"].to_string(), pid);
    }
}

#[test]
fn t_cpu_05_there_is_at_least_one_process() {
    assert!(machine().iter().all(|sample| number(sample, "/cpu/process_count") >= 1.0));
}

#[test]
fn a_pid_that_is_not_there_is_no_error() {
    let output = stop_after(2, command(tracker()).args(["-i", "0.2", "--pid", "2147483647"]));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0));
    assert!(said.lines().count() == 1 && said.contains("there is no process 2147483647"), "{said}");
    assert!(samples(&output.stdout).iter().all(|sample| sample["cpu"]["process_cores_used"].is_null()));
}

#[test]
fn a_process_that_ends_leaves_no_memory_and_the_tracker_goes_on() {
    let mut tracker = command(tracker());
    let mut job = std::process::Command::new("sleep").arg("100").spawn().unwrap();
    let pid = job.id().to_string();
    let mut tracker = tracker.args(["-i", "0.1", "--pid", &pid]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(tracker.stdout.take().unwrap()).lines();
    let mut rss = lines.map(|line| samples((line.unwrap() + "\n").as_bytes())[0]["cpu"]["process_rss_mib"].as_f64());
    assert!(rss.next().flatten().is_some_and(|rss| rss > 0.0));
    job.kill().unwrap();
    job.wait().unwrap();
    assert!(rss.by_ref().take(20).any(|rss| rss.is_none()));
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(tracker.id() as i32), nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(rss.last().flatten(), None);
    assert_eq!(tracker.wait().unwrap().code(), Some(0));
}

#[test]
fn t_mem_01_the_parts_fit_into_the_whole() {
    for sample in machine() {
        let parts = ["free_mib", "used_mib", "buffers_mib", "cached_mib"];
        let sum: f64 = parts.iter().map(|part| number(sample, &format!("/memory/{part}"))).sum();
        assert!(sum <= number(sample, "/memory/total_mib"));
    }
}

#[test]
fn t_mem_02_the_share_in_use_is_a_share() {
    assert!(machine().iter().all(|sample| (0.0..=100.0).contains(&number(sample, "/memory/used_pct"))));
}

#[test]
fn t_mem_03_without_swap_none_is_in_use() {
    for sample in machine().iter().filter(|sample| number(sample, "/memory/swap_total_mib") == 0.0) {
        assert_eq!(number(sample, "/memory/swap_used_pct"), 0.0);
    }
}

#[test]
fn t_mem_04_no_more_is_available_than_there_is() {
    assert!(
        machine().iter().all(|sample| number(sample, "/memory/available_mib") <= number(sample, "/memory/total_mib"))
    );
}

#[test]
fn t_net_01_and_02_rates_are_not_negative_and_totals_only_grow() {
    for pair in machine().windows(2) {
        for interface in list(&pair[1], "network") {
            assert!(number(interface, "/rx_bytes_per_sec") >= 0.0 && number(interface, "/tx_bytes_per_sec") >= 0.0);
            let before = list(&pair[0], "network").iter().find(|other| other["interface"] == interface["interface"]);
            let before = before.map_or(0.0, |before| number(before, "/rx_bytes_total"));
            assert!(number(interface, "/rx_bytes_total") >= before);
        }
    }
}

#[test]
fn t_net_03_loopback_is_left_out() {
    assert!(
        machine().iter().all(|sample| list(sample, "network").iter().all(|interface| interface["interface"] != "lo"))
    );
}

#[test]
fn t_dsk_01_rates_are_not_negative() {
    for disk in machine().iter().flat_map(|sample| list(sample, "disk")) {
        for rate in ["read_bytes_per_sec", "write_bytes_per_sec"] {
            assert!(disk[rate].as_f64().is_none_or(|rate| rate >= 0.0));
        }
    }
}

#[test]
fn t_dsk_02_what_is_used_and_free_fits_into_the_file_system() {
    let mounts = machine().iter().flat_map(|sample| list(sample, "disk")).flat_map(|disk| list(disk, "mounts"));
    for mount in mounts.filter(|mount| mount["total_bytes"].is_u64()) {
        let bytes = |field: &str| mount[field].as_u64().unwrap();
        assert!(bytes("used_bytes") + bytes("available_bytes") <= bytes("total_bytes"), "{mount}");
    }
}

#[test]
fn t_dsk_03_a_disk_has_a_capacity() {
    for disk in machine().iter().flat_map(|sample| list(sample, "disk")) {
        assert!(disk["capacity_bytes"].as_u64().is_none_or(|capacity| capacity > 0));
    }
}

#[test]
fn t_gpu_01_a_machine_without_gpu_has_an_empty_list() {
    assert!(machine().iter().all(|sample| sample["gpu"] == Json::Array(Vec::new())));
}

#[test]
fn every_sample_is_as_the_schema_says() {
    let schema: Json = serde_json::from_slice(&track(["schema"]).stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let wrapped = samples(&track(["-i", "50ms", "--", "sleep", "0.2"]).stderr);
    for sample in machine().iter().chain(&wrapped) {
        let errors: Vec<String> = validator.iter_errors(sample).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        for (name, _) in sample.as_object().unwrap() {
            assert!(schema["properties"].get(name).is_some(), "{name} is not in the schema");
        }
    }
}

/// Every field that the specification names.
#[test]
fn every_field_of_the_specification_is_there() {
    let sample = &machine()[0];
    let has = |section: &Json, names: &str| {
        for name in names.split_whitespace() {
            assert!(section.get(name).is_some(), "{name} is missing in {section}");
        }
    };
    has(sample, "timestamp_secs job_name cpu memory network disk gpu resource-tracker-version");
    has(
        &sample["cpu"],
        "utilization_pct per_core_pct utime_secs stime_secs process_count process_cores_used process_child_count",
    );
    has(
        &sample["cpu"],
        "load_1m load_5m load_15m iowait_cores steal_cores context_switches_per_sec processes_running processes_blocked",
    );
    has(
        &sample["cpu"],
        "process_utime_secs process_stime_secs process_rss_mib process_pss_mib process_memory_mib process_anon_mib \
         process_file_mib process_shmem_mib process_swap_mib process_hugetlb_mib process_io_accounting \
         process_disk_read_bytes process_disk_write_bytes process_cancelled_write_bytes process_read_chars \
         process_write_chars process_thread_count process_minor_faults process_major_faults \
         process_run_queue_wait_secs process_switches_accounting process_voluntary_context_switches \
         process_involuntary_context_switches",
    );
    has(
        &sample["memory"],
        "total_mib free_mib available_mib used_mib used_pct buffers_mib cached_mib swap_total_mib \
         swap_used_mib swap_used_pct active_mib inactive_mib major_faults_per_sec",
    );
    for interface in list(sample, "network") {
        has(
            interface,
            "interface ifindex kind lower master is_counted mac_address driver operstate speed_mbps mtu rx_bytes_per_sec \
             tx_bytes_per_sec rx_bytes_total tx_bytes_total rx_packets_per_sec tx_packets_per_sec rx_errors_total \
             tx_errors_total rx_dropped_total tx_dropped_total",
        );
    }
    for disk in list(sample, "disk") {
        has(
            disk,
            "device model vendor serial device_type capacity_bytes mounts read_bytes_per_sec write_bytes_per_sec \
             read_bytes_total write_bytes_total read_latency_ms write_latency_ms queue_length utilization_pct",
        );
        list(disk, "mounts")
            .iter()
            .for_each(|mount| has(mount, "mount_point filesystem total_bytes available_bytes used_bytes used_pct"));
    }
}
