//! The book says what the program says.

use resource_tracker_tests::{command, text, track};

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
    assert!(said.contains("\"uptime\":{\"secs\":") && said.contains("the command used 0.0"), "{said}");
    let components = text(&example("uptime", &["components"]).stdout);
    assert!(components.contains("uptime       source  on") && components.contains("total        sink    off"));
    let embed = example("embed", &[]);
    let peaks = text(&embed.stdout);
    let [first, second] = peaks.lines().collect::<Vec<_>>()[..] else { panic!("{peaks}{}", text(&embed.stderr)) };
    assert!(first.starts_with("Peak { samples: 1") && first.ends_with("jobs: 12 }"), "{first}");
    assert!(second.starts_with("Peak { samples: 1") && second.ends_with("jobs: 0 }"), "{second}");
}
