//! HTTP as services are spoken to: time limits on every call, proxies and certificates of the system.

pub(crate) mod backoff;
pub(crate) mod receiver;
mod tls;

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use jiff::{Timestamp, fmt::rfc2822};
use ureq::http::{Method, Response};
use ureq::tls::Certificate;
use ureq::{Agent, Body};

use url::{Host, Url};

pub(crate) use tls::{certificates, read_file};

/// The time for a whole request and its answer.
const CALL: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// Where Alibaba and Azure have metadata; all others have it at link-local addresses.
const METADATA: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
/// Names of metadata services, and those that distributions give this machine.
const ONLY_HERE: [&str; 7] = [
    "metadata.google.internal",
    "metadata",
    "instance-data",
    "instance-data.ec2.internal",
    "ip6-localhost",
    "ip6-loopback",
    "localhost.localdomain",
];
/// Amazon has metadata here as well.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
/// No service here gives longer answers.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The service does not take the token, or the store the credentials.
    Refused(String),
    /// The same request would get the same answer.
    Permanent(String),
    /// It is worth another try, though not before the time that the server names.
    Temporary(String, Option<Duration>),
    /// The same, and every other request would fail as well.
    Unavailable(String, Option<Duration>),
}

impl Failure {
    pub(crate) fn problem(&self) -> &str {
        let (Self::Refused(problem)
        | Self::Permanent(problem)
        | Self::Temporary(problem, _)
        | Self::Unavailable(problem, _)) = self;
        problem
    }

    /// Whether it is worth another try.
    pub(crate) fn can_pass(&self) -> bool {
        matches!(self, Self::Temporary(..) | Self::Unavailable(..))
    }

    /// How long the server asks to be left alone.
    pub(crate) fn asked(&self) -> Option<Duration> {
        match self {
            Self::Temporary(_, asked) | Self::Unavailable(_, asked) => *asked,
            Self::Refused(_) | Self::Permanent(_) => None,
        }
    }
}

/// An agent that goes through the proxy of the environment and trusts the certificates of the system.
pub(crate) fn agent() -> Agent {
    agent_with(Vec::new(), CALL)
}

/// The same, which trusts these certificates as well, with another time for a whole request and its answer.
pub(crate) fn agent_with(certificates: Vec<Certificate<'static>>, call: Duration) -> Agent {
    let config = Agent::config_builder()
        .tls_config(tls::config(certificates))
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(call))
        .user_agent(concat!("resource-tracker/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::new_with_config(config)
}

/// Parses an address that requests may go to: `https`, or `http` to this machine, or `http` anywhere if that is
/// allowed. `name` is where it was given, `way_out` how http can be allowed.
///
/// # Errors
/// When it is no such address.
pub fn address(name: &str, text: &str, allow_http: bool, way_out: &str) -> Result<Url, String> {
    // What comes before an `@` or after a `?` can be secret.
    let shown = if text.contains(['@', '\u{ff20}', '?', '#']) { "***".to_owned() } else { format!("{text:?}") };
    let url = Url::parse(text).map_err(|error| format!("{name} {shown} is no URL: {error}"))?;
    let has_secret = !url.username().is_empty() || url.password().is_some() || url.query().is_some();
    let has_more = has_secret || url.fragment().is_some();
    match url.scheme() {
        "https" | "http" if url.host().is_none() => Err(format!("{name} {shown} names no host")),
        "https" | "http" if has_more => Err(format!(
            "{name} has a user, a password, a query or a fragment, which would be written down; leave it out"
        )),
        "https" => Ok(url),
        "http" if is_loopback(&url) || allow_http => Ok(url),
        "http" => Err(format!("{name} {shown} would be spoken to unencrypted; use https, or {way_out}")),
        scheme => Err(format!("{name} {shown} has the scheme {scheme}; it must be https")),
    }
}

/// The store other than Amazon's that the environment names, by the variables of Amazon's own tools.
///
/// # Errors
/// When that is no address that requests may go to.
pub(crate) fn store_endpoint(allow_http: bool, way_out: &str) -> anyhow::Result<Option<Url>> {
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].into_iter().find_map(|name| {
        let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
        Some(address(name, &text, allow_http, way_out).map_err(anyhow::Error::msg))
    });
    endpoint.transpose()
}

/// Whether a URL names this machine.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(domain)) => {
            let domain = domain.trim_end_matches('.');
            domain == "localhost" || domain.ends_with(".localhost")
        }
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|v4| v4.is_loopback())
        }
        None => false,
    }
}

/// Whether a URL means something else, or nothing, to a proxy: this machine, its link, or the metadata of its cloud.
fn is_only_here(url: &Url) -> bool {
    let is_link =
        |address: Ipv4Addr| address.is_link_local() || address.is_unspecified() || METADATA.contains(&address);
    is_loopback(url)
        || match url.host() {
            Some(Host::Domain(domain)) => ONLY_HERE.contains(&domain.trim_end_matches('.')),
            Some(Host::Ipv4(address)) => is_link(address),
            Some(Host::Ipv6(address)) => {
                address.is_unicast_link_local()
                    || address.is_unspecified()
                    || address == METADATA_V6
                    || address.to_ipv4_mapped().is_some_and(is_link)
            }
            None => false,
        }
}

/// The answer of a server.
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

    /// An answer that came over no network.
    pub(crate) fn of(status: u16, body: Vec<u8>) -> Self {
        Self { status, body, retry_after: None }
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// What a status other than success means. It repeats nothing of the body, which can hold secrets.
    pub(crate) fn failure(&self, what: &str) -> Failure {
        let code = self.code().map(|code| format!(" {code}")).unwrap_or_default();
        let problem = format!("{what}: the answer is {}{code}", self.status);
        match self.status {
            429 | 503 => Failure::Unavailable(problem, self.retry_after),
            408 | 500..=599 => Failure::Temporary(problem, self.retry_after),
            _ => Failure::Permanent(problem),
        }
    }

    /// The store's name for the error, if it is a known one.
    fn code(&self) -> Option<&'static str> {
        let body = String::from_utf8_lossy(&self.body);
        let code = element(&body, "Code")?;
        CODES.into_iter().find(|known| *known == code)
    }
}

/// The text of the first element of that name, in the XML of Amazon's services.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// Errors of the store that tell what to do.
const CODES: [&str; 12] = [
    "AccessDenied",
    "AuthorizationHeaderMalformed",
    "EntityTooLarge",
    "ExpiredToken",
    "InternalError",
    "InvalidAccessKeyId",
    "InvalidToken",
    "NoSuchBucket",
    "PermanentRedirect",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "SlowDown",
];

/// `Retry-After`: seconds, or a date.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(secs) = text.parse() {
        return Some(Duration::from_secs(secs));
    }
    let date = rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(now)).unwrap_or_default())
}

/// Every error of the connection can pass. The text of an error is not used: it can hold the address, which is signed for
/// an upload, or what the server or the proxy said.
fn not_answered(what: &str, error: &ureq::Error) -> Failure {
    let why = match error {
        ureq::Error::BadUri(_) => "the address is not valid",
        ureq::Error::Timeout(_) => "no answer in time",
        ureq::Error::HostNotFound => "the host is not found",
        ureq::Error::InvalidProxyUrl | ureq::Error::ConnectProxyFailed(_) => "the proxy does not connect",
        ureq::Error::BodyExceedsLimit(_) | ureq::Error::LargeResponseHeader(..) => "the answer is too long",
        ureq::Error::Http(_) | ureq::Error::Protocol(_) => "the answer is no HTTP",
        ureq::Error::Rustls(error) => not_trusted(error),
        ureq::Error::Io(error) if is_lookup(error) => "the host is not found",
        ureq::Error::Io(error) => &io_problem(error),
        _ => "the connection failed",
    };
    let problem = format!("{what}: {why}");
    if is_unreachable(error) { Failure::Unavailable(problem, None) } else { Failure::Temporary(problem, None) }
}

/// Whether there was no connection at all. A connection that was cut, or took too long, may have been too slow for this
/// request.
fn is_unreachable(error: &ureq::Error) -> bool {
    use ureq::{Error, Timeout};
    match error {
        Error::Timeout(Timeout::Resolve | Timeout::Connect) | Error::HostNotFound | Error::Rustls(_) => true,
        Error::InvalidProxyUrl | Error::ConnectProxyFailed(_) | Error::ConnectionFailed => true,
        Error::Io(error) => {
            let is_none = [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
            is_none.contains(&error.kind()) || tls_error(error).is_some() || is_lookup(error)
        }
        _ => false,
    }
}

/// Whether the system could not find the host: the standard library has no kind for that.
fn is_lookup(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.to_string().starts_with("failed to lookup address")
}

fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// What the system says of an error, and nothing that came over the connection.
fn io_problem(error: &io::Error) -> String {
    match (tls_error(error), error.raw_os_error()) {
        (Some(error), _) => not_trusted(error).to_owned(),
        (None, Some(code)) => io::Error::from_raw_os_error(code).to_string(),
        (None, None) => error.kind().to_string(),
    }
}

fn not_trusted(error: &rustls::Error) -> &'static str {
    use rustls::CertificateError;
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            CertificateError::UnknownIssuer => "the server's certificate is of an issuer that is not known",
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the server's certificate has expired"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid yet"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another name"
            }
            _ => "the server's certificate is not valid",
        },
        _ => "TLS failed",
    }
}

/// Sends a request with a body; an empty one says so. A request to this machine, or to its cloud's metadata, never goes
/// through a proxy.
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
    let request = request.body(body)?;
    match Url::parse(url).is_ok_and(|url| is_only_here(&url)) {
        true => agent.run(agent.configure_request(request).proxy(None).build()),
        false => agent.run(request),
    }
}

/// The answer of a service without secrets to a GET, within this time. `None` if the service says 404.
///
/// # Errors
/// When there is no answer, or it is an error. `what` names the request.
pub fn get(what: &str, url: &Url, limit: Duration) -> Result<Option<Vec<u8>>, String> {
    let agent = agent();
    let sent = ureq::http::Request::get(url.as_str()).body(()).map_err(ureq::Error::from).and_then(|request| {
        let request = agent.configure_request(request).timeout_global(Some(limit));
        agent.run(if is_only_here(url) { request.proxy(None).build() } else { request.build() })
    });
    let answer = Answer::read(what, sent).map_err(|failure| failure.problem().to_owned())?;
    match answer.status {
        404 => Ok(None),
        _ if answer.is_success() => Ok(Some(answer.body)),
        _ => Err(answer.failure(what).problem().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_unencrypted() {
        let good = |text: &str, allow| address("api_url", text, allow, "x").is_ok();
        assert!(good("https://api.example.com", false) && good("https://api.example.com/base/", false));
        assert!(
            good("http://127.0.0.1:8080", false) && good("http://localhost", false) && good("http://[::1]:1", false)
        );
        assert!(!good("http://api.example.com", false) && good("http://api.example.com", true));
        for secret in [
            "http://bob:hunter2@example.com",
            "https://bob@example.com",
            "https://x/?key=hunter2",
            "http://b:hunter2@[x",
        ] {
            let refused = address("api_url", secret, false, "x").unwrap_err();
            assert!(!refused.contains("bob") && !refused.contains("hunter2"), "{refused}");
        }
        for bad in ["", "api.example.com", "ftp://x", "https://", "http://127.0.0.1.example.com", "file:///etc/passwd"]
        {
            assert!(!good(bad, false), "{bad}");
        }
    }

    #[test]
    fn nothing_of_an_answer_is_repeated_but_known_words() {
        let said = |body: &str| {
            Answer { status: 403, body: body.into(), retry_after: None }.failure("PUT x").problem().to_owned()
        };
        assert_eq!(
            said("<Error><Code>ExpiredToken</Code><Message>SECRET</Message>"),
            "PUT x: the answer is 403 ExpiredToken"
        );
        assert_eq!(said("<Code>SECRET</Code>"), "PUT x: the answer is 403");
        assert_eq!(said("{\"detail\":\"SECRET\"}"), "PUT x: the answer is 403");
    }

    #[test]
    fn what_is_only_here_needs_no_proxy() -> anyhow::Result<()> {
        for (host, expected) in [
            ("localhost:80", true),
            ("a.localhost", true),
            ("127.9.9.9", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("0.0.0.0", true),
            ("169.254.169.254", true),
            ("0xa9fea9fe", true),
            ("[fe80::1]", true),
            ("[fd00:ec2::254]", true),
            ("100.100.100.200", true),
            ("168.63.129.16", true),
            ("metadata.google.internal", true),
            ("METADATA.google.internal", true),
            ("10.0.0.1", false),
            ("api.sentinel.sparecores.net", false),
            ("127.0.0.1.example.com", false),
            ("localhost.example.com", false),
        ] {
            assert_eq!(is_only_here(&Url::parse(&format!("http://{host}/x"))?), expected, "{host}");
        }
        Ok(())
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
        assert_eq!(failure(503, wait), Failure::Unavailable("PUT x: the answer is 503".into(), wait));
        assert_eq!(failure(500, wait), Failure::Temporary("PUT x: the answer is 500".into(), wait));
        assert!([408, 429, 502].into_iter().all(|status| failure(status, None).can_pass()));
        assert!(
            matches!(failure(422, None), Failure::Permanent(_)) && matches!(failure(301, None), Failure::Permanent(_))
        );
    }
}
