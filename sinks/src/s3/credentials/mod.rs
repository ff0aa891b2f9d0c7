//! Keys for the store, where Amazon's own tools look for them, in their order: the environment, the user's profile, a web
//! identity, the container, the machine.

mod profile;
mod remote;
mod variables;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use ureq::Agent;

use super::client::Keys;
use crate::http::Failure;
use profile::Profile;
use variables::variable;

/// Keys that end sooner are replaced before they are used.
const REFRESH_BEFORE: Duration = Duration::from_secs(300);

/// Keys that do not end are tried so often.
const MOST_REFUSALS: u32 = 3;

/// Where keys come from, and those that were found last.
pub(super) struct KeyChain {
    agent: Agent,
    /// The profile that the user named.
    profile: Option<String>,
    keys: Option<Keys>,
    /// How often in a row the store has refused them.
    refusals: u32,
}

impl KeyChain {
    pub(super) fn new(agent: Agent, profile: Option<String>) -> Self {
        Self { agent, profile, keys: None, refusals: 0 }
    }

    /// Keys that are good for a while.
    pub(super) fn keys(&mut self) -> Result<Keys, Failure> {
        if let Some(keys) = self.keys.as_ref().filter(|keys| is_fresh(keys)) {
            return Ok(keys.clone());
        }
        let keys = self.find().map_err(|why| Failure::Refused(format!("no keys for the store: {why:#}")))?;
        Ok(self.keys.insert(keys).clone())
    }

    /// The store refused them. Says whether it is worth another try, with those that are found then: a file can have others,
    /// and a store can be wrong.
    pub(super) fn refused(&mut self) -> bool {
        self.refusals += 1;
        self.keys.take().is_some_and(|keys| keys.can_be_replaced) || self.refusals < MOST_REFUSALS
    }

    /// The store took them.
    pub(super) fn taken(&mut self) {
        self.refusals = 0;
    }

    fn find(&self) -> anyhow::Result<Keys> {
        let is_named = self.profile.is_some();
        if !is_named && let Some(keys) = of_environment()? {
            return Ok(keys);
        }
        let name = self.profile.clone().or_else(|| variable("AWS_PROFILE"));
        let profile = Profile::read(name.as_deref())?;
        if let Some(keys) = profile.keys()? {
            return Ok(keys);
        }
        if let Some(identity) = profile.web_identity().or_else(remote::WebIdentity::of_environment) {
            return identity.keys(&self.agent, profile.region().as_deref());
        }
        profile.check_unknown()?;
        if let Some(keys) = remote::of_container(&self.agent)? {
            return Ok(keys);
        }
        match remote::of_machine()? {
            Some(keys) => Ok(keys),
            None => bail!(
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; there is no web identity, and neither the container nor the machine has any"
            ),
        }
    }
}

/// The region that the user has set for everything.
pub(super) fn region(profile: Option<&str>) -> Option<String> {
    let set = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    let name = profile.map(str::to_owned).or_else(|| variable("AWS_PROFILE"));
    set.or_else(|| Profile::read(name.as_deref()).ok()?.region())
}

fn of_environment() -> anyhow::Result<Option<Keys>> {
    let Some(access_key) = variable("AWS_ACCESS_KEY_ID") else { return Ok(None) };
    let secret_key =
        variable("AWS_SECRET_ACCESS_KEY").context("AWS_ACCESS_KEY_ID is set, but not AWS_SECRET_ACCESS_KEY")?;
    Ok(Some(Keys::lasting(access_key, secret_key, variable("AWS_SESSION_TOKEN"))))
}

/// Keys whose end is not known are good.
fn is_fresh(keys: &Keys) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    keys.expires.is_none_or(|end| end.as_second() - now > REFRESH_BEFORE.as_secs() as i64)
}
