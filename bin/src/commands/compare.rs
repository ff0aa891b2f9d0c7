//! `compare`: recorded runs beside others, and limits for CI.

use std::path::PathBuf;

use anyhow::bail;
use resource_tracker_report::{Answer, Condition, Figures, Kinds, Of, comparison_text, read_runs};

use super::print;
use super::summary::kinds;
use crate::cli::Cli;

/// They are all in memory at once.
const MOST_RUNS: usize = 100_000;

/// What is kept of a run.
struct Run {
    path: PathBuf,
    figures: Figures,
    problems: Vec<String>,
}

/// What the new runs have to keep.
pub(crate) struct Limits<'a> {
    pub(crate) fail_if: &'a [Condition],
    pub(crate) budget: &'a [Condition],
}

pub(crate) fn compare(
    cli: &Cli,
    baseline: &[PathBuf],
    files: &[PathBuf],
    limits: &Limits,
    as_json: bool,
) -> anyhow::Result<i32> {
    let has_limits_alone = limits.fail_if.iter().chain(limits.budget).next().is_some()
        && !limits.fail_if.iter().chain(limits.budget).any(Condition::needs_baseline);
    let (baseline, new) = match files {
        [_, ..] if !baseline.is_empty() => (baseline, files),
        // Values need nothing to be compared with.
        [_] if has_limits_alone => (&files[..0], files),
        [] => bail!("all files are the baseline; put -- in front of the new runs: --baseline old.jsonl -- new.jsonl"),
        [file] => {
            let file = file.display();
            bail!("one file is nothing to compare: name the new runs after {file}, or the old ones with --baseline")
        }
        _ => files.split_at(1),
    };
    let kinds = kinds(cli);
    let (baseline, new) = (runs(baseline, &kinds)?, runs(new, &kinds)?);
    let (before, after) = (figures(&baseline), figures(&new));
    for run in baseline.iter().chain(&new) {
        run.problems.iter().for_each(|problem| log::warn!("{}: {problem}", run.path.display()));
    }
    let differences = resource_tracker_report::compare(&before, &after);
    match as_json {
        true => print((serde_json::to_string(&differences)? + "\n").as_bytes())?,
        false => print(comparison_text(&differences).as_bytes())?,
    };
    let of = |conditions: &[Condition], of: Of, wanted: Answer, word: &str| {
        let broken = conditions.iter().filter_map(|condition| {
            let answer = |runs: &[&Figures]| condition.answer(&before, runs, of);
            let found = match answer(&after) {
                answer if answer == wanted => return None,
                Answer::NotKnown => "it is not known of every run".to_owned(),
                _ => condition.finding(&before, &after),
            };
            // A change is one of all runs together.
            let has_culprits = new.len() == 1 || !condition.needs_baseline();
            let culprits = new.iter().filter(|run| has_culprits && answer(&[&run.figures]) != wanted);
            Some(format!("{}{word} {condition}: {found}", named(&culprits.collect::<Vec<_>>())))
        });
        broken.collect::<Vec<_>>()
    };
    let mut broken = of(limits.fail_if, Of::Any, Answer::DoesNotHold, "failed, because");
    broken.extend(of(limits.budget, Of::All, Answer::Holds, "not within the budget"));
    broken.iter().for_each(|limit| log::error!("{limit}"));
    Ok(i32::from(!broken.is_empty()))
}

/// The runs that something is said of, in front of that.
fn named(runs: &[&Run]) -> String {
    match runs {
        [] => String::new(),
        [run] => format!("{}: ", run.path.display()),
        [run, others @ ..] => format!("{} and {} more: ", run.path.display(), others.len()),
    }
}

fn runs(files: &[PathBuf], kinds: &Kinds) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    read_runs(files, kinds, &mut |run| {
        if runs.len() == MOST_RUNS {
            bail!("{} and what comes after it: more than {MOST_RUNS} runs are too many to compare", run.path.display());
        }
        runs.push(Run { path: run.path, figures: Figures::of(&run.summary), problems: run.summary.problems });
        Ok(())
    })?;
    Ok(runs)
}

fn figures(runs: &[Run]) -> Vec<&Figures> {
    runs.iter().map(|run| &run.figures).collect()
}
