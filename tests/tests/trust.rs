//! Files that were not named, or that another user can change, are not trusted.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use resource_tracker_tests::{command, has, is_root, shared_library, text, tracker};

const FILE: &str = "resource-tracker.toml";

/// A user without any other process.
const STRANGER: u32 = 54321;

/// Every command that reads the configuration; each prints something if nothing is wrong.
const TOOLS: [&[&str]; 5] = [
    &["-q", "--", "echo", "started"],
    &["components"],
    &["config", "show"],
    &["schema"],
    &["--set", "sinks.sentinel-s3.spool_dir=spool", "upload", "--dry-run"],
];

/// A folder that only this user can write to.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    mode(folder.path(), 0o755);
    folder
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A mode with which a group may write. The group of a user who runs the tests may be private, but that of root is not.
fn by_group(mode: u32) -> Option<u32> {
    is_root("writing by a group").then_some(mode)
}

fn write(folder: &Path, contents: &str) -> PathBuf {
    let path = folder.join(FILE);
    fs::write(&path, contents).unwrap();
    mode(&path, 0o644);
    path
}

/// Runs the tracker in a folder. It is killed when something keeps it from starting.
fn track_in(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = command("timeout");
    command.args(["-s", "KILL", "60"]).arg(tracker()).args(arguments).current_dir(folder).output().unwrap()
}

/// Asserts that nothing in the folder's file counts, and one line says why.
fn assert_left(folder: &Path, why: &str) {
    for tool in TOOLS {
        let output = track_in(folder, tool);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{tool:?}: {said}");
        assert!(!output.stdout.is_empty(), "{tool:?}");
        assert!(!text(&output.stdout).contains("from-the-file"), "{tool:?}");
        assert_eq!(said.lines().count(), 1, "{tool:?}: {said}");
        for part in [FILE, why, "-c ./resource-tracker.toml"] {
            assert!(said.contains(part), "{tool:?}: {part} is not in: {said}");
        }
    }
    let check = track_in(folder, &["config", "check"]);
    let said = text(&check.stdout);
    assert_eq!((check.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(why) && text(&check.stderr).is_empty(), "{said}");
}

#[test]
fn a_plain_file_of_ones_own_counts() {
    let folder = folder();
    write(folder.path(), "[job]\nname = 'from-the-file'\n");
    let show = track_in(folder.path(), &["config", "show"]);
    assert!(text(&show.stdout).contains("name = \"from-the-file\""), "{}", text(&show.stdout));
    assert_eq!(text(&show.stderr), "");
    fs::remove_file(folder.path().join(FILE)).unwrap();
    let show = track_in(folder.path(), &["config", "show"]);
    assert_eq!((show.status.code(), text(&show.stderr).as_str()), (Some(0), ""), "that there is none is no news");
}

#[test]
fn a_file_that_others_can_write_is_left() {
    let folder = folder();
    let contents = format!("[job]\nname = 'from-the-file'\n[plugins]\nload = [{:?}]\n", shared_library("infiniband"));
    let file = write(folder.path(), &contents);
    for writable in [0o646, 0o666].into_iter().chain(by_group(0o664)) {
        mode(&file, writable);
        assert_left(folder.path(), &format!("others can write to it (mode {writable:o})"));
    }
    mode(&file, 0o644);
    for writable in [0o777, 0o1777].into_iter().chain(by_group(0o775)) {
        mode(folder.path(), writable);
        assert_left(folder.path(), &format!("its folder: others can write to it (mode {writable:o})"));
    }
}

#[test]
fn a_file_of_somebody_else_is_left() {
    if !is_root("a_file_of_somebody_else_is_left") {
        return;
    }
    let folder = folder();
    let contents = format!("[job]\nname = 'from-the-file'\n[plugins]\nload = [{:?}]\n", shared_library("infiniband"));
    let file = write(folder.path(), &contents);
    chown(&file, Some(STRANGER), None).unwrap();
    assert_left(folder.path(), &format!("it belongs to user {STRANGER}"));
    // As in /tmp.
    mode(folder.path(), 0o1777);
    assert_left(folder.path(), &format!("it belongs to user {STRANGER}"));
    mode(folder.path(), 0o755);
    chown(&file, Some(0), None).unwrap();
    chown(folder.path(), Some(STRANGER), None).unwrap();
    assert_left(folder.path(), &format!("its folder: it belongs to user {STRANGER}"));
    // What root wrote counts for every user.
    let show = |name: &str, owner: u32| {
        chown(folder.path(), Some(owner), None).unwrap();
        chown(&file, Some(owner), None).unwrap();
        write(folder.path(), &format!("[job]\nname = '{name}'\n"));
        let id = STRANGER.to_string();
        let mut show = Command::new("setpriv");
        show.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(stranger_tracker(folder.path()));
        text(&show.args(["config", "show"]).current_dir(folder.path()).output().unwrap().stdout)
    };
    assert!(show("of-root", 0).contains("\"of-root\""));
    assert!(show("of-his-own", STRANGER).contains("\"of-his-own\""));
    assert!(!show("of-a-third", STRANGER + 1).contains("\"of-a-third\""));
}

/// A copy that another user can run, wherever this one was built.
fn stranger_tracker(folder: &Path) -> PathBuf {
    let copy = folder.join("tracker");
    if !copy.exists() {
        resource_tracker_tests::copy_tracker(&copy);
    }
    mode(&copy, 0o755);
    copy
}

#[test]
fn a_group_of_ones_own_may_write_and_a_shared_one_may_not() {
    let name = "a_group_of_ones_own_may_write_and_a_shared_one_may_not";
    if !is_root(name) || !has("unshare", name) || !has("setpriv", name) {
        return;
    }
    let folder = folder();
    let file = write(folder.path(), "[job]\nname = 'from-the-file'\n");
    for path in [folder.path(), &file] {
        chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
        mode(path, 0o775);
    }
    let tracker = stranger_tracker(folder.path());
    // The user exists only for this process.
    let counts = |members: &str| {
        fs::write(folder.path().join("passwd"), format!("ann:x:{STRANGER}:{STRANGER}::/:/bin/sh\n")).unwrap();
        fs::write(folder.path().join("group"), format!("ann:x:{STRANGER}:{members}\n")).unwrap();
        let script = "mount --bind passwd /etc/passwd && mount --bind group /etc/group && exec \"$@\"";
        let id = STRANGER.to_string();
        let mut show = Command::new("unshare");
        show.args(["-m", "sh", "-c", script, "sh", "setpriv", "--reuid", &id, "--regid", &id, "--clear-groups"]);
        let output = show.arg(&tracker).args(["config", "show"]).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).contains("from-the-file")
    };
    assert!(counts("") && counts("ann"));
    assert!(!counts("eve") && !counts("ann,eve"));
    let none = u32::MAX;
    // Tag, permissions and id: the owner, user 12345, the group, the mask of both, and others.
    let list = [(1u16, 6u16, none), (2, 6, 12345), (4, 6, none), (16, 6, none), (32, 4, none)];
    let entries = list.map(|(tag, may, id)| [&tag.to_le_bytes()[..], &may.to_le_bytes(), &id.to_le_bytes()].concat());
    let list = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    match rustix::fs::setxattr(&file, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty()) {
        Ok(()) => assert!(!counts(""), "the list lets somebody else write"),
        Err(error) => println!("skipped: a list of who may write needs a file system that has them: {error}"),
    }
}

#[test]
fn a_file_that_is_no_plain_file_is_left_and_keeps_nothing_waiting() {
    let folder = folder();
    let file = folder.path().join(FILE);
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    assert_left(folder.path(), "not a regular file");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_left(folder.path(), "not a regular file");
    fs::remove_dir(&file).unwrap();
    let elsewhere = folder.path().join("elsewhere.toml");
    fs::write(&elsewhere, "[job]\nname = 'from-the-file'\n").unwrap();
    symlink(&elsewhere, &file).unwrap();
    assert_left(folder.path(), "it is a link");
    symlink("/dev/zero", folder.path().join("zero")).unwrap();
    fs::remove_file(&file).unwrap();
    fs::rename(folder.path().join("zero"), &file).unwrap();
    assert_left(folder.path(), "it is a link");
}

#[test]
fn a_named_file_is_the_users_own_choice() {
    let folder = folder();
    let file = write(folder.path(), "[job]\nname = 'from-the-file'\n");
    mode(&file, 0o666);
    for arguments in [&["-c", FILE, "config", "show"][..], &["-c", "./resource-tracker.toml", "config", "show"]] {
        let show = track_in(folder.path(), arguments);
        assert!(text(&show.stdout).contains("from-the-file") && text(&show.stderr).is_empty(), "{arguments:?}");
    }
    let mut variable = command(tracker());
    let show = variable.env("TRACKER_CONFIG", FILE).args(["config", "show"]).current_dir(folder.path()).output();
    assert!(text(&show.unwrap().stdout).contains("from-the-file"));
}

#[test]
fn what_loads_code_or_leads_secrets_elsewhere_counts_only_from_a_named_file() {
    let folder = folder();
    symlink("/tmp", folder.path().join("link")).unwrap();
    let cases = [
        ("[plugins]\nload = ['/no/such.so']\n", "2:1", "plugins.load"),
        ("[plugins]\n\ndir = '/no/such'\n", "3:1", "plugins.dir = \"/no/such\""),
        ("plugins = { isolate = true }\n", "1:13", "plugins.isolate = true"),
        ("[sources.nvidia]\nlibrary = '/no/such.so'\n", "2:1", "sources.nvidia.library"),
        ("[sources.gpu]\ntype = 'nvidia'\nlibrary = '/no/such.so'\n", "3:1", "sources.gpu.library"),
        ("[sources.cloud]\nendpoint = 'http://10.0.0.1'\n", "2:1", "sources.cloud.endpoint"),
        ("[sources.amd]\ndevices = '/tmp'\n", "2:1", "sources.amd.devices"),
        ("[sinks.sentinel-s3]\napi_url = 'https://else.where'\n", "2:1", "sinks.sentinel-s3.api_url"),
        ("sinks.sentinel-s3.enabled = false\nsinks.sentinel-s3.api_url = 'x'\n", "2:19", "sinks.sentinel-s3.api_url"),
        // `upload` reads the table of this name, whatever type it says.
        ("[sinks.sentinel-s3]\ntype = 'file'\napi_url = 'x'\n", "3:1", "sinks.sentinel-s3.api_url"),
        ("[sinks.other]\ntype = 'sentinel-s3'\napi_url = 'x'\n", "3:1", "sinks.other.api_url"),
        // Variables that say where the token goes name the sink of the type's own name.
        ("[sinks.other]\ntype = 'sentinel-s3'\n", "2:1", "sinks.other.type = \"sentinel-s3\""),
        ("[sinks.file]\npath = 'run.jsonl'\ntype = 'sentinel-s3'\n", "3:1", "sinks.file.type"),
        ("[sinks.'a.b']\ntype = 'sentinel-s3'\napi_url = 'x'\n", "", "sinks.a.b.api_url"),
        ("[sinks.sentinel-s3]\ntoken_file = '/root/.ssh/id'\n", "2:1", "sinks.sentinel-s3.token_file = ***"),
        ("[sinks.sentinel-s3]\nallow_http = true\n", "2:1", "sinks.sentinel-s3.allow_http = true"),
        ("[sinks.sentinel-s3]\nspool_dir = '/tmp'\n", "2:1", "sinks.sentinel-s3.spool_dir"),
        ("[sinks.sentinel-s3]\ncommand = 'whole'\n", "2:1", "sinks.sentinel-s3.command"),
        ("[sinks.file]\npath = '/etc/passwd'\nif_exists = 'overwrite'\n", "3:1", "sinks.file.if_exists"),
        ("[sinks.file]\npath = '.git/hooks/run.jsonl'\n", "2:1", "sinks.file.path = \".git/hooks/run.jsonl\""),
        ("[sinks.file]\npath = 'run.jsonl'\nmode = '0755'\n", "3:1", "sinks.file.mode"),
        ("[sinks.file]\npath = 'run.jsonl'\nrotate_keep = 1\n", "3:1", "sinks.file.rotate_keep"),
        ("[sinks.report]\npath = '../report.html'\n", "2:1", "sinks.report.path"),
        ("[sinks.report]\npath = 'link/report.html'\n", "2:1", "sinks.report.path"),
        ("[sinks.sentinel-s3]\nspool_max_mib = 0\n", "2:1", "sinks.sentinel-s3.spool_max_mib"),
        ("[tracker]\noutput = '../.bash_aliases'\n", "2:1", "tracker.output = \"../.bash_aliases\""),
        ("[tracker]\noutput = 'install.sh'\n", "2:1", "tracker.output"),
        ("[tracker]\nprocfs = '/tmp'\n", "2:1", "tracker.procfs"),
        ("[tracker]\nsysfs = '/tmp'\n", "2:1", "tracker.sysfs"),
    ];
    for (contents, place, key) in cases {
        write(folder.path(), contents);
        let place = if place.is_empty() { FILE.to_owned() } else { format!("{FILE}:{place}: ") };
        let tools = if key == "plugins.load" { &TOOLS[..] } else { &TOOLS[..1] };
        for tool in tools {
            let output = track_in(folder.path(), tool);
            let said = text(&output.stderr);
            assert_eq!(
                (output.status.code(), text(&output.stdout).as_str()),
                (Some(2), ""),
                "{contents}{tool:?}: {said}"
            );
            assert_eq!(said.lines().count(), 1, "{contents}: {said}");
            for part in [&place, key, "-c resource-tracker.toml"] {
                assert!(said.contains(part), "{contents}: {part} is not in: {said}");
            }
        }
        let run = text(&track_in(folder.path(), TOOLS[0]).stderr);
        let check = track_in(folder.path(), &["config", "check"]);
        assert_eq!(check.status.code(), Some(1), "{contents}");
        let sentence = run.trim_start_matches("resource-tracker: error: ").trim_end();
        assert!(text(&check.stdout).lines().any(|line| line == sentence), "{sentence}: {}", text(&check.stdout));
        let named = track_in(folder.path(), &["-c", FILE, "config", "check"]);
        assert!(!text(&named.stdout).contains("from a file that is named"), "{contents}: {}", text(&named.stdout));
    }
    // The same keys by a flag or a variable are the user's.
    write(folder.path(), "[sinks.sentinel-s3]\nupload_interval_secs = 5\n");
    let flag = track_in(folder.path(), &["--set", "sinks.sentinel-s3.api_url=https://a.b", "config", "show"]);
    assert_eq!(flag.status.code(), Some(0), "{}", text(&flag.stderr));
    // This is what such a file is for: to record into a file beside it.
    write(folder.path(), "[sinks.file]\npath = 'run.jsonl'\n[sinks.report]\npath = './report.html'\n");
    let run = track_in(folder.path(), &["-q", "--", "true"]);
    assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(0), ""));
    assert!(folder.path().join("run.jsonl").exists() && folder.path().join("report.html").exists());
}

/// Such a file can come with a clone.
#[test]
fn a_found_file_counts_less_than_flags_and_variables() {
    let folder = folder();
    write(folder.path(), "[sinks.output]\nenabled = false\npath = 'other.jsonl'\nformat = 'csv'\n");
    let run = track_in(folder.path(), &["-o", "mine.jsonl", "-f", "json", "-q", "--", "true"]);
    assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(0), ""));
    assert!(fs::read_to_string(folder.path().join("mine.jsonl")).unwrap().starts_with('{'));
    assert!(!folder.path().join("other.jsonl").exists());
    // What was asked for on the command line is not turned off either.
    let samples = |file: &str, arguments: &[&str]| {
        write(folder.path(), file);
        let run = track_in(folder.path(), &[arguments, &["--", "true"]].concat());
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        (text(&run.stdout).starts_with('{'), text(&run.stderr).contains("CPU time"))
    };
    for file in ["enabled = false", "type = 'file'\npath = 'other.jsonl'"] {
        assert_eq!(samples(&format!("[sinks.stdout-json]\n{file}\n"), &["-o", "-"]), (true, false));
        assert!(!folder.path().join("other.jsonl").exists());
    }
    assert!(samples("[sinks.summary]\nenabled = false\n", &["-o", "/dev/null", "--summary"]).1);
    let elsewhere = ["--enable", "stdout-json", "--set", "sinks.stdout-json.stream=stdout"];
    assert!(samples("[tracker]\nquiet = true\n", &elsewhere).0);
    // A name that is nearly that of a sink.
    write(folder.path(), "[sinks.stdout_json]\ntype = 'summary'\nenabled = false\n");
    let mut tracker = command(tracker());
    tracker.env("TRACKER_SINKS__STDOUT_JSON__ENABLED", "false").current_dir(folder.path());
    let run = tracker.args(["--", "true"]).output().unwrap();
    assert_eq!((run.status.code(), text(&run.stderr).as_str()), (Some(0), ""));
}

#[test]
fn a_named_file_that_is_missing_or_broken_is_said_once() {
    let folder = folder();
    fs::write(folder.path().join("broken.toml"), "[tracker\ninterval_secs = 'x'\n").unwrap();
    let cases =
        [("broken.toml", "broken.toml:1:9: "), ("none.toml", "none.toml: cannot be read: "), ("/", "/: cannot")];
    for (file, said) in cases {
        let output = track_in(folder.path(), &["-c", file, "-q", "--", "sh", "-c", "echo ran; exit 3"]);
        let message = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(3), "ran\n"), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(message.contains(said) && message.contains("the defaults are used"), "{message}");
        let mut variable = command(tracker());
        variable.env("TRACKER_CONFIG", file).args(["-q", "--", "true"]).current_dir(folder.path());
        assert_eq!(text(&variable.output().unwrap().stderr), message);
    }
    write(folder.path(), "[tracker\n");
    let found = track_in(folder.path(), &["-q", "--", "true"]);
    assert_eq!((found.status.code(), text(&found.stderr).lines().count()), (Some(0), 1), "{}", text(&found.stderr));
}

/// A plugin in a folder of its own, below a further one.
fn plugin_in(folder: &Path) -> PathBuf {
    let below = folder.join("outer/inner");
    fs::create_dir_all(&below).unwrap();
    [folder.join("outer"), below.clone()].iter().for_each(|folder| mode(folder, 0o755));
    let plugin = below.join("libinfiniband.so");
    fs::copy(shared_library("infiniband"), &plugin).unwrap();
    mode(&plugin, 0o755);
    plugin
}

/// Every way to name the plugin ends so, and nothing has started.
fn assert_refused(plugin: &Path, blamed: &Path, why: &str) {
    let folder = plugin.parent().unwrap().display();
    for arguments in [
        [format!("--plugin={}", plugin.display()), "-q".into()],
        [format!("--set=plugins.load=[{plugin:?}]"), "-q".into()],
        [format!("--set=plugins.dir={folder}"), "-q".into()],
        [format!("--plugin={}", plugin.display()), "--set=plugins.isolate=true".into()],
    ] {
        let output = command(tracker()).args(&arguments).args(["--", "echo", "started"]).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        for part in [blamed.display().to_string().as_str(), why, "copy the file to a folder of your own"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }
}

#[test]
fn keys_of_a_plugin_can_need_a_named_file_as_well() {
    let folder = folder();
    write(folder.path(), "[sources.infiniband]\nroot = '/tmp'\n");
    let plugin = format!("--plugin={}", shared_library("infiniband").display());
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        let output = track_in(folder.path(), &[&plugin, isolate, "-q", "--", "echo", "started"]);
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""), "{said}");
        assert!(said.contains("resource-tracker.toml:2:1: sources.infiniband.root = \"/tmp\": "), "{said}");
        let named = track_in(folder.path(), &["-c", FILE, &plugin, isolate, "-q", "--", "true"]);
        assert_eq!((named.status.code(), text(&named.stderr).as_str()), (Some(0), ""));
    }
}

#[test]
fn every_folder_above_a_plugin_counts() {
    let folder = folder();
    let plugin = plugin_in(folder.path());
    let loads = |plugin: &Path| {
        let output = command(tracker()).arg("--plugin").arg(plugin).arg("components").output().unwrap();
        assert!(text(&output.stdout).contains("infiniband   source"), "{}", text(&output.stderr));
    };
    loads(&plugin);
    let outer = folder.path().join("outer");
    for writable in [0o777].into_iter().chain(by_group(0o775)) {
        mode(&outer, writable);
        assert_refused(&plugin, &outer, &format!("others can write to it (mode {writable:o})"));
    }
    // A link does not hide where it leads.
    let link = folder.path().join("link.so");
    symlink(&plugin, &link).unwrap();
    let output = command(tracker()).arg("--plugin").arg(&link).arg("components").output().unwrap();
    assert!(text(&output.stderr).contains("outer: others can write"), "{}", text(&output.stderr));
    // In a sticky folder no user can move the folder of another, but anyone can add files.
    mode(&outer, 0o1777);
    loads(&plugin);
    mode(&outer.join("inner"), 0o1777);
    assert_refused(&plugin, &outer.join("inner"), "others can write to it (mode 1777)");
    mode(&outer.join("inner"), 0o755);
    mode(&plugin, 0o757);
    assert_refused(&plugin, &plugin, "others can write to it (mode 757)");
}

#[test]
fn a_plugin_below_somebody_elses_folder_is_refused() {
    if !is_root("a_plugin_below_somebody_elses_folder_is_refused") {
        return;
    }
    let folder = folder();
    let plugin = plugin_in(folder.path());
    let outer = folder.path().join("outer");
    // Its owner could exchange `inner` between a look and the loading.
    chown(&outer, Some(STRANGER), None).unwrap();
    assert_refused(&plugin, &outer, &format!("it belongs to user {STRANGER}"));
    mode(&outer, 0o1755);
    assert_refused(&plugin, &outer, &format!("it belongs to user {STRANGER}"));
    chown(&outer, Some(0), None).unwrap();
    chown(&plugin, Some(STRANGER), None).unwrap();
    assert_refused(&plugin, &plugin, &format!("it belongs to user {STRANGER}"));
}

#[test]
fn plugins_of_one_file_name_are_two() {
    let folder = folder();
    let files = [("one", "infiniband"), ("two", "fake-plugin")].map(|(place, package)| {
        let file = folder.path().join(place).join("plugin.so");
        fs::create_dir(folder.path().join(place)).unwrap();
        fs::copy(shared_library(package), &file).unwrap();
        file
    });
    for isolate in ["--set=plugins.isolate=false", "--set=plugins.isolate=true"] {
        let mut both = command(tracker());
        both.arg(isolate).arg("--plugin").arg(&files[0]).arg("--plugin").arg(&files[1]).arg("components");
        let output = both.output().unwrap();
        let list = text(&output.stdout);
        assert!(list.contains("infiniband   source") && list.contains("fake-file    sink"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_library_beside_a_plugin_is_found() {
    if !has("cc", "a_library_beside_a_plugin_is_found") {
        return;
    }
    let folder = folder();
    let cc = |arguments: &[&str]| {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC"]).args(arguments).current_dir(folder.path()).stderr(Stdio::inherit());
        assert!(cc.status().unwrap().success());
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::write(folder.path().join("beside.c"), "int beside(void) { return 1; }\n").unwrap();
    fs::write(folder.path().join("uses.c"), "int beside(void);\nint uses(void) { return beside(); }\n").unwrap();
    cc(&["beside.c", "-o", "libbeside.so"]);
    let include = format!("-I{}", root.join("core/include").display());
    let thermal = root.join("plugins-example/c-plugin/thermal.c");
    cc(&[&include, thermal.to_str().unwrap(), "uses.c", "-o", "thermal.so", "-L.", "-lbeside", "-Wl,-rpath,$ORIGIN"]);
    let output = command(tracker()).arg("--plugin").arg(folder.path().join("thermal.so")).arg("components").output();
    let output = output.unwrap();
    assert!(text(&output.stdout).contains("thermal"), "{}", text(&output.stderr));
}
