//! Uploads to S3, or to a store with the same interface.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use rusty_s3::actions::{PutObject, S3Action};
use rusty_s3::{Bucket, Credentials as Keys, UrlStyle};
use ureq::Agent;
use ureq::http::Method;
use url::Url;

use super::api::Credentials;
use crate::http::{Answer, Failure, send};

/// How long a signature is good for.
const SIGNED_FOR: Duration = Duration::from_secs(300);
const DEFAULT_REGION: &str = "eu-central-1";

pub(crate) struct S3 {
    agent: Agent,
    /// A store other than Amazon's, with buckets as paths.
    endpoint: Option<Url>,
    regions: HashMap<String, String>,
}

impl S3 {
    /// `endpoint` is what `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL` says.
    pub(crate) fn new(agent: Agent, endpoint: Option<Url>) -> Self {
        Self { agent, endpoint, regions: HashMap::new() }
    }

    /// Puts one object and gives its URI back.
    pub(crate) fn put(&mut self, uri: &str, credentials: &Credentials, body: &[u8]) -> Result<String, Failure> {
        // The bucket and the path came from the service, so they are not repeated in messages.
        let what = format!("PUT s3://…/{}", uri.rsplit('/').next().unwrap_or_default());
        let url = self.address(uri, credentials).map_err(|problem| Failure::Permanent(format!("{what}: {problem}")))?;
        let headers = [("content-type", "text/csv"), ("content-encoding", "gzip")];
        let answer = Answer::read(&what, send(&self.agent, Method::PUT, url.as_str(), &headers, body))?;
        match answer.status {
            200 | 201 => Ok(uri.to_owned()),
            // The answers to credentials that are wrong or expired.
            400 | 403 => Err(Failure::Refused(answer.failure(&what).problem().to_owned())),
            _ => Err(answer.failure(&what)),
        }
    }

    /// The signed address to put one object.
    pub(crate) fn address(&mut self, uri: &str, credentials: &Credentials) -> Result<Url, String> {
        let (bucket, key) = parse_s3_uri(uri)?;
        check(credentials)?;
        let region = match &credentials.region {
            Some(region) => region.clone(),
            None => self.region(bucket),
        };
        Ok(sign(&self.bucket(bucket, &region)?, key, credentials, &Timestamp::now()))
    }

    /// The region of a bucket, asked for once.
    fn region(&mut self, bucket: &str) -> String {
        if let Some(known) = self.regions.get(bucket) {
            return known.clone();
        }
        let url = match &self.endpoint {
            Some(endpoint) => format!("{}/{bucket}/", endpoint.as_str().trim_end_matches('/')),
            None => format!("https://{bucket}.s3.amazonaws.com/"),
        };
        // The header is there whatever the status is.
        let answer = send(&self.agent, Method::HEAD, &url, &[], &[]).ok();
        let header = answer.as_ref().and_then(|answer| answer.headers().get("x-amz-bucket-region")?.to_str().ok());
        // The region becomes a part of the store's host name.
        let region = header.filter(|region| is_region(region)).unwrap_or(DEFAULT_REGION).to_owned();
        if answer.is_some() {
            self.regions.insert(bucket.to_owned(), region.clone());
        }
        region
    }

    fn bucket(&self, name: &str, region: &str) -> Result<Bucket, String> {
        let (endpoint, style) = match &self.endpoint {
            Some(endpoint) => (endpoint.clone(), UrlStyle::Path),
            None => {
                let text = format!("https://s3.{region}.amazonaws.com");
                let endpoint = Url::parse(&text).map_err(|_| "the region that the service gave is none")?;
                // Amazon's certificate covers one label in front of its name.
                (endpoint, if name.contains('.') { UrlStyle::Path } else { UrlStyle::VirtualHost })
            }
        };
        Bucket::new(endpoint, style, name.to_owned(), region.to_owned()).map_err(|error| error.to_string())
    }
}

/// The presigned address of an object: for a while, its holder can put the object there.
fn sign(bucket: &Bucket, key: &str, credentials: &Credentials, at: &Timestamp) -> Url {
    let keys = Keys::new_with_token(
        credentials.access_key.expose(),
        credentials.secret_key.expose(),
        credentials.session_token.expose(),
    );
    PutObject::new(bucket, Some(&keys), key).sign_with_time(SIGNED_FOR, at)
}

fn check(credentials: &Credentials) -> Result<(), &'static str> {
    let Credentials { access_key, secret_key, session_token, region, .. } = credentials;
    match [access_key, secret_key, session_token].iter().all(|key| key.is_printable()) {
        false => Err("a credential that the service gave is empty or has characters that no key has"),
        true if region.as_deref().is_some_and(|region| !is_region(region)) => {
            Err("the region that the service gave is none")
        }
        true => Ok(()),
    }
}

fn is_region(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// `s3://bucket/path/to/object`: bucket and key.
pub(crate) fn parse_s3_uri(uri: &str) -> Result<(&str, &str), &'static str> {
    let parts = uri.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
    match parts {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => Ok((bucket, key)),
        _ => Err("it is no S3 URI; it must be s3://BUCKET/KEY"),
    }
}

/// When credentials have to be replaced at the latest.
pub(crate) fn expiry(credentials: &Credentials) -> Option<Timestamp> {
    let text = credentials.expiration.as_ref().or(credentials.expires_at.as_ref())?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn credentials() -> Credentials {
        Credentials {
            access_key: Secret::new("AKIAIOSFODNN7EXAMPLE"),
            secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: Secret::new("FwoGZXIvYXdzEXAMPLE//token=="),
            expiration: Some("2026-01-01T00:00:00Z".into()),
            expires_at: None,
            region: Some("eu-central-1".into()),
        }
    }

    #[test]
    fn t_s3_01_02_03_an_s3_uri_has_a_bucket_and_a_key() {
        assert_eq!(parse_s3_uri("s3://bucket/path/obj"), Ok(("bucket", "path/obj")));
        for bad in ["https://bucket/path", "s3://bucket/", "s3://bucket", "s3:///key", "s3:/bucket/key", ""] {
            assert!(parse_s3_uri(bad).is_err_and(|error| error.contains("S3 URI")), "{bad}");
        }
    }

    /// The signature was computed from Amazon's description of it, by another program.
    #[test]
    fn t_s3_04_a_signature_is_the_one_that_was_computed_elsewhere() {
        let store = S3::new(crate::http::agent(), None);
        let bucket = store.bucket("bucket", "eu-central-1").unwrap();
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let url = sign(&bucket, "some/prefix/run-1/000000.csv.gz", &credentials(), &at);
        assert_eq!(url.host_str(), Some("bucket.s3.eu-central-1.amazonaws.com"));
        assert_eq!(url.path(), "/some/prefix/run-1/000000.csv.gz");
        let query: HashMap<_, _> = url.query_pairs().collect();
        assert_eq!(query["X-Amz-Date"], "20260101T000000Z");
        assert_eq!(query["X-Amz-Credential"], "AKIAIOSFODNN7EXAMPLE/20260101/eu-central-1/s3/aws4_request");
        assert_eq!(query["X-Amz-Security-Token"], "FwoGZXIvYXdzEXAMPLE//token==");
        assert_eq!(query["X-Amz-Signature"], "750d26c1e5178b9f8619b13861927b2ccd76068133fe8c0c95b4969aeaf404c8");
        assert_eq!(
            store.bucket("a.b", "eu-central-1").unwrap().base_url().as_str(),
            "https://s3.eu-central-1.amazonaws.com/a.b/"
        );
    }

    #[test]
    fn credentials_that_cannot_be_signed_with() {
        assert!(check(&credentials()).is_ok());
        assert!(check(&Credentials { secret_key: Secret::new("a\r\nb"), ..credentials() }).is_err());
        assert!(check(&Credentials { region: Some("eu/../x".into()), ..credentials() }).is_err());
        assert_eq!(expiry(&credentials()).map(Timestamp::as_second), Some(1_767_225_600));
        let alias =
            Credentials { expiration: None, expires_at: Some("2026-01-01T00:00:00+00:00".into()), ..credentials() };
        assert_eq!(expiry(&alias), expiry(&credentials()));
    }
}
