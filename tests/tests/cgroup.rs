//! The cgroup of the job: made, used and removed; and the limits of the one that is found.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use resource_tracker_tests::{
    Recording, benchmarks, command, has, in_time, is_root, number, samples, text, tracker, wait_until,
};
use serde_json::Value as Json;

const JOB: &str = env!("CARGO_BIN_EXE_job");

/// The cgroup of v2 that the tests run in, if groups can be made in it.
fn own_cgroup(test: &str) -> Option<PathBuf> {
    if !is_root(test) {
        return None;
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = membership.lines().find_map(|line| line.strip_prefix("0::"));
    let path = mount.zip(own).map(|(mount, own)| PathBuf::from(format!("{}{own}", mount.split(' ').nth(1).unwrap())));
    let path = path.filter(|path| {
        let probe = path.join(format!("probe.{test}.{}", std::process::id()));
        std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)).is_ok()
    });
    if path.is_none() {
        println!("skipped: {test} needs a cgroup of v2 to make groups in");
    }
    path
}

/// A cgroup for one test, so that tests do not see each other's.
struct Sandbox(PathBuf);

impl Sandbox {
    fn new(test: &str) -> Option<Self> {
        let path = own_cgroup(test)?.join(format!("test.{test}.{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Some(Self(path))
    }

    /// A command that runs in it.
    fn command(&self, program: &Path) -> Command {
        let mut shell = command("sh");
        shell.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&self.0).arg(program);
        shell
    }

    /// The cgroups that trackers have made in it.
    fn made(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("resource-tracker.")).collect()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // A process of the test may just be ending.
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn children_that_nobody_waits_for_are_exact_in_it() {
    let Some(sandbox) = Sandbox::new("ignored") else { return };
    let output = sandbox
        .command(tracker())
        .args(["-i", "0.2", "--"])
        .arg(benchmarks())
        .args(["job", "ignored"])
        .output()
        .unwrap();
    let samples = samples(&output.stderr);
    let sum = |key: &str| samples.iter().map(|sample| number(sample, key)).sum::<f64>();
    let counted = sum("/cpu/process_utime_secs") + sum("/cpu/process_stime_secs");
    assert!((3.0..3.3).contains(&counted), "{counted} s");
    assert!(samples.iter().all(|sample| sample["cpu"]["process_accounting"] == "cgroup"));
    assert_eq!(sandbox.made(), [""; 0], "it is removed");
}

/// More threads than CPUs: by default the last sample has the waits of the whole run, on request each sample those of
/// its interval.
#[test]
fn the_time_in_which_tasks_waited_for_a_cpu() {
    let Some(sandbox) = Sandbox::new("pressure") else { return };
    if std::fs::read(sandbox.0.join("cpu.pressure")).is_err() {
        println!("skipped: the_time_in_which_tasks_waited_for_a_cpu needs a kernel with PSI");
        return;
    }
    let threads = (std::thread::available_parallelism().unwrap().get() + 2).to_string();
    for each in [false, true] {
        let option = format!("sources.cgroup.pressure={each}");
        let mut tracker = sandbox.command(tracker());
        let output =
            tracker.args(["-i", "0.2", "--set", &option, "--", JOB, "burn", &threads, "1000"]).output().unwrap();
        let samples = samples(&output.stderr);
        let waited: Vec<f64> =
            samples.iter().filter_map(|sample| sample["cgroup"]["cpu_pressure_some_secs"].as_f64()).collect();
        assert_eq!(waited.len(), if each { samples.len() } else { 1 }, "{waited:?}");
        assert!(samples.last().unwrap()["cgroup"]["cpu_pressure_some_secs"].is_number());
        let elapsed: f64 = samples.iter().map(|sample| number(sample, "/elapsed_secs")).sum();
        let sum: f64 = waited.iter().sum();
        assert!((0.3..elapsed + 0.2).contains(&sum), "{sum} of {elapsed} s: {waited:?}");
    }
}

/// Where v2 is not mounted, the hierarchies of v1 serve.
#[test]
fn children_that_nobody_waits_for_are_exact_in_v1() {
    let is_v1 = std::fs::read_to_string("/proc/self/mounts").unwrap().lines().any(|line| line.contains("cpuacct"));
    if !is_root("a cgroup of v1") || !has("unshare", "a cgroup of v1") || !is_v1 {
        println!("skipped: a cgroup of v1 needs its hierarchies");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let script = "umount -t cgroup2 -a; exec \"$0\" \"$@\"";
    let mut shell = command("unshare");
    shell.args(["-m", "sh", "-c", script]).arg(tracker()).args(["-i", "0.2", "-o"]).arg(&path);
    let output = shell.arg("--").arg(benchmarks()).args(["job", "ignored"]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let samples = samples(&std::fs::read(&path).unwrap());
    let sum = |key: &str| samples.iter().map(|sample| number(sample, key)).sum::<f64>();
    let counted = sum("/cpu/process_utime_secs") + sum("/cpu/process_stime_secs");
    assert!((3.0..3.3).contains(&counted), "{counted} s");
    assert_eq!(samples.last().unwrap()["cpu"]["process_accounting"], "cgroup");
    assert!(number(samples.last().unwrap(), "/cgroup/memory_peak_mib") < 100.0, "it is the job's alone");
}

#[test]
fn it_can_be_turned_off() {
    let Some(sandbox) = Sandbox::new("off") else { return };
    let script = format!("ls {}", sandbox.0.display());
    let run = |options: &[&str]| {
        let output = sandbox.command(tracker()).args(options).args(["-q", "--", "sh", "-c", &script]).output().unwrap();
        text(&output.stdout).contains("resource-tracker.")
    };
    assert!(run(&[]) && !run(&["--no-cgroup"]));
    let by_variable =
        sandbox.command(tracker()).env("TRACKER_NO_CGROUP", "1").args(["-q", "--", "sh", "-c", &script]).output();
    assert!(!text(&by_variable.unwrap().stdout).contains("resource-tracker."));
}

#[test]
fn a_daemon_that_lives_on_does_not_keep_it() {
    let Some(sandbox) = Sandbox::new("daemon") else { return };
    let script = "setsid sleep 20 >/dev/null 2>&1 & echo $!";
    let output = sandbox.command(tracker()).args(["-q", "--", "sh", "-c", script]).output().unwrap();
    let daemon: i32 = text(&output.stdout).trim().parse().unwrap();
    assert_eq!(sandbox.made(), [""; 0]);
    assert!(std::fs::read_to_string(sandbox.0.join("cgroup.procs")).unwrap().contains(&daemon.to_string()));
    kill(Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
}

#[test]
fn after_a_crash_the_next_run_removes_it() {
    let Some(sandbox) = Sandbox::new("crash") else { return };
    let mut crashed: Child = sandbox.command(tracker()).args(["-q", "--", "sleep", "100"]).spawn().unwrap();
    wait_until("the cgroup", || !sandbox.made().is_empty());
    let left = sandbox.made();
    // Another tracker beside it leaves it alone.
    let mut beside = sandbox.command(tracker());
    assert!(beside.args(["-q", "--", "true"]).status().unwrap().success());
    assert_eq!(sandbox.made(), left);
    crashed.kill().unwrap();
    crashed.wait().unwrap();
    assert_eq!(sandbox.made(), left, "the job lives on in it");
    let procs = sandbox.0.join(&left[0]).join("cgroup.procs");
    for job in std::fs::read_to_string(&procs).unwrap().lines() {
        kill(Pid::from_raw(job.parse().unwrap()), Signal::SIGKILL).unwrap();
    }
    wait_until("the end of the job", || std::fs::read_to_string(&procs).unwrap().is_empty());
    assert!(sandbox.command(tracker()).args(["-q", "--", "true"]).status().unwrap().success());
    assert_eq!(sandbox.made(), [""; 0]);
}

/// The job leaves its cgroup and removes it: one warning, and the processes are added up.
#[test]
fn one_that_disappears() {
    let Some(sandbox) = Sandbox::new("gone") else { return };
    let parent = sandbox.0.display();
    let leave = format!("echo $$ > {parent}/cgroup.procs; rmdir {parent}/resource-tracker.*");
    let script = format!("sleep 1; {leave}; {} job serial", benchmarks().display());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let mut tracker = sandbox.command(tracker());
    let output = tracker.args(["-i", "0.1", "-o"]).arg(&path).args(["--", "sh", "-c", &script]).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.lines().count() == 1 && said.contains("the cgroup of the job is gone"), "{said}");
    let samples = samples(&std::fs::read(&path).unwrap());
    let sum = |key: &str| samples.iter().map(|sample| number(sample, key)).sum::<f64>();
    let counted = sum("/cpu/process_utime_secs") + sum("/cpu/process_stime_secs");
    assert!((1.0..1.2).contains(&counted), "{counted} s");
    assert_eq!(samples.last().unwrap()["cpu"]["process_accounting"], "exact");
}

/// Limits in hierarchies of v1: half a core, 64 MiB, 40 tasks.
#[test]
fn limits_and_what_is_used_of_them() {
    if !is_root("limits of v1") {
        return;
    }
    // The cgroups of one name in all hierarchies: the figures are theirs.
    let controllers = ["cpu", "memory", "pids", "cpuacct"].map(|name| PathBuf::from(format!("/sys/fs/cgroup/{name}")));
    if !controllers.iter().all(|path| path.join("cgroup.procs").exists()) {
        println!("skipped: limits of v1 need its hierarchies");
        return;
    }
    in_time(|| limited(&controllers));
}

/// Asserts that the limits, and what is used of them, are in the samples. Returns whether the job got as much as it
/// may.
fn limited(parents: &[PathBuf; 4]) -> bool {
    let groups = parents.each_ref().map(|path| path.join(format!("limits.{}", std::process::id())));
    groups.iter().for_each(|group| std::fs::create_dir_all(group).unwrap());
    let set = |group: usize, file: &str, value: &str| std::fs::write(groups[group].join(file), value).unwrap();
    // It would get more than it may, also where others are busy.
    set(0, "cpu.shares", "262144");
    set(0, "cpu.cfs_period_us", "100000");
    set(0, "cpu.cfs_quota_us", "50000");
    set(1, "memory.limit_in_bytes", "67108864");
    set(2, "pids.max", "40");
    let recording = Recording::new();
    // It burns, and then asks for more memory than there is.
    let job = format!(
        "for group in \"$@\"; do echo $$ > \"$group/cgroup.procs\"; done
         {}; {JOB} burn 4 800; {}; {JOB} touch 200 100; true",
        recording.until(1, ""),
        recording.until(3, "")
    );
    let mut shell = command("sh").args(["-c", &job, "sh"]).args(&groups).spawn().unwrap();
    // Nobody holds up the tracker, which is in none of them.
    let inside = groups[3].join("cgroup.procs");
    wait_until("the job is inside", || std::fs::read_to_string(&inside).unwrap().lines().count() > 0);
    let mut tracker = command(tracker());
    tracker.args(["--pid", &shell.id().to_string(), "-i", "0.2", "-o"]).arg(recording.path());
    let mut tracker = recording.start(&mut tracker);
    assert!(shell.wait().unwrap().success());
    assert!(tracker.wait().unwrap().success());
    let cpu_time = std::fs::read_to_string(groups[3].join("cpuacct.usage")).unwrap();
    let cpu_time = cpu_time.trim().parse::<f64>().unwrap() / 1e9;
    groups.iter().for_each(|group| std::fs::remove_dir(group).unwrap());
    let samples = recording.samples();
    let most = |key: &str| samples.iter().map(|sample| number(sample, key)).fold(0.0, f64::max);
    let last = samples.last().unwrap();
    assert_eq!(last["cgroup"]["path"], format!("/limits.{}", std::process::id()));
    assert_eq!(number(last, "/cgroup/cpu_limit_cores"), 0.5);
    assert_eq!(number(last, "/cgroup/memory_limit_mib"), 64.0);
    assert_eq!(number(last, "/cgroup/pids_limit"), 40.0);
    assert_eq!(number(last, "/cpu/process_cpu_limit_cores"), 0.5);
    assert_eq!(number(last, "/cpu/process_memory_limit_mib"), 64.0);
    assert!(number(last, "/memory/total_mib") > 64.0, "the machine's own figures stay");
    assert!((50.0..=64.0).contains(&most("/cgroup/memory_peak_mib")), "{}", most("/cgroup/memory_peak_mib"));
    let kills: f64 = samples.iter().map(|sample| number(sample, "/cgroup/oom_kills")).sum();
    assert_eq!(kills, 1.0);
    assert!(most("/cgroup/pids_current") >= 3.0);
    let used = |sample: &Json| number(sample, "/cgroup/cpu_used_cores") * number(sample, "/elapsed_secs");
    let elapsed = samples.iter().map(|sample| number(sample, "/elapsed_secs")).sum::<f64>();
    let used = samples.iter().map(used).sum::<f64>();
    let cores = used / elapsed;
    // Nothing is known of an interval in which no period ended, as the last one can be; and only of such a one.
    for sample in &samples {
        let (periods, of_them) =
            (number(sample, "/cgroup/cpu_periods"), number(sample, "/cgroup/cpu_throttled_periods"));
        let share = (periods > 0.0).then(|| 100.0 * of_them / periods);
        let told = sample["cgroup"]["cpu_throttled_pct"].as_f64();
        assert!(told.is_some() == share.is_some(), "{}", sample["cgroup"]);
        assert!(told.zip(share).is_none_or(|(told, share)| (told - share).abs() < 1e-3), "{}", sample["cgroup"]);
    }
    let shares = samples.iter().filter_map(|sample| sample["cgroup"]["cpu_throttled_pct"].as_f64());
    let throttled = (shares.fold(0.0, f64::max), most("/cgroup/cpu_throttled_secs"));
    println!("{cores} cores, {used} s of {cpu_time}, {throttled:?} throttled");
    // A rate is over the time between two readings, which is that of the sample unless others hold the tracker up.
    used <= cpu_time * 1.05 && (0.2..0.6).contains(&cores) && throttled.0 > 30.0 && throttled.1 > 0.02
}

/// Node sizes its heap by the limit of its own group, and looks at none above it.
#[test]
fn a_limit_is_where_the_command_looks_for_it() {
    let test = "a_limit_is_where_the_command_looks_for_it";
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let own = own.lines().find_map(|line| line.split_once(":memory:"));
    let group = own.map(|(_, path)| PathBuf::from(format!("/sys/fs/cgroup/memory{path}/limit.{}", std::process::id())));
    if !is_root(test) || group.as_ref().is_none_or(|group| std::fs::create_dir(group).is_err()) {
        println!("skipped: {test} needs the memory hierarchy of v1");
        return;
    }
    let group = group.unwrap();
    let job = "cat /sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/self/cgroup)/memory.limit_in_bytes";
    let limit_seen = |wrapped: &[&str]| {
        let mut shell = command("sh");
        shell.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(&group);
        let output = shell.args(wrapped).args(["sh", "-c", job]).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().parse::<u64>().unwrap()
    };
    let tracker = [tracker().to_str().unwrap(), "-q", "--"];
    assert_eq!(limit_seen(&[]), limit_seen(&tracker), "none");
    std::fs::write(group.join("memory.limit_in_bytes"), "268435456").unwrap();
    assert_eq!((limit_seen(&[]), limit_seen(&tracker)), (268_435_456, 268_435_456));
    std::fs::remove_dir(&group).unwrap();
}

/// Each sweeps what others left behind, and must not take what another one has just made.
#[test]
fn many_trackers_that_start_at_once_leave_each_other_alone() {
    for _ in 0..8 {
        let start =
            |_| command(tracker()).args(["-q", "--", "sh", "-c", "exit 7"]).stderr(Stdio::piped()).spawn().unwrap();
        let running: Vec<_> = (0..24).map(start).collect();
        for one in running {
            let output = one.wait_with_output().unwrap();
            assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(7), ""));
        }
    }
}

/// On a machine with hierarchies of v1, a job's own cgroup is one of v2, and one of v1 for memory; the shell's in v1 say
/// nothing of it.
#[test]
fn figures_are_those_of_the_path_or_null() {
    let Some(sandbox) = Sandbox::new("path") else { return };
    let output = sandbox.command(tracker()).args(["-i", "0.1", "--", "sleep", "0.3"]).output().unwrap();
    let mount = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let is_v1 = mount.lines().any(|line| line.split(' ').nth(2) == Some("cgroup"));
    for sample in samples(&output.stderr) {
        let cgroup = &sample["cgroup"];
        let path = cgroup["path"].as_str().unwrap();
        if is_v1 {
            assert!(path.contains("/resource-tracker."), "{path}");
            for field in ["pids_current", "cpu_throttled_pct"] {
                assert_eq!(cgroup[field], Json::Null, "{field}");
            }
            assert!(cgroup["memory_peak_mib"].as_f64().is_none_or(|peak| peak < 100.0), "{cgroup}");
            assert!(cgroup["cpu_used_cores"].is_number());
        }
    }
    // Without one of its own, the figures of the cgroup that it is in have that one's name.
    let output = sandbox.command(tracker()).args(["--no-cgroup", "-i", "0.1", "--", "sleep", "0.2"]).output().unwrap();
    let cgroup = &samples(&output.stderr)[0]["cgroup"];
    let path = cgroup["path"].as_str().unwrap();
    let peak = std::fs::read_to_string(format!("/sys/fs/cgroup/memory{path}/memory.max_usage_in_bytes"));
    if let (true, Ok(peak)) = (is_v1, peak) {
        let peak = peak.trim().parse::<f64>().unwrap() / f64::from(1 << 20);
        assert!(number(cgroup, "/memory_peak_mib") <= peak, "{cgroup} {peak}");
    }
}

/// A killed tracker in a job: the outer tracker removes what it left, and after a crash of both the next run does.
#[test]
fn what_nested_trackers_leave_is_removed() {
    let Some(sandbox) = Sandbox::new("nested") else { return };
    let parent = sandbox.0.display();
    // Kills the inner tracker and its command when that is in its cgroup, and waits until no process is in that any
    // more.
    let script = format!(
        "{tracker} -q -- sleep 60 & inner=$!
         until procs=$(ls {parent}/resource-tracker.*/resource-tracker.*/cgroup.procs 2>/dev/null) && grep -q . $procs
         do sleep 0.01; done
         kill -9 $inner $(cat $procs); while grep -q . $procs; do sleep 0.01; done
         ls -d {parent}/*/resource-tracker.*; eval \"$1\"",
        tracker = tracker().display()
    );
    let run =
        |end: &str| sandbox.command(tracker()).args(["-q", "--", "sh", "-c", &script, "sh", end]).output().unwrap();
    let output = run("true");
    assert_eq!(text(&output.stdout).lines().count(), 1, "{}", text(&output.stderr));
    assert_eq!(sandbox.made(), [""; 0], "the outer one removed it with its own");
    let output = run("kill -9 $PPID");
    assert_eq!(text(&output.stdout).lines().count(), 1);
    let left = sandbox.made();
    assert_eq!(left.len(), 1);
    let procs = sandbox.0.join(&left[0]).join("cgroup.procs");
    wait_until("the end of the job", || std::fs::read_to_string(&procs).unwrap().is_empty());
    // What somebody else has put there stays.
    let theirs = sandbox.0.join("resource-tracker.old");
    std::fs::create_dir(&theirs).unwrap();
    assert!(sandbox.command(tracker()).args(["-q", "--", "true"]).status().unwrap().success());
    assert_eq!(sandbox.made(), ["resource-tracker.old"]);
    std::fs::remove_dir(&theirs).unwrap();
}
