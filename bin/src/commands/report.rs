//! `report`: recorded runs as one HTML page.

use std::path::{Path, PathBuf};

use anyhow::bail;
use resource_tracker_core::Sample;
use resource_tracker_page::{Destination, IfThere, PageRun, RunCharts, write_page};
use resource_tracker_report::{Kinds, RecordedRun, RunVisitor, visit_runs};

use super::print;
use super::summary::kinds;
use crate::cli::Cli;

/// Where a report goes that nobody named a file for.
const DEFAULT: &str = "report.html";
/// A page that has more is slow to open.
const MOST_RUNS: usize = 1000;
/// Points of a line, where there is one run. Several share them.
const POINTS: usize = 1024;
const FEWEST_POINTS: usize = 32;

pub(crate) fn report(cli: &Cli, files: &[PathBuf]) -> anyhow::Result<i32> {
    // The flag alone: the output that the configuration names is that of samples.
    let output = cli.output.output.as_deref();
    let destination = match output {
        Some("-") => None,
        Some(path) => Some(Destination::of(Path::new(path), IfThere::ReplacePage)?),
        None => Some(Destination::of(Path::new(DEFAULT), IfThere::Keep)?),
    };
    let kinds = kinds(cli);
    let mut reader = Reader { kinds: &kinds, charts: RunCharts::default(), runs: Vec::new() };
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
}

impl RunVisitor for Reader<'_> {
    fn sample(&mut self, sample: &Sample) {
        self.charts.add(sample, self.kinds);
    }

    fn run(&mut self, run: RecordedRun) -> anyhow::Result<()> {
        if self.runs.len() == MOST_RUNS {
            bail!("{} and what comes after it: more than {MOST_RUNS} runs are too many for a page", run.path.display());
        }
        let charts = std::mem::take(&mut self.charts);
        self.runs.push(PageRun { path: Some(run.path), summary: run.summary, charts });
        let points = (POINTS / self.runs.len().next_power_of_two()).max(FEWEST_POINTS);
        self.runs.iter_mut().for_each(|run| run.charts.keep_at_most(points));
        Ok(())
    }
}
