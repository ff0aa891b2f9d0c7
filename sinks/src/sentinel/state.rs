//! `run.json`: what is known of a run, without anything that is secret.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::run_files::LAST_BATCH;

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

impl State {
    /// Reads a saved state.
    ///
    /// # Errors
    /// When it is not what a tracker writes. The error repeats nothing of it.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let text_of: TextOf = serde_json::from_slice(text).map_err(|error| place(&error))?;
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
        } else if *next > LAST_BATCH + 1 {
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
}

impl State {
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

/// `run.json`, with its facts still as text.
#[derive(Deserialize)]
struct TextOf<'a> {
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

/// What is wrong with a JSON text, and where, without quoting it.
pub(crate) fn place(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Data => "a value is missing, or is of another type",
        serde_json::error::Category::Io | serde_json::error::Category::Syntax => "it is no JSON, or too deep",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
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

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(state) = State::parse(&bytes) {
                prop_assert_eq!(State::parse(&serde_json::to_vec(&state)?), Ok(state));
            }
        }
    }
}
