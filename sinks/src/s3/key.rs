//! The names of objects: a template in which the parts of a run are filled in.

use anyhow::{bail, ensure};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use resource_tracker_core::Run;

/// S3 allows no more.
const LONGEST_KEY: usize = 1024;
/// Values are cut to so many bytes.
const LONGEST_VALUE: usize = 128;
/// What engines that read such folders take for an unknown value.
const UNKNOWN: &str = "__HIVE_DEFAULT_PARTITION__";
/// What a value keeps: everything else would be read as more than a value.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// What can stand in braces.
const NAMES: [&str; 20] = [
    "date",
    "year",
    "month",
    "day",
    "hour",
    "part",
    "run",
    "job",
    "host",
    "project",
    "stage",
    "task",
    "team",
    "env",
    "executor",
    "external_run_id",
    "group",
    "rank",
    "local_rank",
    "node",
];
/// Of these, the values are those of an object, not of a run.
const OF_OBJECT: [&str; 6] = ["date", "year", "month", "day", "hour", "part"];

/// A piece of a template.
enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// The pieces of a template.
///
/// # Errors
/// When its braces are not in pairs.
fn pieces(template: &str) -> anyhow::Result<Vec<Piece<'_>>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else { bail!("key {template:?}: a {{ has no }}") };
        pieces.extend([Piece::Text(text), Piece::Name(name)]);
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    let has_more = pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains('}')));
    ensure!(!has_more, "key {template:?}: a }} has no {{");
    Ok(pieces)
}

/// Looks whether a template can be used.
///
/// # Errors
/// When something stands in braces that has no value, or different objects could get the same name.
pub(super) fn check(template: &str) -> anyhow::Result<()> {
    ensure!(template.len() <= LONGEST_KEY / 2, "key has more than {} bytes", LONGEST_KEY / 2);
    let pieces = pieces(template)?;
    let has = |wanted: &str| pieces.iter().any(|piece| matches!(piece, Piece::Name(name) if *name == wanted));
    for piece in &pieces {
        match piece {
            Piece::Name(name) if !NAMES.contains(name) && name.strip_prefix("tag:").is_none_or(str::is_empty) => {
                bail!("key {template:?}: {{{name}}} is none of {{{}}} and {{tag:NAME}}", NAMES.join("}, {"))
            }
            Piece::Text(text) if !text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\?#%".contains(&byte)) => {
                bail!("key {template:?}: only letters, digits and signs other than \\ ? # % can be a part of it")
            }
            _ => (),
        }
    }
    ensure!(
        has("run") && has("part"),
        "key {template:?}: it must have {{run}} and {{part}}, or objects overwrite others"
    );
    ensure!(
        template.split('/').all(|segment| !["", ".", ".."].contains(&segment)),
        "key {template:?}: no part of a path may be empty, `.` or `..`"
    );
    Ok(())
}

/// Whether objects of different hours have different names, beside their number.
pub(super) fn is_hourly(template: &str) -> bool {
    template.contains("{hour}")
}

/// Fills in the values of a run. Those of an object stay in braces.
pub(super) fn of_run(template: &str, run: &Run, run_id: &str, job: &str, host: &str) -> anyhow::Result<String> {
    let labels = &run.job;
    let number = |number: Option<u32>| number.map(|number| number.to_string());
    let (rank, local_rank) = (number(labels.group.rank), number(labels.group.local_rank));
    let mut key = String::new();
    for piece in pieces(template)? {
        let value = match piece {
            Piece::Text(text) => {
                key += text;
                continue;
            }
            Piece::Name(name) if OF_OBJECT.contains(&name) => {
                key.extend(["{", name, "}"]);
                continue;
            }
            Piece::Name("run") => Some(run_id),
            Piece::Name("job") => Some(job),
            Piece::Name("host") => Some(host),
            Piece::Name("project") => labels.project_name.as_deref(),
            Piece::Name("stage") => labels.stage_name.as_deref(),
            Piece::Name("task") => labels.task_name.as_deref(),
            Piece::Name("team") => labels.team.as_deref(),
            Piece::Name("env") => labels.env.as_deref(),
            Piece::Name("executor") => labels.executor.as_deref(),
            Piece::Name("external_run_id") => labels.external_run_id.as_deref(),
            Piece::Name("group") => labels.group.id.as_deref(),
            Piece::Name("node") => labels.group.node.as_deref(),
            Piece::Name("rank") => rank.as_deref(),
            Piece::Name("local_rank") => local_rank.as_deref(),
            Piece::Name(name) => labels.tags.get(name.strip_prefix("tag:").unwrap_or(name)).map(String::as_str),
        };
        key += &escaped(value.unwrap_or_default());
    }
    ensure!(key.len() + 32 <= LONGEST_KEY, "the names of objects would have more than {LONGEST_KEY} bytes");
    Ok(key)
}

/// A value as one segment of a path, or a part of one.
fn escaped(value: &str) -> String {
    let text = utf8_percent_encode(value, KEPT).to_string();
    match text.as_str() {
        "" => UNKNOWN.to_owned(),
        // They would be taken for folders.
        "." | ".." => text.replace('.', "%2E"),
        _ => {
            let mut end = text.len().min(LONGEST_VALUE);
            // No escape is cut.
            while text.as_bytes()[..end].iter().rev().take(2).any(|byte| *byte == b'%') {
                end -= 1;
            }
            text[..end].to_owned()
        }
    }
}

/// The name of an object of the run whose template this is. Its rows begin at that hour since 1970, UTC.
pub(super) fn of_object(key: &str, part: u32, hour: u32) -> String {
    let time = Timestamp::from_second(i64::from(hour) * 3600).unwrap_or_default().to_zoned(TimeZone::UTC);
    let (year, month, day) = (time.year(), time.month(), time.day());
    [
        ("{date}", format!("{year:04}-{month:02}-{day:02}")),
        ("{year}", format!("{year:04}")),
        ("{month}", format!("{month:02}")),
        ("{day}", format!("{day:02}")),
        ("{hour}", format!("{:02}", time.hour())),
        ("{part}", format!("{part:06}")),
    ]
    .into_iter()
    .fold(key.to_owned(), |key, (name, value)| key.replace(name, &value))
}

/// Whether a saved template is one of those that this makes.
pub(super) fn is_of_run(key: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_graphic() && !b"\\?#".contains(&byte);
    key.len() <= LONGEST_KEY
        && key.bytes().all(is_safe)
        && key.contains("{part}")
        && key.split('/').all(|segment| !["", ".", ".."].contains(&segment))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: &str = "date={date}/job={job}/host_name={host}/run_id={run}/{part}";

    #[test]
    fn a_run_and_its_objects() -> anyhow::Result<()> {
        let mut run = Run::default();
        run.job.tags.insert("cost centre".into(), "a/b".into());
        let key = of_run(DEFAULT, &run, "0190-a", "train it", "node-7.example")?;
        assert_eq!(key, "date={date}/job=train%20it/host_name=node-7.example/run_id=0190-a/{part}");
        // 2026-11-25 13:00 UTC
        assert_eq!(
            of_object(&key, 12, 498_781),
            "date=2026-11-25/job=train%20it/host_name=node-7.example/run_id=0190-a/000012"
        );
        let key = of_run("{year}/{month}/{day}/{hour}/{team}/{tag:cost centre}/{run}-{part}", &run, "r", "j", "h")?;
        assert_eq!(of_object(&key, 0, 498_781), "2026/11/25/13/__HIVE_DEFAULT_PARTITION__/a%2Fb/r-000000");
        assert_eq!((escaped(".."), escaped("{part}")), ("%2E%2E".into(), "%7Bpart%7D".into()));
        Ok(())
    }

    #[test]
    fn what_cannot_be_a_template() {
        assert!(check(DEFAULT).is_ok() && check("a/{tag:x}/{run}/{part}").is_ok());
        for (bad, why) in [
            ("{run}", "{run} and {part}"),
            ("{part}", "{run} and {part}"),
            ("{run}/{part}/{rnu}", "{rnu} is none of {date}"),
            ("{run}/{part}/{tag:}", "is none of"),
            ("{run}/{part", "has no }"),
            ("{run}/}{part}", "has no {"),
            ("{run}//{part}", "may be empty"),
            ("/{run}/{part}", "may be empty"),
            ("../{run}/{part}", "may be empty"),
            ("a b/{run}/{part}", "only letters"),
            ("a?x/{run}/{part}", "only letters"),
        ] {
            let error = check(bad).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_value_stays_one_segment(value in any::<String>()) {
            let escaped = escaped(&value);
            let is_one = !escaped.is_empty() && !escaped.contains(['/', '{', '}']);
            prop_assert!(is_one && escaped.len() <= LONGEST_VALUE, "{}", escaped);
            prop_assert!(is_of_run(&format!("{escaped}/{{part}}")), "{}", escaped);
        }
    }
}
