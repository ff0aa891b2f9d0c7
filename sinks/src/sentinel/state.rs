//! `run.json`: what is known of a run, without anything that is secret.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::columns::Columns;
use crate::spool::{self, Batches, LAST_OF_SIX, RowsState, closed, place};

/// 0000-01-01, in seconds of Unix time.
const YEAR_0: i64 = -62_167_219_200;
const LONGEST_RUN_ID: usize = 128;
const LONGEST_PREFIX: usize = 1024;
/// What the addresses of all batches of a run take at most, in bytes: they are sent at once.
const LARGEST_URIS: u64 = 64 << 20;
/// Labels, tags, host and cloud. In memory each takes many times what its text does.
const MOST_FACTS: usize = 1 << 16;
/// `/000000.csv.gz`, a slash, and what a string takes beside its text.
const URI_END: u64 = 40;

/// What is known of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// Base address of the service that it belongs to; empty if no service could be used.
    pub(crate) api_url: String,
    /// The facts to register it with.
    pub(crate) facts: Map<String, Value>,
    pub(crate) run_id: Option<String>,
    pub(crate) upload_uri_prefix: Option<String>,
    /// Batches below this number have arrived, or were given up.
    pub(crate) next: u32,
    /// Those that were given up.
    pub(crate) lost: Vec<u32>,
    pub(crate) end: Option<End>,
    /// Whether rows go with the last message, not to the store. Never changed once that was tried.
    pub(crate) inline: Option<bool>,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) exit_code: Option<i32>,
    pub(crate) status: String,
    pub(crate) at: String,
}

impl spool::State for State {
    fn sink(&self) -> &'static str {
        "sentinel"
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let text_of: TextOf = serde_json::from_slice(text).map_err(|error| place(&error))?;
        if text_of.sink.is_some() {
            return Err("it is of another sink".to_owned());
        }
        if text_of.facts.is_some_and(|facts| values(facts.get()) > MOST_FACTS) {
            return Err(format!("facts has more than {MOST_FACTS} values"));
        }
        let state: Self = serde_json::from_slice(text).map_err(|error| place(&error))?;
        let Self { run_id, upload_uri_prefix, next, lost, end, .. } = &state;
        let is_ascending = lost.windows(2).all(|pair| pair[0] < pair[1]);
        let problem = if run_id.as_deref().is_some_and(|id| !is_run_id(id)) {
            "run_id is no id"
        } else if upload_uri_prefix.as_deref().is_some_and(|prefix| !is_upload_prefix(prefix)) {
            "upload_uri_prefix is no S3 URI"
        } else if *next > LAST_OF_SIX + 1 {
            "next has more than six digits"
        } else if !is_ascending || lost.last().is_some_and(|last| last >= next) {
            "lost does not fit to next"
        } else if state.uris_size() > LARGEST_URIS {
            "next is more than the addresses of batches could be listed for"
        } else if end.as_ref().is_some_and(|end| !end.is_good()) {
            "end is none"
        } else {
            return Ok(state);
        };
        Err(problem.to_owned())
    }

    fn next(&self) -> u32 {
        self.next
    }

    fn settle(&mut self, below: u32, is_lost: bool) {
        if is_lost {
            self.lost.extend(self.next..below);
        }
        self.next = below;
    }

    fn is_left(&mut self, written: SystemTime) {
        self.end.get_or_insert_with(|| End { exit_code: None, status: "failed".into(), at: rfc3339(written) });
    }
}

impl RowsState for State {
    fn batches(&self) -> Batches {
        Batches { extension: "csv", header: Columns::Sentinel.header() + "\n", is_lines: true }
    }
}

impl State {
    /// The URI that a batch is sent to.
    pub(crate) fn uri(&self, batch: u32) -> Option<String> {
        let (prefix, run_id) = (self.upload_uri_prefix.as_ref()?, self.run_id.as_ref()?);
        Some(format!("{}/{run_id}/{}", prefix.trim_end_matches('/'), closed(batch, self.batches().extension)))
    }

    /// The URIs of all batches that have arrived.
    pub(crate) fn uris(&self) -> Vec<String> {
        let lost: HashSet<u32> = self.lost.iter().copied().collect();
        let arrived = (0..self.next).filter(|batch| !lost.contains(batch));
        arrived.filter_map(|batch| self.uri(batch)).collect()
    }

    /// The size of the addresses of all batches that have arrived, in bytes. A part that is not known yet counts with
    /// its greatest length.
    fn uris_size(&self) -> u64 {
        let length = |text: &Option<String>, longest| text.as_ref().map_or(longest, String::len) as u64;
        let each = length(&self.upload_uri_prefix, LONGEST_PREFIX) + length(&self.run_id, LONGEST_RUN_ID) + URI_END;
        u64::from(self.next).saturating_sub(self.lost.len() as u64) * each
    }
}

impl End {
    fn is_good(&self) -> bool {
        ["finished", "failed"].contains(&self.status.as_str()) && self.at.parse::<Timestamp>().is_ok()
    }
}

/// A time as the service takes it, in whole seconds. The times of files can be anything, and the years of RFC 3339 go
/// from 0 to 9999: a time beyond counts as the first or the last of them.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let second = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => seconds(since),
        // Rounded down, as after it.
        Err(before) => -seconds(before.duration() + Duration::from_nanos(999_999_999)),
    };
    let time = Timestamp::from_second(second.clamp(YEAR_0, Timestamp::MAX.as_second()));
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// `run.json`, with its facts still as text.
#[derive(Deserialize)]
struct TextOf<'a> {
    #[serde(borrow)]
    sink: Option<&'a RawValue>,
    #[serde(borrow)]
    facts: Option<&'a RawValue>,
}

/// How many values a JSON text has at most: each follows one of three characters.
fn values(text: &str) -> usize {
    let (mut count, mut is_string) = (0, false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => is_string = !is_string,
            b',' | b'[' | b'{' if !is_string => count += 1,
            _ => (),
        }
    }
    count
}

/// Whether it can be one segment of a path, of an address and of the name of an object.
pub(crate) fn is_run_id(text: &str) -> bool {
    (1..=LONGEST_RUN_ID).contains(&text.len()) && text.bytes().all(is_name) && text != "." && text != ".."
}

/// `s3://BUCKET/PATH` of plain names: no `.` and no `..`, and none that is empty but after a last slash.
pub(crate) fn is_upload_prefix(text: &str) -> bool {
    let Some(path) = text.strip_prefix("s3://") else { return false };
    let mut segments = path.strip_suffix('/').unwrap_or(path).split('/');
    let is_bucket = |name: &str| name.len() <= 255 && !name.is_empty() && name.bytes().all(is_name);
    let is_segment = |name: &str| {
        !["", ".", ".."].contains(&name)
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\?#%".contains(&byte))
    };
    text.len() <= LONGEST_PREFIX
        && segments.next().is_some_and(|name| is_bucket(name) && is_segment(name))
        && segments.all(is_segment)
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spool::State as _;

    use super::*;

    #[test]
    fn what_cannot_have_been_written_is_refused() {
        for good in [
            "{}",
            r#"{"run_id":"run-1.a_B","upload_uri_prefix":"s3://b/some/p=1/","next":3,"lost":[0,2]}"#,
            r#"{"end":{"exit_code":1,"status":"failed","at":"2026-01-01T00:00:00Z"},"news":{}}"#,
        ] {
            assert!(State::parse(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
            "",
            "[]x",
            r#"{"next":1000001}"#,
            r#"{"next":-1}"#,
            r#"{"next":1000000}"#,
            r#"{"next":2,"lost":[2]}"#,
            r#"{"next":2,"lost":[1,1]}"#,
            r#"{"run_id":".."}"#,
            r#"{"run_id":"a/../b"}"#,
            r#"{"run_id":""}"#,
            r#"{"upload_uri_prefix":"s3://b/../c"}"#,
            r#"{"upload_uri_prefix":"s3://b//c"}"#,
            r#"{"upload_uri_prefix":"s3:///c"}"#,
            r#"{"upload_uri_prefix":"s3://evil.com:80@b/c"}"#,
            r#"{"upload_uri_prefix":"https://b/c"}"#,
            r#"{"end":{"exit_code":1,"status":"SECRET","at":"2026-01-01T00:00:00Z"}}"#,
            r#"{"end":{"exit_code":1,"status":"failed","at":"SECRET"}}"#,
            r#"{"facts":"SECRET"}"#,
        ] {
            let problem = State::parse(bad.as_bytes()).err().unwrap_or_default();
            assert!(!problem.is_empty() && !problem.contains("SECRET"), "{bad}: {problem}");
        }
        let nested = |depth| format!(r#"{{"facts":{{"a":{}{}}}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(State::parse(nested(1000).as_bytes()).is_err_and(|problem| problem.contains("too deep")));
        assert!(State::parse(nested(MOST_FACTS).as_bytes()).is_err_and(|problem| problem.contains("65536 values")));
        // A command line is one value, whatever is in it.
        let long = serde_json::json!({ "facts": { "command": r#"["a\"",{[,"#.repeat(MOST_FACTS) } }).to_string();
        assert!(State::parse(long.as_bytes()).is_ok());
    }

    #[test]
    fn any_moment_is_a_time_of_rfc_3339() {
        let after = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let before = |time: Duration| SystemTime::UNIX_EPOCH - time;
        for (time, expected) in [
            (after(0), "1970-01-01T00:00:00Z"),
            (after(1_700_000_000) + Duration::from_millis(999), "2023-11-14T22:13:20Z"),
            (after(253_402_207_200), "9999-12-30T22:00:00Z"),
            (after(253_402_300_800), "9999-12-30T22:00:00Z"),
            (after(i64::MAX as u64), "9999-12-30T22:00:00Z"),
            (before(Duration::from_secs(1)), "1969-12-31T23:59:59Z"),
            (before(Duration::from_millis(500)), "1969-12-31T23:59:59Z"),
            (before(Duration::from_secs(62_167_219_200)), "0000-01-01T00:00:00Z"),
            (before(Duration::from_secs(62_167_219_201)), "0000-01-01T00:00:00Z"),
            (before(Duration::from_secs(1 << 62)), "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(time), expected, "{time:?}");
        }
    }

    #[test]
    fn batches_that_were_given_up_have_no_address() {
        let mut state = State { run_id: Some("r".into()), ..State::default() };
        assert_eq!(state.uri(0), None);
        state.upload_uri_prefix = Some("s3://b/p/".into());
        state.settle(1, false);
        state.settle(2, true);
        state.settle(3, false);
        assert_eq!(state.uris(), ["s3://b/p/r/000000.csv.gz", "s3://b/p/r/000002.csv.gz"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(state) = State::parse(&bytes) {
                prop_assert_eq!(State::parse(&serde_json::to_vec(&state)?), Ok(state));
            }
        }
    }
}
