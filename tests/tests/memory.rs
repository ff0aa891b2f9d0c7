//! Memory of the job: what it has of each kind, and the most that it needed.

use std::fs;
use std::path::Path;

use resource_tracker_tests::{Recording, command, in_time, is_root, number, text, tracker};
use serde_json::Value as Json;

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// Runs a job to its end, and returns its samples.
fn run(options: &[&str], job: &[&str]) -> Vec<Json> {
    let recording = Recording::new();
    let path = recording.path();
    // The job may look at the recording.
    let job = job.iter().map(|word| if *word == "RECORDING" { path.to_str().unwrap() } else { word });
    let mut tracker = command(tracker());
    let output = recording.run(tracker.args(options).arg("-o").arg(&path).arg("--").args(job));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    recording.samples()
}

fn most(samples: &[Json], field: &str) -> f64 {
    let each = samples.iter().filter_map(|sample| sample["cpu"][field].as_f64());
    each.reduce(f64::max).unwrap_or_else(|| panic!("nobody tells {field}: {samples:?}"))
}

/// The most memory that was needed, in MiB, and whether a cgroup counted it.
fn peak(samples: &[Json]) -> (f64, bool) {
    let last = &samples.last().unwrap()["cpu"];
    let is_by_cgroup = match last["process_peak_source"].as_str() {
        Some("cgroup") => true,
        Some("sampled") => false,
        other => panic!("{other:?}"),
    };
    (number(last, "/process_peak_memory_mib"), is_by_cgroup)
}

/// Whether there is a hierarchy for memory in which groups can be made.
fn has_memory_cgroup() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let is_memory = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        words[2] == "cgroup" && words[3].split(',').any(|option| option == "memory")
    };
    let mount = mounts.lines().find(|line| is_memory(line)).and_then(|line| line.split(' ').nth(1));
    let has = is_root("a cgroup for memory")
        && mount.is_some_and(|mount| {
            let probe = Path::new(mount).join(format!("probe.{}", std::process::id()));
            fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).is_ok()
        });
    if !has {
        println!("skipped: a memory hierarchy of v1 to make groups in");
    }
    has
}

#[test]
fn workers_that_peak_together_between_two_ticks() {
    let job = [JOB, "together", "8", "100", "600"];
    let (most, is_by_cgroup) = peak(&run(&["-i", "2s"], &job));
    if has_memory_cgroup() {
        assert!(is_by_cgroup);
    }
    assert!((if is_by_cgroup { 800.0 } else { 100.0 }..=1000.0).contains(&most), "{most}");
    let (most, is_by_cgroup) = peak(&run(&["-i", "2s", "--no-cgroup"], &job));
    assert!(!is_by_cgroup && (100.0..=1000.0).contains(&most), "{most}");
    // At a tick all of them are seen in either way.
    let samples = run(&["-i", "50ms", "--no-cgroup"], &job);
    assert!((750.0..=1000.0).contains(&peak(&samples).0), "{:?}", peak(&samples));
}

#[test]
fn shared_anonymous_memory_is_needed() {
    for options in [&["-i", "0.1"][..], &["-i", "0.1", "--no-cgroup"]] {
        let samples = run(options, &[JOB, "map", "shared", "64", "RECORDING"]);
        assert!((64.0..80.0).contains(&most(&samples, "process_shmem_mib")), "{samples:?}");
        assert!(most(&samples, "process_anon_mib") < 16.0 && most(&samples, "process_swap_mib") == 0.0);
        assert!((64.0..90.0).contains(&peak(&samples).0), "{:?}", peak(&samples));
    }
}

#[test]
fn pages_of_a_file_that_is_mapped_are_not_needed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, vec![1; 64 << 20]).unwrap();
    for options in [&["-i", "0.1"][..], &["-i", "0.1", "--no-cgroup"]] {
        let samples = run(options, &[JOB, "map", file.to_str().unwrap(), "64", "RECORDING"]);
        assert!((64.0..90.0).contains(&most(&samples, "process_file_mib")), "{samples:?}");
        assert!(most(&samples, "process_peak_rss_mib") >= 64.0);
        assert!(peak(&samples).0 < 32.0, "{:?}", peak(&samples));
    }
}

#[test]
fn page_cache_is_not_needed() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let file = folder.path().join("file");
    let script =
        format!("dd if=/dev/zero of='{0}' bs=1M count=600 2>/dev/null && cat '{0}' >/dev/null", file.display());
    for interval in ["0.1", "60"] {
        let samples = run(&["-i", interval], &["sh", "-c", &script]);
        let (most, is_by_cgroup) = peak(&samples);
        assert!(most < 100.0, "{most}");
        let cgroup = &samples.last().unwrap()["cgroup"];
        if is_by_cgroup {
            assert!(number(cgroup, "/memory_peak_mib") >= 600.0, "{cgroup}");
            assert!(number(cgroup, "/memory_file_mib") >= 500.0, "{cgroup}");
            assert!(number(cgroup, "/memory_anon_mib") + number(cgroup, "/memory_shmem_mib") < 32.0, "{cgroup}");
        }
        fs::remove_file(&file).unwrap();
    }
}

/// Huge pages of the machine, as many as there were before once it is dropped.
struct HugePages(u64);

impl HugePages {
    const PATH: &str = "/proc/sys/vm/nr_hugepages";

    fn more(pages: u64) -> Option<Self> {
        if !is_root("huge pages") {
            return None;
        }
        let before = fs::read_to_string(Self::PATH).ok()?.trim().parse().ok()?;
        let guard = Self(before);
        let _ = fs::write(Self::PATH, (before + pages).to_string());
        let now = fs::read_to_string(Self::PATH).ok()?.trim().parse::<u64>().ok()?;
        (now >= before + pages).then_some(guard)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = fs::write(Self::PATH, self.0.to_string());
    }
}

#[test]
fn huge_pages_are_needed() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    if !meminfo.contains("Hugepagesize:       2048 kB") {
        println!("skipped: huge pages of 2 MiB");
        return;
    }
    let Some(_pages) = HugePages::more(16) else {
        println!("skipped: there are no huge pages to have");
        return;
    };
    for options in [&["-i", "0.1"][..], &["-i", "0.1", "--no-cgroup"]] {
        let samples = run(options, &[JOB, "map", "huge", "32", "RECORDING"]);
        assert_eq!(most(&samples, "process_hugetlb_mib"), 32.0);
        assert!(most(&samples, "process_rss_mib") < 32.0, "the kernel does not count them there");
        assert!((32.0..64.0).contains(&peak(&samples).0), "{:?}", peak(&samples));
    }
}

#[test]
fn what_is_in_swap_is_needed() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap();
    let free = meminfo.lines().find_map(|line| line.strip_prefix("SwapFree:")?.split_whitespace().next());
    if free.unwrap().parse::<u64>().unwrap() < 256 << 10 {
        println!("skipped: there is no swap");
        return;
    }
    for options in [&["-i", "0.1"][..], &["-i", "0.1", "--no-cgroup"]] {
        let samples = run(options, &[JOB, "map", "swapped", "64", "RECORDING"]);
        assert!((32.0..=65.0).contains(&most(&samples, "process_swap_mib")), "{samples:?}");
        assert!((64.0..=100.0).contains(&peak(&samples).0), "{:?}", peak(&samples));
    }
}

/// The column is RSS, less what is shared as far as that is known, at every age of PSS.
#[test]
fn the_column_of_a_csv_is_of_its_sample() {
    in_time(|| {
        let folder = tempfile::tempdir().unwrap();
        let csv = folder.path().join("run.csv");
        let sink = format!("sinks.other={{ type = \"file\", path = \"{}\", columns = \"job\" }}", csv.display());
        let budget = "sources.process.pss_budget_pct=50";
        let samples = run(&["-i", "0.05", "--set", &sink, "--set", budget], &[JOB, "together", "4", "50", "500"]);
        let table = fs::read_to_string(&csv).unwrap();
        let mut rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let column = rows.next().unwrap().iter().position(|name| *name == "process_memory_mib").unwrap();
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.len(), samples.len());
        let rss_at = |secs: f64| {
            let before = samples.iter().rev().find(|sample| number(sample, "/timestamp_ms") / 1e3 <= secs + 0.02);
            before.and_then(|sample| sample["cpu"]["process_rss_mib"].as_f64()).unwrap_or(0.0)
        };
        let mut counted = 0;
        for (row, sample) in rows.iter().zip(&samples) {
            let Some(memory) = sample["cpu"]["process_memory_mib"].as_f64() else {
                assert_eq!(row[column], "");
                continue;
            };
            // One is rounded to four decimals, the other to six.
            assert!((row[column].parse::<f64>().unwrap() - memory).abs() < 5.1e-5, "{} and {memory}", row[column]);
            let rss = number(sample, "/cpu/process_rss_mib");
            assert!((0.0..=rss).contains(&memory), "{sample}");
            // Of so much anonymous memory little is shared, once PSS was read at such a size.
            let Some(age) = sample["cpu"]["process_pss_age_secs"].as_f64() else { continue };
            if rss >= 100.0 && rss_at(number(sample, "/timestamp_ms") / 1e3 - age) >= 100.0 {
                assert!(memory > rss * 0.8, "{sample}");
                counted += 1;
            }
        }
        counted > 0 && most(&samples, "process_memory_mib") > 150.0
    });
}

/// Forked children share memory, before and after PSS was read of them.
#[test]
fn what_children_share_with_their_parent_counts_once() {
    for budget in ["0", "0.2", "50"] {
        let budget = format!("sources.process.pss_budget_pct={budget}");
        let samples = run(&["-i", "0.1", "--no-cgroup", "--set", &budget], &[JOB, "fork", "8", "100", "RECORDING"]);
        assert!((100.0..115.0).contains(&peak(&samples).0), "{:?}", peak(&samples));
        let forked = samples.iter().filter(|sample| sample["cpu"]["process_rss_mib"].as_f64() > Some(700.0));
        let told: Vec<f64> = forked.map(|sample| number(sample, "/cpu/process_memory_mib")).collect();
        assert!(told.len() >= 4 && told.iter().all(|mib| (100.0..115.0).contains(mib)), "{told:?}");
    }
}

/// Forked children that write to shared memory get copies of it.
#[test]
fn what_children_write_to_is_their_own() {
    // 100 + 4 x 50; nothing but PSS tells how much is copied. The job goes on until a sample tells the least.
    for (budget, least) in [("0", 100.0), ("0.2", 250.0), ("2", 295.0), ("50", 295.0)] {
        let budget = format!("sources.process.pss_budget_pct={budget}");
        let least = f64::to_string(&least);
        let job = [JOB, "fork-and-write", "4", "100", "50", &least, "RECORDING"];
        let samples = run(&["-i", "0.1", "--no-cgroup", "--set", &budget], &job);
        let (most, _) = peak(&samples);
        assert!((100.0..320.0).contains(&most), "{budget}: {most}");
    }
}

/// New memory that is given back again is no copy of what was shared.
#[test]
fn faults_of_other_memory_are_no_copies() {
    for budget in ["0", "0.2", "50"] {
        let budget = format!("sources.process.pss_budget_pct={budget}");
        let samples =
            run(&["-i", "0.1", "--no-cgroup", "--set", &budget], &[JOB, "fork-and-churn", "4", "100", "RECORDING"]);
        assert!((100.0..130.0).contains(&peak(&samples).0), "{:?}", peak(&samples));
        assert!((100.0..130.0).contains(&most(&samples, "process_memory_mib")), "{samples:?}");
        let faults: f64 = samples.iter().filter_map(|sample| sample["cpu"]["process_minor_faults"].as_f64()).sum();
        assert!(faults > 150e3, "more than the 400 MiB that can be copied: {faults}");
    }
}

/// Children that use shared memory bit by bit have more of it now than when PSS was read of them.
#[test]
fn shared_memory_counts_once_while_more_of_it_is_used() {
    for budget in ["0", "0.2", "50"] {
        let budget = format!("sources.process.pss_budget_pct={budget}");
        let samples = run(&["-i", "0.1", "--no-cgroup", "--set", &budget], &[JOB, "readers", "4", "100", "RECORDING"]);
        assert!((100.0..115.0).contains(&peak(&samples).0), "{:?}", peak(&samples));
        let told = |field: &str| samples.iter().filter_map(|sample| sample["cpu"][field].as_f64()).collect::<Vec<_>>();
        assert!(told("process_rss_mib").iter().any(|mib| *mib > 300.0), "{samples:?}");
        let memory = told("process_memory_mib");
        assert!(memory.len() > 8 && memory.iter().all(|mib| *mib < 120.0), "{memory:?}");
        // What was read then is never more than all have by now.
        let both = samples.iter().filter_map(|sample| {
            let cpu = &sample["cpu"];
            Some((cpu["process_pss_mib"].as_f64()?, cpu["process_rss_mib"].as_f64()?))
        });
        assert!(both.into_iter().all(|(pss, rss)| pss <= rss + 0.01), "{samples:?}");
    }
}

/// The share before a program grew, or became another one, is no measure of its share now.
#[test]
fn a_program_that_grows_has_all_of_it() {
    let job = format!("sleep 0.5; exec {JOB} map shared 200 $0");
    for budget in ["0.2", "50"] {
        let budget = format!("sources.process.pss_budget_pct={budget}");
        let samples = run(&["-i", "0.1", "--set", &budget], &["sh", "-c", &job, "RECORDING"]);
        let grown = samples.iter().filter(|sample| sample["cpu"]["process_rss_mib"].as_f64() > Some(200.0));
        let told: Vec<f64> = grown.map(|sample| number(sample, "/cpu/process_memory_mib")).collect();
        assert!(told.len() >= 2 && told.iter().all(|mib| (200.0..210.0).contains(mib)), "{told:?}");
    }
}
