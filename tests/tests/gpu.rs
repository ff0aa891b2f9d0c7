//! GPUs (specification 6.1.5): the real binary with stand-ins for the vendors' libraries, which are loaded as the real
//! ones are.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use resource_tracker_tests::gpu::{Nvml, WITH_GPUS, amd_machine, busy, with_gpus};
use resource_tracker_tests::{
    Recording, command, in_time, number, samples, shared_library, stop_when, text, track, tracker,
};
use serde_json::json;

#[test]
fn t_gpu_01_a_machine_without_gpus_has_an_empty_list() {
    let output = track(["-i", "0.1", "--output", "/dev/stdout", "--", "sleep", "0.4"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    for sample in samples(&output.stdout) {
        // Only a machine without GPUs can be looked at here.
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

#[test]
fn t_gpu_02_utilisation_is_a_percentage() {
    let odd = json!({ "utilization": [137, 255], "memory": [10, 5] });
    let nvml = Nvml::new(json!({ "devices": [busy(0), odd] }));
    for sample in nvml.some_samples() {
        for gpu in sample["gpu"].as_array().unwrap() {
            assert!((0.0..=100.0).contains(&number(gpu, "/utilization_pct")));
            assert!((0.0..=100.0).contains(&number(gpu, "/memory_utilization_pct")));
        }
    }
}

#[test]
fn t_gpu_03_no_more_memory_is_used_than_there_is() {
    let nvml = Nvml::new(json!({ "devices": [busy(0), { "memory": [100, 101] }] }));
    for sample in nvml.some_samples() {
        for gpu in sample["gpu"].as_array().unwrap() {
            assert!(number(gpu, "/vram_used_bytes") <= number(gpu, "/vram_total_bytes"));
        }
        assert_eq!(number(&sample, "/gpu/0/vram_used_pct"), 25.0);
    }
}

#[test]
fn t_gpu_04_a_device_without_memory_uses_no_share_of_it() {
    let nvml = Nvml::new(json!({ "devices": [{ "memory": [0, 0] }] }));
    for sample in nvml.some_samples() {
        assert_eq!((number(&sample, "/gpu/0/vram_total_bytes"), number(&sample, "/gpu/0/vram_used_pct")), (0.0, 0.0));
    }
}

#[test]
fn t_gpu_05_the_uuid_of_an_amd_card_is_its_pci_address() {
    let root = tempfile::tempdir().unwrap();
    let settings = amd_machine(root.path());
    let record = |tracker: &mut Command| {
        let recording = Recording::new();
        tracker.args(["-i", "0.1", "-o"]).arg(recording.path()).args(&settings);
        recording.run(tracker.args(["--", "sh", "-c", &recording.until(3, WITH_GPUS)]));
        with_gpus(&recording)
    };
    for sample in record(&mut command(tracker())) {
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
    for sample in record(command(tracker()).env("LD_LIBRARY_PATH", root.path())) {
        assert_eq!(sample["gpu"][0]["uuid"], "0000:c1:00.0");
        assert_eq!(number(&sample, "/gpu/0/vram_total_bytes"), (192u64 << 30) as f64, "from libdrm");
        assert_eq!((number(&sample, "/gpu/0/vram_used_pct"), number(&sample, "/gpu/0/core_count")), (25.0, 19456.0));
    }
}

#[test]
fn every_field_of_a_device() {
    let device = json!({
        "uuid": "GPU-1234", "name": "NVIDIA H100 80GB HBM3", "minor": 3, "utilization": [97, 41],
        "memory": [85899345920u64, 42949672960u64], "temperature": 61, "milliwatts": 655500, "limit_milliwatts": 700000,
        "megahertz": [1755, 2619], "encoder": 5, "decoder": 7, "fans": [30, 45], "throttle": 0x24, "state": 2,
        "pcie": [1500, 2500], "pcie_link": [4, 5, 8, 16], "links": 18, "link_kib_per_sec": 1048576, "ecc": [12, 1],
        "gpm": 83.5, "gpm_pcie": [1.5, 2.5], "average_milliwatts": 640_250, "processes": [{ "pid": 1, "bytes": 5, "share": 7 }],
    });
    let nvml = Nvml::new(json!({ "devices": [device] }));
    in_time(|| every_field(&nvml));
}

/// Asserts that each field has its value. Returns whether those that depend on the time between readings have it, too.
fn every_field(nvml: &Nvml) -> bool {
    let recording = Recording::new();
    let mut tracker = nvml.tracker();
    tracker.env("CUDA_VISIBLE_DEVICES", "0,2").env("NVIDIA_VISIBLE_DEVICES", "all").args(["-i", "0.1", "-o"]);
    let script = recording.until(15, WITH_GPUS);
    let output = recording.run(tracker.arg(recording.path()).args(["--", "sh", "-c", &script]));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let recorded = recording.samples();
    let all = with_gpus(&recording);
    let sample = &all[all.len() - 1];
    let gpu = &sample["gpu"][0];
    let expected = json!({
        "uuid": "GPU-1234", "name": "NVIDIA H100 80GB HBM3", "device_type": "GPU", "host_id": "nvidia3",
        "parent_uuid": null, "utilization_pct": 97.0, "vram_total_bytes": 85899345920u64,
        "vram_used_bytes": 42949672960u64, "vram_used_pct": 50.0, "temperature_celsius": 61, "power_watts": 655.5,
        "power_instant_watts": 655.5, "power_average_watts": 640.25, "process_sm_utilization_pct": 7.0,
        "frequency_mhz": 1755, "core_count": 16896, "sm_utilization_pct": 83.5, "memory_utilization_pct": 41.0,
        "encoder_utilization_pct": 5.0, "decoder_utilization_pct": 7.0, "memory_frequency_mhz": 2619,
        "power_limit_watts": 700.0, "fan_speed_pct": 45.0, "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
        "performance_state": "P2", "pcie_tx_bytes_per_sec": 1572864.0, "pcie_rx_bytes_per_sec": 2621440.0,
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
    assert_eq!(gpu["nvlinks"].as_array().unwrap().len(), 18);
    // Known fields only, so that none is added without being looked at here.
    let seen = ["detail", "energy_joules", "nvlink_tx_bytes_per_sec", "nvlink_rx_bytes_per_sec", "nvlinks"];
    let unknown =
        gpu.as_object().unwrap().keys().find(|key| expected.get(key).is_none() && !seen.contains(&key.as_str()));
    assert_eq!(unknown, None);
    let host =
        recorded.iter().find_map(|sample| sample.get("host").filter(|host| host.get("host_vcpus").is_some())).unwrap();
    assert_eq!((&host["host_gpu_model"], &host["host_gpu_count"]), (&json!("NVIDIA H100 80GB HBM3"), &json!(1)));
    assert_eq!(host["host_gpu_vram_mib"], json!(81920));
    // 1 GiB/s over each of 18 links, and half of it back; the clocks of both sides differ a little.
    let gib = f64::from(1 << 30);
    let rates = [
        (number(gpu, "/nvlink_tx_bytes_per_sec"), 18.0 * gib),
        (number(gpu, "/nvlink_rx_bytes_per_sec"), 9.0 * gib),
        (number(gpu, "/nvlinks/17/tx_bytes_per_sec"), gib),
    ];
    // 655.5 W from the first reading, which is the start, to the last.
    let joules: f64 = all.iter().map(|sample| sample["gpu"][0]["energy_joules"].as_f64().unwrap_or(0.0)).sum();
    let secs = (number(sample, "/timestamp_ms") - number(&all[0], "/timestamp_ms")) / 1000.0;
    println!("{rates:?}, {joules} J in {secs} s");
    rates.iter().all(|(told, true_rate)| (told / true_rate - 1.0).abs() < 0.2)
        && (0.865..1.12).contains(&(joules / (655.5 * secs)))
}

#[test]
fn the_columns_are_sums_over_all_gpus() {
    let nvml =
        Nvml::new(json!({ "copies": 8, "devices": [{ "utilization": [75, 0], "memory": [1u64 << 34, 3u64 << 30] }] }));
    let expected = [("gpu_usage", "6.0000"), ("gpu_vram", "24576.0000"), ("gpu_utilized", "8")];
    nvml.assert_row(&[], ",6.0000,24576.0000,8", "", &expected);
}

#[test]
fn a_field_that_is_not_supported_is_null_and_the_others_are_there() {
    let errors =
        json!({ "nvmlDeviceGetTemperature": 3, "nvmlDeviceGetPowerUsage": 4, "nvmlDeviceGetMemoryInfo_v2": 15 });
    let nvml = Nvml::new(json!({ "devices": [{ "utilization": [44, 1], "errors": errors }] }));
    for sample in nvml.some_samples() {
        let gpu = &sample["gpu"][0];
        for field in ["temperature_celsius", "power_watts", "vram_total_bytes", "vram_used_bytes", "vram_used_pct"] {
            assert_eq!(gpu[field], json!(null), "{field}");
        }
        assert_eq!((number(gpu, "/utilization_pct"), number(gpu, "/frequency_mhz")), (44.0, 1980.0));
    }
}

#[test]
fn the_tracker_alone_tells_gpus_and_no_job() {
    let nvml = Nvml::new(json!({ "devices": [busy(0)] }));
    let output = stop_when(3, WITH_GPUS, nvml.tracker().args(["-i", "0.1"]));
    let all = samples(&output.stdout).into_iter();
    for sample in all.filter(|sample| sample["gpu"] != json!([])) {
        assert_eq!((number(&sample, "/gpu/0/utilization_pct"), &sample["gpu"][0]["processes"]), (70.0, &json!(null)));
        assert_eq!(sample["cpu"]["process_gpu_usage"], json!(null));
    }
}
