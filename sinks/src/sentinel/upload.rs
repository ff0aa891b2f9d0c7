//! Brings one run to the service: registers it, sends its batches in order, finishes it. Every step can be repeated.

use std::time::Duration;

use jiff::Timestamp;
use ureq::Agent;
use url::Url;

use super::api::{Api, Credentials, Data, Finish};
use super::state::State;
use crate::http::Failure;
use crate::s3::client::{Object, S3};
use crate::secret::Secret;
use crate::spool::{self, Destination, Store, unreadable};

/// Where a bucket is if neither the service nor the store says it.
const DEFAULT_REGION: &str = "eu-central-1";
const HEADERS: [(&str, &str); 2] = [("content-type", "text/csv"), ("content-encoding", "gzip")];
/// Credentials that end sooner are replaced before they are used.
const REFRESH_BEFORE: Duration = Duration::from_secs(300);
/// A run of one batch that is not larger than this goes with its last message.
const LARGEST_INLINE: u64 = 1 << 20;

/// How to reach the service and the store.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    pub(crate) agent: Agent,
    pub(crate) api_url: Url,
    pub(crate) token: Secret,
    /// A store other than Amazon's.
    pub(crate) store: Option<Url>,
}

impl Service {
    /// Whether the run belongs to this service. A run that was never given to a service belongs to any.
    fn is_of(&self, state: &State) -> bool {
        state.api_url == self.api_url.as_str() || (state.api_url.is_empty() && state.run_id.is_none())
    }
}

impl Destination for Service {
    type Upload = Upload;

    fn upload(&self, mut store: Store<State>) -> Result<Upload, Failure> {
        if !self.is_of(&store.state) {
            let of = Url::parse(&store.state.api_url).map_or("another service".to_owned(), |url| without_user(&url));
            let here = without_user(&self.api_url);
            return Err(Failure::Permanent(format!(
                "it belongs to {of}, not to {here}; set SENTINEL_API_URL and SENTINEL_API_TOKEN for that service"
            )));
        }
        store.state.api_url = self.api_url.to_string();
        let api = Api::new(self.agent.clone(), self.api_url.clone(), self.token.clone());
        let s3 = S3::new(self.agent.clone(), self.store.clone(), DEFAULT_REGION);
        Ok(Upload { api, s3, store, credentials: None })
    }
}

/// An address without a name and a password.
fn without_user(url: &Url) -> String {
    let mut url = url.clone();
    let _ = (url.set_username(""), url.set_password(None));
    url.to_string()
}

pub(crate) struct Upload {
    api: Api,
    s3: S3,
    store: Store<State>,
    credentials: Option<Credentials>,
}

impl spool::Upload for Upload {
    type State = State;

    /// The service takes nothing of a run that is finished.
    const KEEPS_LEFT_OUT: bool = false;

    fn store(&self) -> &Store<State> {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store<State> {
        &mut self.store
    }

    fn is_begun(&self) -> bool {
        self.store.state.run_id.is_some()
    }

    fn begin(&mut self) -> Result<(), Failure> {
        if self.is_begun() {
            return Ok(());
        }
        let registration = self.api.register(&self.store.state.facts)?;
        self.store.state.run_id = Some(registration.run_id);
        self.store.state.upload_uri_prefix = Some(registration.upload_uri_prefix);
        self.credentials = Some(registration.upload_credentials);
        // If this fails, a crash has the run registered a second time, and does no other harm.
        let _ = self.store.save();
        Ok(())
    }

    fn send_batch(&mut self) -> Result<bool, Failure> {
        let Some(body) = self.store.next_body()? else { return Ok(false) };
        let Some(uri) = self.store.state.uri(self.store.next()) else {
            self.store.settle(false);
            return Ok(true);
        };
        let credentials = self.fresh_credentials()?;
        // The bucket and the path came from the service, so they are not repeated in messages.
        let what = format!("PUT s3://…/{}", uri.rsplit('/').next().unwrap_or_default());
        let object = Object { uri: &uri, region: credentials.region.as_deref(), headers: &HEADERS, signed: &[] };
        match self.s3.put(&what, &object, &credentials.keys(), &body) {
            Ok(()) => {
                self.store.settle(true);
                Ok(true)
            }
            Err(Failure::Refused(problem)) => {
                // Credentials can end early; new ones are asked for before the next attempt.
                self.credentials = None;
                Err(Failure::Temporary(problem, None))
            }
            Err(failure) => Err(failure),
        }
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let state = &self.store.state;
        let (Some(run_id), Some(end)) = (state.run_id.clone(), state.end.clone()) else {
            return Err(Failure::Permanent("the run has not ended, or is not registered".into()));
        };
        let inline = state.inline;
        let rows = match inline {
            Some(false) => None,
            None if state.next > 0 || self.store.closed > 1 => None,
            _ => self.store.rows(0, LARGEST_INLINE).map_err(|error| unreadable(&error))?,
        };
        if inline == Some(true) && rows.is_none() {
            return Err(Failure::Permanent("batch 0 is larger than what was sent of it; delete the folder".into()));
        }
        if inline.is_none() {
            // If the answer gets lost, a new attempt must go the same way, or the rows arrive twice. On a full disk,
            // the choice is kept in memory only.
            self.store.state.inline = Some(rows.is_some());
            let _ = self.store.save();
        }
        let data = match rows {
            Some(rows) => Data::Inline { data_csv: String::from_utf8_lossy(&rows).into_owned() },
            None => {
                while self.send_batch()? {}
                Data::S3 { data_uris: self.store.state.uris() }
            }
        };
        let finish = Finish { exit_code: end.exit_code, run_status: &end.status, finished_at: &end.at, data };
        self.api.finish(&run_id, &finish)?;
        self.remove_sent();
        Ok(())
    }
}

impl Upload {
    fn fresh_credentials(&mut self) -> Result<Credentials, Failure> {
        let is_fresh = |credentials: &Credentials| {
            let Some(expiry) = credentials.expiry() else { return true };
            expiry.as_second() - Timestamp::now().as_second() > REFRESH_BEFORE.as_secs() as i64
        };
        match (&self.credentials, &self.store.state.run_id) {
            (Some(credentials), _) if is_fresh(credentials) => Ok(credentials.clone()),
            (_, Some(run_id)) => {
                let credentials = self.api.refresh(run_id)?;
                self.credentials = Some(credentials.clone());
                Ok(credentials)
            }
            (_, None) => Err(Failure::Permanent("the run is not registered".into())),
        }
    }
}
