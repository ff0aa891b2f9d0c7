//! The Sentinel service: registers a run, refreshes its credentials, finishes it.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use ureq::Agent;
use ureq::http::Method;
use url::Url;

use super::state::{is_run_id, is_upload_prefix};
use crate::http::{Answer, Failure, send};
use crate::s3::client::Keys;
use crate::secret::Secret;
use crate::spool::place;

pub(crate) struct Api {
    agent: Agent,
    base: Url,
    token: Secret,
}

/// What the service says about a new run.
#[derive(Debug, Deserialize)]
pub(crate) struct Registration {
    pub(crate) run_id: String,
    pub(crate) upload_uri_prefix: String,
    pub(crate) upload_credentials: Credentials,
}

/// Temporary credentials of the store.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Credentials {
    pub(crate) access_key: Secret,
    pub(crate) secret_key: Secret,
    pub(crate) session_token: Secret,
    pub(crate) expiration: Option<String>,
    pub(crate) expires_at: Option<String>,
    pub(crate) region: Option<String>,
}

#[derive(Deserialize)]
struct Refreshed {
    upload_credentials: Credentials,
}

impl Registration {
    /// Reads an answer. Errors repeat nothing of it.
    pub(crate) fn parse(answer: &[u8]) -> Result<Self, String> {
        let registration: Self = serde_json::from_slice(answer).map_err(|error| place(&error))?;
        // They become a part of addresses and of object names.
        if !is_run_id(&registration.run_id) {
            return Err("run_id is no id".to_owned());
        }
        if !is_upload_prefix(&registration.upload_uri_prefix) {
            return Err("upload_uri_prefix is no S3 URI; it must be s3://BUCKET/PATH".to_owned());
        }
        Ok(registration)
    }
}

impl Credentials {
    /// What is signed with.
    pub(crate) fn keys(&self) -> Keys {
        Keys {
            access_key: self.access_key.clone(),
            secret_key: self.secret_key.clone(),
            session_token: Some(self.session_token.clone()),
            expires: self.expiry(),
            can_be_replaced: true,
        }
    }

    /// When they have to be replaced at the latest.
    pub(crate) fn expiry(&self) -> Option<Timestamp> {
        self.expiration.as_ref().or(self.expires_at.as_ref())?.parse().ok()
    }

    /// Reads an answer with new credentials. Errors repeat nothing of it.
    pub(crate) fn parse(answer: &[u8]) -> Result<Self, String> {
        let refreshed: Refreshed = serde_json::from_slice(answer).map_err(|error| place(&error))?;
        Ok(refreshed.upload_credentials)
    }
}

/// The end of a run, as the service takes it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Finish<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) exit_code: Option<i32>,
    pub(crate) run_status: &'a str,
    pub(crate) finished_at: &'a str,
    #[serde(flatten)]
    pub(crate) data: Data,
}

/// Where the rows of a run are.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "data_source", rename_all = "lowercase")]
pub(crate) enum Data {
    S3 { data_uris: Vec<String> },
    Inline { data_csv: String },
}

/// A request to the service.
enum Call<'a> {
    Runs,
    Run(&'a str, &'static str),
}

impl Call<'_> {
    fn path(&self) -> String {
        match self {
            Call::Runs => "/runs".to_owned(),
            Call::Run(run_id, what) => format!("/runs/{run_id}/{what}"),
        }
    }
}

/// Without the id of the run, which came from the service.
impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Runs => f.write_str("POST /runs"),
            Call::Run(_, what) => write!(f, "POST /runs/…/{what}"),
        }
    }
}

impl Api {
    pub(crate) fn new(agent: Agent, base: Url, token: Secret) -> Self {
        Self { agent, base, token }
    }

    /// `POST /runs`
    pub(crate) fn register(&self, facts: &Map<String, Value>) -> Result<Registration, Failure> {
        self.ask(&Call::Runs, Some(facts), Registration::parse)
    }

    /// `POST /runs/{run_id}/refresh-credentials`
    pub(crate) fn refresh(&self, run_id: &str) -> Result<Credentials, Failure> {
        self.ask(&Call::Run(run_id, "refresh-credentials"), None::<&()>, Credentials::parse)
    }

    /// `POST /runs/{run_id}/finish`
    pub(crate) fn finish(&self, run_id: &str, finish: &Finish<'_>) -> Result<(), Failure> {
        self.post(&Call::Run(run_id, "finish"), Some(finish)).map(drop)
    }

    fn ask<T>(
        &self,
        call: &Call<'_>,
        body: Option<&impl Serialize>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let answer = self.post(call, body)?;
        parse(&answer.body)
            .map_err(|problem| Failure::Permanent(format!("{call}: the answer is not what was expected: {problem}")))
    }

    fn post(&self, call: &Call<'_>, body: Option<&impl Serialize>) -> Result<Answer, Failure> {
        let what = call.to_string();
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| Failure::Permanent(format!("{what}: {error}")))?.unwrap_or_default();
        let url = format!("{}{}", self.base.as_str().trim_end_matches('/'), call.path());
        let authorization = format!("Bearer {}", self.token.expose());
        let headers = [
            ("authorization", authorization.as_str()),
            ("accept", "application/json"),
            ("content-type", "application/json"),
        ];
        let headers = if body.is_empty() { &headers[..2] } else { &headers[..] };
        let answer = Answer::read(&what, send(&self.agent, Method::POST, &url, headers, &body))?;
        match answer.status {
            401 | 403 => Err(Failure::Refused(format!(
                "{what}: the service refused the token of SENTINEL_API_TOKEN ({})",
                answer.status
            ))),
            _ if answer.is_success() => Ok(answer),
            _ => Err(answer.failure(&what)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_run_as_the_service_takes_it() {
        let finish = Finish {
            exit_code: None,
            run_status: "failed",
            finished_at: "2026-01-01T00:00:00Z",
            data: Data::Inline { data_csv: "a\n1\n".into() },
        };
        let expected = serde_json::json!({
            "run_status": "failed", "finished_at": "2026-01-01T00:00:00Z", "data_source": "inline", "data_csv": "a\n1\n",
        });
        assert_eq!(serde_json::to_value(&finish).unwrap(), expected);
        let data = Data::S3 { data_uris: vec!["s3://b/k".into()] };
        let finish = serde_json::to_value(Finish { exit_code: Some(1), data, ..finish }).unwrap();
        assert_eq!(
            (&finish["data_source"], &finish["data_uris"][0], &finish["exit_code"]),
            (&"s3".into(), &"s3://b/k".into(), &1.into())
        );
    }

    #[test]
    fn credentials_end_when_either_name_says_it() {
        let ends = |text: &str| {
            let text =
                format!(r#"{{"upload_credentials":{{"access_key":"a","secret_key":"b","session_token":"c"{text}}}}}"#);
            Credentials::parse(text.as_bytes()).unwrap().keys().expires.map(Timestamp::as_second)
        };
        assert_eq!(ends(r#","expiration":"2026-01-01T00:00:00Z""#), Some(1_767_225_600));
        assert_eq!(ends(r#","expires_at":"2026-01-01T00:00:00+00:00""#), Some(1_767_225_600));
        assert_eq!((ends(""), ends(r#","expiration":"soon""#)), (None, None));
    }

    #[test]
    fn answers_may_say_more_and_keys_are_not_shown() {
        let text = r#"{"run_id":"r1","upload_uri_prefix":"s3://b/p","news":1,"upload_credentials":
            {"access_key":"AK","secret_key":"SK","session_token":"ST","expires_at":"2026-01-01T00:00:00Z","x":2}}"#;
        let registration = Registration::parse(text.as_bytes()).unwrap();
        let shown = format!("{registration:?}");
        assert!(shown.contains("r1") && !["AK", "SK", "ST"].iter().any(|secret| shown.contains(secret)), "{shown}");
        for (from, to) in
            [(r#""r1""#, r#""..""#), (r#""r1""#, r#""a/b""#), ("s3://b/p", "s3://b/../SK"), (r#""r1""#, "{}")]
        {
            let problem = Registration::parse(text.replace(from, to).as_bytes()).unwrap_err();
            assert!(!problem.contains("SK") && problem.len() < 100, "{problem}");
        }
    }
}
