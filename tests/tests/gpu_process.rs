//! What the processes of the job have of the GPUs, and of parts of them.

use flaky_test::flaky_test;
use resource_tracker_tests::gpu::{Nvml, assert_row, with_gpus};
use resource_tracker_tests::{command, has, is_root, number, text, tracker};
use serde_json::{Value as Json, json};

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
fn a_list_of_processes_that_grows_while_it_is_read() {
    let process = json!({ "argument": "9.25", "bytes": 1u64 << 30, "share": 10 });
    let nvml = Nvml::new(json!({ "devices": [{ "churn": true, "processes": [process] }] }));
    let all = with_gpus(&nvml.run(&["-i", "0.1", "--", "timeout", "1", "sleep", "9.25"]));
    let held = all.iter().filter(|sample| sample["cpu"]["process_gpu_vram_mib"] == json!(1024.0)).count();
    assert!(held + 4 >= all.len(), "{held} of {}", all.len());
}
