//! Runs beside other runs: what has changed, and whether that is more than chance.

use serde::{Serialize, Serializer};

use crate::condition::{Condition, Limit};
use crate::figures::{FIGURES, Figures, NamedFigure};

/// Two sets of runs that do not differ may come so far apart by chance in at most this share of cases.
const CHANCE: f64 = 0.05;
/// With more runs than these, the distribution is taken for a normal one.
const EXACT: usize = 40;

/// A figure of the new runs against that of the baseline.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Difference {
    /// The figure.
    #[serde(serialize_with = "name")]
    pub figure: NamedFigure,
    /// Median of the baseline.
    pub baseline: Option<f64>,
    /// Median of the new runs.
    pub new: Option<f64>,
    /// Change of the median as a share of the baseline: 0.1 is 10 % more. `None` where the baseline is zero or not known.
    pub change: Option<f64>,
    /// What it means.
    pub verdict: Verdict,
}

fn name<S: Serializer>(figure: &NamedFigure, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(figure.name)
}

/// What a difference means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// All values are the same.
    Same,
    /// There are too few runs to tell a change from chance.
    Unknown,
    /// Chance can explain it.
    Noise,
    /// The new runs are higher, by more than chance.
    Higher,
    /// The new runs are lower, by more than chance.
    Lower,
}

/// The differences of all figures that the baseline or the new runs have.
pub fn compare(baseline: &[&Figures], new: &[&Figures]) -> Vec<Difference> {
    let known = (0..FIGURES.len()).map(|place| difference(place, baseline, new));
    known.filter(|difference| difference.baseline.is_some() || difference.new.is_some()).collect()
}

fn difference(place: usize, baseline: &[&Figures], new: &[&Figures]) -> Difference {
    let sorted = |runs: &[&Figures]| {
        let mut values: Vec<f64> = runs.iter().filter_map(|run| run.get(place)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let (before, after) = (sorted(baseline), sorted(new));
    let (baseline, new) = (median(&before), median(&after));
    let change = baseline.zip(new).filter(|(baseline, _)| *baseline != 0.0);
    let change = change.map(|(baseline, new)| (new - baseline) / baseline);
    Difference { figure: FIGURES[place], baseline, new, change, verdict: verdict(&before, &after) }
}

/// The median of sorted values.
fn median(values: &[f64]) -> Option<f64> {
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

/// Whether two sets of sorted values differ, by the test of Mann and Whitney: in how many pairs of an old and a new run is the
/// new one higher?
fn verdict(before: &[f64], after: &[f64]) -> Verdict {
    let (Some(first), Some(_)) = (before.first(), after.first()) else { return Verdict::Unknown };
    if before.iter().chain(after).all(|value| value == first) {
        return Verdict::Same;
    }
    if chance(0, before.len(), after.len()) > CHANCE {
        return Verdict::Unknown;
    }
    let (higher, lower) = pairs(before, after);
    // Pairs that are equal count half to either side.
    let rarer = (before.len() * after.len() - higher.abs_diff(lower)) / 2;
    match chance(rarer, before.len(), after.len()) <= CHANCE {
        false => Verdict::Noise,
        true if higher > lower => Verdict::Higher,
        true => Verdict::Lower,
    }
}

/// In how many pairs of an old and a new value the new one is higher, and in how many it is lower.
fn pairs(before: &[f64], after: &[f64]) -> (usize, usize) {
    let higher = after.iter().map(|new| before.partition_point(|old| old < new)).sum();
    let lower = after.iter().map(|new| before.len() - before.partition_point(|old| old <= new)).sum();
    (higher, lower)
}

/// The probability that, of runs that do not differ, so few pairs or fewer favour one of the sides.
fn chance(pairs: usize, one: usize, other: usize) -> f64 {
    if one.max(other) > EXACT {
        let (one, other) = (one as f64, other as f64);
        let deviation = (one * other * (one + other + 1.0) / 12.0).sqrt();
        // Counts are whole numbers, and the normal distribution is continuous: hence the half.
        let distance = (one * other / 2.0 - pairs as f64 - 0.5).max(0.0);
        return libm::erfc(distance / deviation / std::f64::consts::SQRT_2);
    }
    // `ways[u]`: in how many orders of all values u pairs favour one side. The values of one set are added one at a
    // time.
    let most = one * other;
    let mut ways = vec![0.0; most + 1];
    ways[0] = 1.0;
    for value in 1..=one {
        // Times (1 - x^(other + value)) / (1 - x^value), as polynomials.
        for u in (other + value..=most).rev() {
            ways[u] -= ways[u - other - value];
        }
        for u in value..=most {
            ways[u] += ways[u - value];
        }
    }
    let all: f64 = ways.iter().sum();
    (2.0 * ways[..=pairs].iter().sum::<f64>() / all).min(1.0)
}

/// The result of checking a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionResult {
    /// It is so.
    Holds,
    /// It is not so, or may be chance.
    DoesNotHold,
    /// The figure is not known.
    NotKnown,
}

/// How many of the new runs must meet a condition on a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// At least one of them.
    Any,
    /// All of them.
    All,
}

impl Condition {
    /// Whether it holds. A limit on a value is for any or all of the new runs, and a limit on a change is for the
    /// change of the medians. With enough runs to tell, a change that is noise counts as no change.
    pub fn answer(&self, baseline: &[&Figures], new: &[&Figures], of: Of) -> ConditionResult {
        let values = |runs: &[&Figures]| runs.iter().map(|run| run.get(self.place)).collect::<Option<Vec<f64>>>();
        let Some(new_values) = values(new) else { return ConditionResult::NotKnown };
        let holds = match self.limit {
            Limit::Value(_) if of == Of::Any => new_values.iter().any(|value| self.holds(*value)),
            Limit::Value(_) => new_values.iter().all(|value| self.holds(*value)),
            Limit::Change(_) => {
                let change = values(baseline).and_then(|_| change_beyond_noise(&difference(self.place, baseline, new)));
                let Some(change) = change else { return ConditionResult::NotKnown };
                self.holds(change)
            }
        };
        if holds { ConditionResult::Holds } else { ConditionResult::DoesNotHold }
    }
}

impl Condition {
    /// The figure as the runs have it: the change, where the condition limits that, or the values.
    pub fn finding(&self, baseline: &[&Figures], new: &[&Figures]) -> String {
        let show = |value: f64| FIGURES[self.place].unit.show(value);
        if let (Limit::Change(_), Some(found)) =
            (self.limit, shown_change(&difference(self.place, baseline, new), show))
        {
            return found;
        }
        let values = || new.iter().filter_map(|run| run.get(self.place));
        match (values().reduce(f64::min), values().reduce(f64::max)) {
            (Some(least), Some(most)) if least == most => format!("it is {}", show(least)),
            (Some(least), Some(most)) => format!("it is {} to {}", show(least), show(most)),
            _ => "it is not known".into(),
        }
    }
}

fn shown_change(difference: &Difference, show: impl Fn(f64) -> String) -> Option<String> {
    let (before, after) = (show(difference.baseline?), show(difference.new?));
    Some(match difference.change {
        Some(change) => format!("it is {:+.1} %, from {before} to {after}", 100.0 * change),
        None => format!("it went from {before} to {after}"),
    })
}

/// `None` where one of the two is not known.
fn change_beyond_noise(difference: &Difference) -> Option<f64> {
    let (baseline, new) = difference.baseline.zip(difference.new)?;
    match difference.verdict {
        Verdict::Noise | Verdict::Same => Some(0.0),
        // A rise from zero is more than any percentage.
        _ if baseline == 0.0 => Some(if new > 0.0 { f64::INFINITY } else { 0.0 }),
        _ => difference.change,
    }
}

/// The differences as a table.
pub fn comparison_text(differences: &[Difference]) -> String {
    let rows = table(differences);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let cell = |(place, (text, width)): (usize, (&String, &usize))| match place {
        // Figures end where the others of their column do.
        1..VERDICT => format!("{text:>width$}  "),
        _ => format!("{text:width$}  "),
    };
    let line = |row: &Vec<String>| {
        let line: String = row.iter().zip(&widths).enumerate().map(cell).collect();
        line.trim_end().to_owned() + "\n"
    };
    let lines: String = rows.iter().map(line).collect();
    match is_anything_untold(differences) {
        true => format!("{lines}\n{UNTOLD}\n"),
        false => lines,
    }
}

/// The differences as a table for the page of a job in CI.
pub fn comparison_markdown(differences: &[Difference]) -> String {
    let rows = table(differences);
    let line = |row: &Vec<String>| format!("| {} |\n", row.join(" | "));
    let lines = rows.iter().map(line).collect::<Vec<_>>();
    let untold = if is_anything_untold(differences) { format!("\n{UNTOLD}\n") } else { String::new() };
    let rule = |place| if (1..VERDICT).contains(&place) { "---:" } else { "---" };
    let rules: Vec<&str> = (0..rows[0].len()).map(rule).collect();
    format!("{}| {} |\n{}{untold}", lines[0], rules.join(" | "), lines[1..].concat())
}

/// The remark below a table in which a change may be noise, and the runs are too few to tell.
const UNTOLD: &str = "Too few runs to tell noise from changes: with four of each it is said.";

fn is_anything_untold(differences: &[Difference]) -> bool {
    let is_untold = |difference: &Difference| {
        difference.verdict == Verdict::Unknown && difference.change.is_some_and(|change| change != 0.0)
    };
    differences.iter().any(is_untold)
}

/// The column that says what a change is; those before it, but for the first, have figures.
const VERDICT: usize = 4;

/// The head of the table, and a row for each difference. Without a baseline there are only the figures of the runs.
fn table(differences: &[Difference]) -> Vec<Vec<String>> {
    let has_baseline = differences.iter().any(|difference| difference.baseline.is_some());
    let show = |difference: &Difference, value: Option<f64>| {
        value.map_or_else(|| "?".to_owned(), |value| difference.figure.unit.show(value))
    };
    let row = |difference: &Difference| {
        let (name, new) = (difference.figure.name.to_owned(), show(difference, difference.new));
        if !has_baseline {
            return vec![name, new];
        }
        let change = difference.change.map(|change| format!("{:+.1} %", 100.0 * change)).unwrap_or_default();
        let verdict = match difference.verdict {
            Verdict::Same => "the same",
            Verdict::Unknown => "",
            Verdict::Noise => "noise",
            Verdict::Higher => "higher",
            Verdict::Lower => "lower",
        };
        vec![name, show(difference, difference.baseline), new, change, verdict.to_owned()]
    };
    let head: &[&str] = if has_baseline { &["figure", "baseline", "new", "change", ""] } else { &["figure", "value"] };
    let head = head.iter().map(|name| (*name).to_owned()).collect();
    std::iter::once(head).chain(differences.iter().map(row)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_noise_and_what_is_not() {
        for (before, after, expected) in [
            (&[1.0][..], &[2.0][..], Verdict::Unknown),
            (&[1.0], &[1.0], Verdict::Same),
            (&[1.0, 1.1, 1.2], &[2.0, 2.1, 2.2], Verdict::Unknown),
            (&[1.0, 1.1, 1.2, 1.3], &[2.0, 2.1, 2.2, 2.3], Verdict::Higher),
            (&[2.0, 2.1, 2.2, 2.3], &[1.0, 1.1, 1.2, 1.3], Verdict::Lower),
            (&[1.0, 1.1, 1.2, 2.15], &[1.5, 2.1, 2.2, 2.3], Verdict::Noise),
            (&[], &[1.0], Verdict::Unknown),
        ] {
            assert_eq!(verdict(before, after), expected, "{before:?} {after:?}");
        }
        // One outlier among ten runs does not hide the change of the others.
        let before: Vec<f64> = (0..10).map(f64::from).collect();
        let mut after: Vec<f64> = before.iter().map(|value| value + 20.0).collect();
        after[0] = 5.5;
        assert_eq!(verdict(&before, &after), Verdict::Higher);
        after[..6].copy_from_slice(&[1.5, 2.5, 3.5, 4.5, 5.5, 6.5]);
        assert_eq!(verdict(&before, &after), Verdict::Noise);
    }

    #[test]
    fn a_hundred_thousand_runs_are_no_billions_of_pairs() {
        let before: Vec<f64> = (0..50_000).map(f64::from).collect();
        let after: Vec<f64> = before.iter().map(|value| value + 0.5).collect();
        assert_eq!(pairs(&before, &after), (1_250_025_000, 1_249_975_000));
        assert_eq!(verdict(&before, &after), Verdict::Noise);
    }

    proptest! {
        #[test]
        fn pairs_are_counted_as_one_by_one(mut before in prop::collection::vec(0..9_u8, 0..30), mut after in prop::collection::vec(0..9_u8, 0..30)) {
            before.sort_unstable();
            after.sort_unstable();
            let of_all = || before.iter().flat_map(|old| after.iter().map(move |new| (old, new)));
            let one_by_one = (of_all().filter(|(old, new)| new > old).count(), of_all().filter(|(old, new)| new < old).count());
            let values = |values: &[u8]| values.iter().copied().map(f64::from).collect::<Vec<f64>>();
            prop_assert_eq!(pairs(&values(&before), &values(&after)), one_by_one);
        }
    }

    #[test]
    fn how_likely_it_is_by_chance() {
        // From the tables of Mann and Whitney, and by counting.
        for (pairs, one, other, expected) in [
            (0, 3, 3, 0.1),
            (0, 4, 4, 2.0 / 70.0),
            (1, 4, 4, 4.0 / 70.0),
            (23, 10, 10, 0.0433),
            (24, 10, 10, 0.0524),
            (12, 4, 6, 1.0),
        ] {
            let found = chance(pairs, one, other);
            assert!((found - expected).abs() < 5e-4, "{pairs} {one} {other}: {found}");
        }
        let (exact, normal) = (chance(600, 40, 40), chance(630, 41, 41));
        assert!((exact - normal).abs() < 0.01, "{exact} {normal}");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!((median(&[1.0, 2.0, 4.0]), median(&[1.0, 2.0]), median(&[])), (Some(2.0), Some(1.5), None));
    }
}
