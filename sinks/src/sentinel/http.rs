//! HTTP as the service and the store are spoken to: time limits on every call, proxies and certificates of the system.

use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use ureq::http::{Method, Response};
use ureq::{Agent, Body};
use url::{Host, Url};

/// A whole request and its answer.
const CALL: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// Longer answers are none of this service.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Why a request did not do what it was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The service does not take the token, or the store the credentials.
    Refused(String),
    /// The same request would get the same answer.
    Permanent(String),
    /// It is worth another try, though not before the time that the server names.
    Temporary(String, Option<Duration>),
}

impl Failure {
    pub(crate) fn problem(&self) -> &str {
        let (Failure::Refused(problem) | Failure::Permanent(problem) | Failure::Temporary(problem, _)) = self;
        problem
    }
}

/// An agent that goes through the proxy of the environment and trusts the certificates of the system.
pub(crate) fn agent() -> Agent {
    let config = Agent::config_builder()
        .tls_config(super::tls::config())
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(CALL))
        .user_agent(concat!("resource-tracker/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::new_with_config(config)
}

/// An address that secrets may be sent to: `https`, or `http` to this machine, or to any where it was allowed.
pub(crate) fn address(name: &str, text: &str, allow_http: bool) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{name} {text:?} is no URL: {error}"))?;
    let is_local = match url.host() {
        Some(Host::Domain(domain)) => domain == "localhost" || domain.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" | "http" if url.host().is_none() => Err(format!("{name} {text:?} names no host")),
        "https" => Ok(url),
        "http" if is_local || allow_http => Ok(url),
        "http" => Err(format!("{name} {text:?} would send the token unencrypted; use https, or set allow_http")),
        scheme => Err(format!("{name} {text:?} has the scheme {scheme}; it must be https")),
    }
}

/// What a server said.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    retry_after: Option<Duration>,
}

impl Answer {
    /// Reads the answer. `what` names the request in messages, without anything that is secret.
    pub(crate) fn read(what: &str, result: Result<Response<Body>, ureq::Error>) -> Result<Self, Failure> {
        let mut response = result.map_err(|error| not_answered(what, &error))?;
        let header = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let retry_after = header.and_then(|text| retry_after(text.trim(), Timestamp::now()));
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(LONGEST_ANSWER).read_to_vec();
        let body = body.map_err(|error| not_answered(what, &error))?;
        Ok(Self { status, body, retry_after })
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What a status other than success means.
    pub(crate) fn failure(&self, what: &str) -> Failure {
        let problem = format!("{what}: the answer is {}{}", self.status, self.excerpt());
        match self.status {
            408 | 429 | 500..=599 => Failure::Temporary(problem, self.retry_after),
            _ => Failure::Permanent(problem),
        }
    }

    /// The beginning of the body, on one line.
    fn excerpt(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.body).split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
        if text.is_empty() { text } else { format!(": {text}") }
    }
}

/// `Retry-After`: seconds, or a date.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// Every error of the connection can pass. The text of an error that holds the address is not used: that of an upload
/// is signed.
fn not_answered(what: &str, error: &ureq::Error) -> Failure {
    let why = match error {
        ureq::Error::BadUri(_) => "the address is not valid".to_owned(),
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        other => other.to_string(),
    };
    Failure::Temporary(format!("{what}: {why}"), None)
}

/// Sends a request with a body; an empty one says so.
pub(crate) fn send(
    agent: &Agent,
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Response<Body>, ureq::Error> {
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    agent.run(request.body(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_unencrypted() {
        let good = |text: &str, allow| address("api_url", text, allow).is_ok();
        assert!(good("https://api.example.com", false) && good("https://api.example.com/base/", false));
        assert!(
            good("http://127.0.0.1:8080", false) && good("http://localhost", false) && good("http://[::1]:1", false)
        );
        assert!(!good("http://api.example.com", false) && good("http://api.example.com", true));
        for bad in ["", "api.example.com", "ftp://x", "https://", "http://127.0.0.1.example.com", "file:///etc/passwd"]
        {
            assert!(!good(bad, false), "{bad}");
        }
    }

    #[test]
    fn seconds_or_a_date() -> anyhow::Result<()> {
        let now = "2026-11-21T08:49:30Z".parse()?;
        let asked = |text| retry_after(text, now).map(|time| time.as_secs());
        assert_eq!((asked("120"), asked("0")), (Some(120), Some(0)));
        assert_eq!(asked("Sat, 21 Nov 2026 08:49:37 GMT"), Some(7));
        assert_eq!(asked("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0), "it is over");
        assert_eq!((asked("soon"), asked("-1"), asked("")), (None, None, None));
        Ok(())
    }

    #[test]
    fn what_is_tried_again() {
        let failure = |status, retry_after| Answer { status, body: b"no\n way".to_vec(), retry_after }.failure("PUT x");
        let wait = Some(Duration::from_secs(7));
        assert_eq!(failure(503, wait), Failure::Temporary("PUT x: the answer is 503: no way".into(), wait));
        assert!(
            matches!(failure(429, None), Failure::Temporary(..))
                && matches!(failure(408, None), Failure::Temporary(..))
        );
        assert!(
            matches!(failure(422, None), Failure::Permanent(_)) && matches!(failure(301, None), Failure::Permanent(_))
        );
    }
}
