//! `run.json` of a run whose objects wait: where they go. It holds no credentials.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::key;
use crate::spool::{Batches, LAST_OF_SIX, RowsState, State, closed, place};

/// How the store encrypts objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[non_exhaustive]
pub enum Encryption {
    /// With keys of the store.
    #[serde(rename = "AES256")]
    Aes256,
    /// With a key of the key management service.
    #[serde(rename = "aws:kms")]
    Kms,
    /// With such a key, in two layers.
    #[serde(rename = "aws:kms:dsse")]
    KmsDsse,
}

impl Encryption {
    /// As the header has it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Aes256 => "AES256",
            Self::Kms => "aws:kms",
            Self::KmsDsse => "aws:kms:dsse",
        }
    }
}

/// What is known of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct S3State {
    pub(super) sink: String,
    /// Bucket and prefix, as `s3://BUCKET/PREFIX/`. Trackers of earlier versions take this for the address of another
    /// service, and leave the run alone.
    #[serde(rename = "api_url")]
    pub(super) prefix: String,
    /// A store other than Amazon's.
    pub(super) endpoint: Option<String>,
    /// Whether it may be spoken to unencrypted.
    pub(super) allow_http: bool,
    pub(super) has_virtual_hosts: bool,
    pub(super) region: Option<String>,
    /// The profile that has the keys.
    pub(super) profile: Option<String>,
    /// Names of objects, with what differs between them in braces.
    pub(super) key: String,
    pub(super) is_csv: bool,
    /// The line above the rows of each object.
    pub(super) header: String,
    pub(super) encryption: Option<Encryption>,
    pub(super) kms_key_id: Option<String>,
    pub(super) storage_class: Option<String>,
    /// The hours since 1970 in which the rows of objects begin: each with the first object that has it.
    pub(super) hours: Vec<(u32, u32)>,
    /// Objects below this number have arrived, or were given up.
    pub(super) next: u32,
}

impl S3State {
    pub(crate) const NAME: &'static str = "s3";

    pub(super) fn new(prefix: String, key: String) -> Self {
        Self { sink: Self::NAME.into(), prefix, key, ..Self::default() }
    }

    /// The bucket, and the store if it is not Amazon's.
    pub(crate) fn bucket(&self) -> String {
        let at = self.endpoint.as_ref().map(|endpoint| format!(" at {endpoint}")).unwrap_or_default();
        format!("{}{at}", self.prefix)
    }

    fn extension(&self) -> &'static str {
        if self.is_csv { "csv" } else { "jsonl" }
    }

    /// The address of an object.
    pub(super) fn uri(&self, part: u32) -> String {
        let hour = self.hours.iter().rev().find(|(first, _)| *first <= part).map_or(0, |(_, hour)| *hour);
        let end = closed(0, self.extension()).split_once('.').map(|(_, end)| end.to_owned()).unwrap_or_default();
        format!("{}{}.{end}", self.prefix, key::of_object(&self.key, part, hour))
    }

    /// The headers that the user asked for.
    pub(super) fn headers(&self) -> Vec<(&'static str, &str)> {
        [
            ("x-amz-server-side-encryption", self.encryption.map(Encryption::as_str)),
            ("x-amz-server-side-encryption-aws-kms-key-id", self.kms_key_id.as_deref()),
            ("x-amz-storage-class", self.storage_class.as_deref()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

/// Whether it is `s3://BUCKET/` with a prefix of plain names.
pub(super) fn is_prefix(text: &str) -> bool {
    let Some((bucket, prefix)) = text.strip_prefix("s3://").and_then(|rest| rest.split_once('/')) else { return false };
    let is_bucket = !bucket.is_empty()
        && bucket.len() <= 255
        && bucket.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && ![".", ".."].contains(&bucket);
    let is_segment = |name: &str| {
        !["", ".", ".."].contains(&name)
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\\?#%{}".contains(&byte))
    };
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    is_bucket && (prefix.is_empty() || prefix.split('/').all(is_segment))
}

/// Whether it can be the value of a header.
pub(super) fn is_header(text: &str) -> bool {
    !text.is_empty() && text.len() <= 2048 && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl State for S3State {
    fn sink(&self) -> &'static str {
        Self::NAME
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let state: Self = serde_json::from_slice(text).map_err(|error| place(&error))?;
        let Self { sink, prefix, endpoint, key, header, kms_key_id, storage_class, hours, next, .. } = &state;
        let problem = if sink != Self::NAME {
            "it is of another sink"
        } else if !is_prefix(prefix) || !prefix.ends_with('/') {
            "api_url is no bucket"
        } else if endpoint.as_ref().is_some_and(|endpoint| Url::parse(endpoint).is_err()) {
            "endpoint is no URL"
        } else if !key::is_of_run(key) {
            "key is no name of objects"
        } else if !header.is_empty() && !header.ends_with('\n') {
            "header is no line"
        } else if kms_key_id.iter().chain(storage_class).any(|value| !is_header(value)) {
            "a header has characters that none has"
        } else if hours.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
            "hours are not in order"
        } else if *next > LAST_OF_SIX + 1 {
            "next has more than six digits"
        } else {
            return Ok(state);
        };
        Err(problem.to_owned())
    }

    fn next(&self) -> u32 {
        self.next
    }

    fn settle(&mut self, below: u32, _: bool) {
        self.next = below;
    }
}

impl RowsState for S3State {
    fn batches(&self) -> Batches {
        Batches { extension: self.extension(), header: self.header.clone(), is_lines: true }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn state() -> S3State {
        let hours = vec![(0, 498_781), (3, 498_792)];
        S3State { hours, ..S3State::new("s3://b/p/".into(), "date={date}/run=r/{part}".into()) }
    }

    #[test]
    fn an_object_is_in_the_folder_of_its_first_row() {
        let uris: Vec<_> = [0, 2, 3].into_iter().map(|part| state().uri(part)).collect();
        let expected = ["2026-11-25/run=r/000000", "2026-11-25/run=r/000002", "2026-11-26/run=r/000003"];
        assert_eq!(uris, expected.map(|rest| format!("s3://b/p/date={rest}.jsonl.gz")));
        assert!(S3State { is_csv: true, ..state() }.uri(0).ends_with("/000000.csv.gz"));
    }

    #[test]
    fn what_was_not_written_here_is_refused() {
        let good = serde_json::to_value(state()).unwrap();
        let parse = |value: &serde_json::Value| S3State::parse(value.to_string().as_bytes());
        assert_eq!(parse(&good), Ok(state()));
        for (key, bad) in [
            ("sink", serde_json::json!("otlp")),
            ("api_url", "https://b/".into()),
            ("api_url", "s3://b".into()),
            ("api_url", "s3://b/../c/".into()),
            ("api_url", "s3://evil.com:80@b/".into()),
            ("key", "run".into()),
            ("key", "../{part}".into()),
            ("header", "SECRET".into()),
            ("storage_class", "a\r\nb".into()),
            ("hours", serde_json::json!([[3, 1], [3, 2]])),
            ("next", 1_000_001.into()),
            ("endpoint", "SECRET".into()),
        ] {
            let mut state = good.clone();
            state[key] = bad;
            let problem = parse(&state).err().unwrap_or_default();
            assert!(!problem.is_empty() && !problem.contains("SECRET"), "{key}: {problem}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = S3State::parse(&bytes);
        }
    }
}
