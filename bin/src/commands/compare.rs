//! `compare`: recorded runs beside others, and limits for CI.

use std::path::PathBuf;

use anyhow::bail;
use resource_tracker_report::{Answer, Condition, Kinds, Of, Summary, comparison_text, read_runs};

use super::print;
use super::summary::kinds;
use crate::cli::Cli;

/// They are all in memory at once.
const MOST_RUNS: usize = 100_000;

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
        _ if !baseline.is_empty() => (baseline, files),
        // Values need nothing to be compared with.
        [_] if has_limits_alone => (&files[..0], files),
        [_] => bail!("one file is nothing to compare; name the new runs after it, or the old ones with --baseline"),
        _ => files.split_at(1),
    };
    let kinds = kinds(cli);
    let (baseline, new) = (summaries(baseline, &kinds)?, summaries(new, &kinds)?);
    let (baseline, new): (Vec<_>, Vec<_>) = (baseline.iter().collect(), new.iter().collect());
    let differences = resource_tracker_report::compare(&baseline, &new);
    match as_json {
        true => print((serde_json::to_string(&differences)? + "\n").as_bytes())?,
        false => print(comparison_text(&differences).as_bytes())?,
    };
    let of = |conditions: &[Condition], runs: Of, wanted: Answer, word: &str| {
        let broken = conditions.iter().filter_map(|condition| match condition.answer(&baseline, &new, runs) {
            answer if answer == wanted => None,
            Answer::NotKnown => Some(format!("{word} {condition}: it is not known of every run")),
            _ => Some(format!("{word} {condition}: {}", condition.finding(&baseline, &new))),
        });
        broken.collect::<Vec<_>>()
    };
    let mut broken = of(limits.fail_if, Of::Any, Answer::DoesNotHold, "failed, because");
    broken.extend(of(limits.budget, Of::All, Answer::Holds, "not within the budget"));
    broken.iter().for_each(|limit| log::error!("{limit}"));
    Ok(i32::from(!broken.is_empty()))
}

fn summaries(files: &[PathBuf], kinds: &Kinds) -> anyhow::Result<Vec<Summary>> {
    let mut summaries = Vec::new();
    read_runs(files, kinds, &mut |run| {
        summaries.push(run.summary);
        if summaries.len() > MOST_RUNS {
            bail!("{} and what comes after it: more than {MOST_RUNS} runs are too many to compare", run.path.display());
        }
        Ok(())
    })?;
    Ok(summaries)
}
