//! Brings the objects of one run to its bucket.

use url::Url;

use super::client::{Object, S3};
use super::credentials::KeyChain;
use super::state::S3State;
use crate::http::{self, Failure};
use crate::spool::{Destination, Store, Upload};

/// Where a bucket is if neither the user nor the store says it.
const DEFAULT_REGION: &str = "us-east-1";
/// How to allow a store without encryption.
pub(super) const ALLOW_HTTP: &str = "set allow_http of the sink";

/// A bucket, and how it is reached.
#[derive(Clone)]
pub(crate) struct BucketPlace {
    prefix: String,
    endpoint: Option<Url>,
    has_virtual_hosts: bool,
    profile: Option<String>,
}

impl S3State {
    /// Where the objects of the run go.
    ///
    /// # Errors
    /// When the store would be spoken to unencrypted.
    pub(crate) fn destination(&self) -> anyhow::Result<BucketPlace> {
        // The requests are signed, and hold a token of keys that end.
        let endpoint = self.endpoint.as_deref().map(|url| http::address("endpoint", url, self.allow_http, ALLOW_HTTP));
        Ok(BucketPlace {
            prefix: self.prefix.clone(),
            endpoint: endpoint.transpose().map_err(anyhow::Error::msg)?,
            has_virtual_hosts: self.has_virtual_hosts,
            profile: self.profile.clone(),
        })
    }

    /// Where the objects of an earlier run go, with the keys that there are now.
    ///
    /// # Errors
    /// When the environment leads its keys elsewhere: they are not for this store.
    pub(crate) fn saved_destination(&self) -> anyhow::Result<BucketPlace> {
        let now = http::store_endpoint(true, ALLOW_HTTP)?.map(String::from);
        let is_other = match now {
            Some(now) => self.endpoint.as_ref() != Some(&now),
            None => self.is_endpoint_of_environment,
        };
        if is_other {
            let of = self.bucket();
            anyhow::bail!("it belongs to {of}; set AWS_ENDPOINT_URL_S3 to that store, or to none, and the keys for it");
        }
        self.destination()
    }
}

impl Destination for BucketPlace {
    type Upload = S3Upload;

    fn upload(&self, store: Store<S3State>) -> Result<S3Upload, Failure> {
        let other = |why: anyhow::Error| Failure::Permanent(format!("{why:#}"));
        let place = store.state.destination().map_err(other)?;
        if (&place.prefix, &place.endpoint, &place.profile) != (&self.prefix, &self.endpoint, &self.profile) {
            return Err(Failure::Permanent(format!("it belongs to {}", store.state.bucket())));
        }
        let agent = http::agent();
        let client = S3::new(agent.clone(), self.endpoint.clone(), DEFAULT_REGION);
        let client = if self.has_virtual_hosts { client.with_virtual_hosts() } else { client };
        Ok(S3Upload { client, keys: KeyChain::new(agent, self.profile.clone()), store })
    }
}

/// Sends the objects of one run.
pub(crate) struct S3Upload {
    client: S3,
    keys: KeyChain,
    store: Store<S3State>,
}

impl Upload for S3Upload {
    type State = S3State;

    fn store(&self) -> &Store<S3State> {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store<S3State> {
        &mut self.store
    }

    fn send_batch(&mut self) -> Result<bool, Failure> {
        let Some(body) = self.store.next_body()? else { return Ok(false) };
        let keys = self.keys.keys()?;
        let state = &self.store.state;
        let uri = state.uri(self.store.next(), &body);
        let headers = [("content-type", "application/gzip")];
        let object = Object { uri: &uri, region: state.region.as_deref(), headers: &headers, signed: &state.headers() };
        match self.client.put(&format!("PUT {uri}"), &object, &keys, &body) {
            Ok(()) => {
                self.keys.taken();
                self.store.settle(true);
                Ok(true)
            }
            // Keys can end early; others are looked for before the next attempt.
            Err(Failure::Refused(problem)) if self.keys.refused() => Err(Failure::Temporary(problem, None)),
            Err(failure) => Err(failure),
        }
    }
}
