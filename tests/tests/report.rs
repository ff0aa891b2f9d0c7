//! The report: its contents, and what a browser shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use resource_tracker_tests::{command, has, samples, text, track, tracker};
use serde_json::{Value as Json, json};

/// What a browser made of a page.
struct Seen {
    elements: String,
    /// The browser's messages, such as an error, or a request that was not allowed.
    complaints: Vec<String>,
}

/// Opens a page in a browser, and lets its program run to its end. `None` when there is no browser.
fn open(page: &Path, test: &str) -> Option<Seen> {
    if !has("chromium", test) {
        return None;
    }
    let profile = tempfile::tempdir().unwrap();
    let mut browser = command("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", profile.path().display()));
    browser.args(["--virtual-time-budget=20000", "--window-size=1600,1000"]);
    let output = browser.arg(format!("file://{}", page.display())).output().unwrap();
    let said = text(&output.stderr);
    let complaints = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Some(Seen { elements: text(&output.stdout), complaints })
}

/// The figures that are shown of a run, by their paths.
fn shown(seen: &Seen, run: usize) -> BTreeMap<String, f64> {
    let own = format!("data-run=\"{run}\"");
    let elements = seen.elements.split("<data ").skip(1).filter_map(|rest| rest.split_once('>').map(|(one, _)| one));
    let attribute = |element: &str, name: &str| {
        let (_, value) = element.split_once(&format!("{name}=\"")).unwrap();
        value.split_once('"').unwrap().0.replace("&amp;", "&")
    };
    let of_run = elements.filter(|element| element.contains(&own));
    of_run.map(|element| (attribute(element, "data-figure"), attribute(element, "value").parse().unwrap())).collect()
}

/// All numbers in a summary, by their paths.
fn figures(summary: &Json, path: &str, into: &mut BTreeMap<String, f64>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match summary {
        Json::Object(members) => members.iter().for_each(|(name, member)| figures(member, &below(name), into)),
        Json::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| figures(item, &below(&index.to_string()), into));
        }
        Json::Number(number) => {
            into.insert(path.to_owned(), number.as_f64().unwrap());
        }
        _ => (),
    }
}

fn summaries(path: &Path) -> Vec<BTreeMap<String, f64>> {
    let output = track(["summary", "--json", path.to_str().unwrap()]);
    let figures_of = |summary: Json| {
        let mut all = BTreeMap::new();
        figures(&summary, "", &mut all);
        all
    };
    samples(&output.stdout).into_iter().map(figures_of).collect()
}

/// The data that a page holds.
fn data(page: &Path) -> Json {
    let page = fs::read_to_string(page).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

fn record(path: &Path, script: &str) -> Vec<Json> {
    let output = command(tracker())
        .args(["-i", "50ms", "-o"])
        .arg(path)
        .args(["--", "sh", "-c", script, "sh"])
        .arg(tracker())
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    samples(&fs::read(path).unwrap())
}

fn write(path: &Path, samples: &[Json]) {
    fs::write(path, samples.iter().map(|sample| format!("{sample}\n")).collect::<String>()).unwrap();
}

/// Makes a page of these files.
fn report(files: &[&Path], page: &Path) {
    let output = command(tracker()).arg("report").args(files).arg("-o").arg(page).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

/// As long a recording as wanted, second by second, after the pattern of a short one, with these GPUs.
fn prolonged(pattern: &[Json], seconds: u64, gpus: usize) -> Vec<Json> {
    let gpu = serde_json::to_value(resource_tracker_metrics::GpuMetrics::default()).unwrap();
    let sample = |second: u64| {
        let mut sample = match second {
            1 => pattern[0].clone(),
            _ if second == seconds => pattern[pattern.len() - 1].clone(),
            _ => pattern[1 + second as usize % (pattern.len() - 2)].clone(),
        };
        sample["timestamp_ms"] = json!(1_700_000_000_000_u64 + second * 1000);
        sample["elapsed_secs"] = json!(1);
        sample["cpu"]["process_cores_used"] = json!(if second == 1234 { 77 } else { second % 4 });
        let gpus = (0..gpus).map(|index| {
            let mut gpu = gpu.clone();
            gpu["uuid"] = json!(format!("GPU-{index}"));
            gpu["host_id"] = json!(format!("nvidia{index}"));
            gpu["utilization_pct"] = json!((second * 7 + index as u64) % 100);
            gpu["power_watts"] = json!(300.25 + (second % 97) as f64);
            gpu
        });
        sample["gpu"] = gpus.collect();
        sample
    };
    (1..=seconds).map(sample).collect()
}

#[test]
fn a_browser_shows_the_figures_of_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, page) = (folder.path().join("run.jsonl"), folder.path().join("report.html"));
    let script = "\"$1\" mark load; sleep 0.2; \"$1\" mark train; head -c 5000000 /dev/urandom | sha512sum; sleep 0.2";
    record(&recording, script);
    report(&[&recording], &page);
    let Some(seen) = open(&page, "a page in a browser") else { return };
    assert_eq!(seen.complaints, [""; 0]);
    let expected = &summaries(&recording)[0];
    assert!(expected.len() > 50 && expected.contains_key("job.cores.mean") && expected.contains_key("phases.1.secs"));
    assert_eq!(&shown(&seen, 0), expected);
    for part in ["exited with 0", ">load<", ">train<", "mark load", "run.jsonl"] {
        assert!(seen.elements.contains(part), "{part}");
    }
    let charts = data(&page)["runs"][0]["drawing"]["charts"].as_array().unwrap().len();
    assert!(charts >= 4 && seen.elements.matches("<canvas").count() == charts, "{charts}");
}

#[test]
fn several_runs_are_in_one_page() {
    let folder = tempfile::tempdir().unwrap();
    let (one, other) = (folder.path().join("one.jsonl"), folder.path().join("other.jsonl"));
    let whole = record(&one, "sleep 0.3");
    let mut failed = whole.clone();
    failed.last_mut().unwrap()["outcome"]["exit_code"] = json!(3);
    failed[0]["run"]["labels"] = json!({ "job_name": "nightly", "stage_name": "test" });
    failed[0]["run"]["tags"] = json!({ "seed": "7" });
    failed[1]["cpu"]["process_peak_memory_mib"] = json!(2048);
    write(&other, &[whole, failed].concat());
    let page = folder.path().join("report.html");
    report(&[&one, &other], &page);
    let Some(seen) = open(&page, "several runs in a browser") else { return };
    assert_eq!(seen.complaints, [""; 0]);
    let expected = [summaries(&one), summaries(&other)].concat();
    assert_eq!(expected.len(), 3);
    for (index, expected) in expected.iter().enumerate() {
        assert_eq!(&shown(&seen, index), expected);
    }
    assert!(seen.elements.contains("3 runs") && seen.elements.contains("1 failed"));
    assert!(seen.elements.contains(">Labels<") && seen.elements.contains(">nightly, stage name: test, seed: 7<"));
    assert!(seen.elements.contains("2.00 GiB") || seen.elements.contains("2 GiB"));
    assert!(
        seen.elements.contains(" in each</p>") && seen.elements.contains(", median "),
        "what is the same, and what is not"
    );
}

#[test]
fn what_a_stranger_wrote_is_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, page) = (folder.path().join("run.jsonl"), folder.path().join("report.html"));
    let mut whole = record(&recording, "sleep 0.2");
    let evil = "</script><img src=x onerror=\"console.log('evil')\"><!--\u{61c}\u{202e}";
    whole[0]["run"]["command"] = json!(["echo", evil]);
    whole[0]["run"]["tags"] = json!({ evil: evil });
    whole[0]["host"]["host_name"] = json!(evil);
    whole[1]["marks"] = json!([{ "name": evil, "kind": "next", "at_ms": whole[1]["timestamp_ms"] }]);
    let figure = evil.trim_end_matches(['\u{61c}', '\u{202e}']);
    whole[1][figure] = json!({ figure: 5 });
    whole[1]["constructor"] = json!({ "__proto__": 5 });
    write(&recording, &whole);
    report(&[&recording], &page);
    let Some(seen) = open(&page, "the text of strangers in a browser") else { return };
    assert_eq!(seen.complaints, [""; 0]);
    assert!(!seen.elements.contains("<img") && seen.elements.contains("&lt;img src=x"));
    let (_, shown) = seen.elements.split_once("<main").unwrap();
    let (shown, _) = shown.split_once("</main>").unwrap();
    assert!(!shown.contains(['\u{61c}', '\u{202e}']));
}

#[test]
fn a_long_run_of_many_gpus_keeps_its_extremes_and_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, page) = (folder.path().join("run.jsonl"), folder.path().join("report.html"));
    let pattern = record(&recording, "sleep 0.3");
    // Of a day there are no more points, and it takes gigabytes to make up.
    let seconds = if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some() { 86_400 } else { 2500 };
    write(&recording, &prolonged(&pattern, seconds, 8));
    report(&[&recording], &page);
    assert!(fs::metadata(&page).unwrap().len() < 2_000_000);
    let drawing = &data(&page)["runs"][0]["drawing"];
    assert!((512..1024).contains(&drawing["ends"].as_array().unwrap().len()), "{}", drawing["samples_per_point"]);
    let charts = drawing["charts"].as_array().unwrap();
    let of = |title: &str| charts.iter().find(|chart| chart["title"] == title).unwrap()["series"].as_array().unwrap();
    let job = of("CPU").iter().find(|series| series["label"] == "job").unwrap();
    let highest = job["high"].as_array().unwrap().iter().filter_map(Json::as_f64).fold(0.0, f64::max);
    assert_eq!((highest, of("GPUs in use").iter().filter(|series| series["role"] == "other").count()), (77.0, 8));
    let Some(seen) = open(&page, "a long run in a browser") else { return };
    assert_eq!(seen.complaints, [""; 0]);
    assert!(seen.elements.contains("border-top-style: dotted"), "more lines than colours are told apart in the legend");
    assert_eq!(&shown(&seen, 0), &summaries(&recording)[0]);
}

#[test]
fn what_there_is_no_room_for_is_said_on_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, page) = (folder.path().join("run.jsonl"), folder.path().join("report.html"));
    let mut whole = record(&recording, "sleep 0.2");
    whole[1]["meters"] = (0..300).map(|number| (format!("m{number}"), json!(number))).collect();
    let mark = json!({ "name": "step", "kind": "next", "at_ms": whole[1]["timestamp_ms"] });
    whole[1]["marks"] = json!(vec![mark; 2000]);
    write(&recording, &whole);
    report(&[&recording], &page);
    let data = data(&page);
    let lines = |chart: &Json| chart["series"].as_array().unwrap().len();
    assert_eq!(data["runs"][0]["drawing"]["charts"].as_array().unwrap().iter().map(lines).sum::<usize>(), 192);
    let Some(seen) = open(&page, "what is left out, in a browser") else { return };
    assert_eq!(seen.complaints, [""; 0]);
    assert!(seen.elements.contains(" figures have no line, because there were too many."));
    let drawn = data["runs"][0]["phases"].as_array().unwrap().len();
    let said = format!("The last {drawn} phases are drawn; {} others are not.", 2000 - drawn);
    assert!(seen.elements.contains(&said), "{said}");
}

#[test]
fn names_of_many_phases_cost_little() {
    let folder = tempfile::tempdir().unwrap();
    let (recording, page) = (folder.path().join("run.jsonl"), folder.path().join("report.html"));
    let pattern = record(&recording, "sleep 0.3");
    let mut long = prolonged(&pattern, 500, 0);
    for (number, sample) in long.iter_mut().enumerate() {
        let name = format!("a phase with a name that has no room, number {number}");
        sample["marks"] = json!([{ "name": name, "kind": "next", "at_ms": sample["timestamp_ms"] }]);
    }
    write(&recording, &long);
    report(&[&recording], &page);
    // A program that counts is not allowed by the page's own policy.
    let whole = fs::read_to_string(&page).unwrap();
    let count = "<body><script>let count = 0; const measure = CanvasRenderingContext2D.prototype.measureText; \
        CanvasRenderingContext2D.prototype.measureText = function (text) { count += 1; return measure.call(this, text); }; \
        setTimeout(() => { document.title = `measured ${count}.`; }, 10000);</script>";
    let (before, rest) = whole.split_once("<meta http-equiv").unwrap();
    let counting = format!("{before}{}", rest.split_once('\n').unwrap().1.replacen("<body>", count, 1));
    fs::write(&page, counting).unwrap();
    let Some(seen) = open(&page, "many phases in a browser") else { return };
    let (_, rest) = seen.elements.split_once("<title>measured ").expect("a count");
    let measured: u32 = rest.split_once('.').unwrap().0.parse().unwrap();
    assert!((1..1000).contains(&measured), "{measured}");
}

#[test]
fn where_a_page_goes() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    record(&at("run.jsonl"), "sleep 0.1");
    let report = |arguments: &[&str]| {
        let output = command(tracker()).arg("report").args(arguments).current_dir(folder.path()).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let files = || {
        let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(report(&["run.jsonl"]), (Some(0), "report.html\n".into(), String::new()));
    let (code, stdout, stderr) = report(&["run.jsonl"]);
    assert!(stderr.contains("report.html: it is there already; name another file"), "{stderr}");
    assert_eq!((code, stdout.as_str()), (Some(2), ""));
    assert_eq!(report(&["run.jsonl", "-o", "report.html"]), (Some(0), String::new(), String::new()));
    let (code, page, _) = report(&["run.jsonl", "-o", "-"]);
    assert_eq!((code, page), (Some(0), fs::read_to_string(at("report.html")).unwrap()));
    let before = fs::read(at("run.jsonl")).unwrap();
    let (code, _, stderr) = report(&["run.jsonl", "-o", "run.jsonl"]);
    assert!(stderr.contains("it is there already, and no report") && code == Some(2), "{stderr}");
    assert_eq!(fs::read(at("run.jsonl")).unwrap(), before);
    // The file of samples that the configuration names is not that of the page.
    let output = command(tracker())
        .args(["report", "run.jsonl", "-o", "other.html"])
        .env("TRACKER_OUTPUT", "run.jsonl")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    assert_eq!(fs::read(at("run.jsonl")).unwrap(), before);
    assert_eq!(files(), ["other.html", "report.html", "run.jsonl"], "nothing is left beside them");
}

#[test]
fn what_the_command_writes_under_that_name_stays() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = command(tracker());
    run.args(["-q", "--set", "sinks.report.path=thesis.html", "--", "sh", "-c", "echo mine >thesis.html; exit 4"]);
    let output = run.current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert!(text(&output.stderr).contains("it is there already, and no report"), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(folder.path().join("thesis.html")).unwrap(), "mine\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn what_is_wrong_with_a_recording_is_said_on_the_page_or_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let whole = record(&at("whole.jsonl"), "sleep 0.3");
    let page = at("report.html");
    for (name, bytes, problem) in [
        ("empty", "", "is no recording: it is empty"),
        ("other", "{\"a\": 1}\n", "is no recording: line 1 has no timestamp_ms"),
        ("rows.csv", "timestamp,processes\n1,2\n", "only JSON Lines can be read"),
    ] {
        fs::write(at(name), bytes).unwrap();
        let output = command(tracker()).arg("report").arg(at(name)).arg("-o").arg(&page).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(problem) && said.lines().count() == 1, "{said}");
        assert_eq!((output.status.code(), page.exists()), (Some(2), false));
    }
    let good = fs::read(at("whole.jsonl")).unwrap();
    let mut backwards = whole.clone();
    backwards[2]["timestamp_ms"] = json!(5);
    let mut newer = whole.clone();
    newer[1]["cpu"]["process_accounting"] = json!("telepathy");
    newer[1]["tomorrow"] = json!({ "figure": 7 });
    let lines = |samples: &[Json]| samples.iter().map(|sample| format!("{sample}\n")).collect::<String>().into_bytes();
    let nan =
        String::from_utf8(good.clone()).unwrap().replacen("\"elapsed_secs\":0", "\"elapsed_secs\":NaN,\"x\":0", 2);
    for (name, bytes, problem) in [
        ("cut.jsonl", good[..good.len() - 30].to_vec(), Some("is cut short")),
        ("nan.jsonl", nan.into_bytes(), Some("2 lines were left out")),
        ("backwards.jsonl", lines(&backwards), Some("the clock was set back")),
        ("newer.jsonl", lines(&newer), Some("what counts in section tomorrow is not known")),
        ("whole.jsonl", lines(&whole), None),
    ] {
        fs::write(at(name), bytes).unwrap();
        report(&[&at(name)], &page);
        let data = data(&page);
        let problems = data["runs"][0]["summary"]["problems"].to_string();
        assert!(problem.map_or(problems == "[]", |problem| problems.contains(problem)), "{name}: {problems}");
        let ends = data["runs"][0]["drawing"]["ends"].as_array().unwrap();
        assert!(ends.windows(2).all(|two| two[0].as_f64() <= two[1].as_f64()), "{name}");
        let Some(seen) = open(&page, name) else { continue };
        assert_eq!(seen.complaints, [""; 0], "{name}");
        assert!(problem.is_none_or(|problem| seen.elements.contains(problem)), "{name}");
    }
}

#[test]
fn a_run_can_end_with_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |page: PathBuf| {
        let (samples, page) = (at("run.jsonl"), format!("sinks.report.path={}", page.display()));
        let arguments = ["-i", "50ms", "--enable", "report", "--set", &page, "-o"];
        command(tracker()).args(arguments).arg(samples).args(["--", "sleep", "0.3"]).output().unwrap()
    };
    let output = run(at("report.html"));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    let [data, recorded] = [data(&at("report.html")), {
        report(&[&at("run.jsonl")], &at("recorded.html"));
        data(&at("recorded.html"))
    }];
    // What is written has six decimals at most.
    let close = |one: &Json, other: &Json| match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-5 * one.abs().max(1.0),
        _ => one == other,
    };
    for path in [
        "/summary/job/cores/mean",
        "/summary/job/peak_memory_mib",
        "/summary/times/samples",
        "/summary/outcome/wall_secs",
    ] {
        let of = |data: &Json| data["runs"][0].pointer(path).cloned().unwrap();
        assert!(close(&of(&data), &of(&recorded)), "{path}: {} {}", of(&data), of(&recorded));
    }
    let charts = |data: &Json| {
        let charts = data["runs"][0]["drawing"]["charts"].as_array().unwrap().iter();
        charts.map(|chart| chart["title"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(charts(&data), charts(&recorded));
    // What is not known to be a page stays, and the command does not begin.
    fs::write(at("thesis.html"), "important").unwrap();
    let output = run(at("thesis.html"));
    assert!(text(&output.stderr).contains("and no report"), "{}", text(&output.stderr));
    assert_eq!((output.status.code(), fs::read_to_string(at("thesis.html")).unwrap().as_str()), (Some(2), "important"));
    let output = track(["-q", "--enable", "report", "--", "true"]);
    assert!(text(&output.stderr).contains("path: is missing") && output.status.code() == Some(2));
}
