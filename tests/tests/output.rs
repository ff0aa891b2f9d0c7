//! How samples are written (specification 7), and what happens to the files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use resource_tracker_tests::{Recording, command, in_time, number, samples, stop_after, text, track, tracker};
use serde_json::{Value as Json, json};

fn record(path: &Path, flags: &[&str], job: &[&str]) -> std::process::Output {
    record_every("20ms", path, flags, job)
}

/// Records one sample, however long it takes.
fn record_once(path: &Path, flags: &[&str]) {
    record_every("1h", path, flags, &["true"]);
}

fn record_every(interval: &str, path: &Path, flags: &[&str], job: &[&str]) -> std::process::Output {
    let mut run = command(tracker());
    let output = run.args(["-i", interval, "-o"]).arg(path).args(flags).arg("--").args(job).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    output
}

#[test]
fn t_out_01_to_04_each_line_is_a_sample() {
    let samples = samples(&stop_after(9, command(tracker()).args(["-i", "0.1", "-n", "label"])).stdout);
    assert!(samples.len() >= 9);
    for sample in &samples {
        assert!(sample["timestamp_secs"].as_u64().is_some_and(|secs| secs > 1_600_000_000));
        assert_eq!(sample["resource-tracker-version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(sample["job_name"], "label");
    }
    assert!(samples.windows(2).all(|pair| number(&pair[0], "/timestamp_ms") < number(&pair[1], "/timestamp_ms")));
    assert!(samples.windows(2).all(|pair| number(&pair[0], "/timestamp_secs") <= number(&pair[1], "/timestamp_secs")));
}

#[test]
fn t_csv_01_02_04_and_06_rows_are_numbers_under_one_header() {
    for (columns, count) in [("tracker", 21), ("python", 21), ("sentinel", 32)] {
        let recording = Recording::new();
        let script = recording.until_in(recording.stderr(), 6, "");
        let mut tracker = command(tracker());
        let output = recording.run(tracker.args(["-i", "50ms", "--csv-columns", columns, "--", "sh", "-c", &script]));
        let lines = text(&output.stderr);
        let mut lines = lines.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(header.len(), count);
        let position =
            |name: &str| header.iter().position(|column| column.trim_start_matches("system_") == name).unwrap();
        let mut rows = 0;
        for line in lines {
            let row: Vec<&str> = line.split(',').collect();
            assert_eq!(row.len(), count, "{line}");
            assert!(row.iter().all(|value| value.is_empty() || value.parse::<f64>().is_ok()), "{line}");
            assert!(!row[count - 4].is_empty() || columns == "sentinel", "{line}");
            let micro = |name: &str| row[position(name)].replace('.', "").parse::<u64>().unwrap();
            let [total, used, free] = ["disk_space_total_gb", "disk_space_used_gb", "disk_space_free_gb"].map(micro);
            assert_eq!(used, total - free, "T-CSV-04");
            rows += 1;
        }
        assert!(rows >= 5);
    }
}

#[test]
fn t_csv_03_and_05_a_row_says_what_the_object_says() {
    let directory = tempfile::tempdir().unwrap();
    let [json, one, two] = ["run.jsonl", "one.csv", "two.csv"].map(|name| directory.path().join(name));
    let set = |name: &str, path: &Path| format!("sinks.{name}={{ type = 'file', path = '{}' }}", path.display());
    let output = command(tracker())
        .args([
            "-q",
            "-i",
            "100ms",
            "--set",
            &set("a", &json),
            "--set",
            &set("b", &one),
            "--set",
            &set("c", &two),
            "--",
        ])
        .args([env!("CARGO_BIN_EXE_job"), "burn", "1", "500"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stderr), "");
    let (one, two) = (std::fs::read_to_string(one).unwrap(), std::fs::read_to_string(two).unwrap());
    assert_eq!(one, two, "T-CSV-05: the same sample gives the same bytes");
    let samples = samples(&std::fs::read(json).unwrap());
    assert_eq!(one.lines().count(), samples.len() + 1);
    let received = |sample: &Json| -> f64 {
        let counted = sample["network"].as_array().unwrap().iter().filter(|one| one["is_counted"] == true);
        counted.map(|one| number(one, "/rx_bytes_total")).sum()
    };
    let mut received_before = None;
    for (line, sample) in one.lines().skip(1).zip(&samples) {
        let row: Vec<&str> = line.split(',').collect();
        assert_eq!(row[4], format!("{:.4}", number(sample, "/cpu/utilization_pct")), "T-CSV-03");
        assert_eq!(row[5], number(sample, "/memory/free_mib").to_string());
        if let Some(before) = received_before.replace(received(sample)) {
            assert_eq!(row[16].parse::<f64>().unwrap(), received(sample) - before);
        }
        assert!(row[0].contains('.'), "a fractional interval has a fractional timestamp");
    }
}

#[test]
fn a_file_is_private_and_appended_to() {
    let directory = tempfile::tempdir().unwrap();
    for (name, header) in [("run.jsonl", 0), ("run.csv", 1)] {
        let path = directory.path().join(name);
        record_once(&path, &[]);
        record_once(&path, &[]);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2 + header);
    }
    let path = directory.path().join("run.csv");
    record_once(&path, &["--set", "sinks.output.if_exists=overwrite", "--csv-columns", "python"]);
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
    for arguments in [&["--set", "sinks.output.if_exists=fail"][..], &["--csv-columns", "sentinel"], &["-f", "json"]] {
        let output = command(tracker()).arg("-o").arg(&path).args(arguments).args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains("run.csv exists"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_torn_last_line_does_not_spoil_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    std::fs::write(&path, "{\"timestamp_secs\":1,\"cp").unwrap();
    record_once(&path, &[]);
    let lines = std::fs::read_to_string(&path).unwrap();
    assert_eq!(samples(lines.split_once('\n').unwrap().1.as_bytes()).len(), 1);
}

#[test]
fn a_compressed_file_is_whole_after_several_runs() {
    let recording = Recording::new();
    let (plain, path) = (recording.path(), recording.path().with_extension("jsonl.gz"));
    let beside = format!("sinks.plain={{ type = 'file', path = '{}' }}", plain.display());
    for count in [8, 16] {
        record(&path, &["--set", &beside], &["sh", "-c", &recording.until(count, "")]);
    }
    let mut text = Vec::new();
    flate2::read::MultiGzDecoder::new(std::fs::File::open(&path).unwrap()).read_to_end(&mut text).unwrap();
    assert!(text == std::fs::read(&plain).unwrap());
    assert!(samples(&text).len() >= 16);
}

#[test]
fn rotation_splits_no_line_and_keeps_what_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.csv");
    // Beside it a file with all of the samples: more than three full files hold.
    let all = Recording::new();
    let beside = format!("sinks.all={{ type = 'file', path = '{}' }}", all.path().display());
    let rotate = ["--set", "sinks.output.rotate_bytes=1000", "--set", "sinks.output.rotate_keep=2", "--set", &beside];
    record(&path, &rotate, &["sh", "-c", &all.until(50, "")]);
    let names: BTreeSet<String> = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        let contents = std::fs::read_to_string(directory.path().join(&name)).unwrap();
        assert!(contents.starts_with("timestamp,") && contents.ends_with('\n'), "{name}");
        assert!(contents.lines().all(|line| line.split(',').count() == 21));
        assert!(contents.len() < 1400);
    }
}

#[test]
fn two_trackers_share_a_file_line_by_line() {
    for name in ["run.jsonl", "run.csv"] {
        let recording = Recording::new();
        let path = recording.path().with_file_name(name);
        let start = || {
            let script = recording.until_in(path.clone(), 120, "");
            command(tracker()).args(["-i", "2ms", "-o"]).arg(&path).args(["--", "sh", "-c", &script]).spawn().unwrap()
        };
        let (mut one, mut two) = (start(), start());
        assert!(one.wait().unwrap().success() && two.wait().unwrap().success());
        let contents = std::fs::read(&path).unwrap();
        if name.ends_with("jsonl") {
            let samples = samples(&contents);
            let pids: BTreeSet<String> = samples.iter().map(|sample| sample["pid"].to_string()).collect();
            assert_eq!(pids.len(), 2);
            assert!(samples.len() > 100);
        } else {
            let lines = text(&contents);
            assert_eq!(lines.matches("timestamp").count(), 1, "one header");
            assert!(lines.lines().all(|line| line.split(',').count() == 21));
        }
    }
}

#[test]
fn quiet_writes_nothing_and_a_dash_is_standard_output() {
    let output = track(["-q", "-i", "50ms", "--", "sleep", "0.2"]);
    assert_eq!((output.stdout.len(), output.stderr.len()), (0, 0));
    let recording = Recording::new();
    let script = recording.until_in(recording.stdout(), 3, "");
    let output = recording.run(command(tracker()).args(["-o", "-", "-i", "50ms", "--", "sh", "-c", &script]));
    assert!(samples(&output.stdout).len() >= 3);
    let output = track(["-o", "-", "-f", "csv", "-i", "50ms", "--", "sleep", "0.2"]);
    assert!(text(&output.stdout).starts_with("timestamp,") && output.stderr.is_empty());
}

/// Three at the same time, each for ten seconds.
#[test]
fn ticks_keep_their_grid() {
    std::thread::scope(|scope| {
        for (interval, millis) in [("1s", 1000.0), ("100ms", 100.0), ("10ms", 10.0)] {
            scope.spawn(move || in_time(|| is_on_its_grid(interval, millis)));
        }
    });
}

fn is_on_its_grid(interval: &str, millis: f64) -> bool {
    let seconds = 10.0;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    // At the end: for how many nanoseconds each thread of the tracker had to wait for a CPU.
    let script = format!("sleep {}; cut -d' ' -f2 /proc/$PPID/task/*/schedstat", seconds + millis / 2000.0);
    let mut tracker = command(tracker());
    let output = tracker.args(["-i", interval, "-o"]).arg(&path).args(["--", "sh", "-c", &script]).output().unwrap();
    assert_eq!(text(&output.stderr), "");
    let waits = text(&output.stdout);
    let waited = waits.lines().map(|nanos| nanos.parse::<f64>().unwrap() / 1e6).fold(0.0, f64::max);
    let samples = samples(&std::fs::read(&path).unwrap());
    let expected = seconds * 1000.0 / millis;
    // The last sample is the one of the end.
    let ticks = &samples[..samples.len() - 1];
    let missing = expected - ticks.len() as f64;
    let times: Vec<f64> = ticks.iter().map(|sample| number(sample, "/timestamp_ms")).collect();
    assert!(times.windows(2).all(|pair| pair[1] > pair[0]));
    // How late a tick is against the grid. A wake-up can be late, never early; a drift moves all of them.
    let phase = |times: &[f64]| {
        let against = |time: &f64| (time - times[0] + millis / 2.0).rem_euclid(millis) - millis / 2.0;
        times[0] + times.iter().map(against).fold(f64::INFINITY, f64::min)
    };
    let (first, last) = (phase(&times[..times.len().min(5)]), phase(&times[times.len().saturating_sub(5)..]));
    let drift = (last - first + millis / 2.0).rem_euclid(millis) - millis / 2.0;
    println!("{interval}: {} of {expected}, drifted by {drift} ms, waited {waited} ms for a CPU", ticks.len());
    // A tick that is late by a whole interval is left out. A shared machine may stop us for a moment, and others may have
    // the CPUs.
    let excused = 1.0f64.max(expected * 0.01) + waited / millis;
    (-1.0..=excused).contains(&missing) && drift.abs() <= 4.0
}

#[test]
fn columns_of_the_job_are_beside_those_of_the_machine() {
    let output = track(["-i", "50ms", "--csv-columns", "job", "--", env!("CARGO_BIN_EXE_job"), "burn", "1", "400"]);
    let (text, told) = (text(&output.stderr), text(&output.stdout));
    let table: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert!(table.iter().all(|row| row.len() == 32), "{text}");
    let column = |name: &str| {
        let position = table[0].iter().position(|column| *column == name).unwrap();
        table[1..].iter().map(|row| row[position]).collect::<Vec<_>>()
    };
    assert!(column("process_pid").iter().all(|pid| *pid == column("process_pid")[0] && !pid.is_empty()));
    let sum = |name: &str| column(name).iter().map(|secs| secs.parse::<f64>().unwrap()).sum::<f64>();
    let used = sum("process_utime") + sum("process_stime");
    // The time to start the program is not in its own figure.
    let told: f64 = told.split_whitespace().next().unwrap().parse().unwrap();
    // Each figure of a row has three decimals.
    let rounding = 0.001 * table.len() as f64;
    assert!((told - rounding..told + 0.1).contains(&used), "{used} of {told}");
    assert!(column("memory_used").iter().all(|used| !used.is_empty()));
}

#[test]
fn name_format_and_columns_say_the_same_or_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    for (arguments, way_out) in [
        (vec!["-o".into(), at("x.jsonl"), "--csv-columns".into(), "python".into()], "name it .csv"),
        (vec!["-o".into(), at("x.json.gz"), "--csv-columns".into(), "python".into()], "name it .csv"),
        (["-o", &at("x.csv"), "-f", "json", "--csv-columns", "job"].map(String::from).to_vec(), "format = \"csv\""),
        (["-f", "json", "--csv-columns", "job"].map(String::from).to_vec(), "--format csv"),
    ] {
        let output = track(arguments.iter().map(String::as_str).chain(["--", "sh", "-c", "echo started"]));
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{said}");
        assert!(said.contains(way_out), "{said}");
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    for (name, flags) in
        [("x", &["--csv-columns", "python"][..]), ("y.jsonl", &["--csv-columns", "python", "-f", "csv"])]
    {
        assert_eq!(text(&track(["-o", &at(name)].iter().chain(flags).chain(&["--", "true"])).stderr), "");
        assert!(fs::read_to_string(at(name)).unwrap().starts_with("timestamp,processes,"), "{name}");
    }
}

#[test]
fn two_sinks_on_one_stream_are_refused_with_the_way_out() {
    let run = |flags: &[&str]| track(flags.iter().chain(&["-i", "50ms", "--", "sleep", "0.1"]));
    let output = run(&["--enable", "csv"]);
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    for word in ["sinks.stdout-json", "standard error", "--disable csv", "--format csv"] {
        assert!(said.contains(word), "{said}");
    }
    for flags in [
        &["--enable", "csv"][..],
        &["--enable", "csv", "--set", "sinks.stdout-json.stream=stdout", "--set", "sinks.csv.stream=stdout"],
    ] {
        let said = text(&run(flags).stderr);
        let (_, advised) = said.split_once("--set ").unwrap();
        let advised = advised.split(',').next().unwrap();
        let output = run(&[flags, &["--set", advised]].concat());
        let parted = [text(&output.stdout), text(&output.stderr)]
            .map(|text| text.lines().next().unwrap_or_default()[..5].to_owned());
        assert!(
            output.status.success() && parted.contains(&"times".into()) && parted.contains(&"{\"tim".into()),
            "{said}{output:?}"
        );
    }
    let alone = run(&["--enable", "csv", "--disable", "stdout-json"]);
    assert!(text(&alone.stderr).starts_with("timestamp,"));
    let apart = run(&["--enable", "csv", "--set", "sinks.stdout-json.stream=stdout"]);
    assert!(text(&apart.stderr).starts_with("timestamp,") && samples(&apart.stdout).len() >= 2);
    let without_command = command(tracker()).args(["--enable", "csv"]).output().unwrap();
    assert!(text(&without_command.stderr).contains("standard output"), "{}", text(&without_command.stderr));
}

#[test]
fn what_the_run_is_is_in_the_first_sample() {
    let flags = ["--set", "tracker.detect=false", "-i", "50ms"];
    let labels = ["-n", "nightly", "--team", "ml", "--tag", "cell=7", "--tag", "who=me"];
    let output = track(flags.iter().chain(&labels).chain(&["--", "sleep", "0.2"]));
    let samples = samples(&output.stderr);
    let run = &samples[0]["run"];
    assert_eq!(run["labels"], json!({ "job_name": "nightly", "team": "ml" }));
    assert_eq!(run["tags"], json!({ "cell": "7", "who": "me" }));
    assert_eq!((&run["command"], &run["interval_secs"]), (&json!(["sleep", "0.2"]), &json!(0.05)));
    assert_eq!(run["version"], samples[0]["resource-tracker-version"]);
    let started = run["started_ms"].as_u64().unwrap();
    assert!((1..5_000).contains(&(samples[0]["timestamp_ms"].as_u64().unwrap() - started)), "{run}");
    assert!(samples.len() > 1 && samples[1..].iter().all(|sample| sample.get("run").is_none()));
    let other = &self::samples(&track(flags.iter().chain(&["--", "true", "--password", "secret"])).stderr)[0]["run"];
    assert_eq!(other["command"], json!(["true", "--password", "***"]));
    assert!(other["id"] != run["id"] && run["id"].as_str().is_some_and(|id| id.len() == 36), "{run} {other}");
    assert_eq!((&other["labels"], &other["tags"]), (&json!({}), &json!({})));
}

#[test]
fn a_command_of_many_words_is_told_by_its_first_and_does_not_wait_for_that() {
    let words = vec!["--word"; 10_000];
    let program = ["-i", "1h", "--", "sh", "-c", "date +%s%N >&1; true"];
    in_time(|| {
        let start = |words: &[&str]| {
            let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            let output = track(program.iter().chain(words));
            let started: u128 = text(&output.stdout).trim().parse().unwrap();
            let command = samples(&output.stderr)[0]["run"]["command"].as_array().unwrap().clone();
            (command, started - began.as_nanos())
        };
        let ((few, early), (many, late)) = (start(&[]), start(&words));
        assert_eq!((few.len(), many.len()), (3, 257));
        assert_eq!((&many[..3], &many[256]), (&few[..], &json!("...")));
        println!("{early} and {late} ns");
        late < early + 60_000_000
    });
}

/// The time of a run is longer than what of it is between two looks: a command is begun before the first.
#[test]
fn cores_of_a_short_run_are_over_its_time() {
    for _ in 0..5 {
        let all = samples(&track(["-i", "1h", "--", "sh", "-c", "kill -9 $$"]).stderr);
        let last = all.last().unwrap();
        let (cpu, wall) = (&last["cpu"], number(last, "/outcome/wall_secs"));
        let secs = number(cpu, "/process_utime_secs") + number(cpu, "/process_stime_secs");
        let cores = number(cpu, "/process_cores_used");
        assert!(all.len() == 1 && cores > 0.0 && cores <= secs / wall + 0.01, "{cores} of {secs} s in {wall} s");
    }
}

/// To mask one of 100 KB took a quarter of a second.
#[test]
fn a_command_of_long_words_is_told_up_to_them() {
    let long = "{\"a\":".repeat(20_000);
    let output = track(["-i", "1h", "--", "true", "first", &long, "last"]);
    assert_eq!(samples(&output.stderr)[0]["run"]["command"], json!(["true", "first", "..."]));
}

#[test]
fn how_the_run_ended_is_in_the_last_sample() {
    let flags = ["-i", "50ms", "--", "sh", "-c"];
    for (script, code, signal) in [("sleep 0.3; exit 7", json!(7), Json::Null), ("kill -9 $$", Json::Null, json!(9))] {
        let began = Instant::now();
        let samples = samples(&track(flags.iter().chain(&[script])).stderr);
        let whole = began.elapsed().as_secs_f64();
        let (last, others) = samples.split_last().unwrap();
        assert!(others.iter().all(|sample| sample.get("outcome").is_none()));
        let outcome = &last["outcome"];
        assert_eq!((&outcome["exit_code"], &outcome["signal"]), (&code, &signal));
        assert_eq!(outcome["samples"], samples.len());
        let wall = outcome["wall_secs"].as_f64().unwrap();
        let at_least = if code == 7 { 0.3 } else { 0.0 };
        assert!(at_least <= wall && wall <= whole, "{outcome} of {whole}");
    }
}

#[test]
fn numbers_have_six_decimals_at_most() {
    let output = stop_after(5, command(tracker()).args(["-i", "37ms", "--enable", "energy"]));
    let text = text(&output.stdout);
    let numbers = text.split([',', ':', '[', ']', '{', '}', '\n']).filter(|word| word.parse::<f64>().is_ok());
    let mut count = 0;
    for number in numbers {
        let (digits, exponent) = number.split_once('e').unwrap_or((number, "0"));
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len()) as i32;
        assert!(decimals - exponent.parse::<i32>().unwrap() <= 6 || digits.ends_with(".0"), "{number}");
        count += 1;
    }
    assert!(count > 100);
}
