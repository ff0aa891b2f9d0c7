//! The book says what the program says.

use resource_tracker_tests::{command, in_time, text, track};
use serde_json::Value as Json;

fn book(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../docs/src/reference/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn the_generated_pages_are_fresh() {
    for (name, arguments) in
        [("help.txt", &["--help"][..]), ("components.txt", &["components"]), ("sample.md", &["schema", "--markdown"])]
    {
        assert_eq!(book(name), text(&track(arguments).stdout), "{name}: run docs/generate");
    }
}

/// The tables of the chapter on CSV name the columns that there are, in order.
#[test]
fn the_columns_of_the_book_are_those_of_the_program() {
    let chapter = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/csv.md");
    let chapter = std::fs::read_to_string(chapter).unwrap();
    let column = |title: &str, number: usize| -> Vec<String> {
        let lines = chapter.lines().skip_while(|line| !line.starts_with(&format!("| {title} |")));
        let cells = lines.take_while(|line| line.starts_with('|')).skip(2).map(|line| line.split('|').nth(number + 1));
        cells.map(|cell| cell.unwrap().trim().trim_matches('`').to_owned()).collect()
    };
    let (machine, command) = ("`tracker`, `job`", column("`job`, `sentinel`", 0));
    for (set, number, has_command) in
        [("tracker", 0, false), ("job", 0, true), ("python", 1, false), ("sentinel", 2, true)]
    {
        let mut names = column(machine, number);
        names.extend(command.iter().filter(|_| has_command).cloned());
        let csv = text(&track(["-o", "-", "--csv-columns", set, "--", "true"]).stdout);
        assert_eq!(csv.lines().next().map(str::to_owned), Some(names.join(",")), "{set}");
    }
}

/// The chapter "What was tried" names a test for each row.
#[test]
fn every_test_that_the_book_names_exists() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let chapters =
        ["tried.md", "figures.md"].map(|name| std::fs::read_to_string(root.join("docs/src").join(name)).unwrap());
    let chapters = chapters.concat();
    let names = chapters.split('`').filter_map(|word| word.split_once(".rs::"));
    let mut count = 0;
    for (file, test) in names {
        let folder = if file.contains('/') { "" } else { "tests/tests/" };
        let path = root.join(format!("{folder}{file}.rs"));
        let code = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(
            code.contains(&format!("#[test]\nfn {test}(")) || code.contains(&format!("    fn {test}(")),
            "{file}: {test}"
        );
        count += 1;
    }
    assert!(count > 100, "{count}");
}

#[test]
fn the_examples_run() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let example = |package: &str, arguments: &[&str]| {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let run = ["run", "--quiet", "--manifest-path", manifest, "--package", package, "--"];
        command(&cargo).args(run).args(arguments).output().unwrap()
    };
    let uptime = example("uptime", &["--enable", "total", "-i", "0.1", "--", "sh", "-c", "sleep 0.3; exit 6"]);
    let said = text(&uptime.stderr);
    assert_eq!(uptime.status.code(), Some(6), "{said}");
    // Samples and the line of the sink come from several threads; each line is whole.
    let (samples, others): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with('{'));
    assert!(others.len() == 1 && others[0].starts_with("the command used 0.0"), "{said}");
    assert!(others[0].ends_with(" s of CPU time"), "{said}");
    let has_uptime = |line: &&str| serde_json::from_str::<Json>(line).unwrap()["uptime"]["secs"].is_number();
    assert!(!samples.is_empty() && samples.iter().all(has_uptime), "{said}");
    let components = text(&example("uptime", &["components"]).stdout);
    assert!(components.contains("uptime       source  on") && components.contains("total        sink    off"));
    in_time(|| {
        let embed = example("embed", &[]);
        let peaks = text(&embed.stdout);
        let [first, second] = peaks.lines().collect::<Vec<_>>()[..] else { panic!("{peaks}{}", text(&embed.stderr)) };
        assert!(first.starts_with("Peak { samples: ") && first.ends_with("jobs: 12 }"), "{first}");
        assert!(second.starts_with("Peak { samples: ") && second.ends_with("jobs: 0 }"), "{second}");
        // Ten in a second, and the one of the end.
        [first, second].iter().all(|peak| peak.starts_with("Peak { samples: 1"))
    });
}
