//! Settings by flag, variable and file: an accepted setting has its effect, and a run and `config check` refuse a wrong
//! one in the same words.

use std::fs;
use std::path::Path;
use std::process::Output;

use resource_tracker_tests::{command, samples, text, track, tracker};

/// Runs `true` in the folder, with nothing on standard output or standard error but what is wrong.
fn run_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = command(tracker());
    command.args(arguments).args(["-q", "--", "echo", "started"]).current_dir(folder).output().unwrap()
}

/// Asserts that the run ends with 2 before anything starts, with one line, and returns that line without the program's
/// name.
fn refused(output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_start_matches("resource-tracker: error: ").trim_end().to_owned()
}

#[test]
fn a_key_that_does_not_exist_cannot_be_set() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            "tracker.intervall_secs=5",
            "--set: tracker.intervall_secs = 5: there is no such key; did you mean interval_secs?",
        ),
        ("job.\u{1b}[31mred=1", "job.\\u{1b}[31mred = 1: there is no such key"),
        ("jobs.name=x", "--set: jobs: there is no such table; did you mean job?"),
        ("interval=3", "--set: interval = 3: there is no such key; did you mean tracker.interval_secs?"),
        ("pss_budget_pct=1", "there is no such key; did you mean sources.process.pss_budget_pct?"),
        ("trackr=1", "--set: trackr = 1: there is no such table; did you mean tracker?"),
        ("nothing=1", "--set: nothing = 1: there is no such table (there are: "),
        ("sources.process.pss_budget=1", "there is no such key; did you mean pss_budget_pct?"),
        ("sources.cpu.foo=1", "--set: sources.cpu.foo = 1: there is no such key (there are: enabled, type)"),
        ("sources.cpuu.enabled=false", "sources.cpuu: there is no source of type cpuu; did you mean cpu?"),
        ("sinks.file.pth=x", "sinks.file.pth = \"x\": there is no such key; did you mean path?"),
        ("sinks.file.enable=true", "there is no such key; did you mean enabled?"),
        ("sinks.x={ type = 'file', pth = 'x' }", "sinks.x.pth = \"x\": there is no such key; did you mean path?"),
        ("job={ nme = 'x' }", "job.nme = \"x\": there is no such key; did you mean name?"),
        ("sinks.sentinel-s3.tokn_file=x", "there is no such key; did you mean token_file?"),
    ];
    for (assignment, expected) in cases {
        let said = refused(&run_in(folder.path(), &["--set", assignment]));
        assert!(said.contains(expected), "{assignment}: {said}");
        let check = track(["--set", assignment, "config", "check"]);
        assert_eq!(check.status.code(), Some(1), "{assignment}");
        assert!(text(&check.stdout).lines().any(|line| line == said), "{said}: {}", text(&check.stdout));
    }
    for tool in [&["components"][..], &["config", "show"], &["schema"], &["upload", "--dry-run"]] {
        refused(
            &command(tracker()).args(["--set", "job.nme=x"]).args(tool).current_dir(folder.path()).output().unwrap(),
        );
    }
}

#[test]
fn flags_may_stand_behind_the_name_of_a_tool() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bad.toml"), "[tracker]\nquiet = 3\n").unwrap();
    fs::write(folder.path().join("good.toml"), "[job]\nname = 'of-the-file'\n").unwrap();
    let output = |arguments: &[&str]| command(tracker()).args(arguments).current_dir(folder.path()).output().unwrap();
    let check = output(&["config", "check", "-c", "bad.toml"]);
    assert!(check.status.code() == Some(1) && text(&check.stdout).contains("bad.toml:2:1"), "{check:?}");
    let shown = |arguments: &[&str]| {
        let show = output(arguments);
        assert_eq!((show.status.code(), text(&show.stderr).as_str()), (Some(0), ""), "{arguments:?}");
        text(&show.stdout)
    };
    let flags = [
        &["-i", "2"][..],
        &["-p", "1"],
        &["-c", "good.toml"],
        &["-n", "x"],
        &["-q"],
        &["-o", "x.csv"],
        &["--spool-max", "7"],
        &["--no-cgroup"],
        &["--enable", "perf,energy"],
        &["--disable", "cpu"],
        &["--set", "sinks.a.type=file", "--set", "sinks.a.path=x"],
        &["--tag", "a=1"],
    ];
    let default = shown(&["config", "show"]);
    for flag in flags {
        let before = shown(&[flag, &["config", "show"]].concat());
        assert_ne!(before, default, "{flag:?}");
        assert_eq!(shown(&[&["config", "show"], flag].concat()), before, "{flag:?}");
        assert_eq!(shown(&[&["config"], flag, &["show"]].concat()), before, "{flag:?}");
    }
    // What can be given more than once is one list; of the others the last counts.
    let (first, rest) = flags.split_at(5);
    let spread = [&first.concat()[..], &["--tag", "b=2", "config"], &rest.concat(), &["show", "-i", "4"]];
    let together = [&flags.concat()[..], &["--tag", "b=2", "config", "show"]].concat();
    let together: Vec<&str> = together.into_iter().map(|word| if word == "2" { "4" } else { word }).collect();
    let spread: Vec<&str> = spread.concat();
    assert_eq!(shown(&[&spread[..], &["--tag", "c=3"]].concat()), shown(&[&together[..], &["--tag", "c=3"]].concat()));
    for (tool, about) in [("components", "List sources and sinks: "), ("upload", "Send what earlier runs ")] {
        let help = text(&track([tool, "--help"]).stdout);
        assert!(help.starts_with(about), "{tool}: {help}");
        assert!(help.contains("--config <FILE>") && help.contains("--set <KEY=VALUE>"), "{tool}: {help}");
    }
}

#[test]
fn a_text_that_is_no_text_is_told_an_example() {
    let folder = tempfile::tempdir().unwrap();
    let said = refused(&run_in(folder.path(), &["-o", "x", "--set", "sinks.output.mode=640"]));
    assert_eq!(said, "--set: sinks.output.mode = 640: must be a text, such as \"0640\"");
}

#[test]
fn the_type_of_a_sink_may_be_set_after_its_keys_and_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let after = run_in(folder.path(), &["--set", "sinks.a.path=a.jsonl", "--set", "sinks.a.type=file"]);
    assert_eq!((after.status.code(), text(&after.stderr).as_str()), (Some(0), ""));
    fs::write(folder.path().join("c.toml"), "[sinks.a]\ntype = 'file'\n").unwrap();
    let in_file = run_in(folder.path(), &["-c", "c.toml", "--set", "sinks.a.path=b.jsonl"]);
    assert_eq!((in_file.status.code(), text(&in_file.stderr).as_str()), (Some(0), ""));
    assert!(folder.path().join("a.jsonl").exists() && folder.path().join("b.jsonl").exists());
}

#[test]
fn the_example_in_the_help_works() {
    let help = text(&track(["--help"]).stdout);
    let example = help.split("as in ").skip(1).filter_map(|rest| rest.split_whitespace().next());
    let example = example.filter(|word| word.contains("=")).map(|word| word.trim_end_matches(['.', ',']));
    let examples: Vec<&str> = example.collect();
    assert_eq!(examples.len(), 2, "{examples:?}");
    for example in examples {
        let folder = tempfile::tempdir().unwrap();
        let mut run = command(tracker());
        match example.strip_prefix("TRACKER_") {
            Some(_) => run.envs([example.split_once('=').unwrap()]),
            None => run.args(["--set", example]),
        };
        let output = run.args(["-q", "--", "true"]).current_dir(folder.path()).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{example}");
        assert!(!samples(&fs::read(folder.path().join("run.jsonl")).unwrap()).is_empty(), "{example}");
    }
}

#[test]
fn tags_may_hold_dots_numbers_and_dates() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |arguments: &[&str]| {
        let mut command = command(tracker());
        let output = command.args(arguments).args(["config", "show"]).current_dir(folder.path()).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{arguments:?}");
        let run = run_in(folder.path(), arguments);
        assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(0), ""), "{arguments:?}");
        let check = track(arguments.iter().chain(&["config", "check"]));
        assert_eq!(text(&check.stdout).lines().count(), 1, "{}", text(&check.stdout));
        let text = text(&output.stdout);
        text.lines().find(|line| line.starts_with("tags = ")).unwrap().split(" # ").next().unwrap().trim().to_owned()
    };
    let many = ["--tag", "app.kubernetes.io/name=web", "--tag", "a=1", "--tag", "a.b=1.10", "--tag", "d=2026-11-22"];
    let expected = r#"tags = { a = "1", "a.b" = "1.10", "app.kubernetes.io/name" = "web", d = "2026-11-22" }"#;
    assert_eq!(shown(&many), expected);
    let file = folder.path().join("c.toml").display().to_string();
    fs::write(&file, "[job.tags]\nn = 5\nd = 2026-11-22\nf = 1.5\nb = true\nx.y = 'z'\n\"p.q\" = 'r'\n").unwrap();
    shown(&["-c", &file]);
    shown(&["--set", "job.tags.x.y=5", "--set", "job.tags.d=2026-11-22T10:00:00Z"]);
    let wrong = run_in(folder.path(), &["--set", "job.tags.x=[1]"]);
    assert!(refused(&wrong).contains("the tag \"x\" must be a text, a number or a date"), "{}", text(&wrong.stderr));
}

#[test]
fn what_is_nested_without_bound_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    const DEEP: usize = 20_000;
    let dots = vec!["a"; DEEP].join(".");
    for key in [dots.clone(), format!("job.tags.{dots}"), format!("sinks.file.{dots}")] {
        let said = refused(&run_in(folder.path(), &["--set", &format!("{key}=1")]));
        assert!(said.contains("a key of the configuration has at most 32") && said.len() < 200, "{said}");
    }
    let variable = format!("TRACKER_{}", vec!["A"; DEEP].join("__"));
    let output = command(tracker()).env(variable, "1").args(["-q", "--", "echo", "started"]).output().unwrap();
    assert!(refused(&output).contains("has at most 32"));
    // A tag's name is one part, however many dots it has.
    assert_eq!(run_in(folder.path(), &["--tag", &format!("{dots}=1")]).status.code(), Some(0));
    let nested = "[".repeat(DEEP) + &"]".repeat(DEEP);
    let said = refused(&run_in(folder.path(), &["--set", &format!("tracker.quiet={nested}")]));
    assert!(said.contains("tracker.quiet") && said.len() < 400, "{said}");

    let tables = "{a=".repeat(DEEP) + "1" + &"}".repeat(DEEP);
    for contents in [
        format!("a = {nested}\n"),
        format!("a = {tables}\n"),
        format!("{dots} = 1\n"),
        format!("[{dots}]\nb = 1\n"),
        format!("[[{dots}]]\nb = 1\n"),
        format!("[job.tags]\n{dots} = 1\n"),
    ] {
        let file = folder.path().join("deep.toml").display().to_string();
        fs::write(&file, contents).unwrap();
        for tool in ["check", "show"] {
            assert!(track(["-c", &file, "config", tool]).status.code().is_some_and(|code| code < 2));
        }
        let check = text(&track(["-c", &file, "config", "check"]).stdout);
        assert!(check.contains("deep.toml:") && check.lines().count() == 1 && check.contains("recurs"), "{check}");
        let run = run_in(folder.path(), &["-c", &file]);
        assert_eq!((run.status.code(), text(&run.stdout).as_str()), (Some(0), "started\n"));
        assert_eq!(text(&run.stderr).lines().count(), 1, "{}", text(&run.stderr));
    }
}

#[test]
fn a_name_with_control_characters_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml").display().to_string();
    for (contents, shown) in [
        ("[sinks.\"a\\u0000b\"]\ntype = 'file'\npath = 'x.jsonl'\n", "sinks.\"a\\0b\""),
        ("[sources.\"a\\u001bb\"]\ntype = 'cpu'\n", "sources.\"a\\u{1b}b\""),
        ("[sinks.\"a\\nb\"]\ntype = 'file'\npath = 'x.jsonl'\n", "sinks.\"a\\nb\""),
    ] {
        fs::write(&file, contents).unwrap();
        let said = refused(&run_in(folder.path(), &["-c", &file]));
        assert!(said.contains(shown) && said.contains("a name has no control characters"), "{said}");
        let check = track(["-c", &file, "config", "check"]);
        assert!(text(&check.stdout).lines().any(|line| line == said), "{said}: {}", text(&check.stdout));
    }
}

#[test]
fn config_check_refuses_what_a_run_refuses_in_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml").display().to_string();
    let no_plugin = folder.path().join("no.so");
    fs::write(&no_plugin, "no library").unwrap();
    let load = format!("[plugins]\nload = [{no_plugin:?}]\n[sources.infiniband]\n");
    let cases = [
        "[sinks.a]\ntype = 'file'\n",
        "[sinks.a]\ntype = 'file'\npath = 'x'\nmode = 'rw'\n",
        "[sinks.a]\ntype = 'file'\npath = 'x'\nrotate_secs = -1\n",
        "[sinks.a]\ntype = 'file'\npath = 'x'\nrotate_secs = 1e300\n",
        "[sinks.a]\ntype = 'file'\npath = '/no/such/folder/x'\n",
        "[sinks.a]\ntype = 'file'\npath = 'dd'\n",
        "[sinks.a]\ntype = 'file'\npath = 'notes'\n",
        "[sinks.a]\ntype = 'file'\npath = 'notes'\nif_exists = 'fail'\n",
        "[sinks.file]\nenabled = true\n",
        "[tracker]\noutput = '/no/such/folder/x'\n",
        "[tracker]\noutput = ''\n",
        "[tracker]\ninterval_secs = 0\n",
        "[job]\ntags = 5\n",
        "[job]\npid = 0\n",
        "[sinks.a]\ntype = 'fil'\n",
        "[sinks]\na = 5\n",
        "[sources.cpu]\nenabled = 5\n",
        "[sources.process]\npss_budget_pct = 'x'\n",
        "sources = 5\n",
        "plugins = 5\n",
        "[plugins]\nload = 5\n",
        "[plugins]\ndir = '/no/such'\n",
        &load,
    ];
    fs::create_dir(folder.path().join("dd")).unwrap();
    fs::write(folder.path().join("notes"), "of mine").unwrap();
    for contents in cases {
        fs::write(&file, contents).unwrap();
        let mut run = command(tracker());
        run.args(["-c", &file, "--", "echo", "started"]).current_dir(folder.path());
        let said = refused(&run.output().unwrap());
        let check =
            command(tracker()).args(["-c", &file, "config", "check"]).current_dir(folder.path()).output().unwrap();
        assert_eq!(check.status.code(), Some(1), "{contents}");
        assert!(text(&check.stdout).lines().any(|line| line == said), "{contents}{said}: {}", text(&check.stdout));
    }
    let flags =
        ["-o", "", "--enable", "cpuu", "--disable", "nothing", "--set", "sinks.file.mode=x", "--plugin", "/no.so"];
    for flag in flags.chunks(2).filter(|flag| !flag[1].is_empty()) {
        let said = refused(&run_in(folder.path(), flag));
        let check = track(flag.iter().chain(&["config", "check"]));
        assert_eq!((check.status.code(), text(&check.stdout).trim_end()), (Some(1), said.as_str()));
    }
}

#[test]
fn config_check_opens_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml").display().to_string();
    fs::write(&file, "[sinks.a]\ntype = 'file'\npath = 'new.jsonl'\n[sinks.b]\ntype = 'file'\npath = 'pipe'\n")
        .unwrap();
    assert!(std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap().success());
    let check = command(tracker()).args(["-c", &file, "config", "check"]).current_dir(folder.path()).output().unwrap();
    assert_eq!((check.status.code(), text(&check.stdout)), (Some(0), format!("{file} is good\n")));
    assert!(!folder.path().join("new.jsonl").exists());
}

#[test]
fn a_key_in_a_file_that_a_component_without_keys_does_not_have_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), "[sources.cpu]\nfoo = 1\n").unwrap();
    let run = run_in(folder.path(), &["-c", "c.toml"]);
    assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(0), ""));
    let check =
        command(tracker()).args(["-c", "c.toml", "config", "check"]).current_dir(folder.path()).output().unwrap();
    let expected =
        "c.toml:2:1: sources.cpu.foo = 1: there is no such key, so it is ignored (there are: enabled, type)\n";
    assert_eq!((check.status.code(), text(&check.stdout).as_str()), (Some(1), expected));
}

#[test]
fn a_variable_of_an_unknown_key_is_ignored_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let with = |arguments: &[&str]| {
        let mut command = command(tracker());
        command.env("TRACKER_SINKS__FILE__PTH", "x").env("TRACKER_SINKS__FILE__ENABLED", "false");
        command.args(arguments).current_dir(folder.path()).output().unwrap()
    };
    let expected =
        "TRACKER_SINKS__FILE__PTH: sinks.file.pth = \"x\": there is no such key, so it is ignored; did you mean path?";
    let run = with(&["-q", "--", "true"]);
    let warning = format!("resource-tracker: warning: {expected}");
    assert!(run.status.success() && text(&run.stderr).starts_with(&warning), "{}", text(&run.stderr));
    let check = with(&["config", "check"]);
    assert!(check.status.code() == Some(1) && text(&check.stdout).starts_with(expected), "{}", text(&check.stdout));
}
