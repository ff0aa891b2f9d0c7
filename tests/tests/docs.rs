//! The book says what the program says.

use resource_tracker_tests::{command, in_time, names, text, track};
use serde_json::Value as Json;

fn book(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../docs/src/reference/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

const CHAPTERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src");

fn chapter(name: &str) -> String {
    std::fs::read_to_string(format!("{CHAPTERS}/{name}")).unwrap()
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
    let chapter = chapter("csv.md");
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
    let chapters = ["tried.md", "figures.md", "transparency.md"].map(chapter).concat();
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

/// A blank line in a table makes text of the rows behind it.
#[test]
fn every_row_of_a_table_has_a_head() {
    let mut rows = 0;
    for name in names(CHAPTERS.as_ref()).into_iter().filter(|name| name.ends_with(".md")) {
        let text = chapter(&name);
        let (mut above, mut is_code) = ("", false);
        for (number, line) in text.lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            let is_row = |line: &str| line.starts_with('|') && !is_code;
            if is_row(line) && !is_row(above) {
                let below = text.lines().nth(number + 1).unwrap_or_default();
                let is_rule = below.starts_with("| --- |") && below.chars().all(|c| "|- :".contains(c));
                assert!(is_rule, "{name}, line {}: a row without a head", number + 1);
            }
            rows += usize::from(is_row(line));
            above = line;
        }
    }
    assert!(rows > 300, "{rows}");
}

/// Those that are not printed say so.
#[test]
fn the_benchmarks_print_the_tables_of_the_book() {
    let measured = chapter("measured.md");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../benchmarks/src");
    let code = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let code: String = code.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let heads = measured.lines().filter_map(|line| line.strip_prefix("**")?.split_once("**"));
    let (mut printed, mut once) = (0, 0);
    for (head, rest) in heads {
        let is_printed = code.contains(&format!("{head:?}"));
        let says_how = rest.contains("*taken once*") || head == "Beside the Python package";
        assert_ne!(is_printed, says_how, "{head}");
        printed += usize::from(is_printed);
        once += usize::from(says_how);
    }
    assert!(printed > 10 && once > 5, "{printed} {once}");
}

/// How long an example is, where the book says it.
#[test]
fn examples_are_as_long_as_the_book_says() {
    let book = chapter("plugin-source.md");
    let lines = |file: &str| -> Vec<String> {
        let path = format!("{}/../plugins-example/{file}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap().lines().map(|line| line.trim().to_owned()).collect()
    };
    let template = lines("template/src/lib.rs");
    let code = template.iter().filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    assert!(book.contains(&format!("of {code} lines without blank ones and comments")), "{code}");
    let linked = lines("uptime/src/switches.rs").len();
    assert!(book.contains(&format!("has {linked} lines, its test included")) && linked < 60, "{linked}");
    let real: usize =
        ["lib", "port", "counter"].map(|name| lines(&format!("infiniband/src/{name}.rs")).len()).iter().sum();
    assert!(book.contains(&format!("in three files of {real} lines with comments")), "{real}");
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
