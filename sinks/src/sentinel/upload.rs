//! Brings one run to the service: registers it, sends its batches in order, finishes it. Every step can be repeated.

use std::io::{self, ErrorKind};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::api::{Api, Credentials, Data, Finish};
use super::s3::{S3, expiry};
use super::store::Store;
use crate::http::Failure;

/// Credentials that end sooner are replaced before they are used.
const REFRESH_BEFORE: Duration = Duration::from_secs(300);
/// A run of one batch that is not larger than this goes with its last message.
const LARGEST_INLINE: u64 = 1 << 20;

pub(crate) struct Upload {
    api: Api,
    s3: S3,
    pub(crate) store: Store,
    credentials: Option<Credentials>,
}

impl Upload {
    pub(crate) fn new(api: Api, s3: S3, store: Store) -> Self {
        Self { api, s3, store, credentials: None }
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.store.state.run_id.is_some()
    }

    /// Registers the run, once.
    pub(crate) fn register(&mut self) -> Result<(), Failure> {
        if self.is_registered() {
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

    /// Sends the next closed batch. Says whether there was one.
    pub(crate) fn send_batch(&mut self) -> Result<bool, Failure> {
        let batch = self.store.state.next;
        if batch >= self.store.closed {
            return Ok(false);
        }
        let body = self.store.body(batch).map_err(|error| unreadable(&error))?;
        let (Some(body), Some(uri)) = (body, self.store.uri(batch)) else {
            self.store.settle(false);
            return Ok(true);
        };
        let credentials = self.fresh_credentials()?;
        match self.s3.put(&uri, &credentials, &body) {
            Ok(_) => {
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

    fn fresh_credentials(&mut self) -> Result<Credentials, Failure> {
        let is_fresh = |credentials: &Credentials| {
            let Some(expiry) = expiry(credentials) else { return true };
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

    /// Tells the service that the run has ended, after everything else.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
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
                Data::S3 { data_uris: self.store.uris() }
            }
        };
        let finish = Finish { exit_code: end.exit_code, run_status: &end.status, finished_at: &end.at, data };
        self.api.finish(&run_id, &finish)?;
        if let Err(error) = self.store.remove() {
            log::warn!("sentinel: everything has arrived, but the spool cannot be cleared: {error}");
        }
        Ok(())
    }

    /// Adds facts to register the run with.
    pub(crate) fn add_facts(&mut self, facts: Map<String, Value>) {
        self.store.state.facts.extend(facts);
        let _ = self.store.save();
    }
}

fn unreadable(error: &io::Error) -> Failure {
    let problem = format!("the spool cannot be used: {error}");
    match error.kind() {
        // The file is damaged, which stays so. Other errors of a disk can pass.
        ErrorKind::Other | ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            Failure::Permanent(problem)
        }
        _ => Failure::Temporary(problem, None),
    }
}
