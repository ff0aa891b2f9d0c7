//! Plugins: the real binary with `.so` files of several languages, compilers and versions of the interface.

use std::fs;
use std::path::Path;
use std::process::Command;

use resource_tracker_tests::plugin::{SLEEP, adapters, fake, run};
use resource_tracker_tests::{Recording, command, in_time, number, samples, shared_library, text, tracker};
use serde_json::{Value as Json, json};

#[test]
fn a_component_of_a_plugin_is_one_like_any_other() {
    let root = tempfile::tempdir().unwrap();
    let (plugin, set) = (shared_library("infiniband"), adapters(root.path()));
    let output = run(&plugin, &[&[set.as_str()], &SLEEP[..]].concat());
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let all = samples(&output.stdout);
    let port = &all[all.len() - 1]["infiniband"][0];
    assert_eq!(
        (&port["device"], &port["state"], number(port, "/rx_bytes_total")),
        (&json!("mlx5_0"), &json!("ACTIVE"), 1000.0)
    );
    assert_eq!((number(port, "/rx_packets_total"), number(port, "/rx_packets_per_sec")), (25.0, 0.0));
    assert_eq!(
        [&port["errors"], &port["discards"], &port["packets"], &port["counters"]],
        [
            &json!({"symbol_error": 3}),
            &json!({"port_xmit_discards": 2}),
            &json!({"unicast_rcv_packets": 24}),
            &json!({"port_xmit_wait": 1})
        ]
    );

    let tool = |arguments: &[&str]| {
        let output = command(tracker()).arg("--plugin").arg(&plugin).args(arguments).output().unwrap();
        assert_eq!(text(&output.stderr), "");
        text(&output.stdout)
    };
    let components = tool(&["components"]);
    let line = format!("infiniband   source  on (by default), from {}", plugin.display());
    assert!(components.contains(&line) && components.contains("Where sysfs is mounted, when"), "{components}");
    assert!(tool(&["--disable=infiniband", "components"]).contains("infiniband   source  off (--disable)"));
    let shown = tool(&[&set, "config", "show"]);
    assert!(shown.contains("[sources.infiniband]\nenabled = true") && shown.contains("# --set"), "{shown}");
    let schema: Json = serde_json::from_str(&tool(&["schema"])).unwrap();
    assert_eq!(schema["$defs"]["infiniband"]["items"]["properties"]["rx_bytes_per_sec"]["unit"], "bytes/second");
    assert!(tool(&["schema", "--markdown"]).contains("| `[].rx_bytes_total` | integer or null | bytes | counter |"));
    // What a sample holds is what the schema says.
    let validator = jsonschema::validator_for(&schema).unwrap();
    all.iter().for_each(|sample| assert!(validator.is_valid(sample)));
    let off = run(&plugin, &["--disable=infiniband", "--", "true"]);
    assert!(samples(&off.stdout).iter().all(|sample| sample.get("infiniband").is_none()));
}

/// The driver of an adapter is loaded while the job runs, on a machine that had none.
#[test]
fn a_port_that_appears_during_the_run_is_in_the_samples_from_then_on() {
    let recording = Recording::new();
    let (root, unplugged) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    adapters(unplugged.path());
    let set = format!("--set=sources.infiniband.root={}", root.path().display());
    let none = recording.until(2, "timestamp_ms");
    let plug_in = format!("mv '{}' '{}'", unplugged.path().join("class").display(), root.path().display());
    let some = recording.until(2, "\"device\":\"mlx5_0\"");
    let script = format!("{none} && {plug_in} && {some}");
    let mut tracker = command(tracker());
    tracker.arg("--plugin").arg(shared_library("infiniband")).args([&set, "-i", "50ms", "-o"]).arg(recording.path());
    let output = recording.run(tracker.args(["--", "sh", "-c", &script]));
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let all = recording.samples();
    assert!(all[..2].iter().all(|sample| sample.get("infiniband").is_none()), "{}", all[0]);
    let port = &all[all.len() - 1]["infiniband"][0];
    assert_eq!((number(port, "/rx_bytes_total"), number(port, "/rx_bytes_per_sec")), (1000.0, 0.0));
}

#[test]
fn what_is_wrong_with_its_configuration_is_said_before_the_command_starts() {
    let plugin = shared_library("infiniband");
    for (set, said) in [
        ("sources.infiniband.root=5", "--set: sources.infiniband.root = 5: must be a text"),
        ("sources.infinibnd.root=x", "did you mean infiniband?"),
    ] {
        let output = run(&plugin, &["--set", set, "--", "echo", "started"]);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
        assert!(message.contains(said) && message.lines().count() == 1, "{message}");
    }
    let output =
        fake("", &["--set=sources.fake.level=high", "--set=sources.fake.enabled=true", "--", "echo"]).output().unwrap();
    assert!(
        text(&output.stderr).contains("sources.fake.level = \"high\": must be a whole number"),
        "{}",
        text(&output.stderr)
    );
    let output = fake("", &["--set=sinks.fake-file.behaviour=refused", "--", "echo"]).output().unwrap();
    assert!(text(&output.stderr).contains("behaviour must be something else"), "{}", text(&output.stderr));
    // `config check` reports the same.
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), format!("[plugins]\nload = [{:?}]\n[sources.infiniband]\nrot = 1\n", plugin)).unwrap();
    let output = command(tracker()).arg("--config").arg(file.path()).args(["config", "check"]).output().unwrap();
    let message = text(&output.stdout);
    assert!(message.contains("there is no such key, so it is ignored; did you mean root?"), "{message}");
}

#[test]
fn plugins_are_named_in_the_file_the_environment_or_a_folder() {
    let plugin = shared_library("infiniband");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("plugins");
    fs::create_dir(&directory).unwrap();
    fs::copy(&plugin, directory.join("infiniband.so")).unwrap();
    let config = folder.path().join("tracker.toml");
    fs::write(&config, format!("[plugins]\nload = [{plugin:?}]\n")).unwrap();
    let components = |tracker: &mut Command| {
        let output = tracker.arg("components").output().unwrap();
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    let list = format!("{}:{}", plugin.display(), shared_library("fake-plugin").display());
    let set = format!("--set=plugins.dir={}", directory.display());
    assert!(components(command(tracker()).arg("--config").arg(&config)).1.contains("infiniband   source"));
    let (_, both) = components(command(tracker()).env("TRACKER_PLUGINS", list));
    assert!(both.contains("infiniband   source") && both.contains("fake-file    sink"), "{both}");
    assert!(components(command(tracker()).arg(&set)).1.contains("infiniband   source"));
    // The same file by two ways is loaded once.
    assert_eq!(components(command(tracker()).arg("--config").arg(&config).arg("--plugin").arg(&plugin)).0, Some(0));

    let mode = |path: &Path, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(&directory.join("infiniband.so"), 0o777);
    let (code, said) = components(command(tracker()).arg(&set));
    assert_eq!(code, Some(2));
    assert!(said.contains("infiniband.so: others can write to it"), "{said}");
    mode(&directory.join("infiniband.so"), 0o755);
    mode(&directory, 0o777);
    assert_eq!(components(command(tracker()).arg(&set)).0, Some(2));
}

#[test]
fn a_file_that_is_no_plugin_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken.so");
    fs::write(&broken, "no library at all, but long enough to be looked at as one").unwrap();
    let not_a_plugin = shared_library("fake-libdrm");
    let missing = folder.path().join("missing.so");
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        for (file, said) in [
            (&broken, "cannot be loaded: "),
            (&not_a_plugin, "is no plugin: it has no symbol resource_tracker_plugin"),
            (&missing, "cannot be opened: No such file"),
        ] {
            let output = run(file, &[isolate, "--", "echo", "started"]);
            let message = text(&output.stderr);
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{message}");
            assert!(message.contains(&format!("plugin {}: {said}", file.display())), "{message}");
            assert_eq!(message.lines().count(), 1);
        }
    }
}

#[test]
fn a_description_that_cannot_be_is_an_error() {
    for (kind, said) in [
        ("2.0", "was built for version 2.2 of the plugin interface, and this is 1.2"),
        ("none", "does not work with version 1.2 of the plugin interface"),
        ("needs-9", "needs version 1.9 of the plugin interface, and this is 1.2"),
        ("small", "has its description of 8 bytes, where 96 are the least"),
        ("many", "says that it has 18446744073709551615 times a source"),
        ("bad-name", "calls a component \"My Source\""),
        ("bad-text", "has as a description a text that is not UTF-8"),
        ("bad-json", "has as its sections what is no JSON"),
        ("taken", "its component cpu has the name of one of the built-in ones"),
    ] {
        let output = fake(kind, &["--", "echo", "started"]).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{kind}: {message}");
        assert!(message.contains("libfake_plugin.so: ") && message.contains(said), "{message}");
    }
    let twice = command(tracker())
        .args(["--plugin".as_ref(), shared_library("fake-plugin").as_os_str(), "--plugin".as_ref()])
        .arg(fs::canonicalize(shared_library("fake-plugin")).unwrap().with_file_name("deps/libfake_plugin.so"))
        .args(["--", "echo"])
        .output()
        .unwrap();
    assert!(text(&twice.stderr).contains("its component fake has the name of one of"), "{}", text(&twice.stderr));
}

#[test]
fn older_and_newer_minor_versions_work() {
    for kind in ["1.0", "", "1.9"] {
        let recording = Recording::new();
        let path = format!("--set=sinks.fake-file.path={}", recording.path().with_file_name("calls").display());
        let mut tracker = fake(kind, &["--enable=fake", &path, "-i", "0.1", "-o"]);
        // One process, which becomes the program that waits.
        let script = format!("exec {}", recording.until(8, "\"fake\":{\"tick\""));
        let output = recording.run(tracker.arg(recording.path()).args(["--", "sh", "-c", &script]));
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{kind}");
        let all = recording.samples();
        let calls = fs::read_to_string(recording.path().with_file_name("calls")).unwrap();
        assert_eq!(calls.lines().count(), all.len() + 2, "{kind}: start, the samples, finish");
        let told: Vec<&Json> = all.iter().filter_map(|sample| sample.get("fake")).collect();
        // A reading that came late is in two samples, and the last ones can be of a command that has just ended.
        let later = told[..8].iter().find(|told| number(told, "/tick") >= 3.0);
        let later = later.unwrap_or_else(|| panic!("{told:?}"));
        assert_eq!(number(later, "/pids"), 1.0, "{later}");
        assert_eq!(number(later, "/interval_ms"), 100.0);
    }
}

#[test]
fn a_sink_of_a_plugin_gets_the_whole_run() {
    for isolate in ["false", "true"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("calls");
        let isolate = format!("--set=plugins.isolate={isolate}");
        let path = format!("--set=sinks.fake-file.path={}", file.display());
        let options = [&isolate, &path, "-n", "job", "-i", "0.1", "--output=/dev/stdout"];
        let output = fake("", &options).args(["--", "sh", "-c", "sleep 0.5; exit 3"]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(3), ""));
        let calls = fs::read_to_string(&file).unwrap();
        let lines: Vec<(&str, Json)> = calls
            .lines()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(what, json)| (what, serde_json::from_str(json).unwrap()))
            .collect();
        assert_eq!((lines[0].0, &lines[0].1["job"]["name"]), ("start", &json!("job")));
        assert_eq!(lines[0].1["command"], json!(["sh", "-c", "sleep 0.5; exit 3"]));
        let last = &lines[lines.len() - 1];
        assert_eq!((last.0, &last.1), ("finish", &json!({ "exit_code": 3, "signal": null })));
        let taken: Vec<&Json> = lines[1..lines.len() - 1].iter().map(|(_, sample)| sample).collect();
        let printed = samples(&output.stdout);
        assert_eq!(taken.len(), printed.len());
        assert!(taken.iter().zip(&printed).all(|(a, b)| *a == b), "both sinks got the same");
    }
    let recording = Recording::new();
    let path = format!("--set=sinks.fake-file.path={}", recording.path().with_file_name("calls").display());
    let set = ["--set=sinks.fake-file.behaviour=abort", "--set=plugins.isolate=true", &path, "-i", "0.1", "-o"];
    let script = format!("{}; {}; exit 3", recording.until_said("sink fake-file: "), recording.until(5, ""));
    let output = recording.run(fake("", &set).arg(recording.path()).args(["--", "sh", "-c", &script]));
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("sink fake-file: ") && recording.samples().len() >= 5);
}

/// The same crate, linked into a tracker of its own and loaded by this one.
#[test]
fn a_rust_sink_is_the_same_linked_and_loaded() {
    let plugin = shared_library("uptime");
    let output =
        run(&plugin, &["--enable=total", "--", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"]);
    let message = text(&output.stderr);
    let secs: f64 = message.strip_prefix("the command used ").unwrap().split(' ').next().unwrap().parse().unwrap();
    let all = samples(&output.stdout);
    let used = |name: &str| all.iter().map(|sample| sample["cpu"][name].as_f64().unwrap_or(0.0)).sum::<f64>();
    let told = used("process_utime_secs") + used("process_stime_secs");
    assert!((secs - told).abs() < 0.011 && secs > 0.05, "{message} {told}");
    assert!(all.iter().any(|sample| number(sample, "/uptime/secs") > 0.0));
}

/// It sees the sample of the same tick, in this process and in one of its own.
#[test]
fn a_derivation_of_a_plugin_adds_to_every_sample() {
    let plugin = shared_library("headroom");
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        in_time(|| {
            let output = run(&plugin, &[&[isolate][..], &SLEEP].concat());
            assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{isolate}");
            let all = samples(&output.stdout);
            // Only from another process an answer can come too late.
            let is_there = |sample: &Json| sample.get("headroom").is_some();
            assert!(isolate.ends_with("true") || all.iter().all(is_there), "{isolate}: {all:?}");
            let derived = all.iter().filter(|sample| is_there(sample));
            let fits = derived.filter(|sample| {
                // Who is ending has no memory any more.
                let used = sample["cpu"]["process_rss_mib"].as_f64().filter(|used| *used > 0.0);
                let expected = used.map(|used| number(sample, "/memory/available_mib") / used);
                let found = sample["headroom"]["jobs"].as_f64();
                // What is printed has six decimals.
                let is_near =
                    found.zip(expected).is_some_and(|(found, expected)| (found / expected - 1.0).abs() < 1e-3);
                assert!(is_near || found.or(expected).is_none(), "{isolate}: {sample}");
                is_near
            });
            fits.count() >= 4 && all.len() >= 6
        });
    }
    let tool = |subcommand: &[&str]| {
        let output = command(tracker()).arg("--plugin").arg(&plugin).args(subcommand).output().unwrap();
        text(&output.stdout)
    };
    let line = format!("headroom     derivation  on, from {}", plugin.display());
    assert!(tool(&["components"]).contains(&line), "{}", tool(&["components"]));
    let schema: Json = serde_json::from_str(&tool(&["schema"])).unwrap();
    assert_eq!(schema["$defs"]["headroom"]["properties"]["jobs"]["unit"], "jobs");
}

#[test]
fn a_derivation_needs_a_name_of_its_own_and_its_functions() {
    for (kind, said) in [
        ("taken", "its component host has the name of one of the built-in ones"),
        ("none", "derivation fake-derived has no open or derive"),
    ] {
        let output = fake("", &["--", "echo", "ran"]).env("FAKE_DERIVATION", kind).output().unwrap();
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{kind}: {message}");
        assert!(message.contains(said) && message.lines().count() == 1, "{message}");
    }
}
