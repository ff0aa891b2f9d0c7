//! The command line and the environment, and messages about them: every flag has a variable, a misspelt name is
//! reported, and help is help.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use resource_tracker_tests::{command, samples, shared_library, text, track, tracker};

fn with(folder: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = command(tracker());
    // The usual spool is that of this home.
    command.envs([("HOME", folder), ("XDG_STATE_HOME", folder)]).envs(variables.iter().copied());
    command.args(arguments).current_dir(folder).output().unwrap()
}

/// The flags in the help: `--job-name`.
fn flags() -> Vec<String> {
    let help = text(&track(["--help"]).stdout);
    let flag = |line: &str| {
        let line = line.trim_start();
        let line = line.split_once(", ").filter(|(short, _)| short.len() == 2).map_or(line, |(_, long)| long);
        line.starts_with("--").then(|| line.split_whitespace().next().unwrap_or_default().to_owned())
    };
    help.lines().filter_map(flag).collect()
}

#[test]
fn every_flag_has_a_variable_that_does_the_same() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), "[job]\nname = 'of-the-file'\n").unwrap();
    let plugin = shared_library("infiniband").display().to_string();
    let path = folder.path().join("x").display().to_string();
    let path = path.as_str();
    // The flag, its value, and what `config show` then prints.
    let cases = [
        ("--interval", "0.5", "interval_secs = "),
        ("--pid", "1", "pid = "),
        ("--no-subreaper", "true", "no_subreaper = "),
        ("--no-cgroup", "1", "no_cgroup = "),
        ("--output", path, "output = "),
        ("--format", "csv", "format = \"csv\""),
        ("--csv-columns", "job", "csv_columns = \"job\""),
        ("--quiet", "yes", "quiet = "),
        ("--summary", "yes", "summary = "),
        ("--spool-dir", path, "spool_dir = "),
        ("--spool-max", "7", "spool_max_mib = 7"),
        ("--config", "c.toml", "name = \"of-the-file\""),
        ("--enable", "energy,perf", "enabled = true"),
        ("--disable", "disk", "enabled = false"),
        ("--plugin", &plugin, "[sources.infiniband]"),
        ("--job-name", "7", "name = \"7\""),
        ("--project-name", "x", "project_name = \"x\""),
        ("--stage-name", "x", "stage_name = \"x\""),
        ("--task-name", "x", "task_name = \"x\""),
        ("--team", "x", "team = \"x\""),
        ("--env", "x", "env = \"x\""),
        ("--language", "x", "language = \"x\""),
        ("--orchestrator", "x", "orchestrator = \"x\""),
        ("--executor", "x", "executor = \"x\""),
        ("--external-run-id", "x", "external_run_id = \"x\""),
        ("--container-image", "x", "container_image = \"x\""),
        ("--tag", "a.b=1", "tags = { \"a.b\" = \"1\" }"),
    ];
    let flags = flags();
    // Each key has a variable of its own in place of `--set`; the others are questions.
    let without = ["--set", "--help", "--version"];
    let missing =
        flags.iter().filter(|flag| !cases.iter().any(|(name, ..)| name == flag) && !without.contains(&&***flag));
    assert_eq!((missing.collect::<Vec<_>>(), flags.len()), (Vec::<&String>::new(), cases.len() + without.len()));
    let without = with(folder.path(), &[], &["config", "show"]);
    for (flag, value, expected) in cases {
        let variable = format!("TRACKER_{}", flag[2..].to_uppercase().replace('-', "_"));
        let shown = with(folder.path(), &[(&variable, value)], &["config", "show"]);
        let (stdout, stderr) = (text(&shown.stdout), text(&shown.stderr));
        assert_eq!((shown.status.code(), stderr.as_str()), (Some(0), ""), "{variable}");
        let of_it: Vec<&str> = stdout.lines().filter(|line| line.contains(expected)).collect();
        // A file and a plugin are where their values are from.
        let is_origin = |line: &&str| line.ends_with(&format!("# {variable}"));
        let has_origin = !["--config", "--plugin"].contains(&flag);
        assert!(!of_it.is_empty() && (!has_origin || of_it.iter().any(is_origin)), "{variable}: {expected}\n{stdout}");
        let empty = with(folder.path(), &[(&variable, "")], &["config", "show"]);
        assert_eq!((&empty.stdout, &empty.stderr), (&without.stdout, &without.stderr), "an empty {variable} is none");
    }
}

#[test]
fn lists_in_variables_have_commas_and_flags_win() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |variables: &[(&str, &str)], arguments: &[&str]| {
        let shown = with(folder.path(), variables, &[arguments, &["config", "show"]].concat());
        assert_eq!((shown.status.code(), text(&shown.stderr).as_str()), (Some(0), ""));
        text(&shown.stdout)
    };
    let tags = shown(&[("TRACKER_TAG", "a=1, b=x=y,,c=")], &["--tag", "a=2"]);
    assert!(tags.contains(r#"tags = { a = "2", b = "x=y", c = "" }"#), "{tags}");
    let is_on = |shown: &str, source: &str| {
        let table = shown.split_once(&format!("[sources.{source}]\n")).unwrap().1;
        table.starts_with("enabled = true")
    };
    let switched = shown(&[("TRACKER_ENABLE", "perf, energy"), ("TRACKER_DISABLE", "cpu,disk")], &[]);
    assert!(is_on(&switched, "perf") && is_on(&switched, "energy") && is_on(&switched, "memory"), "{switched}");
    assert!(!is_on(&switched, "cpu") && !is_on(&switched, "disk"), "{switched}");
    let disabled = [("TRACKER_DISABLE", "cpu,disk")];
    assert!(is_on(&shown(&disabled, &["--enable", "cpu"]), "cpu"));
    assert!(is_on(&shown(&disabled, &["--set", "sources.disk.enabled=true"]), "disk"));
    // Of a plugin, which is loaded before.
    let infiniband = shared_library("infiniband").display().to_string();
    let twice = format!("{infiniband}, {infiniband}");
    let plugins = shown(&[("TRACKER_PLUGIN", &twice), ("TRACKER_DISABLE", "infiniband")], &[]);
    assert!(!is_on(&plugins, "infiniband"), "{plugins}");
    // As with flags: `-q` counts here as well.
    let quiet = with(folder.path(), &[("TRACKER_ENABLE", "stdout-json")], &["-q", "--", "true"]);
    assert_eq!((quiet.status.code(), text(&quiet.stderr).as_str()), (Some(0), ""));
}

#[test]
fn a_bad_value_in_a_variable_names_the_variable() {
    let folder = tempfile::tempdir().unwrap();
    let plugins = format!("{},/no.so", shared_library("infiniband").display());
    for (variable, value, expected) in [
        ("TRACKER_ENABLE", "cpu,dsk", "TRACKER_ENABLE = \"dsk\": there is no such component; did you mean disk?"),
        ("TRACKER_DISABLE", "nothing", "TRACKER_DISABLE = \"nothing\": there is no such component"),
        ("TRACKER_TAG", "a=1,b", "TRACKER_TAG = \"b\": must be KEY=VALUE"),
        ("TRACKER_PLUGIN", &plugins, "error: plugin /no.so: "),
        ("TRACKER_SPOOL_MAX", "much", "TRACKER_SPOOL_MAX: sinks.sentinel-s3.spool_max_mib = \"much\": must be a whole"),
    ] {
        let output = with(folder.path(), &[(variable, value)], &["-q", "--", "echo", "started"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{variable}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{variable}: {said}");
        let check = with(folder.path(), &[(variable, value)], &["config", "check"]);
        assert_eq!(check.status.code(), Some(1));
        let said = said.trim_start_matches("resource-tracker: error: ");
        assert_eq!(text(&check.stdout), said, "{variable}");
    }
}

#[test]
fn a_slip_in_the_name_of_a_variable_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    for (variable, expected) in [
        ("TRACKER_INTERVALL", "there is no such variable, so it is ignored; did you mean TRACKER_INTERVAL?"),
        ("TRACKER_SPOOLDIR", "did you mean TRACKER_SPOOL_DIR?"),
        ("TRACKER_HOST_IPP", "did you mean TRACKER_HOST_IP?"),
        ("TRACKER_SINKS__FILE__PTH", "sinks.file.pth = 1: there is no such key, so it is ignored; did you mean path?"),
        ("TRACKER_SINK__FILE__PATH", "there is no such table, so it is ignored; did you mean sinks?"),
        ("TRACKER_JOB__NMAE", "job.nmae = 1: there is no such key, so it is ignored; did you mean name?"),
    ] {
        let variables = [(variable, "1"), ("TRACKER_SINKS__FILE__ENABLED", "false")];
        let output = with(folder.path(), &variables, &["-q", "--", "echo", "ran"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(0), "ran\n"), "{said}");
        assert!(said.starts_with(&format!("resource-tracker: warning: {variable}: ")), "{said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        let check = with(folder.path(), &variables, &["config", "check"]);
        let told = text(&check.stdout);
        assert!(check.status.code() == Some(1) && told.contains(expected) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn a_variable_leaves_out_a_field_of_the_machine_beside_those_of_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TRACKER_HOST_IP", "0"), ("TRACKER_HOST_ID", ""), ("TRACKER_HOST_NAME", "1")];
    let arguments = ["--set", "sources.host.suppress=[\"host_vcpus\"]", "config", "show"];
    let shown = text(&with(folder.path(), &variables, &arguments).stdout);
    let line = shown.lines().find(|line| line.starts_with("suppress = "));
    assert_eq!(
        line,
        Some(r#"suppress = ["host_vcpus","host_id","host_ip"] # TRACKER_HOST_ID, TRACKER_HOST_IP"#),
        "{shown}"
    );
}

#[test]
fn variables_of_others_are_no_slips() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = shared_library("infiniband").display().to_string();
    let variables = [
        ("TRACKER_URL", "x"),
        ("TRACKER_DB_ONTOLOGIES_DIR", "x"),
        ("TRACKER_VERBOSITY", "3"),
        ("TRACKER_META_FOO", "1"),
        ("TRACKER_HOST_ID", "0"),
        ("TRACKER_HOST_GPU_VRAM_MIB", ""),
        ("TRACKER_PLUGINS", plugin.as_str()),
        ("TRACKER_SOURCES__INFINIBAND__ENABLED", "false"),
        ("TRACKER_JOB__TAGS__ANY", "1"),
        ("TRACKER_UPLOAD_INTERVAL", "5"),
        ("TRACKER_SINKS__SENTINEL_S3__ENABLED", "false"),
        ("RESOURCE_TRACKER_INTERVALL", "1"),
    ];
    let output = with(folder.path(), &variables, &["-q", "--", "true"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn an_unknown_component_is_refused_also_where_it_is_off() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml").display().to_string();
    let plugin = shared_library("infiniband").display().to_string();
    for (contents, expected) in [
        (
            "[sources.netwrk]\nenabled = false\n",
            "c.toml:1:10: sources.netwrk: there is no source of type netwrk; did you mean network?",
        ),
        ("[sinks.fil]\nenabled = false\n", "sinks.fil: there is no sink of type fil; did you mean file?"),
        (
            "[sinks.a]\nenabled = false\ntype = 'fiel'\n",
            "c.toml:3:1: sinks.a.type = \"fiel\": there is no sink of type fiel; did you mean file?",
        ),
        ("[sources.infiniband]\nenabled = false\n", "there is no source of type infiniband"),
    ] {
        fs::write(&file, contents).unwrap();
        for tool in [&["-q", "--", "echo", "started"][..], &["components"], &["config", "show"]] {
            let output = with(folder.path(), &[], &[&["-c", &file], tool].concat());
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{tool:?}: {said}");
            assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        }
        let check = with(folder.path(), &[], &["-c", &file, "config", "check"]);
        assert!(check.status.code() == Some(1) && text(&check.stdout).contains(expected), "{}", text(&check.stdout));
        assert_eq!(text(&check.stdout).lines().count(), 1);
    }
    // The last one is that of a plugin.
    let output = with(folder.path(), &[], &["-c", &file, "--plugin", &plugin, "-q", "--", "true"]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn what_is_asked_without_its_argument_prints_help_as_it_is() {
    for tool in ["config", "completions"] {
        let output = track([tool]);
        let (said, help) = (text(&output.stderr), text(&track([tool, "--help"]).stdout));
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{said}");
        assert!(said.lines().count() > 5 && !said.contains("error:"), "{said}");
        let usage = help.lines().find(|line| line.starts_with("Usage: ")).unwrap();
        assert!(said.lines().any(|line| line == usage), "{said}");
    }
}

#[test]
fn a_slip_in_the_name_of_a_tool_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = |program: &str| {
        format!("resource-tracker: error: cannot run {program}: No such file or directory (os error 2)")
    };
    for (program, hint) in
        [("sumary", "; did you mean `resource-tracker summary`?"), ("nobody-knows", ""), ("./sumary", "")]
    {
        let output = with(folder.path(), &[], &["-q", program, "run.jsonl"]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(127), format!("{}{hint}\n", error(program))));
    }
    // The program is there, but its interpreter is not.
    fs::write(folder.path().join("sumary"), "#!/nonexistent/interpreter\n").unwrap();
    fs::set_permissions(folder.path().join("sumary"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = with(folder.path(), &[("PATH", folder.path().to_str().unwrap())], &["-q", "sumary", "run.jsonl"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(127), error("sumary") + "\n"));
}

#[test]
fn two_dashes_with_no_command_after_them_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["--"][..], &["-o", "run.jsonl", "--"], &["-q", "-i", "0.1", "--"], &["--pid", "1", "--"]] {
        // What records the machine does so until it is stopped.
        let output = command("timeout").arg("20").arg(tracker()).args(arguments).current_dir(folder.path()).output();
        let output = output.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert_eq!(said, "resource-tracker: error: no command after --; see --help\n", "{arguments:?}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was opened");
    // The second one is the name of a program.
    assert_eq!(with(folder.path(), &[], &["-q", "--", "--"]).status.code(), Some(127));
    assert_eq!(with(folder.path(), &[], &["-q", "--", "true", "--"]).status.code(), Some(0));
}

#[test]
fn every_command_that_the_help_names_is_one() {
    let help = text(&track(["--help"]).stdout);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = help.split_once("The words ").unwrap().1.split_once(" are commands").unwrap().0;
    let words: Vec<&str> = words.split([',', ' ']).filter(|word| !word.is_empty() && *word != "and").collect();
    assert_eq!(words.len(), 12, "{words:?}");
    for word in words {
        // What is no command of the tracker would be run.
        let output = if word == "help" { track(["help"]) } else { track([word, "--help"]) };
        let help = text(&output.stdout);
        let is_its_own = help.contains(&format!("Usage: resource-tracker {word}")) || word == "help";
        assert!(output.status.success() && is_its_own, "{word}: {help}");
    }
}

#[test]
fn a_text_without_quotes_is_told_what_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.toml").display().to_string();
    for (contents, place) in [
        ("[job]\nname = train\n", "2:8"),
        ("[job]\nname=train model\n", "2:6"),
        ("[job]\nname = false-start\n", "2:13"),
        ("[tracker]\ninterval_secs = 50ms\n", "2:17"),
        ("[tracker]\noutput = /tmp/x\n", "2:10"),
        ("[job]\ntags = { version = 1.2.3 }\n", "2:23"),
        ("[plugins]\nload = [a.so]\n", "2:9"),
    ] {
        fs::write(&file, contents).unwrap();
        let check = text(&track(["-c", &file, "config", "check"]).stdout);
        let line = place.split(':').next().unwrap();
        assert!(check.starts_with(&format!("{file}:{line}:")), "{contents}{place}: {check}");
        assert!(
            check.contains("this is no value; if it is a text, put it in quotes") && check.lines().count() == 1,
            "{check}"
        );
        let run = track(["-c", &file, "-q", "--", "true"]);
        assert!(run.status.success() && text(&run.stderr).contains("put it in quotes"), "{}", text(&run.stderr));
    }
    for contents in
        ["[job\nname = 'x'\n", "name = \n", "[job]\nname = \"x\n", "[job]\nname: x\n", "[job]\n# a = b\n]\n"]
    {
        fs::write(&file, contents).unwrap();
        let check = text(&track(["-c", &file, "config", "check"]).stdout);
        assert!(check.starts_with(&file) && !check.contains("put it in quotes"), "{contents}: {check}");
    }
}

#[test]
fn a_file_that_others_can_write_is_told_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resource-tracker.toml");
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    fs::write(&file, "[job]\nname = 'x'\n").unwrap();
    let said = |file_mode: u32, folder_mode: u32| {
        set(&file, file_mode);
        set(folder.path(), folder_mode);
        text(&with(folder.path(), &[], &["-q", "--", "true"]).stderr)
    };
    assert_eq!(said(0o644, 0o755), "");
    let open = said(0o646, 0o755);
    assert!(open.contains("(mode 646): chmod go-w resource-tracker.toml; to read it all the same: -c "), "{open}");
    let open = said(0o644, 0o757);
    assert!(open.contains("its folder: others can write to it (mode 757): chmod go-w .; to read it"), "{open}");
    let sticky = said(0o644, 0o1777);
    assert!(sticky.contains("(mode 1777): move it to a folder of your own; to read it all the same"), "{sticky}");
}

#[test]
fn a_folder_that_was_named_has_to_be_there_to_be_uploaded() {
    let folder = tempfile::tempdir().unwrap();
    for token in [&[][..], &[("SENTINEL_API_TOKEN", "abc")]] {
        for arguments in [
            &["upload", "nodir"][..],
            &["upload", "--dry-run", "nodir"],
            &["--spool-dir", "nodir", "upload"],
            &["--spool-dir", "nodir", "upload", "--dry-run"],
            &["upload", "--spool-dir", "nodir"],
        ] {
            let output = with(folder.path(), token, arguments);
            let said = text(&output.stderr);
            assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{arguments:?}: {said}");
            assert_eq!(said, "resource-tracker: error: there is no folder nodir\n");
        }
        // The first run makes the default spool, and one that a variable names.
        for variables in [&[][..], &[("TRACKER_SPOOL_DIR", "nodir")]] {
            let output = with(folder.path(), &[token, variables].concat(), &["upload"]);
            assert_eq!(
                (output.status.code(), text(&output.stdout).as_str()),
                (Some(0), "nothing waits\n"),
                "{output:?}"
            );
        }
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_dry_run_says_that_there_is_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool").display().to_string();
    // Nobody listens there, so the rows are left.
    let run = with(
        folder.path(),
        &[("SENTINEL_API_TOKEN", "abc"), ("SENTINEL_API_URL", "http://127.0.0.1:9")],
        &["-q", "--spool-dir", &spool, "--set", "sinks.sentinel-s3.finish_timeout_secs=0.1", "--", "true"],
    );
    assert!(run.status.success(), "{}", text(&run.stderr));
    let dry = |variables: &[(&str, &str)], flags: &[&str]| {
        let output = with(folder.path(), variables, &[flags, &["upload", "--dry-run", &spool]].concat());
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        text(&output.stdout).lines().last().unwrap().to_owned()
    };
    let without =
        "1 run would be sent if there were a token: set SENTINEL_API_TOKEN, or token_file in [sinks.sentinel-s3]";
    assert_eq!(dry(&[], &[]), without);
    assert_eq!(dry(&[("SENTINEL_API_TOKEN", " ")], &[]), without);
    assert_eq!(dry(&[("SENTINEL_API_TOKEN", "abc")], &[]), "1 run would be sent");
    assert_eq!(dry(&[], &["--set", "sinks.sentinel-s3.token_file=/dev/null"]), "1 run would be sent");
}

#[test]
fn the_command_that_is_told_sends_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let service = [("SENTINEL_API_TOKEN", "abc"), ("SENTINEL_API_URL", "http://127.0.0.1:9")];
    let own = folder.path().join("it's a spool");
    for (spool, variable) in [(&["--spool-dir", own.to_str().unwrap()][..], None), (&[], Some("spool")), (&[], None)] {
        let finish = ["-q", "--set", "sinks.sentinel-s3.finish_timeout_secs=0.1", "--", "true"];
        let variables: Vec<_> = service.into_iter().chain(variable.map(|name| ("TRACKER_SPOOL_DIR", name))).collect();
        let said = text(&with(folder.path(), &variables, &[spool, &finish].concat()).stderr);
        let told = said.lines().find_map(|line| line.split_once("for `resource-tracker upload")?.1.split_once('`'));
        let (arguments, _) = told.unwrap_or_else(|| panic!("{said}"));
        // A shell reads it, in another folder, and without the variable.
        let upload = format!("{} upload --dry-run{arguments}", tracker().display());
        let mut shell = command("sh");
        shell.args(["-c", &upload]).envs([("HOME", folder.path()), ("XDG_STATE_HOME", folder.path())]);
        let output = shell.current_dir("/").output().unwrap();
        let shown = text(&output.stdout);
        assert!(shown.lines().last().is_some_and(|line| line.starts_with("1 run would be sent")), "{said}{output:?}");
    }
}

#[test]
fn a_spool_that_a_variable_bounds_streams_nothing_without_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("TRACKER_SPOOL_DIR", "spool"), ("TRACKER_SPOOL_MAX", "5"), ("TRACKER_OUTPUT", "run.jsonl")];
    let run = with(folder.path(), &variables, &["--", "true"]);
    assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(0), ""));
    assert!(!samples(&fs::read(folder.path().join("run.jsonl")).unwrap()).is_empty());
}

#[test]
fn a_run_that_keeps_nothing_says_so() {
    let mut run = command(tracker()).arg("-q").stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stderr.take().unwrap()).read_line(&mut line).unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    assert!(line.contains("no samples are kept") && line.contains("-o FILE"), "{line}");
}
