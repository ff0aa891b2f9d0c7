//! What the service knows, and how it behaves.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

pub const TOKEN: &str = "sentinel-test-token-4711";
pub const BUCKET: &str = "sentinel-bucket";

/// How the service treats a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trouble {
    #[default]
    None,
    /// The connection is closed without an answer, and nothing is done.
    Cut,
    /// What is asked for is done, and the connection is cut in the middle of the answer.
    CutHalfway,
    /// This status, with the seconds of `Retry-After` if there are any.
    Status(u16, Option<u32>),
    /// The answer comes late.
    Delay(Duration),
    /// The answer comes a byte at a time, with this pause.
    Trickle(Duration),
}

/// What the service knows.
#[derive(Default)]
pub struct Known {
    pub runs: BTreeMap<String, Run>,
    /// Method and path of every request, in order.
    pub requests: Vec<String>,
    /// What broke the contract.
    pub complaints: Vec<String>,
    /// What is done about requests whose method and path contain the text.
    pub trouble: Vec<(&'static str, Trouble)>,
    /// How long credentials are good for.
    pub lifetime: Duration,
    /// Credentials end after this, whatever end they have been given.
    pub early_end: Option<Duration>,
    /// Whether credentials tell a region.
    pub tells_region: bool,
    /// What is put over the answer to a registration.
    pub answer: Json,
    pub(crate) keys: HashMap<String, Keys>,
}

#[derive(Default, Clone)]
pub struct Run {
    pub facts: Json,
    pub finish: Option<Json>,
    pub refreshes: u32,
}

pub(crate) struct Keys {
    pub(crate) secret: String,
    pub(crate) token: String,
    pub(crate) end: Instant,
}

impl Known {
    /// Adds keys that the store takes until they are removed, or for a while: an access key, a secret key, and the token of
    /// keys that end, which others do not have.
    pub fn add_keys(&mut self, access_key: &str, secret: &str, token: &str, lifetime: Duration) {
        let keys = Keys { secret: secret.into(), token: token.into(), end: Instant::now() + lifetime };
        self.keys.insert(access_key.into(), keys);
    }

    /// How many requests had this method.
    pub fn count(&self, method: &str) -> usize {
        self.requests.iter().filter(|request| request.starts_with(method)).count()
    }
}

pub(crate) fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}
