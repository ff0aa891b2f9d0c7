//! The lines of a recording, and what is said of them.
#![no_main]

use resource_tracker_page::{PageRun, RunCharts, write_page};
use resource_tracker_report::{Condition, Kinds, Look, RunStatistics, json, markdown, sample_of, text};
use serde_json::{Map, Value};

/// Names of sections are kept for good, so that there may be but few.
const SECTIONS: [&str; 13] = [
    "cgroup",
    "cpu",
    "disk",
    "gpu",
    "host",
    "marks",
    "memory",
    "network",
    "outcome",
    "plugin",
    "pressure",
    "run",
    "top_processes",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let kinds = Kinds::of_schema(|| Value::Null);
    let (mut statistics, mut charts) = (RunStatistics::default(), RunCharts::default());
    for line in String::from_utf8_lossy(bytes).lines() {
        let _ = line.parse::<Condition>();
        let Ok(mut members) = serde_json::from_str::<Map<String, Value>>(line) else { continue };
        members.retain(|name, value| !(value.is_object() || value.is_array()) || SECTIONS.contains(&name.as_str()));
        if let Ok(line) = sample_of(Value::Object(members).to_string().as_bytes()) {
            let sample = line.sample;
            statistics.is_followed_by_another(&sample, true);
            statistics.add(&sample, &kinds);
            charts.add(&sample, &kinds);
        }
    }
    let summary = statistics.summary();
    let said = text(&summary, Look { width: 80, colour: false });
    assert!(said.lines().count() <= 20, "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    for said in [said, markdown(&summary)] {
        assert!(!said.contains(|char: char| char.is_control() && char != '\n'), "{said:?}");
    }
    json(&summary).expect("a summary is JSON");
    let mut page = Vec::new();
    write_page(&mut page, &mut [PageRun { path: None, summary, charts }]).expect("there is room");
    let page = String::from_utf8(page).expect("a page is text");
    let (_, data) = page.split_once("id=\"data\">").expect("it has data");
    let (data, _) = data.split_once("</script>").expect("they have an end");
    serde_json::from_str::<Value>(data).expect("they are JSON");
});
