//! Plugins: the real binary with `.so` files of several languages, compilers and versions of the interface.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use flaky_test::flaky_test;
use resource_tracker_tests::{command, has, in_time, number, samples, shared_library, text, tracker, wait_until};
use serde_json::{Value as Json, json};

/// A run around a short command, with the samples on standard output.
fn run(plugin: &Path, arguments: &[&str]) -> Output {
    let mut tracker = command(tracker());
    tracker.arg("--plugin").arg(plugin).args(["-i", "0.1", "--output=/dev/stdout"]).args(arguments);
    tracker.output().unwrap()
}

/// The stand-in, described and behaving as said.
fn fake(kind: &str, arguments: &[&str]) -> Output {
    let mut tracker = command(tracker());
    tracker.env("FAKE_PLUGIN", kind).arg("--plugin").arg(shared_library("fake-plugin"));
    tracker.args(["-i", "0.1", "--output=/dev/stdout"]).args(arguments).output().unwrap()
}

const SLEEP: [&str; 3] = ["--", "sleep", "1"];

fn behaving(behaviour: &str, more: &[&str]) -> Output {
    let set = format!("--set=sources.fake.behaviour={behaviour}");
    fake("", &[&["--enable=fake", &set], more, &["--", "sh", "-c", "sleep 1; exit 7"]].concat())
}

fn adapters(root: &Path) -> String {
    let port = root.join("class/infiniband/mlx5_0/ports/1");
    fs::create_dir_all(port.join("counters")).unwrap();
    for (name, text) in
        [("state", "4: ACTIVE\n"), ("rate", "100 Gb/sec (4X EDR)\n"), ("counters/port_rcv_data", "250\n")]
    {
        fs::write(port.join(name), text).unwrap();
    }
    format!("--set=sources.infiniband.root={}", root.display())
}

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
    let output = fake("", &["--set=sources.fake.level=high", "--set=sources.fake.enabled=true", "--", "echo"]);
    assert!(
        text(&output.stderr).contains("sources.fake.level = \"high\": must be a whole number"),
        "{}",
        text(&output.stderr)
    );
    let output = fake("", &["--set=sinks.fake-file.behaviour=refused", "--", "echo"]);
    assert!(text(&output.stderr).contains("behaviour must be something else"), "{}", text(&output.stderr));
    // The check tells the same.
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
        ("2.0", "was built for version 2.1 of the plugin interface, and this is 1.1"),
        ("none", "does not work with version 1.1 of the plugin interface"),
        ("needs-9", "needs version 1.9 of the plugin interface, and this is 1.1"),
        ("small", "has its description of 8 bytes, where 96 are the least"),
        ("many", "says that it has 18446744073709551615 times a source"),
        ("bad-name", "calls a component \"My Source\""),
        ("bad-text", "has as a description a text that is not UTF-8"),
        ("bad-json", "has as its sections what is no JSON"),
        ("taken", "its component cpu has the name of one of resource-tracker"),
    ] {
        let output = fake(kind, &["--", "echo", "started"]);
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

#[flaky_test]
fn older_and_newer_minor_versions_work() {
    for kind in ["1.0", "", "1.2"] {
        let folder = tempfile::tempdir().unwrap();
        let path = format!("--set=sinks.fake-file.path={}", folder.path().join("calls").display());
        let output = fake(kind, &[&["--enable=fake", &path], &SLEEP[..]].concat());
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{kind}");
        let all = samples(&output.stdout);
        let calls = fs::read_to_string(folder.path().join("calls")).unwrap();
        assert_eq!(calls.lines().count(), all.len() + 2, "{kind}: start, the samples, finish");
        // The last ones can be of a command that has just ended.
        let last = &all[all.len() - 4]["fake"];
        assert!(number(last, "/tick") >= 3.0 && number(last, "/pids") == 1.0, "{last}");
        assert_eq!(number(last, "/interval_ms"), 100.0);
    }
}

/// The first six leave the run whole, with one message.
#[flaky_test]
fn a_source_that_misbehaves_harms_only_its_own_section() {
    for (behaviour, said) in [
        ("garbage", "what it wrote is not usable: key must be a string"),
        ("huge", "it wrote more than 4 MiB"),
        ("utf8", "what it wrote is not usable: invalid unicode"),
        ("foreign", "\"memory\" is no section of the plugin (there are: fake)"),
        ("error", "the device does not answer"),
        ("silent-error", "it returned -77 without a reason"),
        ("no-open", "the port is taken"),
    ] {
        let output = behaving(behaviour, &[]);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{behaviour}: {message}");
        assert!(message.contains("source fake: ") && message.contains(said), "{behaviour}: {message}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 8 && all.iter().all(|sample| sample["cpu"]["utime_secs"].is_number()), "{behaviour}");
    }
    let output = behaving("absent", &[]);
    assert_eq!(text(&output.stderr), "");
    let output = behaving("says", &[]);
    assert_eq!(text(&output.stderr), "resource-tracker: warning: source fake: configured as says with a second line\n");
}

#[flaky_test]
fn a_source_that_hangs_is_left_out() {
    let set = ["--enable=fake", "--set=sources.fake.behaviour=hang", "--", "sh", "-c", "sleep 3.5; exit 7"];
    for isolate in ["false", "true"] {
        let isolate = format!("--set=plugins.isolate={isolate}");
        let start = Instant::now();
        let output = fake("", &[&[isolate.as_str()], &set[..]].concat());
        assert!(start.elapsed().as_secs_f64() < 8.0);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{message}");
        assert!(message.contains("source fake has not answered for 2 s"), "{message}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 34, "{}", all.len());
        assert!(all[all.len() - 1].get("fake").is_none());
    }
}

#[flaky_test]
fn a_panic_of_rust_stays_in_the_plugin() {
    let set = ["--enable=fields", "--set=sources.fields.panics=true", "--", "sh", "-c", "sleep 2; exit 7"];
    let output = run(&shared_library("fake-fields"), &set);
    let message = text(&output.stderr);
    assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{message}");
    assert!(message.contains("source fields: ") && message.contains("it panicked: the third reading"), "{message}");
    assert!(samples(&output.stdout).len() >= 19);
}

#[flaky_test]
fn what_a_plugin_of_rust_logs_is_said_with_its_name() {
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        let set = [isolate, "--enable=fields", "--set=sources.fields.says=true", "--", "sleep", "0.5"];
        let output = run(&shared_library("fake-fields"), &set);
        assert_eq!(text(&output.stderr), "resource-tracker: warning: source fields: this is the second reading\n");
    }
}

/// In one process neither can be survived; in a process of its own both are.
#[flaky_test]
fn a_crash_is_survived_in_isolation() {
    for (behaviour, signal) in [("abort", 6), ("null", 11)] {
        let output = behaving(behaviour, &["--set=plugins.isolate=true"]);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), message.lines().count()), (Some(7), 1), "{behaviour}: {message}");
        assert!(message.contains(&format!("its process was ended by signal {signal}")), "{message}");
        let all = samples(&output.stdout);
        assert!(all.len() >= 8, "{behaviour}");
        assert!(all.iter().any(|sample| sample.get("fake").is_some()), "it worked until then");
        // The processes of the plugin are none of the job's.
        assert!(all.iter().all(|sample| number(sample, "/cpu/process_child_count") <= 1.0));
    }
}

#[flaky_test]
fn in_isolation_it_is_restarted() {
    let set = ["--enable=fake", "--set=sources.fake.behaviour=abort", "--set=plugins.isolate=true"];
    let output = fake("", &[&set[..], &["--", "sh", "-c", "sleep 7; exit 7"]].concat());
    assert_eq!(output.status.code(), Some(7));
    let all = samples(&output.stdout);
    let readings: Vec<u64> = all.iter().filter_map(|sample| sample["fake"]["tick"].as_u64()).collect();
    // It works for three readings, crashes, and is begun anew after 1, 2 and 4 s, of which the last is too late.
    let lives = 1 + readings.windows(2).filter(|pair| pair[1] > pair[0] + 5).count();
    assert_eq!(lives, 3, "{readings:?}");
}

/// Also when the tracker has no time to tidy up.
#[test]
fn processes_of_plugins_do_not_outlive_the_tracker() {
    in_time(|| {
        let folder = tempfile::tempdir().unwrap();
        let plugin = folder.path().join("only-here.so");
        fs::copy(shared_library("fake-plugin"), &plugin).unwrap();
        let processes = || {
            let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("maps"));
            entries.filter(|maps| fs::read_to_string(maps).is_ok_and(|maps| maps.contains("only-here.so"))).count()
        };
        let mut longest = Duration::ZERO;
        for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGKILL] {
            let mut command = command(tracker());
            command.arg("--plugin").arg(&plugin).args(["--set=plugins.isolate=true", "--enable=fake", "-i", "0.1"]);
            let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
            wait_until("its process", || processes() > 0);
            assert_eq!(processes(), 1, "one, and none of them the tracker");
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id() as i32), signal).unwrap();
            child.wait().unwrap();
            let ended = Instant::now();
            wait_until("its end", || processes() == 0);
            longest = longest.max(ended.elapsed());
        }
        longest < Duration::from_millis(300)
    });
}

#[flaky_test]
fn a_sink_of_a_plugin_gets_the_whole_run() {
    for isolate in ["false", "true"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("calls");
        let isolate = format!("--set=plugins.isolate={isolate}");
        let path = format!("--set=sinks.fake-file.path={}", file.display());
        let output = fake("", &[&isolate, &path, "-n", "job", "--", "sh", "-c", "sleep 0.5; exit 3"]);
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
    let set =
        ["--set=sinks.fake-file.path=/tmp", "--set=sinks.fake-file.behaviour=abort", "--set=plugins.isolate=true"];
    let folder = tempfile::tempdir().unwrap();
    let path = format!("--set=sinks.fake-file.path={}", folder.path().join("x").display());
    let output = fake("", &[&set[1..], &[path.as_str(), "--", "sh", "-c", "sleep 0.5; exit 3"]].concat());
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("sink fake-file: ") && samples(&output.stdout).len() >= 5);
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

fn compile(compiler: &str, flags: &[&str], include: &Path, out: &Path) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins-example/c-plugin/thermal.c");
    let mut command = Command::new(compiler);
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]).args(flags);
    let status = command.arg("-I").arg(include).arg(source).arg("-o").arg(out).status().unwrap();
    assert!(status.success(), "{compiler} {flags:?}");
}

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/include")
}

fn zones(root: &Path) {
    for (zone, kind, temp) in [(0, "x86_pkg_temp", "61000\n"), (1, "acpitz", "-5500\n"), (2, "off", "")] {
        let zone = root.join(format!("class/thermal/thermal_zone{zone}"));
        fs::create_dir_all(&zone).unwrap();
        fs::write(zone.join("type"), format!("{kind}\n")).unwrap();
        fs::write(zone.join("temp"), temp).unwrap();
    }
}

fn assert_temperatures(plugin: &Path) {
    let root = tempfile::tempdir().unwrap();
    zones(root.path());
    let set = format!("--set=tracker.sysfs={}", root.path().display());
    let output = run(plugin, &[&set, "--", "sleep", "0.5"]);
    assert_eq!(text(&output.stderr), "", "{}", plugin.display());
    let all = samples(&output.stdout);
    let expected = json!([
        { "zone": 0, "type": "x86_pkg_temp", "celsius": 61.0 },
        { "zone": 1, "type": "acpitz", "celsius": -5.5 },
        { "zone": 2, "type": "off", "celsius": null },
    ]);
    assert_eq!(all[all.len() - 1]["thermal"], expected);
}

#[test]
fn a_plugin_in_c_of_several_compilers() {
    let folder = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"] {
        if !has(compiler, "a_plugin_in_c_of_several_compilers") {
            continue;
        }
        for level in ["-O0", "-O2"] {
            let plugin = folder.path().join(format!("{compiler}{level}.so"));
            compile(compiler, &[level], &include(), &plugin);
            assert_temperatures(&plugin);
        }
    }
}

#[test]
fn a_plugin_that_was_built_with_the_header_of_before() {
    if !has("cc", "a_plugin_that_was_built_with_the_header_of_before") {
        return;
    }
    // Not in /tmp itself, where everybody can put files.
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("thermal.so");
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("fakes/abi-1.0");
    compile("cc", &["-O1"], &header, &plugin);
    assert_temperatures(&plugin);
}

#[test]
fn the_header_is_what_the_types_are() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["run", "--quiet", "--package", "resource-tracker-tests", "--bin", "plugin-header"];
    let output = Command::new(cargo).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let header = fs::read_to_string(include().join("resource_tracker_plugin.h")).unwrap();
    assert_eq!(text(&output.stdout).trim_end(), header.trim_end(), "run docs/generate");
}

/// Another compiler, of which nothing but C is the same.
#[test]
fn a_plugin_of_another_rust_compiler() {
    let test = "a_plugin_of_another_rust_compiler";
    if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_none() {
        println!("skipped: {test} runs with the long tests");
        return;
    }
    if !has("rustup", test) {
        return;
    }
    let version = |toolchain: &str| {
        let output = Command::new("rustup").args(["run", toolchain, "rustc", "--version"]).output().unwrap();
        text(&output.stdout)
    };
    let list = Command::new("rustup").args(["toolchain", "list"]).output().unwrap();
    let own = text(&Command::new("rustc").arg("--version").output().unwrap().stdout);
    let list = text(&list.stdout);
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let Some(other) = names.into_iter().find(|name| !version(name).is_empty() && version(name) != own) else {
        println!("skipped: {test} needs a second toolchain");
        return;
    };
    println!("built by {}loaded by a program of {own}", version(other));
    let target = shared_library("infiniband").with_file_name("other-toolchain");
    let mut cargo = Command::new("rustup");
    for name in ["RUSTUP_TOOLCHAIN", "RUSTC", "CARGO", "RUSTFLAGS", "CARGO_MANIFEST_DIR"] {
        cargo.env_remove(name);
    }
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../plugins-example/infiniband/Cargo.toml");
    cargo.args(["run", other, "cargo", "build", "--quiet", "--release", "--manifest-path", manifest]);
    assert!(cargo.env("CARGO_TARGET_DIR", &target).status().unwrap().success());
    let root = tempfile::tempdir().unwrap();
    let set = adapters(root.path());
    let plugin = target.join("release/libinfiniband.so");
    let output = run(&plugin, &[&[set.as_str()], &SLEEP[..]].concat());
    assert_eq!(text(&output.stderr), "");
    let all = samples(&output.stdout);
    assert_eq!(number(&all[all.len() - 1], "/infiniband/0/rx_bytes_total"), 1000.0);
}

/// Every example, reading by reading, under valgrind: nothing is used that is not there, and nothing is lost.
#[test]
fn the_examples_are_clean_over_many_ticks() {
    if !has("valgrind", "the_examples_are_clean_over_many_ticks") {
        return;
    }
    let times = if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_some() { "10000" } else { "300" };
    let root = tempfile::tempdir().unwrap();
    let set = adapters(root.path()).replace("--set=", "");
    let mut plugins = vec![
        (shared_library("infiniband"), vec![set]),
        (shared_library("uptime"), vec![]),
        (shared_library("fake-fields"), vec![]),
    ];
    let thermal = root.path().join("thermal.so");
    if has("cc", "the C plugin under valgrind") {
        compile("cc", &["-g", "-O1"], &include(), &thermal);
        zones(root.path());
        plugins.push((thermal, vec![format!("sysfs={}", root.path().display())]));
    }
    for (plugin, arguments) in plugins {
        let mut soak = command("valgrind");
        soak.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
        soak.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]);
        let output =
            soak.arg(env!("CARGO_BIN_EXE_plugin-soak")).arg(&plugin).arg(times).args(arguments).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {said}", plugin.display());
        assert!(!said.contains("=="), "{said}");
        assert!(text(&output.stdout).contains(times), "{}", text(&output.stdout));
    }
}

/// The framework knows nothing of its example.
#[test]
fn nothing_but_the_example_speaks_of_infiniband() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = ["core", "sources", "sinks", "bin"].map(|name| root.join(name)).into();
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(content) = fs::read_to_string(&path) {
                looked_at += 1;
                assert!(!content.to_lowercase().contains("infiniband"), "{}", path.display());
            }
        }
    }
    assert!(looked_at > 100);
}

/// The tutorial, word for word: the commands of the book, in an empty folder.
#[test]
fn the_tutorial_ends_in_a_loaded_plugin() {
    if std::env::var_os("RESOURCE_TRACKER_LONG_TESTS").is_none() {
        println!("skipped: the_tutorial_ends_in_a_loaded_plugin runs with the long tests");
        return;
    }
    let root = fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let page = fs::read_to_string(root.join("docs/src/plugin-source.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let commands: String = blocks.collect();
    assert!(commands.contains("cargo test") && commands.contains("--plugin target/release"), "{commands}");
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}:{}", tracker().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = command("sh");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_")) {
        shell.env_remove(name);
    }
    shell.env("TRACKER", &root).env("PATH", path).env("CARGO_NET_OFFLINE", "true").current_dir(folder.path());
    let output = shell.args(["-e", "-c", &commands]).output().unwrap();
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{printed}{}", text(&output.stderr));
    assert!(printed.contains("\"my_source\":{\"open_files\":"), "{printed}");
    assert!(printed.contains("my-source    source  on (by default), from target/release/libmy_source.so"), "{printed}");
    // What the page says of its length.
    let template = fs::read_to_string(root.join("plugins-example/template/src/lib.rs")).unwrap();
    let lines = template.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(page.contains(&format!("`src/lib.rs`, of {lines} lines")), "{lines}");
    let real = fs::read_to_string(root.join("plugins-example/infiniband/src/lib.rs")).unwrap().lines().count();
    assert!(page.contains(&format!("in {real} lines with comments")) && real < 250, "{real}");
    let thermal = fs::read_to_string(root.join("plugins-example/c-plugin/thermal.c")).unwrap();
    assert!(thermal.lines().count() < 120);
}
