//! Requests to a metadata service: short, without a proxy, never followed elsewhere.

use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::Agent;
use ureq::http::{Method, Request, Response};

/// One request has this long.
const REQUEST: Duration = Duration::from_secs(1);
const LONGEST_ANSWER: u64 = 1 << 20;

/// How a request gets its answer, within a time.
type Fetch = Box<dyn Fn(Request<()>, Duration) -> Option<Response<ureq::Body>> + Send>;

pub(super) struct Metadata {
    fetch: Fetch,
    endpoint: Option<String>,
    deadline: Instant,
}

impl Metadata {
    pub(super) fn new(endpoint: Option<&str>, deadline: Instant) -> Self {
        let config = Agent::config_builder()
            // These addresses are those of the machine itself; a proxy would answer for another one.
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent(concat!("resource-tracker/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = Agent::new_with_config(config);
        let fetch: Fetch = Box::new(move |request, limit| {
            agent.run(agent.configure_request(request).timeout_global(Some(limit)).build()).ok()
        });
        Self { fetch, endpoint: endpoint.map(str::to_owned), deadline }
    }

    /// Every request gets this answer, over no network.
    pub(super) fn of_answer(body: Vec<u8>) -> Self {
        let fetch: Fetch = Box::new(move |_, _| {
            let answer = Response::builder().header("Metadata-Flavor", "Google");
            answer.body(ureq::Body::builder().data(body.clone())).ok()
        });
        Self { fetch, endpoint: None, deadline: Instant::now() + REQUEST }
    }

    /// The text at `base` and `path`, where there is one.
    pub(super) fn get(&self, base: &str, path: &str, headers: &[(&str, &str)]) -> Option<String> {
        self.request(Method::GET, base, path, headers)?
            .into_body()
            .with_config()
            .limit(LONGEST_ANSWER)
            .read_to_string()
            .ok()
    }

    /// As `get`, of a service that names itself in a header of its answers.
    pub(super) fn get_of(&self, base: &str, path: &str, flavor: (&str, &str)) -> Option<String> {
        let answer = self.request(Method::GET, base, path, &[flavor])?;
        let is_it = answer.headers().get(flavor.0).is_some_and(|value| value.as_bytes() == flavor.1.as_bytes());
        answer.into_body().with_config().limit(LONGEST_ANSWER).read_to_string().ok().filter(|_| is_it)
    }

    /// A token, which is asked for with PUT.
    pub(super) fn token(&self, base: &str, path: &str, lifetime: (&str, &str)) -> Option<String> {
        let answer = self.request(Method::PUT, base, path, &[lifetime])?;
        let token = answer.into_body().with_config().limit(4096).read_to_string().ok()?;
        Some(token.trim().to_owned()).filter(|token| !token.is_empty())
    }

    pub(super) fn json(&self, base: &str, path: &str, headers: &[(&str, &str)]) -> Option<Value> {
        serde_json::from_str(&self.get(base, path, headers)?).ok()
    }

    fn request(
        &self,
        method: Method,
        base: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Option<Response<ureq::Body>> {
        let limit = self.deadline.saturating_duration_since(Instant::now()).min(REQUEST);
        if limit.is_zero() {
            return None;
        }
        let base = self.endpoint.as_deref().unwrap_or(base).trim_end_matches('/');
        let mut request = Request::builder().method(method).uri(format!("{base}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        (self.fetch)(request.body(()).ok()?, limit).filter(|answer| answer.status() == 200)
    }
}

/// The text or number at a path of keys.
pub(super) fn text(value: &Value, path: &[&str]) -> Option<String> {
    match path.iter().try_fold(value, |value, key| value.get(key))? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
