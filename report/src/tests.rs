//! Summaries of runs whose samples are known.

use crate::{Kinds, Look, Resource, RunStatistics, Summary, markdown, text};
use proptest::prelude::*;
use resource_tracker_core::{Outcome, Sample};
use serde_json::{Value as Json, json};

mod incomplete;

const PLAIN: Look = Look { width: 80, colour: false };

/// A run of ten samples, a second each, of a job on eight cores that ended with 0. `change` is merged into each sample.
fn run(change: &Json) -> Summary {
    run_of(10, &json!({ "exit_code": 0, "signal": null }), change)
}

fn run_of(samples: u64, end: &Json, change: &Json) -> Summary {
    statistics_of(samples, end, change).summary()
}

fn statistics_of(samples: u64, end: &Json, change: &Json) -> RunStatistics {
    let kinds = Kinds::of_schema(|| json!({}));
    let mut statistics = RunStatistics::default();
    for number in 1..=samples {
        let mut sample = json!({
            "timestamp_ms": 1_700_000_000_000_u64 + number * 1000, "elapsed_secs": 1,
            "cpu": {
                "process_accounting": "cgroup", "process_cores_used": 2.0, "process_utime_secs": 1.5,
                "process_stime_secs": 0.5, "process_memory_mib": 100.0, "process_rss_mib": 110.0,
                "process_peak_memory_mib": 120.0, "process_peak_source": "cgroup", "process_cpu_limit_cores": 8.0,
                "process_memory_limit_mib": 16384.0, "process_disk_read_bytes": 1000, "process_disk_write_bytes": 2000,
                "process_thread_count": 3, "process_child_count": 1,
            },
        });
        if number == 1 {
            let run = json!({ "id": "1", "command": ["job"], "started_ms": 1, "interval_secs": 1, "version": "1", "labels": {}, "tags": {} });
            sample["run"] = run;
        }
        if number == samples && !end.is_null() {
            sample["outcome"] = json!({ "wall_secs": samples, "samples": samples, "missed_samples": 0 });
            merge(&mut sample["outcome"], end);
        }
        merge(&mut sample, &both(machine(2.0), change));
        statistics.add(&Sample::from_json(&sample.to_string()).unwrap(), &kinds);
    }
    statistics
}

fn merge(into: &mut Json, change: &Json) {
    match (into.as_object_mut(), change.as_object()) {
        (Some(members), Some(changes)) => {
            for (name, change) in changes {
                merge(members.entry(name).or_insert(Json::Null), change);
            }
        }
        _ => into.clone_from(change),
    }
}

/// The machine, of which so many cores are in use.
fn machine(cores: f64) -> Json {
    json!({ "cpu": {
        "utilization_pct": cores, "cores_used": cores, "per_core_pct": vec![0.0; 8], "per_core_cpus": "0-7", "utime_secs": cores,
        "stime_secs": 0.0, "iowait_cores": 0.0, "steal_cores": 0.0, "irq_cores": 0.0, "softirq_cores": 0.0, "guest_cores": 0.0,
        "process_count": 1, "processes_running": 1, "processes_blocked": 0, "context_switches_per_sec": 1.0,
        "forks_per_sec": 1.0,
    } })
}

/// The cgroup that the job has, with these figures.
fn cgroup(figures: &Json) -> Json {
    let mut cgroup = json!({ "cgroup": { "path": "/job" } });
    merge(&mut cgroup["cgroup"], figures);
    cgroup
}

fn gpu(percent: f64, share: f64, vram: f64) -> Json {
    let mut gpu = json!({
        "gpu": [{
            "uuid": "GPU-1", "name": "Big", "device_type": "GPU", "host_id": "nvidia0", "detail": {}, "processes": [],
            "utilization_pct": percent, "vram_used_bytes": 34_359_738_368_u64, "vram_total_bytes": 85_899_345_920_u64,
        }],
        "cpu": { "process_gpu_usage": share, "process_gpu_vram_mib": vram, "process_gpu_utilized": u32::from(share > 0.0) },
    });
    // All other fields of a GPU have their defaults.
    let names = serde_json::to_value(resource_tracker_metrics::GpuMetrics::default()).unwrap();
    for (name, default) in names.as_object().unwrap() {
        if gpu["gpu"][0].get(name).is_none() {
            gpu["gpu"][0][name] = default.clone();
        }
    }
    gpu
}

fn both(one: Json, other: &Json) -> Json {
    let mut both = one;
    merge(&mut both, other);
    both
}

#[test]
fn figures_of_a_plain_run() {
    let summary = run(&json!({}));
    let job = summary.job.as_ref().unwrap();
    assert_eq!((job.user_secs, job.system_secs, job.cpu_secs()), (Some(15.0), Some(5.0), Some(20.0)));
    assert_eq!(
        (job.disk_read_bytes, job.disk_write_bytes, job.peak_processes),
        (Some(10_000), Some(20_000), Some(2.0))
    );
    let cores = job.cores.unwrap();
    assert!((cores.mean - 2.0).abs() < 1e-9 && (cores.p95 - 2.0).abs() < 0.011 && cores.peak == 2.0);
    assert_eq!((summary.wall_secs(), summary.is_success(), summary.bound.is_none()), (10.0, true, true));
    let expected = "job\n\
                    exited with 0 after 10.0 s\n\
                    CPU        [####------------]  2.00 of 8 cores (25 %), peak 2.00\n\
                    CPU time   20.0 s (user 15.0 s, system 5.00 s)\n\
                    Memory     [----------------]  peak 120 MiB of 16 GiB (1 %), resident 100 MiB\n\
                    Disk       10 kB read, 20 kB written\n\
                    Processes  2 at most, 3 threads\n\
                    Ask for    2 cores, 144 MiB; Slurm: --cpus-per-task=2 --mem=144M\n\
                    Note       2.0 of 8 cores were enough for 95 % of the time: 2 will do\n";
    assert_eq!(text(&summary, PLAIN), expected);
}

#[test]
fn what_held_it_up() {
    let busy = |cores: f64| json!({ "cpu": { "process_cores_used": cores, "process_utime_secs": cores } });
    let at_limit = |cores: f64| both(busy(cores), &json!({ "cpu": { "process_cpu_limit_cores": cores } }));
    let waits = |what: &str| cgroup(&json!({ what: 0.4 }));
    let idle = both(busy(0.01), &machine(0.5));
    for (change, expected) in [
        (busy(7.9), Some(Resource::Cpu)),
        (busy(1.0), Some(Resource::OneCore)),
        // A thread that waits now and then is not held up by its core.
        (busy(0.85), None),
        (both(busy(0.95), &cgroup(&json!({ "cpu_pressure_some_secs": 0.1, "io_pressure_some_secs": 0.1 }))), None),
        (busy(4.0), None),
        (idle.clone(), Some(Resource::Waiting)),
        (both(busy(0.01), &machine(8.0)), None),
        (both(busy(4.0), &waits("io_pressure_some_secs")), Some(Resource::Disk)),
        (both(busy(4.0), &waits("memory_pressure_some_secs")), Some(Resource::Memory)),
        (
            cgroup(&json!({ "cpu_limit_cores": 2.0, "cpu_throttled_secs": 3.0, "cpu_throttled_pct": 60.0 })),
            Some(Resource::CpuLimit),
        ),
        // At a short interval, most samples end no period.
        (
            cgroup(
                &json!({ "cpu_limit_cores": 2.0, "cpu_periods": 5, "cpu_throttled_periods": 3, "cpu_throttled_pct": 6.0 }),
            ),
            Some(Resource::CpuLimit),
        ),
        // Threads on many CPUs wait together: seconds say little.
        (cgroup(&json!({ "cpu_limit_cores": 2.0, "cpu_throttled_secs": 3.0, "cpu_throttled_pct": 1.0 })), None),
        // On a machine with v1, another hierarchy than that of the cgroup can have the quota.
        (both(at_limit(2.0), &cgroup(&json!({ "cpu_limit_cores": 2.0 }))), Some(Resource::CpuLimit)),
        (both(at_limit(2.0), &cgroup(&json!({ "cpu_limit_cores": 4.0 }))), Some(Resource::Cpu)),
        // The quota is that of a group above, which counts the periods.
        (
            both(
                at_limit(2.0),
                &cgroup(&json!({ "cpu_limit_cores": 2.0, "cpu_periods": 0, "cpu_throttled_periods": 0 })),
            ),
            Some(Resource::CpuLimit),
        ),
        (cgroup(&json!({ "oom_kills": 1 })), Some(Resource::Memory)),
        (gpu(95.0, 0.95, 9000.0), Some(Resource::Gpu)),
        // It waits for the GPU, with one busy thread; or its use of the GPU is not known.
        (both(busy(1.0), &gpu(60.0, 0.6, 9000.0)), None),
        (both(idle.clone(), &both(gpu(60.0, 0.0, 0.0), &json!({ "cpu": { "process_gpu_usage": null } }))), None),
        // Others of its cgroup may have waited.
        (
            both(
                both(busy(4.0), &waits("io_pressure_some_secs")),
                &json!({ "cpu": { "process_accounting": "exact" } }),
            ),
            None,
        ),
    ] {
        let found = run(&change).bound.map(|bound| bound.by);
        assert_eq!(found, expected, "{change}");
    }
    let short = run_of(2, &json!({ "exit_code": 0 }), &busy(7.9));
    assert_eq!((short.bound, short.advice), (None, None), "two samples say little");
}

/// The kernel counts for a cgroup also the time in which its own threads waited for each other.
#[test]
fn whose_a_cpu_was_that_it_waited_for() {
    let waited = |cores: f64, threads: Json| {
        let figures = json!({ "cpu": { "process_cores_used": 0.3, "process_cpu_limit_cores": cores, "process_thread_count": threads } });
        let bound = run(&both(cgroup(&json!({ "cpu_pressure_some_secs": 0.4 })), &figures)).bound.unwrap();
        assert_eq!(bound.by, Resource::Contention);
        bound.because
    };
    assert_eq!(waited(2.0, json!(2)), "it waited 4.0 s for a CPU that others had");
    let of_its_own = "its threads waited 4.0 s for a CPU";
    assert_eq!([waited(1.0, json!(4)), waited(1.5, json!(2)), waited(2.0, Json::Null)], [of_its_own; 3]);
}

#[test]
fn what_memory_is_meant_and_who_was_busiest() {
    let process = |pid: u32, name: &str, cores: f64, rss: f64| json!({ "pid": pid, "name": name, "cores_used": cores, "rss_mib": rss });
    let top = json!([process(7, "cc1\u{1b}", 1.5, 90.0), process(8, "ld", 0.1, 600.0)]);
    let said = text(&run(&json!({ "cpu": { "process_memory_mib": 150.0 }, "top_processes": top })), PLAIN);
    for line in [
        "Memory     [----------------]  peak 120 MiB of 16 GiB, 150 MiB with files\n",
        "Busiest    cc1  15.0 s of CPU time, ld 1.00 s; most memory ld 600 MiB\n",
    ] {
        assert!(said.contains(line), "{said}");
    }
}

#[test]
fn how_it_ended() {
    let end = |end: Json| text(&run_of(10, &end, &json!({})), PLAIN).lines().nth(1).unwrap().to_owned();
    assert_eq!(end(json!({ "exit_code": 3 })), "exited with 3 after 10.0 s");
    assert_eq!(end(json!({ "exit_code": null, "signal": 9 })), "was ended by SIGKILL after 10.0 s");
    assert_eq!(end(json!({ "exit_code": null, "signal": 40 })), "was ended by signal 40 after 10.0 s");
    assert_eq!(end(Json::Null), "was sampled for 10.0 s; how it ended is not recorded");
}

#[test]
fn an_end_without_its_sample_is_an_end() {
    let mut statistics = statistics_of(10, &Json::Null, &json!({}));
    statistics.end(&Outcome::exited(1));
    let summary = statistics.summary();
    assert_eq!((summary.is_whole, &summary.advice), (false, &None));
    assert_eq!(text(&summary, PLAIN).lines().nth(1), Some("exited with 1 after at least 10.0 s"));
    let mut statistics = statistics_of(10, &json!({ "exit_code": 0 }), &json!({}));
    statistics.end(&Outcome::exited(1));
    assert!(statistics.summary().is_success(), "the sample knows more");
}

#[test]
fn what_to_ask_for() {
    let advice =
        run(&json!({ "cpu": { "process_cores_used": 2.5, "process_peak_memory_mib": 891.0 } })).advice.unwrap();
    assert_eq!((advice.cores, advice.memory_mib), (3, 1152), "2.5 cores are not 2, and no MiB are divided by 1024");
    let advice = run(&json!({ "cpu": { "process_cores_used": 7.5 } })).advice.unwrap();
    assert_eq!(advice.cores, 8, "all that there were: more may help");
    let waited = cgroup(&json!({ "cpu_pressure_some_secs": 0.6 }));
    let waited = |threads: u32| {
        both(waited.clone(), &json!({ "cpu": { "process_memory_mib": 500.0, "process_thread_count": threads } }))
    };
    assert_eq!(run(&waited(3)).advice.unwrap().cores, 3, "one for each thread");
    let advice = run(&waited(12)).advice.unwrap();
    assert_eq!(advice.cores, 8, "what it would have used is not known");
    assert_eq!(advice.memory_mib, 640, "files that it has mapped need room");
    let advice = run(&gpu(95.0, 0.95, 9000.0)).advice.unwrap();
    assert_eq!((advice.gpus, advice.gpu_memory_mib), (Some(1), Some(9000)));
    for end in [json!({ "exit_code": 1 }), json!({ "exit_code": null, "signal": 9 })] {
        assert_eq!(run_of(10, &end, &json!({})).advice, None, "it may not have come to what it needs most for");
    }
    assert!(run_of(10, &Json::Null, &json!({})).advice.is_some(), "how it ended is not known");
}

#[test]
fn notes_for_who_looks_after_it() {
    let minute = |change: &Json| run_of(61, &json!({ "exit_code": 0 }), change);
    let mount = |path: &str, used: u64, left: u64| json!({ "mount_point": path, "filesystem": "ext4", "used_bytes": used, "used_pct": 40.0, "available_bytes": left });
    let mounts =
        [mount("/data", 50 << 40, 100_000_000_000), mount("/", 5000 << 20, 50 << 20), mount("/boot", 1, 1 << 20)];
    for (summary, note) in [
        (run(&json!({ "disk": [{ "device": "sda", "mounts": mounts }] })), "/ was 100 % full: 50 MiB were left"),
        (
            run(&cgroup(&json!({ "oom_kills": 0.0 as u64, "memory_limit_mib": 4096.0 }))),
            "120 MiB of 4 GiB were enough: 144 MiB will do",
        ),
        (
            run(&cgroup(&json!({ "cpu_limit_cores": 1.5, "cpu_throttled_secs": 1.0, "cpu_throttled_pct": 30.0 }))),
            "the limit of 1.5 cores was reached in 30 % of the time",
        ),
        (run(&json!({ "cpu": { "process_swap_mib": 50.0 } })), "50 MiB of the job's memory was in swap"),
        (run(&json!({ "cpu": { "process_accounting": "sampled" } })), "CPU time of children for which nobody waited"),
        (run_of(10, &Json::Null, &json!({})), "how it ended is not known, nor what it needed after the last sample"),
        (minute(&gpu(0.0, 0.0, 0.0)), "the machine has a GPU, and the job used none"),
        (run(&gpu(5.0, 0.05, 900.0)), "the GPUs that the job used were idle for 95 % of the time"),
        (run_of(1, &json!({ "exit_code": 0 }), &json!({})), "1 sample says little"),
        (
            run(&json!({ "marks": [{ "name": "step", "kind": "next", "at_ms": 0 }] })),
            "1 phase was shorter than 3 samples",
        ),
        (run_of(10, &json!({ "exit_code": 0, "missed_samples": 30 }), &json!({})), "30 samples were not taken in time"),
    ] {
        assert!(summary.notes.iter().any(|said| said.contains(note)), "{note}: {:?}", summary.notes);
    }
    let silent = |change: &Json| run(change).notes;
    let quiet = json!({ "cpu": { "process_cores_used": 6.0 } });
    assert_eq!(silent(&quiet), [""; 0]);
    assert_eq!(silent(&both(quiet.clone(), &gpu(0.0, 0.0, 500.0))), [""; 0], "it holds memory of the GPU");
}

#[test]
fn a_sum_with_a_gap_is_null_and_missing_samples_are_said() {
    let kinds = Kinds::of_schema(|| json!({}));
    let mut statistics = RunStatistics::default();
    for (number, cpu) in [
        json!({ "process_cores_used": 1, "process_utime_secs": 1 }),
        json!(null),
        json!({ "process_cores_used": 1, "process_utime_secs": 1 }),
    ]
    .iter()
    .enumerate()
    {
        let mut line = json!({ "timestamp_ms": 1000 * (number + 1), "elapsed_secs": 1 });
        if cpu.is_object() {
            line["cpu"] = cpu.clone();
        }
        if number == 2 {
            line["outcome"] =
                json!({ "exit_code": 0, "signal": null, "wall_secs": 3, "samples": 5, "missed_samples": 0 });
        }
        statistics.add(&Sample::from_json(&line.to_string()).unwrap(), &kinds);
    }
    let summary = statistics.summary();
    assert_eq!(summary.job.as_ref().unwrap().user_secs, None);
    assert!(
        summary.problems.iter().any(|problem| problem.starts_with("3 of 5 samples are here")),
        "{:?}",
        summary.problems
    );
}

#[test]
fn twenty_lines_at_most_whatever_there_is_to_say() {
    let mut everything = both(
        gpu(5.0, 0.05, 900.0),
        &cgroup(&json!({
            "oom_kills": 2, "memory_limit_mib": 4096.0, "cpu_limit_cores": 1.5, "cpu_throttled_pct": 30.0, "cpu_throttled_secs": 1.0,
            "cpu_pressure_some_secs": 1.0, "io_pressure_some_secs": 1.0,
        })),
    );
    merge(&mut everything, &json!({ "cpu": { "process_swap_mib": 50.0 }, "memory": { "total_mib": "many" } }));
    let device = everything["gpu"][0].clone();
    everything["gpu"] = (0..4).map(|number| both(device.clone(), &json!({ "uuid": number.to_string() }))).collect();
    everything["marks"] =
        (0..9).map(|number| json!({ "name": format!("phase {number}"), "kind": "begin", "at_ms": 1 })).collect();
    let summary = run(&everything);
    let said = text(&summary, PLAIN);
    assert!((15..=20).contains(&said.lines().count()) && said.lines().all(|line| line.chars().count() <= 80), "{said}");
    // What matters most has room, and what has none is not left out in silence.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for most in ["Held up", "Ask for", "Missing", "were killed because memory ran out"] {
        assert!(words(&said).contains(most), "{most}: {said}");
    }
    assert!(said.lines().last().unwrap().contains(" more, in `summary --json FILE`"), "{said}");
    let narrow = text(&summary, Look { width: 40, colour: false });
    assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
    assert!(words(&narrow).contains(&summary.advice.as_ref().unwrap().slurm), "it is not cut: {narrow}");
    let wide = text(&summary, Look { width: 0, colour: true });
    assert!(wide.contains("\u{1b}[1m") && !said.contains('\u{1b}'));
    assert!(markdown(&summary).lines().count() < 40);
}

#[test]
fn nothing_in_a_recording_reaches_the_terminal_as_it_is() {
    let hostile = "a\u{1b}]0;x\u{7}\u{202e}b\n\rc\u{9b}31m\u{61c}";
    let mut summary = run(&json!({
        "run": { "command": [hostile] }, "marks": [{ "name": hostile, "kind": "next", "at_ms": 1_700_000_000_000_u64 }],
    }));
    summary.notes.push(hostile.into());
    for said in [text(&summary, PLAIN), markdown(&summary)] {
        let strange = said.chars().find(|char| char.is_control() && *char != '\n');
        assert_eq!(strange, None, "{said:?}");
    }
    assert!(!text(&summary, PLAIN).contains(['\u{202e}', '\u{61c}']));
}

/// Replaces the leaf with this number, counted through the whole value.
fn spoil(value: &mut Json, leaf: &mut usize, with: &Json) {
    match value {
        Json::Object(members) => members.iter_mut().for_each(|(_, member)| spoil(member, leaf, with)),
        Json::Array(items) => items.iter_mut().for_each(|item| spoil(item, leaf, with)),
        _ => {
            if *leaf == 0 {
                value.clone_from(with);
            }
            *leaf = leaf.wrapping_sub(1);
        }
    }
}

fn strange_value() -> impl Strategy<Value = Json> {
    prop_oneof![
        Just(json!(u64::MAX)),
        Just(json!(i64::MIN)),
        Just(json!(1.7e308)),
        Just(json!(-1.0)),
        Just(json!(1e-300)),
        Just(json!(0)),
        Just(json!(null)),
        Just(json!("\u{1b}[2J\u{202e}x")),
        any::<f64>().prop_map(|number| json!(number)),
    ]
}

proptest! {
    #[test]
    fn whatever_a_recording_says_a_summary_fits(changes in prop::collection::vec((0..140_usize, strange_value()), 1..12)) {
        let figures = json!({
            "oom_kills": 2, "memory_limit_mib": 4096.0, "cpu_limit_cores": 1.5, "cpu_throttled_pct": 30.0,
            "cpu_throttled_secs": 1.0, "cpu_pressure_some_secs": 1.0, "io_pressure_some_secs": 1.0,
        });
        let mut everything = both(both(gpu(5.0, 0.05, 900.0), &cgroup(&figures)), &machine(3.0));
        everything["marks"] = json!([{ "name": "a phase", "kind": "next", "at_ms": 1_700_000_002_500_u64 }]);
        everything["outcome"] = json!({ "exit_code": 0, "signal": null, "wall_secs": 3, "samples": 3, "missed_samples": 0 });
        everything["elapsed_secs"] = json!(1);
        everything["timestamp_ms"] = json!(1_700_000_002_000_u64);
        for (leaf, value) in &changes {
            spoil(&mut everything, &mut leaf.clone(), value);
        }
        let kinds = Kinds::of_schema(|| json!({}));
        let mut statistics = RunStatistics::default();
        for _ in 0..3 {
            if let Ok(sample) = Sample::from_json(&everything.to_string()) {
                statistics.is_followed_by_another(&sample, true);
                statistics.add(&sample, &kinds);
            }
        }
        let summary = statistics.summary();
        let said = text(&summary, PLAIN);
        prop_assert!(said.lines().count() <= 20 && said.lines().all(|line| line.chars().count() <= 80), "{}", said);
        let printable = |said: &str| !said.contains(|char: char| char.is_control() && char != '\n');
        prop_assert!(printable(&said) && printable(&markdown(&summary)) && crate::json(&summary).is_ok());
    }
}
