//! `report`: recorded runs as one HTML page.

use std::path::{Path, PathBuf};

use anyhow::bail;
use resource_tracker_core::Sample;
use resource_tracker_page::{Destination, IfThere, PageRun, RunCharts, write_page};
use resource_tracker_report::{Kinds, RecordedRun, RunVisitor, json, visit_runs};

use super::standard_output::print;
use super::summary::kinds;
use crate::cli::Cli;

/// Where a report goes if no file is named.
const DEFAULT: &str = "report.html";
/// A page with more runs is slow to open.
const MOST_RUNS: usize = 1000;
/// Points of a line, where there is one run. Several share them.
const POINTS: usize = 1024;
const FEWEST_POINTS: usize = 32;
/// Points of all charts of a page. With as many it has seven megabytes.
const ALL_POINTS: usize = 256 << 10;
/// Bytes of all summaries of a page; one has some thousand. Further summaries are without details.
const SUMMARIES: usize = 4 << 20;

pub(crate) fn report(cli: &Cli, files: &[PathBuf]) -> anyhow::Result<i32> {
    // The flag alone: the output that the configuration names is that of samples.
    let output = cli.output.output.as_deref();
    let destination = match output {
        Some("-") => None,
        Some(path) => Some(Destination::of(Path::new(path), IfThere::ReplacePage)?),
        None => Some(Destination::of(Path::new(DEFAULT), IfThere::Keep)?),
    };
    let kinds = kinds(cli);
    let mut reader = Reader::new(&kinds);
    visit_runs(files, &kinds, &mut reader)?;
    let mut runs = reader.runs;
    match &destination {
        Some(destination) => destination.write(|file| write_page(file, &mut runs))?,
        None => {
            let mut page = Vec::new();
            write_page(&mut page, &mut runs)?;
            return print(&page);
        }
    }
    if output.is_none() {
        print(format!("{DEFAULT}\n").as_bytes())?;
    }
    Ok(0)
}

struct Reader<'a> {
    kinds: &'a Kinds,
    charts: RunCharts,
    runs: Vec<PageRun>,
    /// Bytes of their summaries.
    summaries: usize,
}

impl<'a> Reader<'a> {
    fn new(kinds: &'a Kinds) -> Self {
        Self { kinds, charts: RunCharts::default(), runs: Vec::new(), summaries: 0 }
    }
}

impl RunVisitor for Reader<'_> {
    fn sample(&mut self, sample: &Sample) {
        self.charts.add(sample, self.kinds);
    }

    fn run(&mut self, mut run: RecordedRun) -> anyhow::Result<()> {
        if self.runs.len() == MOST_RUNS {
            bail!("{} and what comes after it: more than {MOST_RUNS} runs are too many for a page", run.path.display());
        }
        let mut size = json(&run.summary)?.len();
        if self.summaries + size > SUMMARIES {
            run.summary.leave_out_details();
            size = json(&run.summary)?.len();
        }
        self.summaries += size;
        let charts = std::mem::take(&mut self.charts);
        self.runs.push(PageRun { path: Some(run.path), summary: run.summary, charts });
        let points = (POINTS / self.runs.len().next_power_of_two()).max(FEWEST_POINTS);
        self.runs.iter_mut().for_each(|run| run.charts.keep_at_most(points));
        let all: usize = self.runs.iter().map(|run| run.charts.points()).sum();
        if let Some(last) = self.runs.last_mut().filter(|_| all > ALL_POINTS) {
            last.charts.leave_out();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use resource_tracker_report::RunStatistics;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_of_many_runs_has_bounds() {
        let meters: Vec<_> = (0..16).map(|number| json!({ "name": number.to_string(), "x": 1.0 / 3.0 })).collect();
        let sections: Vec<String> = (0..12).map(|number| format!(r#""m{number}": {}"#, json!(meters))).collect();
        let sample = |second| format!(r#"{{"timestamp_ms": {second}000, "elapsed_secs": 1, {}}}"#, sections.join(","));
        let samples: Vec<Sample> = (1..=62).map(|second| Sample::from_json(&sample(second)).unwrap()).collect();
        let kinds = Kinds::of_schema(|| json!({}));
        let mut reader = Reader::new(&kinds);
        for number in 0..50 {
            samples.iter().for_each(|sample| reader.sample(sample));
            let path = PathBuf::from(number.to_string());
            reader.run(RecordedRun { path, summary: RunStatistics::default().summary() }).unwrap();
        }
        let mut page = Vec::new();
        write_page(&mut page, &mut reader.runs).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(page.len() < 8_000_000, "{}", page.len());
        let left_out = page.matches(r#""charts":true"#).count();
        assert!((1..20).contains(&left_out), "{left_out}");
        assert_eq!(page.matches(r#""drawing":{"ends":[]"#).count(), left_out);
    }

    #[test]
    fn a_page_of_what_a_stranger_wrote_has_bounds() {
        let kinds = Kinds::of_schema(|| json!({}));
        let mut reader = Reader::new(&kinds);
        let long = "x".repeat(4000);
        let figures: BTreeMap<String, u64> = (0..2000).map(|number| (format!("{number:0>480}"), number)).collect();
        let tags: BTreeMap<String, &str> = (0..1000).map(|number| (number.to_string(), long.as_str())).collect();
        let sample = json!({
            "timestamp_ms": 1000, "elapsed_secs": 1, "figures": figures,
            "run": { "command": vec![&long; 1000], "tags": tags, "labels": {} },
        });
        let sample = Sample::from_json(&sample.to_string()).unwrap();
        for number in 0..10 {
            let mut statistics = RunStatistics::default();
            statistics.add(&sample, &kinds);
            let path = PathBuf::from(number.to_string());
            reader.run(RecordedRun { path, summary: statistics.summary() }).unwrap();
        }
        let mut page = Vec::new();
        write_page(&mut page, &mut reader.runs).unwrap();
        assert!(page.len() < 12_000_000, "{}", page.len());
        let told = reader.runs[9].summary.problems.last().unwrap();
        assert!(told.starts_with("figures of other sections, phases"), "{told}");
    }
}
