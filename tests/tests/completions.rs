//! What a TAB gives, in the shells themselves.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use resource_tracker_tests::terminal::Terminal;
use resource_tracker_tests::{command, has, text, track, tracker};

const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";

/// A folder with a script for the shell, files of its own, and a program that nobody else has.
fn folder(shell: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let script = track(["completions", shell]);
    assert_eq!(text(&script.stderr), "");
    fs::write(at("script"), script.stdout).unwrap();
    for name in ["run.jsonl", "my run.jsonl"] {
        fs::write(at(name), "").unwrap();
    }
    for name in ["bin", "nested"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("bin/fruitful"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at("bin/fruitful"), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// The folders of the program and of the tracker are where programs are looked for.
fn path(folder: &Path) -> String {
    let own = tracker().parent().unwrap().display();
    format!("{}/bin:{own}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// What stands on the line, and what a TAB puts behind it: of the tracker, of the shell, of the command.
const ENDINGS: [(&str, &str); 16] = [
    ("config sh", "ow"),
    ("-i 2 compone", "nts"),
    ("help config ch", "eck"),
    ("summary --markd", "own"),
    ("config show --enable cpu,netw", "ork"),
    ("--disable=netw", "ork"),
    ("--set sinks.file.pat", "h="),
    ("completions fi", "sh"),
    ("-f cs", "v"),
    ("summary ru", "n.jsonl"),
    ("--output=ru", "n.jsonl"),
    ("-qo ru", "n.jsonl"),
    ("upload nes", "ted"),
    ("fruit", "ful"),
    ("-i 0.5 -- fruit", "ful"),
    ("-n config fruitful --x ru", "n.jsonl"),
];

/// Presses TAB behind each of these, in a shell on a terminal.
fn press_tab(terminal: &mut Terminal, endings: &[(&str, &str)]) {
    for (line, ending) in endings {
        terminal.press("\x15echo clear''ed\n");
        terminal.expect("cleared\r\n");
        terminal.press(&format!("resource-tracker {line}"));
        let typed = &line[line.len() - 2..];
        terminal.expect(typed);
        terminal.press("\t");
        terminal.expect(ending);
    }
    terminal.press("\x15");
}

fn bash(folder: &Path, first: &str) -> Terminal {
    let mut terminal = Terminal::with_columns(200);
    terminal.run(
        &format!("cd {}; PATH={}; bind 'set bell-style none'; echo d''one", folder.display(), path(folder)),
        "done\r\n",
    );
    terminal.run(&format!("{first}source ./script; complete -W 'apple pear' fruitful; echo so''urced"), "sourced\r\n");
    terminal
}

#[test]
fn bash_completes() {
    if !has("bash", "its completion") {
        return;
    }
    let folder = folder("bash");
    let mut terminal = bash(folder.path(), "");
    press_tab(&mut terminal, &ENDINGS);
    press_tab(&mut terminal, &[("summary my", "\\ run.jsonl")]);
    // Twice for a list.
    terminal.press("resource-tracker config \t\t");
    terminal.expect("check");
    terminal.expect("show");
}

#[test]
fn bash_completes_the_words_of_the_command() {
    if !has("bash", "its completion") || !Path::new(BASH_COMPLETION).exists() {
        println!("skipped: there is no {BASH_COMPLETION}");
        return;
    }
    let folder = folder("bash");
    let mut terminal = bash(folder.path(), &format!("source {BASH_COMPLETION}; "));
    press_tab(&mut terminal, &ENDINGS[..15]);
    press_tab(
        &mut terminal,
        &[("-i 2 -- fruitful app", "le"), ("fruitful pe", "ar"), ("--set a=b fruitful app", "le")],
    );
}

#[test]
fn zsh_completes() {
    if !has("zsh", "its completion") {
        return;
    }
    let folder = folder("zsh");
    let mut terminal = Terminal::with_columns(200);
    let at = folder.path().display();
    terminal.press(&format!("cd {at}; export PATH={} HOME={at} ZDOTDIR={at}; exec zsh -f\n", path(folder.path())));
    let prepare = "PS1='% '; autoload -Uz compinit; compinit -u; source ./script; setopt no_beep; compdef '_values x apple pear' fruitful";
    terminal.run(&format!("{prepare}; echo so''urced"), "sourced\r\n");
    press_tab(&mut terminal, &ENDINGS[..15]);
    press_tab(
        &mut terminal,
        &[
            ("-i 2 -- fruitful app", "le"),
            ("fruitful pe", "ar"),
            ("summary my", "\\ run.jsonl"),
            ("config ", "Report everything"),
        ],
    );
    // As a file among the functions of the shell.
    fs::create_dir(folder.path().join("functions")).unwrap();
    fs::copy(folder.path().join("script"), folder.path().join("functions/_resource-tracker")).unwrap();
    terminal.press("\x15exec zsh -f\n");
    terminal.run(
        "PS1='% '; fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; echo so''urced",
        "sourced\r\n",
    );
    press_tab(&mut terminal, &ENDINGS[..4]);
}

#[test]
fn fish_completes() {
    if !has("fish", "its completion") {
        return;
    }
    let folder = folder("fish");
    let complete = |line: &str| {
        let mut fish = command("fish");
        fish.args([
            "--no-config",
            "-c",
            "source ./script; complete -c fruitful -f -a 'apple pear'; complete -C $argv[1]",
        ]);
        fish.arg(format!("resource-tracker {line}")).current_dir(folder.path());
        let output = fish.env("PATH", path(folder.path())).env("HOME", folder.path()).output().unwrap();
        assert_eq!(text(&output.stderr), "", "{line}");
        text(&output.stdout)
    };
    for (line, ending) in &ENDINGS[..15] {
        let (found, word) = (complete(line), format!("{}{ending}", line.split_whitespace().last().unwrap()));
        let words: Vec<&str> = found.lines().filter_map(|line| line.split('\t').next()).collect();
        assert!(words.contains(&word.as_str()) || words.contains(&&*format!("{word}/")), "{line}: {found}");
    }
    assert!(complete("config ").contains("check\tReport everything that is wrong"), "{}", complete("config "));
    assert!(complete("-i 2 -- fruitful ").contains("apple") && complete("fruitful pe").contains("pear"));
    assert!(complete("summary my").contains("my run.jsonl"));
    assert!(complete("-- ").contains("fruitful"));
}

/// What the program itself offers for the last of these words, in this folder.
fn offered(folder: &Path, words: &[&str]) -> String {
    let mut offers = command(tracker());
    offers.args(["completions", "bash", "--at", &(words.len() - 1).to_string(), "--"]).args(words).current_dir(folder);
    text(&offers.output().unwrap().stdout)
}

#[test]
fn a_slip_in_the_configuration_hides_no_names() {
    let folder = tempfile::tempdir().unwrap();
    for slip in [
        "[sources.nobody]",
        "[sources]\ncpu = 7",
        "sources = 7",
        "[nothing]",
        "[tracker]\nintervall = 1",
        "[sinks.file]\npaht = 1",
    ] {
        fs::write(folder.path().join("resource-tracker.toml"), slip.to_owned() + "\n").unwrap();
        let words = offered(folder.path(), &["resource-tracker", "--enable", ""]);
        assert!(["cpu", "disk", "file"].iter().all(|name| words.lines().any(|word| word == *name)), "{slip}: {words}");
    }
}

#[test]
fn figures_of_a_limit_are_offered() {
    let at = Path::new("/");
    for (word, expected) in [("peak_m", "nothing\npeak_memory\n"), ("'peak_m", "nothing\npeak_memory\n")] {
        assert_eq!(offered(at, &["resource-tracker", "compare", "--fail-if", word]), expected);
    }
    assert!(offered(at, &["resource-tracker", "compare", "--budget", ""]).contains("\ncpu_time\n"));
}

/// What bash puts behind the cursor is run with the line.
#[test]
fn names_that_a_shell_would_run_are_not_offered() {
    let folder = tempfile::tempdir().unwrap();
    let file = "[sinks.'my$(touch${IFS}PWN)']\ntype = 'file'\npath = 'x'\n[sinks.my-own]\ntype = 'file'\npath = 'y'\n";
    std::fs::write(folder.path().join("resource-tracker.toml"), file).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let line = ["completions", shell, "--at", "2", "--", "resource-tracker", "--disable", "my"];
        let output = command(tracker()).current_dir(folder.path()).args(line).output().unwrap();
        let said = text(&output.stdout);
        assert!(said.contains("my-own") && !said.contains("PWN"), "{shell}: {said}");
    }
}
