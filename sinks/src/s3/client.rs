//! Uploads to S3, or to a store with the same interface.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use rusty_s3::actions::{PutObject, S3Action};
use rusty_s3::{Bucket, Credentials, UrlStyle};
use ureq::Agent;
use ureq::http::Method;
use url::Url;

use crate::http::{Answer, Failure, send};
use crate::secret::Secret;

/// How long a signature is good for.
const SIGNED_FOR: Duration = Duration::from_secs(300);

pub(crate) struct S3 {
    agent: Agent,
    /// A store other than Amazon's.
    endpoint: Option<Url>,
    /// Whether the bucket is a part of the other store's path, not of its name.
    is_path: bool,
    /// Where a bucket is if the store does not say it.
    default_region: &'static str,
    regions: HashMap<String, String>,
}

/// Keys to sign with. They are printed nowhere.
#[derive(Debug, Clone)]
pub(crate) struct Keys {
    pub(crate) access_key: Secret,
    pub(crate) secret_key: Secret,
    /// What keys that end have beside them.
    pub(crate) session_token: Option<Secret>,
    /// When they end.
    pub(crate) expires: Option<Timestamp>,
    /// Whether who gave them gives others.
    pub(crate) can_be_replaced: bool,
}

impl Keys {
    /// Keys that are there as they are.
    pub(crate) fn lasting(access_key: String, secret_key: String, session_token: Option<String>) -> Self {
        Self {
            access_key: Secret::new(access_key),
            secret_key: Secret::new(secret_key),
            session_token: session_token.map(Secret::new),
            expires: None,
            can_be_replaced: false,
        }
    }
}

/// Where and how an object is put.
pub(crate) struct Object<'a> {
    /// `s3://BUCKET/KEY`
    pub(crate) uri: &'a str,
    /// That of the bucket; the store is asked for it unless it is known.
    pub(crate) region: Option<&'a str>,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    /// Headers that the store takes only if they are signed: those that begin with `x-amz-`.
    pub(crate) signed: &'a [(&'a str, &'a str)],
}

impl S3 {
    /// `endpoint` is a store other than Amazon's.
    pub(crate) fn new(agent: Agent, endpoint: Option<Url>, default_region: &'static str) -> Self {
        Self { agent, endpoint, is_path: true, default_region, regions: HashMap::new() }
    }

    /// The same, with the bucket as a part of the other store's name.
    pub(crate) fn with_virtual_hosts(self) -> Self {
        Self { is_path: false, ..self }
    }

    /// Puts one object. `what` names the request in messages.
    pub(crate) fn put(&mut self, what: &str, object: &Object<'_>, keys: &Keys, body: &[u8]) -> Result<(), Failure> {
        let url = self.address(object, keys).map_err(|problem| Failure::Permanent(format!("{what}: {problem}")))?;
        let headers = [object.headers, object.signed].concat();
        let answer = Answer::read(what, send(&self.agent, Method::PUT, url.as_str(), &headers, body))?;
        match answer.status {
            200 | 201 => Ok(()),
            // The answers to credentials that are wrong or expired.
            400 | 403 => Err(Failure::Refused(answer.failure(what).problem().to_owned())),
            _ => Err(answer.failure(what)),
        }
    }

    /// The signed address to put one object.
    pub(crate) fn address(&mut self, object: &Object<'_>, keys: &Keys) -> Result<Url, String> {
        let (bucket, key) = parse_s3_uri(object.uri)?;
        check(keys, object.region)?;
        let region = match object.region {
            Some(region) => region.to_owned(),
            None => self.region(bucket),
        };
        Ok(sign(&self.bucket(bucket, &region)?, key, keys, object.signed, &Timestamp::now()))
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
        let region = header.filter(|region| is_region(region)).unwrap_or(self.default_region).to_owned();
        if answer.is_some() {
            self.regions.insert(bucket.to_owned(), region.clone());
        }
        region
    }

    fn bucket(&self, name: &str, region: &str) -> Result<Bucket, String> {
        let (endpoint, style) = match &self.endpoint {
            Some(endpoint) if self.is_path => (endpoint.clone(), UrlStyle::Path),
            Some(endpoint) => (endpoint.clone(), UrlStyle::VirtualHost),
            None => {
                let text = format!("https://s3.{region}.amazonaws.com");
                let endpoint = Url::parse(&text).map_err(|_| NO_REGION)?;
                // Amazon's certificate covers one label in front of its name.
                (endpoint, if name.contains('.') { UrlStyle::Path } else { UrlStyle::VirtualHost })
            }
        };
        Bucket::new(endpoint, style, name.to_owned(), region.to_owned()).map_err(|error| error.to_string())
    }
}

const NO_REGION: &str = "the region of the bucket is none";

/// The presigned address of an object: for a while, its holder can put the object there.
fn sign(bucket: &Bucket, key: &str, keys: &Keys, headers: &[(&str, &str)], at: &Timestamp) -> Url {
    let (access_key, secret_key) = (keys.access_key.expose(), keys.secret_key.expose());
    let credentials = match &keys.session_token {
        Some(token) => Credentials::new_with_token(access_key, secret_key, token.expose()),
        None => Credentials::new(access_key, secret_key),
    };
    let mut put = PutObject::new(bucket, Some(&credentials), key);
    for (name, value) in headers {
        put.headers_mut().insert((*name).to_owned(), (*value).to_owned());
    }
    put.sign_with_time(SIGNED_FOR, at)
}

fn check(keys: &Keys, region: Option<&str>) -> Result<(), &'static str> {
    let Keys { access_key, secret_key, session_token, .. } = keys;
    if [access_key, secret_key].into_iter().chain(session_token).any(|key| !key.is_printable()) {
        Err("a credential is empty or has characters that no key has")
    } else if region.is_some_and(|region| !is_region(region)) {
        Err(NO_REGION)
    } else {
        Ok(())
    }
}

pub(crate) fn is_region(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// `s3://bucket/path/to/object`: bucket and key.
fn parse_s3_uri(uri: &str) -> Result<(&str, &str), &'static str> {
    let parts = uri.strip_prefix("s3://").and_then(|rest| rest.split_once('/'));
    match parts {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => Ok((bucket, key)),
        _ => Err("it is no S3 URI; it must be s3://BUCKET/KEY"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn keys() -> Keys {
        Keys {
            access_key: Secret::new("AKIAIOSFODNN7EXAMPLE"),
            secret_key: Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            session_token: Some(Secret::new("FwoGZXIvYXdzEXAMPLE//token==")),
            expires: None,
            can_be_replaced: false,
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
        let store = S3::new(crate::http::agent(), None, "eu-central-1");
        let bucket = store.bucket("bucket", "eu-central-1").unwrap();
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let url = sign(&bucket, "some/prefix/run-1/000000.csv.gz", &keys(), &[], &at);
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
    fn headers_of_the_store_are_signed() {
        let store = S3::new(crate::http::agent(), None, "us-east-1").with_virtual_hosts();
        let bucket = store.bucket("bucket", "eu-central-1").unwrap();
        let at = "2026-01-01T00:00:00Z".parse().unwrap();
        let signature = |headers| {
            let url = sign(&bucket, "k", &Keys { session_token: None, ..keys() }, headers, &at);
            let query: HashMap<_, _> = url.query_pairs().into_owned().collect();
            assert!(!query.contains_key("X-Amz-Security-Token"));
            (query["X-Amz-SignedHeaders"].clone(), query["X-Amz-Signature"].clone())
        };
        let (plain, class) = (signature(&[]), signature(&[("x-amz-storage-class", "STANDARD_IA")]));
        assert_eq!((plain.0.as_str(), class.0.as_str()), ("host", "host;x-amz-storage-class"));
        assert_ne!(plain.1, class.1);
    }

    #[test]
    fn keys_that_cannot_be_signed_with() {
        assert!(check(&keys(), Some("eu-central-1")).is_ok());
        assert!(check(&Keys { secret_key: Secret::new("a\r\nb"), ..keys() }, None).is_err());
        assert!(check(&keys(), Some("eu/../x")).is_err());
    }
}
