//! Runs that ended before everything had arrived: they are completed by the next run, or by `resource-tracker upload`.

use std::fs;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use ureq::Agent;
use url::Url;

use super::api::Api;
use super::backoff::Backoff;
use super::http::Failure;
use super::s3::S3;
use super::secret::Secret;
use super::spool::{RunDirectory, Spool};
use super::store::{End, Store};
use super::upload::Upload;

const ATTEMPTS: u32 = 4;

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
    /// Reads what is in the directory of a run. `None`, and the directory is gone, when nothing was written there.
    pub(crate) fn open(directory: RunDirectory) -> io::Result<Option<Self>> {
        let path = directory.path().to_owned();
        let newest =
            directory.files().iter().filter_map(|name| fs::metadata(path.join(name)).ok()?.modified().ok()).max();
        let Some(mut store) = Store::recover(directory)? else {
            fs::remove_dir_all(path)?;
            return Ok(None);
        };
        // A tracker that was killed did not see the end of its command.
        store.state.end.get_or_insert_with(|| End {
            exit_code: None,
            status: "failed".into(),
            at: rfc3339(newest.unwrap_or_else(SystemTime::now)),
        });
        Ok(Some(Self { store }))
    }

    /// Its directory, what the service calls it if it knows it, and how many batches wait.
    pub fn describe(&self) -> (String, Option<&str>, u32) {
        let path = self.store.directory().map(|directory| directory.path().display().to_string()).unwrap_or_default();
        (path, self.store.state.run_id.as_deref(), self.store.closed - self.store.state.next)
    }

    /// Its address of the service.
    pub(crate) fn api_url(&self) -> &str {
        &self.store.state.api_url
    }

    pub(crate) fn send(self, connect: &Connect) -> Result<(), Failure> {
        let mut upload = connect.upload(self.store);
        let mut backoff = Backoff::new(Duration::from_millis(500));
        loop {
            match upload.register().and_then(|()| upload.finish()) {
                Err(failure @ Failure::Temporary(..)) if backoff.failures() + 1 < ATTEMPTS => {
                    backoff.failed(&failure, Instant::now(), u32::MAX);
                    std::thread::sleep(backoff.pause(Instant::now()).unwrap_or_default());
                }
                result => return result,
            }
        }
    }
}

/// A moment as the service takes it, in whole seconds.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_second(since.as_secs() as i64).map(|time| time.to_string()).unwrap_or_default()
}

/// Sends what earlier runs of this user left behind, beside the run that goes on.
pub(crate) fn send_in_background(spool: Spool, connect: Connect) {
    let work = move || {
        for directory in spool.left_behind().into_iter().flatten() {
            let Ok(Some(left)) = LeftBehind::open(directory) else { continue };
            if left.api_url() != connect.api_url.as_str() {
                continue;
            }
            match left.send(&connect) {
                // `resource-tracker upload` says why the service does not take it.
                Ok(()) | Err(Failure::Permanent(_)) => (),
                // The run that goes on speaks of that.
                Err(Failure::Refused(_) | Failure::Temporary(..)) => return,
            }
        }
    };
    // Without a thread they wait for another run.
    let _ = std::thread::Builder::new().name("left-behind".into()).spawn(work);
}
