//! Configuration: precedence, defaults, errors (specification 3 and 11).

use std::path::Path;

use resource_tracker_tests::{command, in_time, number, samples, stop_after, text, track, tracker};
use serde_json::Value as Json;

fn write(directory: &Path, name: &str, contents: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, contents).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Whether a sample is one of the given interval.
fn is_about(sample: &Json, secs: f64) -> bool {
    (number(sample, "/elapsed_secs") - secs).abs() < 0.1
}

#[test]
fn t_cfg_01_no_flags_give_json_lines_on_standard_output() {
    in_time(|| {
        let output = stop_after(2, &mut command(tracker()));
        assert_eq!(text(&output.stderr), "");
        // The last one is of the end.
        samples(&output.stdout)[..2].iter().all(|sample| is_about(sample, 1.0))
    });
}

#[test]
fn t_cfg_02_csv_begins_with_the_header_of_the_specification() {
    let output = track(["-f", "csv", "-i", "50ms", "--", "sleep", "0.5"]);
    let header = "timestamp,processes,utime,stime,cpu_usage,memory_free,memory_used,memory_buffers,memory_cached,memory_active,\
                  memory_inactive,disk_read_bytes,disk_write_bytes,disk_space_total_gb,disk_space_used_gb,disk_space_free_gb,\
                  net_recv_bytes,net_sent_bytes,gpu_usage,gpu_vram,gpu_utilized";
    assert_eq!(text(&output.stderr).lines().next(), Some(header));
}

#[test]
fn t_cfg_03_an_interval_of_zero_is_refused() {
    let output = track(["--interval", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--interval") && text(&output.stderr).contains("1ms to 366d"));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn t_cfg_04_the_file_sets_the_interval() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "c.toml", "[tracker]\ninterval_secs = 3\n");
    in_time(|| is_about(&samples(&stop_after(1, command(tracker()).args(["-c", &file])).stdout)[0], 3.0));
}

#[test]
fn t_cfg_05_a_flag_wins_over_a_variable_and_that_over_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "c.toml", "[tracker]\ninterval_secs = 5\n[job]\nname = \"file\"\n");
    let interval = |flags: &[&str], variables: &[(&str, &str)]| {
        let show = command(tracker())
            .args(["-c", &file])
            .args(flags)
            .envs(variables.iter().copied())
            .args(["config", "show"])
            .output();
        let show = text(&show.unwrap().stdout);
        show.lines().find(|line| line.starts_with("interval_secs")).unwrap().to_owned()
    };
    assert!(interval(&[], &[]).starts_with("interval_secs = 5 ") && interval(&[], &[]).contains("c.toml:2:1"));
    let variable = [("TRACKER_INTERVAL", "4")];
    assert!(interval(&[], &variable).contains("\"4\"") && interval(&[], &variable).contains("# TRACKER_INTERVAL"));
    let flag = interval(&["--interval", "2"], &variable);
    assert!(flag.contains("= 2.0") && flag.contains("# --interval"), "{flag}");
    in_time(|| {
        let samples = samples(&stop_after(1, command(tracker()).args(["-c", &file, "--interval", "2"])).stdout);
        assert_eq!(samples[0]["job_name"], "file");
        is_about(&samples[0], 2.0)
    });
}

#[test]
fn t_cfg_06_a_missing_or_broken_file_counts_as_empty() {
    let directory = tempfile::tempdir().unwrap();
    let broken = write(directory.path(), "broken.toml", "[tracker\ninterval_secs = 'x'\n");
    let missing = directory.path().join("missing.toml");
    for file in [broken.as_str(), missing.to_str().unwrap(), "/", "/dev/zero"] {
        let output = track(["-c", file, "-o", "/dev/null", "--", "sh", "-c", "echo ran"]);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "ran\n"), "{file}");
        let said = text(&output.stderr);
        assert!(said.lines().count() == 1 && said.contains(file) && said.contains("the defaults are used"), "{said}");
    }
}

#[test]
fn every_label_has_a_flag_and_a_variable() {
    let labels = [
        ("name", "job-name"),
        ("project_name", "project-name"),
        ("stage_name", "stage-name"),
        ("task_name", "task-name"),
        ("team", "team"),
        ("env", "env"),
        ("language", "language"),
        ("orchestrator", "orchestrator"),
        ("executor", "executor"),
        ("external_run_id", "external-run-id"),
        ("container_image", "container-image"),
    ];
    for (key, flag) in labels {
        let variable = format!("TRACKER_{}", flag.to_uppercase().replace('-', "_"));
        let show =
            |command: &mut std::process::Command| text(&command.args(["config", "show"]).output().unwrap().stdout);
        let by_flag = show(command(tracker()).args([&format!("--{flag}"), "12"]));
        assert!(by_flag.contains(&format!("{key} = \"12\"")) && by_flag.contains(&format!("# --{flag}")), "{flag}");
        // A number is still a name.
        let by_variable = show(command(tracker()).env(&variable, "12"));
        assert!(
            by_variable.contains(&format!("{key} = \"12\"")) && by_variable.contains(&format!("# {variable}")),
            "{variable}"
        );
    }
}

#[test]
fn any_key_can_be_set_by_flag_and_variable() {
    in_time(|| {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one.jsonl"), directory.path().join("two.csv"));
        let output = command(tracker())
            .args([
                "-q",
                "-i",
                "50ms",
                "--set",
                "sinks.archive.type=file",
                "--set",
                &format!("sinks.archive.path={}", one.display()),
            ])
            .env("TRACKER_SINKS__TABLE__TYPE", "file")
            .env("TRACKER_SINKS__TABLE__PATH", &two)
            .env("TRACKER_SOURCES__NETWORK__ENABLED", "false")
            .args(["--disable", "disk,pressure", "--", "sleep", "0.5"])
            .output()
            .unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        let samples = samples(&std::fs::read(&one).unwrap());
        assert!(
            samples[0].get("network").is_none() && samples[0].get("disk").is_none() && samples[0].get("cpu").is_some()
        );
        assert!(std::fs::read_to_string(&two).unwrap().starts_with("timestamp,processes,"));
        samples.len() >= 3
    });
}

#[test]
fn what_is_wrong_is_said_in_one_line_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, contents: &str| write(directory.path(), name, contents);
    let started = directory.path().join("started");
    let cases: Vec<(Vec<String>, Vec<&str>)> = vec![
        (vec!["--interval=-1".into()], vec!["--interval", "-1", "must be"]),
        (vec!["-i".into(), "nan".into()], vec!["--interval", "nan"]),
        (vec!["-i".into(), "5 parsecs".into()], vec!["5 parsecs", "50ms"]),
        (vec!["--format".into(), "xml".into()], vec!["--format", "xml", "json, csv"]),
        (vec!["--csv-columns".into(), "all".into()], vec!["--csv-columns", "tracker, job, python, sentinel"]),
        (vec!["--tag".into(), "novalue".into()], vec!["--tag", "KEY=VALUE"]),
        (vec!["--set".into(), "novalue".into()], vec!["--set", "KEY=VALUE"]),
        (vec!["--intervall".into(), "2".into()], vec!["--intervall", "--interval"]),
        (vec!["--enable".into(), "cpuu".into()], vec!["--enable", "cpuu", "did you mean cpu?"]),
        (vec!["--disable".into(), "nothing".into()], vec!["--disable", "nothing", "stdout-json"]),
        (vec!["--enable".into(), "file".into()], vec!["sinks.file", "path"]),
        (
            vec!["-o".into(), "/no/such/directory/run.jsonl".into()],
            vec!["/no/such/directory/run.jsonl", "No such file"],
        ),
        (vec!["-o".into(), "".into()], vec!["--output"]),
        (vec!["-p".into(), "1".into()], vec!["--pid", "cannot be used with"]),
        (
            vec!["-c".into(), file("a.toml", "[tracker]\ninterval_secs = -5\n")],
            vec!["a.toml:2:1", "tracker.interval_secs", "-5", "must be"],
        ),
        (
            vec!["-c".into(), file("b.toml", "[job]\n\nname = 5\n")],
            vec!["b.toml:3:1", "job.name = 5", "must be a text"],
        ),
        (
            vec!["-c".into(), file("c.toml", "[sinks.x]\ntype = 'fil'\n")],
            vec!["c.toml:2:1", "sinks.x.type", "\"fil\"", "did you mean file?"],
        ),
        (vec!["-c".into(), file("d.toml", "[sources.gpuz]\nenabled = true\n")], vec!["sources.gpuz", "gpuz"]),
        (
            vec!["-c".into(), file("e.toml", "[sources.process]\npss_budget_pct = 'lots'\n")],
            vec!["e.toml:2:1", "pss_budget_pct", "a number"],
        ),
        (
            vec!["-c".into(), file("f.toml", "[sinks.f]\ntype='file'\npath='x'\nformat = 'xml'\n")],
            vec!["f.toml:4:1", "sinks.f.format", "one of json, csv"],
        ),
        (
            vec!["-c".into(), file("g.toml", "[sources.cpu]\nenabled = 7\n")],
            vec!["g.toml:2:1", "sources.cpu.enabled", "true or false"],
        ),
        (vec!["-c".into(), file("h.toml", "sinks = 3\n")], vec!["h.toml:1:1", "sinks", "must be a table"]),
    ];
    for (arguments, expected) in cases {
        let output =
            command(tracker()).args(&arguments).args(["--", "touch", started.to_str().unwrap()]).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{arguments:?}: {message}");
        for part in expected {
            assert!(message.contains(part), "{arguments:?}: {part} is not in: {message}");
        }
        assert!(!started.exists(), "{arguments:?}");
        assert_eq!(text(&output.stdout), "");
    }
    for (variable, value) in
        [("TRACKER_INTERVAL", "0"), ("TRACKER_PID", "minus one"), ("TRACKER_QUIET", "maybe"), ("TRACKER_FORMAT", "xml")]
    {
        let output = command(tracker()).env(variable, value).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(variable) && text(&output.stderr).contains(value),
            "{}",
            text(&output.stderr)
        );
    }
    for pid in ["0", "-5", "abc", "99999999999"] {
        let output = track(["--pid", pid]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        let allowed = "must be a process id, a whole number of 1 or more";
        assert!(said.contains("--pid") && said.contains(pid) && said.contains(allowed), "{said}");
    }
}

#[test]
fn config_check_names_file_line_key_value_and_what_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let cases = [
        ("[tracker]\ninterval_secs = 0\n", "2:1", "tracker.interval_secs = 0", "1ms to 366d"),
        ("[tracker]\nintervall_secs = 1\n", "2:1", "tracker.intervall_secs = 1", "did you mean interval_secs?"),
        ("[tracker]\nformat = 'yaml'\n", "2:1", "tracker.format = \"yaml\"", "one of json, csv"),
        ("[tracker]\nquiet = 3\n", "2:1", "tracker.quiet = 3", "true or false"),
        ("[job]\npid = -4\n", "2:1", "job.pid = -4", "1 or more"),
        ("[job]\nname = ['a']\n", "2:1", "job.name", "a text"),
        ("[jobs]\nname = 'a'\n", "1:2", "jobs", "did you mean job?"),
        ("interval_secs = 3\n", "1:1", "interval_secs = 3", "did you mean tracker.interval_secs?"),
        ("[sources.cpus]\n", "1:10", "sources.cpus", "did you mean cpu?"),
        (
            "[sinks.a]\ntype = 'file'\nrotate_bytes = '1G'\n",
            "3:1",
            "sinks.a.rotate_bytes = \"1G\"",
            "a whole number of 0 or more",
        ),
        ("[sinks.a]\ntype = 'csv'\nstream = 'net'\n", "3:1", "sinks.a.stream = \"net\"", "one of auto, stdout, stderr"),
        ("[tracker]\ninterval_secs = \n", "2:17", "", ""),
    ];
    for (contents, place, key, allowed) in cases {
        let file = write(directory.path(), "c.toml", contents);
        let output = track(["-c", &file, "config", "check"]);
        let message = text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{contents}: {message}");
        for part in [&format!("{file}:{place}: "), key, allowed] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
    let several = write(directory.path(), "c.toml", "[tracker]\nquiet = 3\nformat = 'yaml'\n[job]\npid = 0\n");
    assert_eq!(text(&track(["-c", &several, "config", "check"]).stdout).lines().count(), 3);
    let good = write(
        directory.path(),
        "c.toml",
        "[job]\nname = 'x'\npid = 1\ntags = { a = 'b' }\n[tracker]\ninterval_secs = '50ms'\n[sinks.a]\ntype = 'file'\npath = 'x'\n",
    );
    let output = track(["-c", &good, "config", "check"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn config_check_lists_problems_in_the_order_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let contents = "[tracker]\nquiet = 3\nformat = 'yaml'\n[sinks.b]\ntype = 'fil'\n[sinks.a]\ntype = 'csv'\nstream = 5\n\
                    [job]\npid = 0\nnmae = 'x'\n[unknown]\nx = 1\n[sources.cpuu]\n";
    let file = write(directory.path(), "c.toml", contents);
    let said = text(&track(["-c", &file, "config", "check"]).stdout);
    let line = |problem: &str| -> u32 {
        let place = problem.strip_prefix(&format!("{file}:")).unwrap_or_else(|| panic!("{said}"));
        place.split(':').next().unwrap().parse().unwrap()
    };
    assert_eq!(said.lines().map(line).collect::<Vec<_>>(), [2, 3, 5, 8, 10, 11, 12, 14], "{said}");
}

#[test]
fn secrets_are_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(directory.path(), "c.toml", "[sinks.x]\ntype = 'file'\napi_token = 'abc123'\n");
    let show = track(["-c", &file, "config", "show"]);
    assert!(text(&show.stdout).contains("api_token = \"***\"") && !text(&show.stdout).contains("abc123"));
    let set = track(["--set", "sinks.file.path=x", "--set", "sinks.file.api_token=abc123", "--", "true"]);
    let address = "sinks.sentinel-s3.api_url=https://me:abc123@host/?key=abc123";
    for tool in [&["config", "show"][..], &["components"], &["config", "check"]] {
        let output = track([&["--set", address], tool].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!said.contains("abc123"), "{tool:?}: {said}");
        assert!(said.contains("https://***@host/?***") || tool.contains(&"check"), "{tool:?}: {said}");
    }
    assert!(text(&set.stderr).contains("api_token = ***") && !text(&set.stderr).contains("abc123"));
}

#[test]
fn a_reserved_word_runs_after_two_dashes() {
    let directory = tempfile::tempdir().unwrap();
    let program = write(directory.path(), "schema", "#!/bin/sh\necho the program\n");
    std::process::Command::new("chmod").args(["+x", &program]).status().unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let output = command(tracker()).args(["-q", "--", "schema"]).env("PATH", path).output().unwrap();
    assert_eq!(text(&output.stdout), "the program\n");
}

#[test]
fn tools_print_what_they_promise() {
    let version = text(&track(["--version"]).stdout);
    assert!(
        version.starts_with("resource-tracker 0.") && version.contains("commit") && version.contains("linux"),
        "{version}"
    );
    let help = text(&track(["--help"]).stdout);
    assert!(
        help.contains("Where samples go:") && help.contains("python train.py") && help.contains("TRACKER_INTERVAL")
    );
    assert!(text(&track(["man-page"]).stdout).starts_with(".ie"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&track(["completions", shell]).stdout).contains("resource-tracker"));
    }
    let components = text(&track(["components"]).stdout);
    for name in ["cpu", "memory", "network", "disk", "pressure", "process", "stdout-json", "csv", "file"] {
        assert!(components.lines().any(|line| line.starts_with(name)), "{name}");
    }
}

#[test]
fn a_run_stops_when_told() {
    let output = stop_after(2, command(tracker()).args(["-i", "0.1"]));
    assert_eq!(output.status.code(), Some(0), "T-EOR-01");
    assert!(samples(&output.stdout).len() >= 2);
}
