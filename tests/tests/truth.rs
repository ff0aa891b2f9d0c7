//! Figures against the truth: what a job of known appetite used, as others count it.

use std::path::Path;

use resource_tracker_tests::{command, has, in_time, is_root, number, samples, text, tracker};
use serde_json::Value as Json;

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// Runs a job under the tracker. What the job printed, and the samples. The job finds them in the file `$SAMPLES`.
fn record(options: &[&str], job: &[&str]) -> (String, Vec<Json>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let output = command(tracker())
        .args(options)
        .arg("-o")
        .arg(&path)
        .arg("--")
        .args(job)
        .env("SAMPLES", &path)
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    (text(&output.stdout), samples(&std::fs::read(&path).unwrap()))
}

fn total(samples: &[Json], pointer: &str) -> f64 {
    samples.iter().map(|sample| number(sample, pointer)).sum()
}

#[test]
fn three_cores_for_two_seconds() {
    let cores = std::thread::available_parallelism().unwrap().get().min(3);
    let (printed, samples) = record(&["-i", "0.5"], &[JOB, "burn", &cores.to_string(), "2000"]);
    let times: Vec<f64> = printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let (cpu, wall) = (times[0], times[1]);
    // What a busy machine gave the job is what counts, not what the job would have liked.
    let counted = total(&samples, "/cpu/process_utime_secs") + total(&samples, "/cpu/process_stime_secs");
    assert!((counted - cpu).abs() < 0.05 * cores as f64, "counted {counted} s of {cpu} s");
    let used: f64 =
        samples.iter().map(|sample| number(sample, "/cpu/process_cores_used") * number(sample, "/elapsed_secs")).sum();
    assert!((used - cpu).abs() < 0.05 * wall, "cores over time: {used} s of {cpu} s");
    let most = samples.iter().map(|sample| number(sample, "/cpu/process_cores_used")).fold(0.0, f64::max);
    assert!(most > cpu / wall - 0.05, "{most} cores of {}", cpu / wall);
    assert!(total(&samples, "/cpu/utime_secs") > 0.9 * cpu, "the machine used at least as much");
}

#[test]
fn three_hundred_mebibytes() {
    // Long enough for PSS to be read again on its budget, also where a reading is interrupted by others.
    let options = ["-i", "0.1", "--set", "sources.process.pss_budget_pct=1"];
    let (_, samples) = record(&options, &[JOB, "touch", "300", "8000"]);
    let most =
        |pointer: &str| samples.iter().filter_map(|sample| sample.pointer(pointer)?.as_f64()).fold(0.0, f64::max);
    for field in ["process_rss_mib", "process_pss_mib"] {
        let most = most(&format!("/cpu/{field}"));
        assert!((300.0..306.0).contains(&most), "{field}: {most}");
    }
}

#[test]
fn the_memory_of_a_process_whose_first_thread_has_ended() {
    let options = ["-i", "0.1", "--set", "sources.process.pss_budget_pct=1"];
    let (_, samples) = record(&options, &[JOB, "without-leader", "80", "4000"]);
    let most =
        |pointer: &str| samples.iter().filter_map(|sample| sample.pointer(pointer)?.as_f64()).fold(0.0, f64::max);
    for field in ["process_rss_mib", "process_pss_mib"] {
        let most = most(&format!("/cpu/{field}"));
        assert!((80.0..86.0).contains(&most), "{field}: {most}");
    }
    // What the kernel counts, the first one included until all have ended.
    assert_eq!(most("/cpu/process_thread_count"), 2.0);
}

/// As `free` of procps 4 has it: files in memory are used, and not available.
#[test]
fn two_hundred_mebibytes_of_files_in_memory() {
    let Ok(file) = tempfile::NamedTempFile::new_in("/dev/shm") else {
        println!("skipped: two_hundred_mebibytes_of_files_in_memory needs /dev/shm");
        return;
    };
    in_time(|| {
        std::fs::write(file.path(), "").unwrap();
        // A sample before the file is written, and one after that.
        let script = "sleep 0.4; head -c 209715200 /dev/zero >\"$0\" || exit 1; sleep 0.4; free -m";
        let (printed, samples) = record(&["-i", "0.1"], &["sh", "-c", script, file.path().to_str().unwrap()]);
        let (first, last) = (&samples[1], &samples[samples.len() - 1]);
        let grown =
            |field: &str| number(last, &format!("/memory/{field}")) - number(first, &format!("/memory/{field}"));
        let (shared, unavailable, used) = (grown("shared_mib"), grown("unavailable_mib"), grown("used_mib"));
        let line = printed.lines().find_map(|line| line.strip_prefix("Mem:"));
        let free: Vec<f64> = line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let agrees = |free: f64, field: &str| (free - number(last, &format!("/memory/{field}"))).abs() < 50.0;
        // Total, used, free, shared: versions before 4 do not count shared memory as used.
        let is_of_4 = free.len() > 5 && (free[0] - free[1] - free[5]).abs() < 2.0;
        println!("shared {shared}, unavailable {unavailable}, used {used} MiB; free says {free:?}");
        assert!((195.0..260.0).contains(&shared), "shared {shared} MiB");
        // Others use memory meanwhile as well.
        free.is_empty() || agrees(free[3], "shared_mib") && (!is_of_4 || agrees(free[1], "unavailable_mib"))
    });
}

#[test]
fn a_hundred_mebibytes_written_to_a_loop_device_with_4096_byte_sectors() {
    if is_root("a loop device") && has("losetup", "a loop device") {
        in_time(is_written_to_a_loop_device);
    }
}

/// Whether the readings of the disk were apart as the ticks were.
fn is_written_to_a_loop_device() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let backing = directory.path().join("backing");
    std::fs::File::create(&backing).unwrap().set_len(128 << 20).unwrap();
    let attach = command("losetup").args(["--sector-size", "4096", "--find", "--show"]).arg(&backing).output().unwrap();
    if !attach.status.success() {
        println!("skipped: no loop device with 4096-byte sectors: {}", text(&attach.stderr));
        return true;
    }
    let device = text(&attach.stdout).trim().to_owned();
    let name = Path::new(&device).file_name().unwrap().to_str().unwrap().to_owned();
    let written = |sample: &Json| {
        let disk = sample["disk"].as_array().unwrap().iter().find(|disk| disk["device"] == name.as_str()).cloned();
        disk.map(|disk| (number(&disk, "/write_bytes_total"), number(&disk, "/write_bytes_per_sec")))
    };
    // What a disk is, the tracker finds out beside the samples.
    let known = format!(r#"for turn in $(seq 200); do grep -q '"{name}"' "$SAMPLES" && break; sleep 0.05; done"#);
    let script = format!("{known}; {JOB} write {device} 100; sleep 1.2");
    // So long that what a busy machine delays a reading by is little of it.
    let (_, samples) = record(&["-i", "1"], &["sh", "-c", &script]);
    let detach = command("losetup").args(["--detach", &device]).status().unwrap();
    assert!(detach.success());
    let seen: Vec<(f64, f64)> = samples.iter().filter_map(written).collect();
    let grown = seen.last().unwrap().0 - seen.first().unwrap().0;
    assert_eq!(grown, 104_857_600.0);
    let by_rate: f64 =
        samples.iter().filter_map(|sample| Some(written(sample)?.1 * number(sample, "/elapsed_secs"))).sum();
    let by_job = total(&samples, "/cpu/process_disk_write_bytes");
    assert!((by_job / 104_857_600.0 - 1.0).abs() < 0.01, "the job's own account: {by_job}");
    // Rates are from reading to reading, and `elapsed_secs` from tick to tick.
    (by_rate / 104_857_600.0 - 1.0).abs() < 0.05
}

#[test]
fn sixty_four_mebibytes_through_a_pair_of_interfaces() {
    in_time(|| {
        if !is_root("network namespaces") || !has("ip", "network namespaces") || !has("nsenter", "network namespaces") {
            return true;
        }
        let script = r#"
        set -e
        unshare --net sleep 60 & peer=$!
        for turn in $(seq 400); do
            [ "$(readlink /proc/$peer/ns/net)" != "$(readlink /proc/$$/ns/net)" ] && break
            sleep 0.05
        done
        ip link add veth0 type veth peer name veth1 netns $peer
        ip addr add 10.99.0.1/24 dev veth0; ip link set veth0 up
        nsenter -t $peer -n ip addr add 10.99.0.2/24 dev veth1; nsenter -t $peer -n ip link set veth1 up
        nsenter -t $peer -n "$1" receive 10.99.0.2:5001 & receiver=$!
        # Port 5001 is 1389 there.
        for turn in $(seq 400); do nsenter -t $peer -n grep -q ':1389 ' /proc/net/tcp && break; sleep 0.05; done
        "$2" -i 0.1 -o - -- sh -c "sleep 0.3; $1 send 10.99.0.2:5001 64; sleep 0.3"
        wait $receiver; kill $peer
    "#;
        let output =
            command("unshare").args(["--net", "bash", "-c", script, "bash", JOB]).arg(tracker()).output().unwrap();
        if text(&output.stderr).contains("Unknown device type") || text(&output.stderr).contains("not supported") {
            println!("skipped: no veth interfaces: {}", text(&output.stderr));
            return true;
        }
        assert!(output.status.success(), "{}", text(&output.stderr));
        let samples = samples(&output.stdout);
        let interface = |sample: &Json| {
            sample["network"].as_array().unwrap().iter().find(|one| one["interface"] == "veth0").cloned().unwrap()
        };
        let sent = number(&interface(samples.last().unwrap()), "/tx_bytes_total")
            - number(&interface(&samples[0]), "/tx_bytes_total");
        let payload = f64::from(64 << 20);
        // The first sample is to be one from before.
        if number(&interface(&samples[0]), "/tx_bytes_total") > payload / 1000.0 {
            return false;
        }
        // Headers of Ethernet, IP and TCP come on top.
        assert!((1.0..1.05).contains(&(sent / payload)), "{sent} of {payload}");
        let by_rate: f64 = samples[1..]
            .iter()
            .map(|sample| number(&interface(sample), "/tx_bytes_per_sec") * number(sample, "/elapsed_secs"))
            .sum();
        // Rates are from reading to reading, and `elapsed_secs` from tick to tick.
        (by_rate / sent - 1.0).abs() < 0.05
    });
}
