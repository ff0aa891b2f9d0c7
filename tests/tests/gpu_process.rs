//! What the processes of the job have of the GPUs, and of parts of them.

use resource_tracker_tests::gpu::{Nvml, WITH_GPUS, busy, with_gpus};
use resource_tracker_tests::{Recording, command, has, is_root, number, text, tracker};
use serde_json::{Value as Json, json};

#[test]
fn what_the_job_has_of_two_gpus() {
    let job = json!([{ "argument": "1007.25", "bytes": 3u64 << 30, "share": 60 }, { "pid": 1, "bytes": 1u64 << 30, "share": 9 }]);
    let first = json!({ "utilization": [70, 1], "memory": [80u64 << 30, 4u64 << 30], "processes": job });
    let draws = json!([{ "argument": "1007.25", "bytes": 1u64 << 29, "share": 0, "draws": true }]);
    let second =
        json!({ "uuid": "GPU-1", "utilization": [0, 0], "memory": [80u64 << 30, 1u64 << 29], "processes": draws });
    let nvml = Nvml::new(json!({ "devices": [first, second] }));
    let recording = Recording::new();
    let job = format!("sleep 1007.25 & {}; kill $!", recording.until(2, "\"process_gpu_usage\":0.6"));
    nvml.record(&recording, &["-i", "0.2"], &job);
    let all = with_gpus(&recording);
    // The library looks for the process by its command line, and gives shares every sixth of a second.
    let held = |sample: &&Json| sample["cpu"]["process_gpu_usage"] == json!(0.6);
    let sample = all.iter().filter(held).nth(1).unwrap();
    let pid = sample["gpu"][0]["processes"][0]["pid"].as_u64().unwrap();
    let expected = json!([{ "pid": pid, "vram_bytes": 3u64 << 30, "utilization_pct": 60.0, "cu_occupancy_pct": null }]);
    assert_eq!((&sample["gpu"][0]["processes"], &sample["gpu"][0]["process_count"]), (&expected, &json!(2)));
    // Of no device without counters: the sum of what its processes used is something else.
    let use_of_all = (&sample["gpu"][0]["sm_utilization_pct"], &sample["gpu"][0]["process_sm_utilization_pct"]);
    assert_eq!(use_of_all, (&json!(null), &json!(69.0)));
    let expected = json!([{ "pid": pid, "vram_bytes": 1u64 << 29, "utilization_pct": 0.0, "cu_occupancy_pct": null }]);
    assert_eq!((&sample["gpu"][1]["processes"], &sample["gpu"][1]["process_count"]), (&expected, &json!(0)));
    assert_eq!(number(sample, "/cpu/process_gpu_usage"), 0.6);
    assert_eq!(number(sample, "/cpu/process_gpu_vram_mib"), 3584.0);
    assert_eq!(number(sample, "/cpu/process_gpu_utilized"), 1.0);

    // The same in the columns of the service, and of the machine.
    let (columns, job) = (["--csv-columns=sentinel"], "trap 'kill $!' EXIT; sleep 1007.25 &");
    let expected =
        [("process_gpu_usage", "0.6000"), ("process_gpu_vram_mib", "3584.0000"), ("process_gpu_utilized", "1")];
    nvml.assert_row(&columns, ",0.6000,3584.0000,1", job, &expected);
    let expected = [("system_gpu_usage", "0.7000"), ("system_gpu_vram_mib", "4608.0000"), ("system_gpu_utilized", "1")];
    nvml.assert_row(&columns, ",0.7000,4608.0000,1,", job, &expected);
}

/// The sum is of the very list in the sample, also where each reading of it is another.
#[test]
fn what_the_job_has_is_of_the_same_tick_as_the_gpus() {
    let job = json!([{ "pid": 3_999_998, "bytes": 1u64 << 30, "grows": 1 << 20, "share": 10 }]);
    let nvml = Nvml::new(json!({ "devices": [{ "utilization": [50, 1], "processes": job }] }));
    let recording = Recording::new();
    // The library gets the id of the process, because a search for it takes long, and a slow library is asked rarely.
    let sees = recording.until(10, "\"process_gpu_vram_mib\":1");
    let script = format!("sleep 1011.25 & sed -i s/3999998/$!/ \"$FAKE_NVML\"; {sees}; kill $!");
    nvml.record(&recording, &["-i", "50ms"], &script);
    let mut held = Vec::new();
    for sample in with_gpus(&recording) {
        let Some(sum) = sample["cpu"]["process_gpu_vram_mib"].as_f64() else { continue };
        let listed = sample["gpu"][0]["processes"].as_array().unwrap();
        let bytes: u64 = listed.iter().map(|process| process["vram_bytes"].as_u64().unwrap()).sum();
        assert_eq!(sum, (bytes >> 20) as f64, "{sample}");
        held.push(bytes);
    }
    held.dedup();
    assert!(held.len() > 3, "it changes with every reading: {held:?}");
}

/// A run in a pid namespace of its own. One process with the GPU is outside of it, and one may be in the job.
fn in_a_container(driver: &str, busy: u32, sees: impl Fn(&Recording) -> String) -> (Vec<Json>, String) {
    let stranger = json!({ "pid": 3_999_999, "bytes": 1u64 << 30, "share": 50 });
    let own = json!({ "argument": "1017.25", "bytes": 1u64 << 30, "share": 20 });
    let device = json!({ "utilization": [busy, 0], "processes": [stranger, own] });
    let nvml = Nvml::new(json!({ "driver": driver, "devices": [device] }));
    let mut inside = command("unshare");
    inside.env("LD_LIBRARY_PATH", nvml.folder.path()).env("FAKE_NVML", nvml.script());
    inside.args(["--pid", "--fork", "--mount-proc"]).arg(tracker());
    let recording = Recording::new();
    let script = sees(&recording);
    inside.args(["-i", "0.2", "-o"]).arg(recording.path()).args(["--", "sh", "-c", &script]);
    let output = recording.run(&mut inside);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    (with_gpus(&recording), said)
}

/// In a container, drivers before 535.113 name processes by their numbers on the host, which say nothing there.
#[test]
fn processes_of_another_pid_namespace_are_not_taken_for_ours() {
    let test = "processes_of_another_pid_namespace_are_not_taken_for_ours";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let sees = |recording: &Recording| {
        format!("{}; {}", recording.until_said("is not in this pid namespace"), recording.until(3, WITH_GPUS))
    };
    let (all, said) = in_a_container("535.104.05", 50, sees);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("the driver names process 3999999, which is not in this pid namespace"), "{said}");
    for sample in all {
        assert_eq!((&sample["gpu"][0]["processes"], &sample["gpu"][0]["process_count"]), (&json!(null), &json!(1)));
        assert_eq!(sample["cpu"]["process_gpu_vram_mib"], json!(null), "not known, and not zero");
    }
}

/// Later drivers list only processes of the namespace (`_gpuConvertPid` of the open kernel module), and since 565.57
/// find the memory of each (`_gpuMatchClientPid`): what keeps a GPU busy and is not in the list is not ours.
#[test]
fn an_empty_list_of_a_busy_gpu_in_a_container() {
    let test = "an_empty_list_of_a_busy_gpu_in_a_container";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let (all, said) = in_a_container("580.65.06", 50, |recording| recording.until(3, "\"process_gpu_usage\":0.0"));
    assert_eq!(said, "");
    let told: Vec<&Json> = all.iter().filter(|sample| sample["cpu"]["process_gpu_usage"].is_number()).collect();
    assert!(told.len() >= 3, "{all:?}");
    for sample in told {
        assert_eq!((&sample["gpu"][0]["processes"], &sample["gpu"][0]["utilization_pct"]), (&json!([]), &json!(50.0)));
        assert_eq!(number(sample, "/cpu/process_gpu_vram_mib"), 0.0);
    }
    let sees = |recording: &Recording| {
        format!("{}; {}", recording.until_said("names no process"), recording.until(3, WITH_GPUS))
    };
    let (all, said) = in_a_container("550.54.14", 50, sees);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(all.iter().all(|sample| sample["cpu"]["process_gpu_usage"].is_null()), "not known, and not zero");
}

/// Drivers in between have the right ids, with the figures of other processes.
#[test]
fn what_drivers_tell_of_our_processes_in_a_container() {
    let test = "what_drivers_tell_of_our_processes_in_a_container";
    if !is_root(test) || !has("unshare", test) {
        return;
    }
    let drivers = [
        ("560.35.03", json!(null), json!(null)),
        ("570.86.15", json!(1 << 30), json!(null)),
        ("580.65.06", json!(1 << 30), json!(20.0)),
    ];
    for (driver, bytes, share) in drivers {
        let told = format!("\"vram_bytes\":{bytes},\"utilization_pct\":{share}");
        let sees = |recording: &Recording| format!("sleep 1017.25 & {}; kill $!", recording.until(2, &told));
        let (all, said) = in_a_container(driver, 0, sees);
        assert_eq!(said, "", "{driver}");
        // The driver may still list a process that has just ended; the tracker does not.
        let alive = all.iter().filter(|sample| sample["cpu"]["process_rss_mib"].is_number());
        let with_it = alive.filter(|sample| sample["cpu"]["process_gpu_usage"] != json!(0.0));
        let sample = with_it.rev().find(|sample| sample["gpu"][0]["processes"][0].is_object()).unwrap();
        assert_eq!(sample["cpu"]["process_gpu_usage"].is_null(), share.is_null(), "{driver}: {sample}");
        assert_eq!(sample["cpu"]["process_gpu_vram_mib"].is_null(), bytes.is_null(), "{driver}: {sample}");
    }
}

/// Processes that compute, that draw, and clients of an MPS server are in lists of their own (as nvtop and nvitop read
/// them); one process may be in two lists.
#[test]
fn all_lists_of_processes_are_read() {
    let process = |argument: &str, more: Json| {
        let mut process = json!({ "argument": argument, "bytes": 1u64 << 30 });
        process.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        process
    };
    let processes = json!([
        process("1012.25", json!({ "share": 40 })),
        process("1013.25", json!({ "draws": true })),
        process("1014.25", json!({ "mps": true })),
        process("1012.25", json!({ "mps": true })),
    ]);
    let not_supported = 3;
    let second = json!({ "uuid": "GPU-1", "errors": { "nvmlDeviceGetGraphicsRunningProcesses_v3": not_supported,
                         "nvmlDeviceGetMPSComputeRunningProcesses_v3": not_supported } });
    let nvml = Nvml::new(json!({ "devices": [{ "utilization": [40, 1], "processes": processes }, second] }));
    let recording = Recording::new();
    let sees = recording.until(2, "\"process_gpu_usage\":0.4,\"process_gpu_vram_mib\":3072.0");
    let script = format!("for n in 12 13 14; do sleep 10$n.25 & all=\"$all $!\"; done; {sees}; kill $all");
    nvml.record(&recording, &["-i", "0.2"], &script);
    let all = with_gpus(&recording);
    // A sample with all three, at a moment at which none comes or goes.
    let is_whole = |sample: &&Json| {
        (&sample["cpu"]["process_gpu_usage"], &sample["cpu"]["process_gpu_vram_mib"]) == (&json!(0.4), &json!(3072.0))
    };
    let sample = all.iter().find(is_whole).unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(sample["gpu"][0]["process_count"], json!(2), "{sample}");
    let list = sample["gpu"][0]["processes"].as_array().unwrap();
    // The work of a client may be counted to the server, so that it is not known.
    let shares: Vec<&Json> = list.iter().map(|process| &process["utilization_pct"]).collect();
    assert_eq!(shares, [&json!(40.0), &json!(null), &json!(0.0)], "{sample}");
    assert_eq!(sample["gpu"][1]["processes"], json!([]), "{sample}: a kind that it does not know has none");
}

/// The third version of the lists in these drivers writes entries of 32 bytes where its caller has room for 24 (issue 75
/// of go-nvml shows numbers of processes that are half of something else).
#[test]
fn entries_of_another_size_are_refused() {
    let processes: Vec<Json> =
        (0..40).map(|number| json!({ "pid": 3_000_000 + number, "bytes": 1u64 << 20 })).collect();
    let job = json!([{ "argument": "1015.25", "bytes": 1u64 << 30, "share": 10 }]);
    let processes = [processes, job.as_array().unwrap().clone()].concat();
    let nvml = Nvml::new(json!({ "driver": "535.54.03", "devices": [{ "processes": processes }] }));
    let recording = Recording::new();
    let script = format!("sleep 1015.25 & {}; kill $!", recording.until(2, "\"process_gpu_vram_mib\":1024.0"));
    let output = nvml.record(&recording, &["-i", "0.2"], &script);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    // With the job's own, and before and after it without.
    let counts = [json!(40), json!(41)];
    assert!(with_gpus(&recording).iter().all(|sample| counts.contains(&sample["gpu"][0]["process_count"])));
}

#[test]
fn a_list_that_fails_is_not_empty() {
    let unknown_error = 999;
    for list in ["Compute", "Graphics", "MPSCompute"] {
        let call = format!("nvmlDeviceGet{list}RunningProcesses_v3");
        let failing = json!({ "uuid": "GPU-1", "errors": { call: unknown_error } });
        let nvml = Nvml::new(json!({ "devices": [busy(0), failing] }));
        for sample in nvml.some_samples() {
            assert_eq!((&sample["gpu"][0]["processes"], &sample["gpu"][1]["processes"]), (&json!([]), &json!(null)));
            assert_eq!(sample["gpu"][1]["process_count"], json!(null));
            for field in ["process_gpu_usage", "process_gpu_vram_mib", "process_gpu_utilized"] {
                assert_eq!(sample["cpu"][field], json!(null), "{list}: {field}");
            }
        }
    }
}

/// What the driver reported to users of nvtop (issue 110) while processes that had died held memory: three samples of
/// no process, and zeros.
#[test]
fn samples_of_use_that_are_none() {
    let garbage = json!([
        [50_554, 37_100, 217_144_956_601_725u64],
        [50_021, 38_305, 158_819_300_671_603u64],
        [50_017, 0, 49_936]
    ]);
    let job = json!([{ "argument": "1016.25", "bytes": 1u64 << 30, "share": 60 }]);
    let nvml = Nvml::new(json!({ "devices": [{ "processes": job, "garbage": garbage }] }));
    let recording = Recording::new();
    let script = format!("sleep 1016.25 & {}; kill $!", recording.until(5, "\"process_gpu_usage\":0.6"));
    nvml.record(&recording, &["-i", "0.1"], &script);
    let of_all = with_gpus(&recording);
    let of_all = of_all.iter().filter_map(|sample| sample["gpu"][0]["process_sm_utilization_pct"].as_f64());
    let told: Vec<f64> = of_all.collect();
    // With one of those it would be all that there is.
    assert!(told.contains(&60.0) && told.iter().all(|pct| *pct < 100.0), "{told:?}");
}

#[test]
fn parts_of_a_gpu_are_devices_of_their_own() {
    let unsupported = 3;
    let part = |number: u32, processes: Json| {
        json!({
            "uuid": format!("MIG-{number}"), "name": "NVIDIA H100 MIG 3g.40gb", "memory": [40u64 << 30, 4u64 << 30],
            "processes": processes,
        })
    };
    let parts = [part(0, json!([{ "argument": "1008.25", "bytes": 1u64 << 30 }])), part(1, json!([]))];
    let errors =
        json!({ "nvmlDeviceGetUtilizationRates": unsupported, "nvmlDeviceGetProcessUtilization": unsupported });
    let whole = json!({ "memory": [80u64 << 30, 8u64 << 30], "parts": parts, "errors": errors });
    let nvml = Nvml::new(json!({ "devices": [whole] }));
    let recording = Recording::new();
    let job = format!("sleep 1008.25 & {}; kill $!", recording.until(2, "\"process_gpu_vram_mib\":1024.0"));
    nvml.record(&recording, &["-i", "0.2"], &job);
    let all = with_gpus(&recording);
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
    // The use of each process is not known for a part.
    assert_eq!(sample["cpu"]["process_gpu_usage"], json!(null));
    assert_eq!(number(sample, "/cpu/process_gpu_vram_mib"), 1024.0);
    // The memory of the whole counts once.
    let expected = [("gpu_usage", "0.0000"), ("gpu_vram", "8192.0000"), ("gpu_utilized", "0")];
    nvml.assert_row(&[], ",0.0000,8192.0000,0", "", &expected);
}

#[test]
fn a_list_of_processes_that_grows_while_it_is_read() {
    let process = json!({ "argument": "1009.25", "bytes": 1u64 << 30, "share": 10 });
    let nvml = Nvml::new(json!({ "devices": [{ "churn": true, "processes": [process] }] }));
    let recording = Recording::new();
    // The worker outlives the job, so that it is there in the last sample too.
    let job = format!("sleep 1009.25 >/dev/null & echo $!; {}", recording.until(8, "\"process_gpu_vram_mib\":1024.0"));
    let output = nvml.record(&recording, &["-i", "0.1"], &job);
    let worker = text(&output.stdout).trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(worker), nix::sys::signal::Signal::SIGKILL).unwrap();
    let is_held = |sample: &&Json| sample["cpu"]["process_gpu_vram_mib"] == json!(1024.0);
    let all = recording.samples();
    // From the first time that the process was found.
    let found = all.iter().skip_while(|sample| !is_held(sample));
    let lost: Vec<&Json> = found.filter(|sample| !is_held(sample)).collect();
    assert!(lost.is_empty(), "{} of {}: {lost:?}", lost.len(), all.len());
}
