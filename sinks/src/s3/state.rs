//! `run.json` of a run whose objects wait: where they go. It holds no credentials.

use std::io::Read;

use flate2::read::GzDecoder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::key;
use crate::spool::{Batches, RowsState, State, closed, place};

/// A row begins with its time, in so many bytes at most.
const ROW_START: u64 = 64;

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
    /// Whether a variable named it, as for the keys.
    pub(super) is_endpoint_of_environment: bool,
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
    /// The hour since 1970 in which the run began.
    pub(super) hour: u32,
    /// What has arrived is removed: the files tell what waits.
    #[serde(skip)]
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

    /// The address of an object with these rows, compressed.
    pub(super) fn uri(&self, part: u32, body: &[u8]) -> String {
        let hour = self.first_hour(body).unwrap_or(self.hour);
        let end = closed(0, self.extension()).split_once('.').map(|(_, end)| end.to_owned()).unwrap_or_default();
        format!("{}{}.{end}", self.prefix, key::of_object(&self.key, part, hour))
    }

    /// The hour since 1970 of the first of these rows, compressed. It alone says in which folder they are: nothing else has to be
    /// saved with each.
    fn first_hour(&self, body: &[u8]) -> Option<u32> {
        let mut text = Vec::new();
        let length = self.header.len() as u64 + ROW_START;
        // What is cut here is no error.
        let _ = GzDecoder::new(body).take(length).read_to_end(&mut text);
        let row = text.get(self.header.len()..)?;
        let number = if self.is_csv { row } else { row.strip_prefix(b"{\"timestamp_secs\":")? };
        let end = number.iter().position(|byte| !byte.is_ascii_digit())?;
        let secs: u64 = std::str::from_utf8(&number[..end]).ok()?.parse().ok()?;
        u32::try_from(secs / 3600).ok()
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
    /// An object that is put again is the same.
    const SAVES_PROGRESS: bool = false;

    fn sink(&self) -> &'static str {
        Self::NAME
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        let state: Self = serde_json::from_slice(text).map_err(|error| place(&error))?;
        let Self { sink, prefix, endpoint, key, header, kms_key_id, storage_class, .. } = &state;
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
    use std::io::Write;

    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn state() -> S3State {
        S3State { hour: 498_781, ..S3State::new("s3://b/p/".into(), "date={date}/h={hour}/run=r/{part}".into()) }
    }

    fn gzip(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn an_object_is_in_the_folder_of_its_first_row() {
        // 2026-11-26 00:00:01
        let row = "{\"timestamp_secs\":1795651201,\"timestamp_ms\":1795651201000}\n";
        let uri = |state: &S3State, text: &str| state.uri(3, &gzip(text));
        assert_eq!(uri(&state(), row), "s3://b/p/date=2026-11-26/h=00/run=r/000003.jsonl.gz");
        assert_eq!(uri(&state(), "nothing"), "s3://b/p/date=2026-11-25/h=13/run=r/000003.jsonl.gz");
        let csv = S3State { is_csv: true, header: "timestamp,a\n".into(), ..state() };
        assert_eq!(uri(&csv, "timestamp,a\n1795651201.250,7\n"), "s3://b/p/date=2026-11-26/h=00/run=r/000003.csv.gz");
        assert_eq!(state().uri(0, b"no gzip"), "s3://b/p/date=2026-11-25/h=13/run=r/000000.jsonl.gz");
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
