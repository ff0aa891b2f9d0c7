//! Runs that ended before everything had arrived: they are completed by the next run, or by `resource-tracker upload`.

use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use jiff::Timestamp;
use ureq::Agent;
use url::Url;

use super::api::Api;
use super::run_directory::RunDirectory;
use super::run_files::Access;
use super::s3::S3;
use super::spool::Spool;
use super::state::End;
use super::store::Store;
use super::upload::Upload;
use crate::http::Failure;
use crate::http::backoff::Backoff;
use crate::secret::Secret;

const ATTEMPTS: u32 = 4;
/// The longest pause, because a user may be waiting for the upload. A server that asks for longer gets it from a later
/// attempt.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// 0000-01-01, in seconds of Unix time.
const YEAR_0: i64 = -62_167_219_200;

/// How to reach the service and the store.
#[derive(Debug, Clone)]
pub(crate) struct Connect {
    pub(crate) agent: Agent,
    pub(crate) api_url: Url,
    pub(crate) token: Secret,
    pub(crate) store: Option<Url>,
}

impl Connect {
    pub(crate) fn upload(&self, store: Store) -> Upload {
        let api = Api::new(self.agent.clone(), self.api_url.clone(), self.token.clone());
        Upload::new(api, S3::new(self.agent.clone(), self.store.clone()), store)
    }
}

/// A run that is not complete yet.
pub struct LeftBehind {
    store: Store,
}

impl LeftBehind {
    /// Reads what is in the directory of a run. `None` when another process has just sent and removed it.
    ///
    /// # Errors
    /// When it cannot be read; it stays as it is.
    pub(crate) fn open(directory: RunDirectory) -> anyhow::Result<Option<Self>> {
        let (shown, newest) = (directory.path().display().to_string(), directory.modified());
        let store = Store::recover(directory).with_context(|| format!("{shown} cannot be read, and stays as it is"))?;
        let Some(mut store) = store else { return Ok(None) };
        // A tracker that was killed did not see the end of its command.
        store.state.end.get_or_insert_with(|| End {
            exit_code: None,
            status: "failed".into(),
            at: rfc3339(newest.unwrap_or_else(SystemTime::now)),
        });
        Ok(Some(Self { store }))
    }

    /// Its directory, whether the service knows it, and how many batches wait.
    pub fn describe(&self) -> (String, bool, u32) {
        let path = self.store.directory().map(|directory| directory.path().display().to_string()).unwrap_or_default();
        (path, self.store.state.run_id.is_some(), self.store.waiting())
    }

    /// Whether the run belongs to this service. A run that was never given to a service belongs to any.
    fn is_of(&self, api_url: &Url) -> bool {
        let state = &self.store.state;
        state.api_url == api_url.as_str() || (state.api_url.is_empty() && state.run_id.is_none())
    }

    /// Sends what is left of the run. It calls `waits` before each pause, with its reason and its length.
    pub(crate) fn send(mut self, connect: &Connect, mut waits: impl FnMut(&str, Duration)) -> Result<(), Failure> {
        if !self.is_of(&connect.api_url) {
            let of =
                Url::parse(&self.store.state.api_url).map_or("another service".to_owned(), |url| without_user(&url));
            let here = without_user(&connect.api_url);
            return Err(Failure::Permanent(format!(
                "it belongs to {of}, not to {here}; set SENTINEL_API_URL and SENTINEL_API_TOKEN for that service"
            )));
        }
        self.store.state.api_url = connect.api_url.to_string();
        let mut upload = connect.upload(self.store);
        let mut backoff = Backoff::new(Duration::from_millis(500));
        loop {
            let failure = match upload.register().and_then(|()| upload.finish()) {
                Err(failure) if failure.can_pass() => failure,
                result => return result,
            };
            let now = Instant::now();
            backoff.failed(&failure, now, u32::MAX);
            let pause = backoff.pause(now).unwrap_or_default();
            if pause > LONGEST_PAUSE {
                let problem = format!(
                    "{}, and the service asks to be left alone for {} minutes: run `resource-tracker upload` again after that",
                    failure.problem(),
                    pause.as_secs().div_ceil(60)
                );
                return Err(Failure::Unavailable(problem, Some(pause)));
            }
            if backoff.failures() >= ATTEMPTS {
                return Err(failure);
            }
            waits(failure.problem(), pause);
            std::thread::sleep(pause);
        }
    }
}

/// Why a run was not sent.
#[derive(Debug)]
pub enum Unsent {
    /// Others can be sent.
    Run(String),
    /// No other can be sent now, either.
    Service(String),
}

/// An address without a name and a password.
fn without_user(url: &Url) -> String {
    let mut url = url.clone();
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}

/// A time as the service takes it, in whole seconds. The times of files can be anything, and the years of RFC 3339 go
/// from 0 to 9999: a time beyond counts as the first or the last of them.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let second = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => seconds(since),
        // Rounded down, as after it.
        Err(before) => -seconds(before.duration() + Duration::from_nanos(999_999_999)),
    };
    let time = Timestamp::from_second(second.clamp(YEAR_0, Timestamp::MAX.as_second()));
    time.unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// Sends what earlier runs of this user left behind, beside the run that goes on.
pub(crate) fn send_in_background(spool: Spool, connect: Connect) {
    let work = move || {
        for directory in spool.left_behind(Access::Work).into_iter().flatten().flatten() {
            let Ok(Some(left)) = LeftBehind::open(directory) else { continue };
            match left.send(&connect, |_, _| ()) {
                // `resource-tracker upload` says why the service does not take it.
                Ok(()) | Err(Failure::Permanent(_) | Failure::Temporary(..)) => (),
                // The current run reports that.
                Err(Failure::Refused(_) | Failure::Unavailable(..)) => return,
            }
        }
    };
    // Without a thread they wait for another run.
    let _ = std::thread::Builder::new().name("left-behind".into()).spawn(work);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_moment_is_a_time_of_rfc_3339() {
        let after = |seconds: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let before = |time: Duration| SystemTime::UNIX_EPOCH - time;
        for (time, expected) in [
            (after(0), "1970-01-01T00:00:00Z"),
            (after(1_700_000_000) + Duration::from_millis(999), "2023-11-14T22:13:20Z"),
            (after(253_402_207_200), "9999-12-30T22:00:00Z"),
            (after(253_402_300_800), "9999-12-30T22:00:00Z"),
            (after(i64::MAX as u64), "9999-12-30T22:00:00Z"),
            (before(Duration::from_secs(1)), "1969-12-31T23:59:59Z"),
            (before(Duration::from_millis(500)), "1969-12-31T23:59:59Z"),
            (before(Duration::from_secs(62_167_219_200)), "0000-01-01T00:00:00Z"),
            (before(Duration::from_secs(62_167_219_201)), "0000-01-01T00:00:00Z"),
            (before(Duration::from_secs(1 << 62)), "0000-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(time), expected, "{time:?}");
        }
    }
}
