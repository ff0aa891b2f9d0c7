//! GPUs (specification 6.1.5): the real binary with stand-ins for the vendors' libraries, which are loaded as the real
//! ones are.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flaky_test::flaky_test;
use resource_tracker_tests::{
    command, has, is_root, number, samples, shared_library, stop_after, text, track, tracker,
};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// A folder with the stand-in for NVML under its real name, and its script.
struct Nvml {
    folder: TempDir,
}

impl Nvml {
    fn new(script: Json) -> Self {
        let nvml = Self { folder: tempfile::tempdir().unwrap() };
        symlink(shared_library("fake-nvml"), nvml.folder.path().join("libnvidia-ml.so.1")).unwrap();
        nvml.play(script);
        nvml
    }

    fn play(&self, script: Json) {
        // In one step, because it can be read at any time.
        fs::write(self.folder.path().join("next"), script.to_string()).unwrap();
        fs::rename(self.folder.path().join("next"), self.script()).unwrap();
    }

    fn script(&self) -> PathBuf {
        self.folder.path().join("script.json")
    }

    /// The tracker, which finds the library as the dynamic linker does.
    fn tracker(&self) -> Command {
        let mut tracker = command(tracker());
        tracker.env("LD_LIBRARY_PATH", self.folder.path()).env("FAKE_NVML", self.script());
        tracker
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.tracker().args(arguments).output().unwrap()
    }
}

/// The samples that have GPUs: the library takes a while to load.
fn with_gpus(output: &Output) -> Vec<Json> {
    let stream = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    let all = samples(stream).into_iter();
    let found: Vec<Json> = all.filter(|sample| !sample["gpu"].as_array().unwrap().is_empty()).collect();
    assert!(!found.is_empty(), "{}", text(stream));
    found
}

fn busy(number: u32) -> Json {
    json!({
        "uuid": format!("GPU-{number}"), "minor": number, "utilization": [70, 30], "memory": [80u64 << 30, 20u64 << 30],
    })
}

#[test]
fn t_gpu_01_a_machine_without_gpus_has_an_empty_list() {
    let output = track(["-i", "0.1", "--output", "/dev/stdout", "--", "sleep", "0.4"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    for sample in samples(&output.stdout) {
        // On a machine with GPUs there is no such machine to look at.
        if !Path::new("/dev/nvidiactl").exists() && !Path::new("/sys/module/amdgpu").exists() {
            assert_eq!(sample["gpu"], json!([]));
            assert_eq!(sample["cpu"]["process_gpu_usage"], json!(null));
        }
    }
    let nvml = Nvml::new(json!({}));
    let output = nvml.run(&["-i", "0.1", "--output", "/dev/stdout", "--", "sleep", "0.4"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    assert!(samples(&output.stdout).iter().all(|sample| sample["gpu"] == json!([])));
}

#[test]
fn no_gpu_library_is_linked() {
    let output = Command::new("ldd").arg(tracker()).output().unwrap();
    let libraries = text(&output.stdout);
    assert!(libraries.contains("libc.so"), "{libraries}");
    assert!(!["nvidia", "drm", "rocm", "cuda"].iter().any(|name| libraries.contains(name)), "{libraries}");
}

#[flaky_test]
fn t_gpu_02_utilisation_is_a_percentage() {
    let odd = json!({ "utilization": [137, 255], "memory": [10, 5] });
    let nvml = Nvml::new(json!({ "devices": [busy(0), odd] }));
    for sample in with_gpus(&nvml.run(&["-i", "0.1", "--", "sleep", "0.4"])) {
        for gpu in sample["gpu"].as_array().unwrap() {
            assert!((0.0..=100.0).contains(&number(gpu, "/utilization_pct")));
            assert!((0.0..=100.0).contains(&number(gpu, "/memory_utilization_pct")));
        }
    }
}

#[flaky_test]
fn t_gpu_03_no_more_memory_is_used_than_there_is() {
    let nvml = Nvml::new(json!({ "devices": [busy(0), { "memory": [100, 101] }] }));
    for sample in with_gpus(&nvml.run(&["-i", "0.1", "--", "sleep", "0.4"])) {
        for gpu in sample["gpu"].as_array().unwrap() {
            assert!(number(gpu, "/vram_used_bytes") <= number(gpu, "/vram_total_bytes"));
        }
        assert_eq!(number(&sample, "/gpu/0/vram_used_pct"), 25.0);
    }
}

#[flaky_test]
fn t_gpu_04_a_device_without_memory_uses_no_share_of_it() {
    let nvml = Nvml::new(json!({ "devices": [{ "memory": [0, 0] }] }));
    for sample in with_gpus(&nvml.run(&["-i", "0.1", "--", "sleep", "0.4"])) {
        assert_eq!((number(&sample, "/gpu/0/vram_total_bytes"), number(&sample, "/gpu/0/vram_used_pct")), (0.0, 0.0));
    }
}

/// A machine with one AMD card, as sysfs shows it.
fn amd_machine(root: &Path) -> Vec<String> {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("module/amdgpu/version", "6.12.12\n");
    let device = "class/drm/card1/device";
    write(&format!("{device}/uevent"), "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:c1:00.0\n");
    write(&format!("{device}/device"), "0x74a1\n");
    write(&format!("{device}/revision"), "0x00\n");
    write(&format!("{device}/gpu_busy_percent"), "50\n");
    write(&format!("{device}/mem_info_vram_total"), "1000\n");
    write(&format!("{device}/mem_info_vram_used"), "100\n");
    write(&format!("{device}/drm/renderD128/dev"), "226:128\n");
    write("dri/renderD128", "");
    let set = |key: &str, path: PathBuf| format!("--set={key}={}", path.display());
    vec![set("tracker.sysfs", root.to_owned()), set("sources.amd.devices", root.join("dri"))]
}

#[flaky_test]
fn t_gpu_05_the_uuid_of_an_amd_card_is_its_pci_address() {
    let root = tempfile::tempdir().unwrap();
    let settings = amd_machine(root.path());
    let plain = command(tracker()).args(["-i", "0.1"]).args(&settings).args(["--", "sleep", "0.4"]).output().unwrap();
    for sample in with_gpus(&plain) {
        assert_eq!(sample["gpu"][0]["uuid"], "0000:c1:00.0");
        assert_eq!(sample["gpu"][0]["name"], "AMD Instinct MI300X");
        assert_eq!(number(&sample, "/gpu/0/vram_total_bytes"), 1000.0, "from sysfs");
        assert_eq!(sample["gpu"][0]["core_count"], json!(null));
    }

    // The same with libdrm, which knows more.
    let libdrm = shared_library("fake-libdrm");
    for name in ["libdrm.so.2", "libdrm_amdgpu.so.1"] {
        symlink(&libdrm, root.path().join(name)).unwrap();
    }
    let mut tracker = command(tracker());
    tracker.env("LD_LIBRARY_PATH", root.path()).args(["-i", "0.1"]).args(&settings).args(["--", "sleep", "0.4"]);
    for sample in with_gpus(&tracker.output().unwrap()) {
        assert_eq!(sample["gpu"][0]["uuid"], "0000:c1:00.0");
        assert_eq!(number(&sample, "/gpu/0/vram_total_bytes"), (192u64 << 30) as f64, "from libdrm");
        assert_eq!((number(&sample, "/gpu/0/vram_used_pct"), number(&sample, "/gpu/0/core_count")), (25.0, 19456.0));
    }
}

#[flaky_test]
fn every_field_of_a_device() {
    let device = json!({
        "uuid": "GPU-1234", "name": "NVIDIA H100 80GB HBM3", "minor": 3, "utilization": [97, 41],
        "memory": [85899345920u64, 42949672960u64], "temperature": 61, "milliwatts": 655500, "limit_milliwatts": 700000,
        "megahertz": [1755, 2619], "encoder": 5, "decoder": 7, "fans": [30, 45], "throttle": 0x24, "state": 2,
        "pcie": [1500, 2500], "pcie_link": [4, 5, 8, 16], "links": 18, "link_kib_per_sec": 1048576, "ecc": [12, 1],
        "gpm": 83.5, "processes": [{ "pid": 1, "bytes": 5 }],
    });
    let nvml = Nvml::new(json!({ "devices": [device] }));
    let output = nvml
        .tracker()
        .env("CUDA_VISIBLE_DEVICES", "0,2")
        .env("NVIDIA_VISIBLE_DEVICES", "all")
        .args(["-i", "0.1", "--", "sleep", "1.5"])
        .output()
        .unwrap();
    let all = with_gpus(&output);
    let sample = &all[all.len() - 1];
    let gpu = &sample["gpu"][0];
    let expected = json!({
        "uuid": "GPU-1234", "name": "NVIDIA H100 80GB HBM3", "device_type": "GPU", "host_id": "nvidia3",
        "parent_uuid": null, "utilization_pct": 97.0, "vram_total_bytes": 85899345920u64,
        "vram_used_bytes": 42949672960u64, "vram_used_pct": 50.0, "temperature_celsius": 61, "power_watts": 655.5,
        "frequency_mhz": 1755, "core_count": 16896, "sm_utilization_pct": 83.5, "memory_utilization_pct": 41.0,
        "encoder_utilization_pct": 5.0, "decoder_utilization_pct": 7.0, "memory_frequency_mhz": 2619,
        "power_limit_watts": 700.0, "fan_speed_pct": 45.0, "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
        "performance_state": "P2", "pcie_tx_bytes_per_sec": 1.5e6, "pcie_rx_bytes_per_sec": 2.5e6,
        "pcie_link_generation": 4, "pcie_link_generation_max": 5, "pcie_link_width": 8, "pcie_link_width_max": 16,
        "nvlink_max_bytes_per_sec": 18.0 * 26_562e6, "ecc_corrected_errors": 12, "ecc_uncorrected_errors": 1,
        "process_count": 1, "processes": [],
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&gpu[key], value, "{key}");
    }
    let detail = json!({
        "driver_version": "570.86.15", "cuda_version": "12.8", "pci_bus_id": "00000000:03:00.0",
        "board_part_number": "900-21010-0000-000", "vbios_version": "96.00.74.00.01",
        "CUDA_VISIBLE_DEVICES": "0,2", "NVIDIA_VISIBLE_DEVICES": "all",
    });
    assert_eq!(gpu["detail"], detail);
    // 1 GiB/s over each of 18 links, and half of it back; the clocks of both sides differ a little.
    let gib = f64::from(1 << 30);
    assert!((number(gpu, "/nvlink_tx_bytes_per_sec") / (18.0 * gib) - 1.0).abs() < 0.2, "{gpu}");
    assert!((number(gpu, "/nvlink_rx_bytes_per_sec") / (9.0 * gib) - 1.0).abs() < 0.2);
    assert_eq!(gpu["nvlinks"].as_array().unwrap().len(), 18);
    assert!((number(gpu, "/nvlinks/17/tx_bytes_per_sec") / gib - 1.0).abs() < 0.2);
    let joules: f64 = all.iter().map(|sample| sample["gpu"][0]["energy_joules"].as_f64().unwrap_or(0.0)).sum();
    assert!(
        (850.0..1100.0).contains(&joules),
        "1.5 s at 655.5 W are 983 J, of which the first reading is the start: {joules}"
    );
    // Known fields only, so that none is added without being looked at here.
    let seen = ["detail", "energy_joules", "nvlink_tx_bytes_per_sec", "nvlink_rx_bytes_per_sec", "nvlinks"];
    let unknown =
        gpu.as_object().unwrap().keys().find(|key| expected.get(key).is_none() && !seen.contains(&key.as_str()));
    assert_eq!(unknown, None);
    let host =
        all.iter().find_map(|sample| sample.get("host").filter(|host| host.get("host_vcpus").is_some())).unwrap();
    assert_eq!((&host["host_gpu_model"], &host["host_gpu_count"]), (&json!("NVIDIA H100 80GB HBM3"), &json!(1)));
    assert_eq!(host["host_gpu_vram_mib"], json!(81920));
}

#[flaky_test]
fn what_the_job_has_of_two_gpus() {
    let job = json!([{ "argument": "7.25", "bytes": 3u64 << 30, "share": 60 }, { "pid": 1, "bytes": 1u64 << 30, "share": 9 }]);
    let first = json!({ "utilization": [70, 1], "memory": [80u64 << 30, 4u64 << 30], "processes": job });
    let draws = json!([{ "argument": "7.25", "bytes": 1u64 << 29, "share": 0, "draws": true }]);
    let second =
        json!({ "uuid": "GPU-1", "utilization": [0, 0], "memory": [80u64 << 30, 1u64 << 29], "processes": draws });
    let nvml = Nvml::new(json!({ "devices": [first, second] }));
    let arguments = ["-i", "0.2", "--", "timeout", "2.5", "sleep", "7.25"];
    let all = with_gpus(&nvml.run(&arguments));
    // The library looks for the process by its command line, and tells shares every sixth of a second.
    let held = |sample: &&Json| sample["cpu"]["process_gpu_usage"] == json!(0.6);
    let sample = all.iter().filter(held).nth(1).unwrap();
    let pid = sample["gpu"][0]["processes"][0]["pid"].as_u64().unwrap();
    let expected = json!([{ "pid": pid, "vram_bytes": 3u64 << 30, "utilization_pct": 60.0 }]);
    assert_eq!((&sample["gpu"][0]["processes"], &sample["gpu"][0]["process_count"]), (&expected, &json!(2)));
    assert_eq!(sample["gpu"][0]["sm_utilization_pct"], json!(69.0));
    let expected = json!([{ "pid": pid, "vram_bytes": 1u64 << 29, "utilization_pct": 0.0 }]);
    assert_eq!((&sample["gpu"][1]["processes"], &sample["gpu"][1]["process_count"]), (&expected, &json!(0)));
    assert_eq!(number(sample, "/cpu/process_gpu_usage"), 0.6);
    assert_eq!(number(sample, "/cpu/process_gpu_vram_mib"), 3584.0);
    assert_eq!(number(sample, "/cpu/process_gpu_utilized"), 1.0);

    // The same in the columns of the service, and of the machine.
    let arguments = ["-i", "0.2", "--format=csv", "--csv-columns=sentinel", "--", "timeout", "2.5", "sleep", "7.25"];
    let output = nvml.run(&arguments);
    assert_row(
        &output,
        &[("process_gpu_usage", "0.6000"), ("process_gpu_vram_mib", "3584.0000"), ("process_gpu_utilized", "1")],
    );
    assert_row(
        &output,
        &[("system_gpu_usage", "0.7000"), ("system_gpu_vram_mib", "4608.0000"), ("system_gpu_utilized", "1")],
    );
}

/// That a row of the CSV has these values in these columns. (In the first ones the library may still be starting.)
#[track_caller]
fn assert_row(output: &Output, expected: &[(&str, &str)]) {
    let csv = text(&output.stderr);
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().unwrap();
    let column = |name: &str| header.iter().position(|column| *column == name).unwrap();
    let has_all = |row: Vec<&str>| expected.iter().all(|(name, value)| row[column(name)] == *value);
    assert!(lines.any(has_all), "{expected:?} in\n{csv}");
}

/// In a container the driver may name processes by their numbers on the host, which say nothing there.
#[flaky_test]
fn processes_of_another_pid_namespace_are_not_taken_for_ours() {
    let test = "processes_of_another_pid_namespace_are_not_taken_for_ours";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let stranger = json!([{ "pid": 3_999_999, "bytes": 1u64 << 30, "share": 50 }]);
    let nvml = Nvml::new(json!({ "devices": [{ "utilization": [50, 1], "processes": stranger }] }));
    let mut inside = command("unshare");
    inside.env("LD_LIBRARY_PATH", nvml.folder.path()).env("FAKE_NVML", nvml.script());
    inside.args(["--pid", "--fork", "--mount-proc"]).arg(tracker());
    let output = inside.args(["-i", "0.2", "--output=/dev/stdout", "--", "sleep", "2.5"]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1), "{said}");
    assert!(said.contains("the driver names process 3999999, which is not in this pid namespace"), "{said}");
    for sample in with_gpus(&output) {
        assert_eq!((&sample["gpu"][0]["processes"], &sample["gpu"][0]["process_count"]), (&json!(null), &json!(1)));
        assert_eq!(sample["cpu"]["process_gpu_vram_mib"], json!(null), "not known, and not zero");
    }
}

#[flaky_test]
fn the_columns_are_sums_over_all_gpus() {
    let nvml =
        Nvml::new(json!({ "copies": 8, "devices": [{ "utilization": [75, 0], "memory": [1u64 << 34, 3u64 << 30] }] }));
    let output = nvml.run(&["-i", "0.2", "--format=csv", "--", "sleep", "1"]);
    assert_row(&output, &[("gpu_usage", "6.0000"), ("gpu_vram", "24576.0000"), ("gpu_utilized", "8")]);
}

#[flaky_test]
fn parts_of_a_gpu_are_devices_of_their_own() {
    let unsupported = 3;
    let part = |number: u32, processes: Json| {
        json!({
            "uuid": format!("MIG-{number}"), "name": "NVIDIA H100 MIG 3g.40gb", "memory": [40u64 << 30, 4u64 << 30],
            "processes": processes,
        })
    };
    let parts = [part(0, json!([{ "argument": "8.25", "bytes": 1u64 << 30 }])), part(1, json!([]))];
    let errors =
        json!({ "nvmlDeviceGetUtilizationRates": unsupported, "nvmlDeviceGetProcessUtilization": unsupported });
    let whole = json!({ "memory": [80u64 << 30, 8u64 << 30], "parts": parts, "errors": errors });
    let nvml = Nvml::new(json!({ "devices": [whole] }));
    let all = with_gpus(&nvml.run(&["-i", "0.2", "--", "timeout", "2", "sleep", "8.25"]));
    // The library looks for the process by its command line, which takes a while on a busy machine.
    let held = |sample: &&Json| sample["cpu"]["process_gpu_vram_mib"] == json!(1024.0);
    let sample = all.iter().filter(held).nth(1).unwrap();
    let host_ids: Vec<&Json> = sample["gpu"].as_array().unwrap().iter().map(|gpu| &gpu["host_id"]).collect();
    assert_eq!(host_ids, [&json!("nvidia0"), &json!("nvidia0/0"), &json!("nvidia0/1")]);
    assert_eq!((&sample["gpu"][0]["utilization_pct"], &sample["gpu"][0]["processes"]), (&json!(null), &json!(null)));
    assert_eq!(sample["gpu"][1]["parent_uuid"], sample["gpu"][0]["uuid"]);
    assert_eq!(sample["gpu"][1]["detail"]["multiprocessors"], "16");
    assert_eq!(sample["gpu"][1]["processes"][0]["vram_bytes"], json!(1 << 30));
    assert_eq!(sample["gpu"][2]["processes"], json!([]));
    // What each process uses is not told of a part.
    assert_eq!(sample["cpu"]["process_gpu_usage"], json!(null));
    assert_eq!(number(sample, "/cpu/process_gpu_vram_mib"), 1024.0);
    // The memory of the whole counts once.
    let output = nvml.run(&["-i", "0.2", "--format=csv", "--", "sleep", "1"]);
    assert_row(&output, &[("gpu_usage", "0.0000"), ("gpu_vram", "8192.0000"), ("gpu_utilized", "0")]);
}

#[flaky_test]
fn a_field_that_is_not_supported_is_null_and_the_others_are_there() {
    let errors =
        json!({ "nvmlDeviceGetTemperature": 3, "nvmlDeviceGetPowerUsage": 4, "nvmlDeviceGetMemoryInfo_v2": 15 });
    let nvml = Nvml::new(json!({ "devices": [{ "utilization": [44, 1], "errors": errors }] }));
    let output = nvml.run(&["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "0.5"]);
    assert_eq!(text(&output.stderr), "");
    for sample in with_gpus(&output) {
        let gpu = &sample["gpu"][0];
        for field in ["temperature_celsius", "power_watts", "vram_total_bytes", "vram_used_bytes", "vram_used_pct"] {
            assert_eq!(gpu[field], json!(null), "{field}");
        }
        assert_eq!((number(gpu, "/utilization_pct"), number(gpu, "/frequency_mhz")), (44.0, 1980.0));
    }
}

#[flaky_test]
fn a_gpu_that_falls_off_the_bus_keeps_its_name_and_one_that_appears_is_found() {
    let nvml = Nvml::new(json!({ "devices": [busy(0)] }));
    let tracker = nvml
        .tracker()
        .args(["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    let mut lost = busy(0);
    lost["errors"] = json!({ "*": 15 });
    nvml.play(json!({ "devices": [lost] }));
    std::thread::sleep(std::time::Duration::from_millis(600));
    nvml.play(json!({ "devices": [busy(0), busy(1)] }));
    let output = tracker.wait_with_output().unwrap();
    let all = with_gpus(&output);
    let kinds: Vec<(usize, bool)> = all
        .iter()
        .map(|sample| {
            let list = sample["gpu"].as_array().unwrap();
            assert_eq!(list[0]["uuid"], "GPU-0");
            (list.len(), list[0]["utilization_pct"].is_null())
        })
        .collect();
    for kind in [(1, false), (1, true), (2, false)] {
        assert!(kinds.contains(&kind), "{kind:?} in {kinds:?}");
    }
}

/// Ticks are taken from the timestamps: none is missing, and none late by more than half an interval.
fn assert_on_time(all: &[Json], interval: f64) {
    let times: Vec<f64> = all.iter().map(|sample| number(sample, "/timestamp_ms") / 1000.0).collect();
    // The last sample is taken when the command ends.
    let late = times[..times.len() - 1].windows(2).filter(|pair| pair[1] - pair[0] > interval * 1.5).count();
    assert!(late <= times.len() / 50, "{late} of {} were late", times.len());
}

#[flaky_test]
fn sixteen_gpus_at_10_hz_never_delay_a_sample() {
    let device = json!({ "utilization": [50, 1], "links": 18, "link_kib_per_sec": 9, "gpm": 5.0, "fans": [1], "churn": true,
                         "processes": [{ "pid": 1, "bytes": 1, "share": 5 }] });
    let nvml = Nvml::new(json!({ "copies": 16, "devices": [device] }));
    let output = nvml.run(&["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "4"]);
    assert_eq!(text(&output.stderr), "");
    let all = samples(&output.stdout);
    assert!(all.len() >= 39, "{}", all.len());
    assert_on_time(&all, 0.1);
    assert_eq!(all[all.len() - 2]["gpu"].as_array().unwrap().len(), 16);
}

#[flaky_test]
fn a_call_that_hangs_harms_no_other_section() {
    for call in ["nvmlInit_v2", "nvmlDeviceGetPowerUsage"] {
        let nvml = Nvml::new(json!({ "copies": 16, "devices": [busy(0)], "slow": { call: 30.0 } }));
        let mut tracker = nvml.tracker();
        let start = std::time::Instant::now();
        let output = tracker.args(["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "3"]).output().unwrap();
        assert!(start.elapsed().as_secs_f64() < 6.0, "the end does not wait for it");
        assert_eq!(output.status.code(), Some(0));
        let said = text(&output.stderr);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("source nvidia has not answered for 2 s"), "{said}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 29, "{}", all.len());
        assert_on_time(&all, 0.1);
        assert!(all.iter().all(|sample| sample["gpu"] == json!([]) && sample["cpu"]["utime_secs"].is_number()));
    }
}

/// The thread of the source may be in the library when the run ends.
#[test]
fn the_end_of_the_run_is_not_the_end_of_the_library() {
    let nvml = Nvml::new(json!({ "copies": 16, "devices": [busy(0)], "slow": { "nvmlDeviceGetPowerUsage": 0.002 } }));
    for _ in 0..5 {
        let output = nvml.run(&["-i", "10ms", "-q", "--", "sh", "-c", "sleep 0.3; exit 3"]);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
    }
}

#[flaky_test]
fn a_list_of_processes_that_grows_while_it_is_read() {
    let process = json!({ "argument": "9.25", "bytes": 1u64 << 30, "share": 10 });
    let nvml = Nvml::new(json!({ "devices": [{ "churn": true, "processes": [process] }] }));
    let all = with_gpus(&nvml.run(&["-i", "0.1", "--", "timeout", "1", "sleep", "9.25"]));
    let held = all.iter().filter(|sample| sample["cpu"]["process_gpu_vram_mib"] == json!(1024.0)).count();
    assert!(held + 4 >= all.len(), "{held} of {}", all.len());
}

/// What cannot be used is said once, with its name and the reason, and everything else is as it was.
#[flaky_test]
fn a_library_that_is_not_nvml_or_too_old_switches_the_source_off() {
    let folder = tempfile::tempdir().unwrap();
    let text_file = folder.path().join("libnvidia-ml.so.1");
    fs::write(&text_file, "no library").unwrap();
    let cases = [
        (text_file, "file too short"),
        (shared_library("fake-libdrm"), "nvmlInit_v2"),
        (shared_library("fake-nvml-old"), "nvmlDeviceGetHandleByIndex_v2"),
        (folder.path().join("missing.so"), "No such file"),
    ];
    for (library, reason) in cases {
        let set = format!("--set=sources.nvidia.library={}", library.display());
        let output = track(["-i", "0.1", &set, "--output=/dev/stdout", "--", "sh", "-c", "sleep 0.5; exit 3"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(said.contains(&library.display().to_string()) && said.contains(reason), "{said}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 4 && all.iter().all(|sample| sample["gpu"] == json!([])));
    }
    // Found by the linker, and not NVML: the same.
    let output = command(tracker())
        .env("LD_LIBRARY_PATH", folder.path())
        .args(["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "0.3"])
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("libnvidia-ml.so.1: file too short"), "{}", text(&output.stderr));
}

#[test]
fn a_broken_table_of_the_firmware_switches_the_source_off() {
    let root = tempfile::tempdir().unwrap();
    let settings = amd_machine(root.path());
    let table = root.path().join("class/drm/card1/device/gpu_metrics");
    fs::write(&table, [0x40, 0, 200, 77, 1, 2, 3]).unwrap();
    let output = command(tracker())
        .args(["-i", "0.1", "--output=/dev/stdout"])
        .args(&settings)
        .args(["--", "sleep", "0.4"])
        .output()
        .unwrap();
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&table.display().to_string()) && said.contains("version 200.77"), "{said}");
    assert!(samples(&output.stdout).iter().all(|sample| sample["gpu"] == json!([])));
}

#[test]
fn a_driver_that_is_not_loaded_is_no_reason_to_speak() {
    let driver_not_loaded = 9;
    let nvml = Nvml::new(json!({ "init": driver_not_loaded, "devices": [busy(0)] }));
    let output = nvml.run(&["-i", "0.1", "--output=/dev/stdout", "--", "sleep", "0.3"]);
    assert_eq!(text(&output.stderr), "");
}

/// The calls into both vendors' libraries, under valgrind.
#[flaky_test]
fn the_boundary_is_clean() {
    if !has("valgrind", "the_boundary_is_clean") {
        return;
    }
    let process = json!({ "pid": 1, "bytes": 1, "share": 5 });
    let device = json!({ "utilization": [50, 1], "links": 2, "gpm": 5.0, "fans": [1], "churn": true,
                         "processes": [process], "parts": [{}] });
    let nvml = Nvml::new(json!({ "copies": 2, "devices": [device] }));
    let libdrm = shared_library("fake-libdrm");
    for name in ["libdrm.so.2", "libdrm_amdgpu.so.1"] {
        symlink(&libdrm, nvml.folder.path().join(name)).unwrap();
    }
    let output = command("valgrind")
        .env("LD_LIBRARY_PATH", nvml.folder.path())
        .env("FAKE_NVML", nvml.script())
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"])
        .arg(tracker())
        .args(["-i", "0.1", "--output=/dev/stdout"])
        .args(amd_machine(nvml.folder.path()))
        .args(["--", "sleep", "4"])
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let found = with_gpus(&output);
    assert_eq!(found[found.len() - 1]["gpu"].as_array().unwrap().len(), 5);
}

/// 100,000 readings of a machine with everything, at 1 ms: the memory of the tracker stays what it was. The job ends
/// when the library has counted them, however long the machine takes (a quarter of an hour at most).
#[test]
fn memory_is_flat_over_many_collections() {
    let long = std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some();
    let (warm, enough) = if long { (3_000, 100_000) } else { (1_000, 4_000) };
    let device = json!({ "utilization": [50, 1], "links": 2, "gpm": 5.0, "fans": [1],
                         "processes": [{ "pid": 1, "bytes": 1, "share": 5 }], "parts": [{}] });
    let folder = tempfile::tempdir().unwrap();
    let collections = folder.path().join("collections");
    fs::write(&collections, "0").unwrap();
    let nvml = Nvml::new(json!({ "devices": [device], "collections": collections }));
    let rss = nvml.folder.path().join("rss");
    let job = format!(
        r#"end=$(($(date +%s) + 900))
        for count in {warm} {enough}; do
            until [ "$(cat {collections})0" -ge "${{count}}0" ]; do
                [ "$(date +%s)" -lt "$end" ] || exit 9
                sleep 0.1
            done
            grep RssAnon /proc/$PPID/status >>{rss}
        done"#,
        collections = collections.display(),
        rss = rss.display()
    );
    let output = nvml.run(&["-i", "1ms", "-q", "--disable", "sentinel-s3", "--", "sh", "-c", &job]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let text = fs::read_to_string(rss).unwrap();
    let kib: Vec<u64> = text.lines().map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap()).collect();
    println!("RssAnon after {warm} and after {enough} collections: {kib:?} KiB");
    assert!(kib[1] <= kib[0] + 256, "{kib:?}");
}

#[flaky_test]
fn the_tracker_alone_tells_gpus_and_no_job() {
    let nvml = Nvml::new(json!({ "devices": [busy(0)] }));
    let output = stop_after(8, nvml.tracker().args(["-i", "0.1"]));
    for sample in with_gpus(&output) {
        assert_eq!((number(&sample, "/gpu/0/utilization_pct"), &sample["gpu"][0]["processes"]), (70.0, &json!(null)));
        assert_eq!(sample["cpu"]["process_gpu_usage"], json!(null));
    }
}
