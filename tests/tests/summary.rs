//! What a run took: at its end, and from recordings.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use flate2::Compression;
use flate2::write::GzEncoder;
use resource_tracker_tests::terminal::Terminal;
use resource_tracker_tests::{command, has, job, number, samples, text, track, tracker};
use serde_json::{Value as Json, json};

/// Records this command into a file of the folder.
fn record(path: &Path, arguments: &[&str]) {
    let output = command(tracker()).args(["-i", "50ms", "-o"]).arg(path).arg("--").args(arguments).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

fn summarize(arguments: &[&str]) -> (String, String, Option<i32>) {
    let output = track(["summary"].iter().chain(arguments));
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

fn as_json(path: &Path) -> Json {
    let (stdout, stderr, code) = summarize(&["--json", path.to_str().unwrap()]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    serde_json::from_str(&stdout).unwrap()
}

/// A whole sample that was recorded, to be changed.
fn a_recording(folder: &Path) -> Vec<Json> {
    let path = folder.join("whole.jsonl");
    record(&path, &[job().to_str().unwrap(), "until", path.to_str().unwrap(), "5", ""]);
    samples(&fs::read(path).unwrap())
}

fn lines(samples: &[Json]) -> String {
    samples.iter().map(|sample| format!("{sample}\n")).collect()
}

fn close(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * one.abs().max(other.abs()) + 1e-9
}

#[test]
fn figures_are_those_of_the_job_and_of_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let job = job();
    let mut command = command(tracker());
    command.args(["-i", "100ms", "-o"]).arg(&path).arg("--").arg(&job).args(["burn", "2", "1500"]);
    let began = Instant::now();
    let output = command.output().unwrap();
    let whole = began.elapsed().as_secs_f64();
    let truth: Vec<f64> = text(&output.stdout).split_whitespace().map(|number| number.parse().unwrap()).collect();
    let summary = as_json(&path);
    let cpu = number(&summary, "/job/user_secs") + number(&summary, "/job/system_secs");
    // What the program used before and after it looked at its own clock is in it as well.
    assert!(truth[0] <= cpu && cpu <= truth[0] + 0.05, "{cpu} of {truth:?}");
    let wall = number(&summary, "/outcome/wall_secs");
    assert!(truth[1] <= wall && wall <= whole, "{wall} of {truth:?} and {whole}");
    assert_eq!(summary["outcome"]["exit_code"], 0);
    assert_eq!(summary["run"]["command"][1], "burn");
    // The same from the samples, in another way.
    let samples = samples(&fs::read(&path).unwrap());
    let of = |pointer: &str| samples.iter().filter_map(|sample| sample.pointer(pointer)?.as_f64()).collect::<Vec<_>>();
    let mean = |pointer: &str| {
        let known = samples
            .iter()
            .filter_map(|sample| Some((sample.pointer(pointer)?.as_f64()?, number(sample, "/elapsed_secs"))));
        let (area, secs) = known.fold((0.0, 0.0), |(area, secs), (value, over)| (area + value * over, secs + over));
        area / secs
    };
    let peak = |pointer: &str| of(pointer).into_iter().fold(f64::MIN, f64::max);
    for (figure, expected) in [
        ("/job/user_secs", of("/cpu/process_utime_secs").iter().sum()),
        ("/job/system_secs", of("/cpu/process_stime_secs").iter().sum()),
        ("/job/cores/mean", mean("/cpu/process_cores_used")),
        ("/job/cores/peak", peak("/cpu/process_cores_used")),
        ("/job/memory_mib/mean", mean("/cpu/process_memory_mib")),
        ("/job/peak_memory_mib", peak("/cpu/process_peak_memory_mib")),
        ("/job/peak_threads", peak("/cpu/process_thread_count")),
        ("/machine/cores/mean", mean("/cpu/cores_used")),
        ("/machine/memory_mib/peak", peak("/memory/unavailable_mib")),
        ("/times/sampled_secs", of("/elapsed_secs").iter().sum()),
        ("/times/samples", samples.len() as f64),
    ] {
        assert!(
            close(number(&summary, figure), expected),
            "{figure}: {} is not {expected}",
            summary.pointer(figure).unwrap()
        );
    }
}

/// Its `summary` without words that are for people, and without what the end of a run alone knows.
const STATISTICS: &str = r#"
import json, math, sys, duckdb, pandas
path = sys.argv[1]
samples = f"read_json('{path}', format='newline_delimited', maximum_object_size=100000000)"
one = duckdb.sql(f"""
    select sum(elapsed_secs), count(*), sum(cpu.process_utime_secs), sum(cpu.process_stime_secs),
        sum(cpu.process_cores_used * elapsed_secs) / sum(elapsed_secs) filter (cpu.process_cores_used is not null),
        max(cpu.process_cores_used), max(cpu.process_memory_mib), max(cpu.process_peak_memory_mib),
        sum(cpu.process_minor_faults), sum(cpu.process_disk_write_bytes),
        sum(cpu.cores_used * elapsed_secs) / sum(elapsed_secs),
        sum(memory.unavailable_mib * elapsed_secs) / sum(elapsed_secs), max(memory.unavailable_mib)
    from {samples}""").fetchall()[0]
one += duckdb.sql(f"""
    select sum(g.utilization_pct * elapsed_secs) / sum(elapsed_secs), max(g.vram_used_bytes) / 1048576, sum(g.energy_joules)
    from (select elapsed_secs, unnest(gpu) as g from {samples}) where g.uuid = 'second'""").fetchall()[0]
one += duckdb.sql(f"""
    select sum(cgroup.cpu_throttled_secs), sum(cgroup.oom_kills),
        sum(pressure.cpu.some.interval_pct * elapsed_secs) / sum(elapsed_secs)
    from {samples}""").fetchall()[0]
one += duckdb.sql(f"""
    select sum(e.watts * elapsed_secs) / sum(elapsed_secs), max(e.watts), sum(e.joules)
    from (select elapsed_secs, unnest(energy) as e from {samples}) where e.name = 'y'""").fetchall()[0]
grown = """select sum(newest - oldest + least(round(rate * span), oldest)) from (
    select max_by(d.{0}_total, ms) as newest, min_by(d.{0}_total, ms) as oldest, min_by(d.{0}_per_sec, ms) as rate, min_by(secs, ms) as span
    from (select timestamp_ms as ms, elapsed_secs as secs, unnest({1}) as d from {2}) where d.is_counted group by d.{3})"""
for counted in (("read_bytes", "disk", samples, "device"), ("write_bytes", "disk", samples, "device"), ("rx_bytes", "network", samples, "ifindex")):
    one += duckdb.sql(grown.format(*counted)).fetchall()[0]
frame = pandas.json_normalize([json.loads(line) for line in open(path)])
secs = frame["elapsed_secs"]
def mean(name):
    known = frame[name].notna()
    return (frame[name] * secs)[known].sum() / secs[known].sum()
other = [secs.sum(), len(frame), frame["cpu.process_utime_secs"].sum(), frame["cpu.process_stime_secs"].sum(),
    mean("cpu.process_cores_used"), frame["cpu.process_cores_used"].max(), frame["cpu.process_memory_mib"].max(),
    frame["cpu.process_peak_memory_mib"].max(), frame["cpu.process_minor_faults"].sum(),
    frame["cpu.process_disk_write_bytes"].sum(), mean("cpu.cores_used"), mean("memory.unavailable_mib"),
    frame["memory.unavailable_mib"].max()]
def items(section, name, value):
    lines = (json.loads(line) for line in open(path))
    rows = pandas.DataFrame([item | {"secs": line["elapsed_secs"]} for line in lines for item in line.get(section, [])])
    return rows[rows[name] == value] if value else rows[rows["is_counted"] == True]
def weighted(rows, name):
    return (rows[name] * rows["secs"]).sum() / rows["secs"].sum()
gpu, energy = items("gpu", "uuid", "second"), items("energy", "name", "y")
other += [weighted(gpu, "utilization_pct"), gpu["vram_used_bytes"].max() / 1048576, gpu["energy_joules"].sum(),
    frame["cgroup.cpu_throttled_secs"].sum(), frame["cgroup.oom_kills"].sum(), mean("pressure.cpu.some.interval_pct"),
    weighted(energy, "watts"), energy["watts"].max(), energy["joules"].sum()]
for section, device, counter in (("disk", "device", "read_bytes"), ("disk", "device", "write_bytes"), ("network", "ifindex", "rx_bytes")):
    grown = 0
    for _, rows in items(section, None, None).groupby(device):
        total, first = rows[counter + "_total"], rows.iloc[0]
        grown += total.iloc[-1] - total.iloc[0] + min(round(first[counter + "_per_sec"] * first["secs"]), total.iloc[0])
    other.append(grown)
quantiles = [frame["cpu.process_cores_used"].dropna().sort_values().iloc[math.ceil(share * frame["cpu.process_cores_used"].count()) - 1]
    for share in (0.5, 0.95, 0.99)]
print(json.dumps([[float(value) for value in values] for values in (one, other, quantiles)]))
"#;

#[test]
fn statistics_are_those_of_duckdb_and_pandas() {
    let Some(python) = std::env::var_os("RESOURCE_TRACKER_PYTHON") else {
        println!("skipped: RESOURCE_TRACKER_PYTHON names no Python with duckdb and pandas");
        return;
    };
    if !Command::new(&python).args(["-c", "import duckdb, pandas"]).status().is_ok_and(|status| status.success()) {
        println!("skipped: duckdb and pandas are not there");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let script = "for n in 1 2 3 4 5; do head -c 20000000 /dev/urandom | sort | md5sum; sleep 0.1; done";
    record(&path, &["sh", "-c", script]);
    let mut samples = samples(&fs::read(&path).unwrap());
    // What this machine has not.
    for (number, sample) in (1_u32..).zip(&mut samples) {
        let (used, held) = (f64::from(number * 37 % 101), u64::from(number % 7) << 30);
        let gpu = |uuid: &str| json!({ "uuid": uuid, "utilization_pct": used, "vram_used_bytes": held, "energy_joules": used / 3.0 });
        sample["gpu"] = json!([gpu("first"), gpu("second")]);
        sample["gpu"][0]["utilization_pct"] = json!(1.0);
        sample["cgroup"] = json!({ "path": "/", "cpu_throttled_secs": used / 1000.0, "oom_kills": number % 3 });
        let domain =
            |name: &str, watts: f64| json!({ "name": name, "watts": watts, "joules": f64::from(number) / 7.0 });
        sample["energy"] = json!([domain("x", 1.0), domain("y", used)]);
    }
    let lines: String = samples.iter().map(|sample| format!("{sample}\n")).collect();
    fs::write(&path, lines).unwrap();
    let output = command(&python).args(["-c", STATISTICS]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [duckdb, pandas, quantiles]: [Vec<f64>; 3] = serde_json::from_slice(&output.stdout).unwrap();
    let summary = as_json(&path);
    let figures = [
        "/times/sampled_secs",
        "/times/samples",
        "/job/user_secs",
        "/job/system_secs",
        "/job/cores/mean",
        "/job/cores/peak",
        "/job/memory_mib/peak",
        "/job/peak_memory_mib",
        "/job/minor_faults",
        "/job/disk_write_bytes",
        "/machine/cores/mean",
        "/machine/memory_mib/mean",
        "/machine/memory_mib/peak",
        "/gpus/1/utilization_pct/mean",
        "/gpus/1/memory_mib/peak",
        "/gpus/1/energy_joules",
        "/cgroup/cpu_throttled_secs",
        "/cgroup/oom_kills",
        "/machine/cpu_pressure_pct",
        "/sections/energy[y].watts/mean",
        "/sections/energy[y].watts/peak",
        "/sections/energy[y].joules/sum",
        "/machine/disk_read_bytes",
        "/machine/disk_write_bytes",
        "/machine/network_rx_bytes",
    ];
    for (index, figure) in figures.into_iter().enumerate() {
        let ours = number(&summary, figure);
        assert!(
            close(ours, duckdb[index]) && close(ours, pandas[index]),
            "{figure}: {ours} {} {}",
            duckdb[index],
            pandas[index]
        );
    }
    for (name, truth) in ["p50", "p95", "p99"].into_iter().zip(quantiles) {
        let ours = number(&summary, &format!("/job/cores/{name}"));
        assert!((ours - truth).abs() <= 0.006 * truth + 1e-6, "{name}: {ours} of {truth}");
    }
}

#[test]
fn a_summary_is_said_at_the_end_when_it_is_asked_for() {
    let output = track(["-i", "100ms", "-q", "--summary", "--", "sh", "-c", "sleep 1.2; exit 3"]);
    let said = text(&output.stderr);
    let (_, after) = said.split_once("\nexited with 3 after ").unwrap_or_else(|| panic!("{said}"));
    let secs: f64 = after.split(' ').next().unwrap().parse().unwrap();
    assert!(said.lines().count() <= 20 && secs >= 1.2, "{said}");
    assert!(said.contains("\nCPU ") && said.contains("\nMemory ") && !said.contains('\x1b'), "{said}");
    assert!(said.contains("\nNote       it failed") && !said.contains("\nAsk for"), "{said}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0));
    let output = track(["-i", "100ms", "--", "sleep", "0.3"]);
    assert!(text(&output.stderr).lines().all(|line| line.starts_with('{')), "samples, as ever");
    let output = track(["-i", "100ms", "--summary", "--", "sleep", "0.3"]);
    let said = text(&output.stderr);
    assert!(said.starts_with('{') && said.contains("exited with 0"), "both: {said}");
    let output = track(["-q", "--enable", "summary", "--set", "sinks.summary.format=json", "--", "sleep", "0.1"]);
    let summary: Json = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(summary["outcome"]["exit_code"], 0);
}

#[test]
fn on_a_terminal_a_summary_takes_the_place_of_the_samples() {
    if !has("bash", "a terminal") {
        return;
    }
    let (tracker, folder) = (tracker().display(), tempfile::tempdir().unwrap());
    let path = folder.path().join("run.jsonl");
    let mut terminal = Terminal::new();
    let on = |terminal: &mut Terminal, line: &str| {
        terminal.press(&format!("{line}; echo d''one\n"));
        terminal.expect("done\r\n")
    };
    let seen = on(&mut terminal, &format!("{tracker} -i 50ms -- sleep 0.2"));
    assert!(seen.contains("exited with 0") && seen.contains("[1m") && !seen.contains("timestamp"), "{seen}");
    let seen = on(&mut terminal, &format!("NO_COLOR=1 {tracker} -i 50ms -o {} -- sleep 0.2", path.display()));
    assert!(seen.contains("exited with 0") && !seen.contains("[1m") && !seen.contains("timestamp"), "{seen}");
    assert!(samples(&fs::read(&path).unwrap()).len() > 1);
    let seen = on(&mut terminal, &format!("{tracker} -q -- sleep 0.2"));
    assert!(!seen.contains("exited"), "{seen}");
    let seen = on(&mut terminal, &format!("{tracker} -f json -i 50ms -- sleep 0.2"));
    assert!(!seen.contains("exited") && seen.contains("timestamp"), "samples were asked for: {seen}");
    let mut narrow = Terminal::with_columns(40);
    let seen = on(&mut narrow, &format!("NO_COLOR=1 {tracker} -- sh -c 'sleep 0.2 # {}'", "long ".repeat(20)));
    let (_, seen) = seen.split_once("\rsh -c sleep").unwrap_or_else(|| panic!("{seen:?}"));
    assert!(seen.lines().all(|line| line.chars().count() <= 40), "nothing is wrapped: {seen}");
    assert!(seen.contains("...") && !seen.contains("[#") && !seen.contains("[-"), "no bars: {seen}");
}

#[test]
fn recordings_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let whole = a_recording(folder.path());
    let count = whole.len();
    assert!(count >= 4);
    // Compressed, in two members.
    let mut bytes = Vec::new();
    for part in whole.chunks(2) {
        let mut gzip = GzEncoder::new(&mut bytes, Compression::fast());
        gzip.write_all(lines(part).as_bytes()).unwrap();
        gzip.finish().unwrap();
    }
    fs::write(at("run.jsonl.gz"), &bytes).unwrap();
    // Set aside in parts.
    fs::write(at("parts.1.jsonl"), lines(&whole[..2])).unwrap();
    fs::write(at("parts.2.jsonl"), lines(&whole[2..3])).unwrap();
    fs::write(at("parts.jsonl"), lines(&whole[3..])).unwrap();
    for name in ["run.jsonl.gz", "parts.jsonl"] {
        let summary = as_json(&at(name));
        assert_eq!((&summary["times"]["samples"], &summary["problems"]), (&json!(count), &json!([])), "{name}");
        assert_eq!(summary["outcome"]["exit_code"], 0);
    }
    // All parts by name are one run as well, each once.
    let named = ["parts.1.jsonl", "parts.2.jsonl", "parts.jsonl"].map(|name| at(name).to_str().unwrap().to_owned());
    let (stdout, _, _) = summarize(&["--json", &named[0], &named[1], &named[2]]);
    assert_eq!(stdout.lines().count(), 1);
    // Several runs in one file, and one without its first sample.
    fs::write(at("several.jsonl"), lines(&whole) + &lines(&whole)).unwrap();
    let (stdout, _, code) = summarize(&["--json", at("several.jsonl").to_str().unwrap()]);
    assert_eq!((stdout.lines().count(), code), (2, Some(0)));
    // Of several files, each run says which it is of.
    let (stdout, _, _) =
        summarize(&["--json", at("whole.jsonl").to_str().unwrap(), at("several.jsonl").to_str().unwrap()]);
    let of = stdout.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()["file"].clone());
    let of: Vec<String> = of.map(|file| file.as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(of, ["whole.jsonl", "several.jsonl", "several.jsonl"]);
    fs::write(at("late.jsonl"), lines(&whole[1..])).unwrap();
    let summary = as_json(&at("late.jsonl"));
    assert_eq!((&summary["run"], &summary["times"]["samples"]), (&Json::Null, &json!(count - 1)));
    // From a pipe.
    let mut piped = command(tracker());
    piped.args(["summary", "-", "--markdown"]).stdin(fs::File::open(at("whole.jsonl")).unwrap());
    let page = text(&piped.output().unwrap().stdout);
    let (title, rest) = page.split_once("\n\n").unwrap();
    assert!(title.starts_with("### `") && title.contains("whole.jsonl") && rest.starts_with("exited with 0"), "{page}");
}

#[test]
fn what_is_wrong_with_a_recording_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let whole = a_recording(folder.path());
    let good = lines(&whole);
    // No recordings.
    for (name, bytes, problem) in [
        ("empty", "", "empty is no recording: it is empty"),
        ("text", "hello\n", "text is no recording: line 1 is no JSON object"),
        ("list", "[1, 2]\n", "list is no recording: line 1 is no JSON object"),
        ("other", "{\"a\": 1}\n", "other is no recording: line 1 has no timestamp_ms"),
        ("rows.csv", "timestamp,processes\n1,2\n", "only JSON Lines can be read"),
    ] {
        fs::write(at(name), bytes).unwrap();
        let (stdout, stderr, code) = summarize(&[at(name).to_str().unwrap()]);
        assert!(stderr.contains(problem) && stderr.lines().count() == 1, "{name}: {stderr}");
        assert_eq!((stdout.as_str(), code), ("", Some(2)), "{name}");
    }
    let (_, stderr, code) = summarize(&[at("nobody").to_str().unwrap()]);
    assert!(stderr.contains("cannot read") && stderr.contains("nobody") && code == Some(2), "{stderr}");
    // The runs before the wrong file are printed.
    let (stdout, stderr, code) =
        summarize(&["--json", at("whole.jsonl").to_str().unwrap(), at("text").to_str().unwrap()]);
    assert!(stderr.contains("text is no recording") && code == Some(2), "{stderr}");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    // Recordings with something missing.
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(good.as_bytes()).unwrap();
    let mut cut_gzip = gzip.finish().unwrap();
    cut_gzip.truncate(cut_gzip.len() / 2);
    let mut strange = whole.clone();
    strange[1]["cpu"]["cores_used"] = json!("many");
    strange[2]["memory"] = json!(7);
    let mut backwards = whole.clone();
    backwards[2]["timestamp_ms"] = json!(5);
    let mut impossible = whole.clone();
    impossible[1]["cpu"]["process_gpu_utilized"] = json!(u32::MAX);
    impossible[2]["cpu"]["process_memory_mib"] = json!(1e308);
    impossible.last_mut().unwrap()["outcome"]["wall_secs"] = json!(-1e308);
    let mut newer = whole.clone();
    newer[1]["cpu"]["process_accounting"] = json!("telepathy");
    newer[1]["tomorrow"] = json!({ "figure": 7 });
    for (name, bytes, problem) in [
        ("cut.jsonl", good.as_bytes()[..good.len() - 30].to_vec(), "the last line of"),
        ("cut.jsonl.gz", cut_gzip, "ends early"),
        (
            "nan.jsonl",
            good.replacen("\"elapsed_secs\":0", "\"elapsed_secs\":NaN,\"x\":0", 2).into_bytes(),
            "2 lines were left out",
        ),
        (
            "torn.jsonl",
            (lines(&whole[..2]) + "{\"timestamp_secs\":1\n" + &lines(&whole[2..])).into_bytes(),
            "1 line was left out",
        ),
        ("strange.jsonl", lines(&strange).into_bytes(), "cpu could not be read 1 time"),
        ("impossible.jsonl", lines(&impossible).into_bytes(), "3 figures that cannot be were left out of "),
        ("backwards.jsonl", lines(&backwards).into_bytes(), "the clock was set back"),
        ("newer.jsonl", lines(&newer).into_bytes(), "what counts in section tomorrow is not known"),
    ] {
        fs::write(at(name), bytes).unwrap();
        let summary = as_json(&at(name));
        let problems = summary["problems"].to_string();
        assert!(problems.contains(problem), "{name}: {problems}");
        let (stdout, _, code) = summarize(&[at(name).to_str().unwrap()]);
        assert!(stdout.contains("\nMissing ") && code == Some(0), "{name}: {stdout}");
    }
    let summary = as_json(&at("impossible.jsonl"));
    let gpus = summary["job"]["peak_gpus_used"].as_f64();
    let outcome = &summary["outcome"];
    assert!(outcome["wall_secs"].is_null() && outcome["exit_code"] == 0, "only what cannot be is left out: {outcome}");
    assert!(gpus.is_none_or(|gpus| gpus < 1000.0), "{summary}");
    assert!(number(&summary, "/job/memory_mib/peak") < 1e6, "the others are as they were: {summary}");
    let both = [at("whole.jsonl"), at("impossible.jsonl")].map(|path| path.to_str().unwrap().to_owned());
    let output = track(["compare", &both[0], &both[1]]);
    let said = text(&output.stderr);
    assert!(said.contains("impossible.jsonl: 3 figures that cannot be were left out"), "{said}");
    let summary = as_json(&at("newer.jsonl"));
    assert_eq!(summary["problems"].as_array().unwrap().len(), 1, "what is new is no other problem");
    let figure = &summary["sections"]["tomorrow.figure"];
    assert!(close(number(figure, "/mean"), 7.0) && number(figure, "/peak") == 7.0, "{figure}");
}
