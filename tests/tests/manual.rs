//! The pages of the manual, as `man` shows them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use resource_tracker_tests::{command, has, is_root, names, text, track};

/// A page on a terminal of 80 columns, without what makes letters bold.
fn rendered(page: &Path) -> String {
    let mut man = command("man");
    man.args(["--warnings", "-l"]).arg(page).envs([
        ("MANWIDTH", "80"),
        ("LC_ALL", "C.UTF-8"),
        ("MANROFFOPT", "-c"),
        ("MAN_KEEP_FORMATTING", ""),
    ]);
    let output = man.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}: {}", page.display(), text(&output.stderr));
    text(&output.stdout)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn there_is_a_page_for_the_program_and_for_each_tool() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("share/man1");
    let output = track(["man-page", "--dir", at.to_str().unwrap()]);
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    let help = text(&track(["--help"]).stdout);
    let tools = help.split_once("Tools:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let tools = tools.lines().filter_map(|line| line.split_whitespace().next()).filter(|tool| *tool != "help");
    let tools: BTreeSet<String> = tools.map(|tool| format!("resource-tracker-{tool}.1")).collect();
    let others = ["resource-tracker.1", "resource-tracker-config-check.1", "resource-tracker-config-show.1"];
    let expected: BTreeSet<String> = tools.into_iter().chain(others.map(str::to_owned)).collect();
    assert_eq!(names(&at).into_iter().collect::<BTreeSet<_>>(), expected);
    assert_eq!(text(&track(["man-page"]).stdout), std::fs::read_to_string(at.join("resource-tracker.1")).unwrap());
    let show = std::fs::read_to_string(at.join("resource-tracker-config-show.1")).unwrap();
    assert_eq!(text(&track(["man-page", "config", "show"]).stdout), show);
    // What is there is replaced, and not written to: in another user's folder it can be a link.
    let (elsewhere, page) = (folder.path().join("elsewhere"), at.join("resource-tracker.1"));
    std::fs::write(&elsewhere, "mine").unwrap();
    std::fs::remove_file(&page).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &page).unwrap();
    assert!(track(["man-page", "--dir", at.to_str().unwrap()]).status.success());
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "mine");
    assert!(page.symlink_metadata().unwrap().is_file() && names(&at).len() == expected.len());
    let unknown = track(["man-page", "sumary"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("there is no page about \"sumary\"; there are those about components, config")
    );
    if !has("man", "what the pages look like") {
        return;
    }
    for name in names(&at) {
        let page = rendered(&at.join(&name));
        let sections = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"];
        for section in sections {
            assert!(page.lines().any(|line| line == section), "{name}: no {section} in\n{page}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        let title = name.trim_end_matches(".1");
        assert!(words(&page).contains(&format!("NAME {title} - ")), "{page}");
        // Each page that it names is there.
        let named =
            page.split(|char: char| char.is_whitespace() || char == ',').filter_map(|word| word.strip_suffix("(1)"));
        for page in named.filter(|page| page.starts_with("resource-tracker")) {
            assert!(at.join(format!("{page}.1")).exists(), "{name}: {page}");
        }
    }
    let page = words(&rendered(&at.join("resource-tracker.1")));
    for expected in [
        "FILES resource-tracker.toml",
        "ENVIRONMENT TRACKER_CONFIG",
        "127 The command was not found.",
        "json or csv [default: json",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    let compare = words(&rendered(&at.join("resource-tracker-compare.1")));
    assert!(
        compare.contains("resource-tracker compare [OPTIONS]") && compare.contains("1 A limit is not kept"),
        "{compare}"
    );
}

#[test]
fn a_link_of_somebody_else_leads_no_page_elsewhere() {
    if !is_root("a_link_of_somebody_else_leads_no_page_elsewhere") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (own, theirs) = (folder.path().join("own"), folder.path().join("theirs"));
    let link = theirs.join("link");
    [&own, &theirs].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    std::os::unix::fs::symlink(&own, &link).unwrap();
    for path in [&theirs, &link] {
        std::os::unix::fs::lchown(path, Some(54321), None).unwrap();
    }
    for dir in [link.clone(), link.join("share/man/man1")] {
        let output = track([OsStr::new("man-page"), OsStr::new("--dir"), dir.as_os_str()]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).contains("54321"), "{output:?}");
    }
    assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0);
}
