//! `compare`: recorded runs beside others, and limits for CI.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use resource_tracker_report::{
    Condition, ConditionResult, Figures, Kinds, Of, Rows, comparison_markdown, comparison_text, read_runs,
};

use super::standard_output::print;
use super::summary::kinds;
use crate::cli::Cli;
use crate::tools::CompareTool;

/// All of them are in memory at once.
const MOST_RUNS: usize = 100_000;

/// What is kept of a run.
struct Run {
    path: PathBuf,
    figures: Figures,
    problems: Vec<String>,
    /// How it ended, if not with 0.
    failure: Option<String>,
}

pub(crate) fn compare(cli: &Cli, tool: &CompareTool) -> anyhow::Result<i32> {
    let (baseline, files) = (&tool.baseline[..], &tool.files[..]);
    if let Some(flag) = files.iter().find(|file| file.as_os_str().as_bytes().starts_with(b"--") && !file.exists()) {
        bail!("{}: there is no such file, and behind -- are files alone; flags go in front of it", flag.display());
    }
    let has_limits_alone = tool.conditions().next().is_some() && !tool.conditions().any(Condition::needs_baseline);
    let (baseline, new) = match files {
        [_, ..] if !baseline.is_empty() => (baseline, files),
        // Limits on values need no baseline.
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
    warn_of_problems(baseline.iter().chain(&new));
    let differences = resource_tracker_report::compare(&before, &after);
    let shown = match (tool.json, tool.markdown) {
        (true, _) => serde_json::to_string(&differences)? + "\n",
        (_, true) => comparison_markdown(&differences),
        _ => comparison_text(&differences),
    };
    print(shown.as_bytes())?;
    let of = |conditions: &[Condition], of: Of, wanted: ConditionResult, word: &str| {
        let broken = conditions.iter().filter_map(|condition| {
            let answer = |runs: &[&Figures]| condition.answer(&before, runs, of);
            let found = match answer(&after) {
                answer if answer == wanted => return None,
                ConditionResult::NotKnown => "it is not known of every run".to_owned(),
                _ => condition.finding(&before, &after),
            };
            // A change is the change of all runs together.
            let has_culprits = new.len() == 1 || !condition.needs_baseline();
            let culprits = new.iter().filter(|run| has_culprits && answer(&[&run.figures]) != wanted);
            Some(format!("{}{word} {condition}: {found}", named(&culprits.collect::<Vec<_>>())))
        });
        broken.collect::<Vec<_>>()
    };
    let mut broken = of(&tool.fail_if, Of::Any, ConditionResult::DoesNotHold, "failed, because");
    broken.extend(of(&tool.budget, Of::All, ConditionResult::Holds, "not within the budget"));
    broken.extend(failures(&new, tool));
    broken.iter().for_each(|limit| log::error!("{limit}"));
    Ok(i32::from(!broken.is_empty()))
}

/// Runs that failed: they may have used little only because they ended early. A limit on `exit_code` says that failures
/// are expected.
fn failures(new: &[Run], tool: &CompareTool) -> Vec<String> {
    if tool.conditions().next().is_none() || tool.conditions().any(|condition| condition.figure().name == "exit_code") {
        return Vec::new();
    }
    let failed = new.iter().filter_map(|run| Some((run.path.display(), run.failure.as_ref()?)));
    failed
        .map(|(path, failure)| format!("{path}: {failure}, so it keeps no limit (unless one is on exit_code)"))
        .collect()
}

/// Warns of each problem once for a file, which can have many runs.
fn warn_of_problems<'a>(runs: impl Iterator<Item = &'a Run>) {
    let mut said = BTreeMap::<(&Path, &str), u64>::new();
    for run in runs {
        for problem in &run.problems {
            *said.entry((&run.path, problem)).or_default() += 1;
        }
    }
    for ((path, problem), count) in said {
        let times = if count == 1 { String::new() } else { format!(" (in {count} runs)") };
        log::warn!("{}: {problem}{times}", path.display());
    }
}

/// Names the runs that a sentence is about, in front of it.
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
        let failure = run.summary.has_failed().then(|| Rows::of(&run.summary).ending);
        runs.push(Run { path: run.path, figures: Figures::of(&run.summary), problems: run.summary.problems, failure });
        Ok(())
    })?;
    Ok(runs)
}

fn figures(runs: &[Run]) -> Vec<&Figures> {
    runs.iter().map(|run| &run.figures).collect()
}
