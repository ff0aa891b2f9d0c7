//! The cloud that the machine is rented from, as its metadata service tells. One file holds one provider.

mod alicloud;
mod answer;
mod aws;
mod azure;
mod digitalocean;
mod gcp;
mod hcloud;
mod linode;
mod metadata;
mod oci;
mod ovh;
mod scaleway;
mod upcloud;
mod vultr;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use resource_tracker_core::{
    Cadence, Host, Schedule, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::CloudMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use metadata::Metadata;

/// All providers together have this long to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Vendor, account, region, zone and instance type, where the machine is rented from a cloud.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct CloudConfig {
    /// Base address that stands in for the metadata services of all providers.
    #[schemars(extend("x-needs-named-file" = true))]
    pub endpoint: Option<String>,
}

from_json!(CloudConfig);

#[typetag::deserialize(name = "cloud")]
impl SourceConfig for CloudConfig {
    fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Cloud { endpoint: self.endpoint.clone() })))
    }

    fn schedule(&self) -> Schedule {
        Schedule::blocking(Cadence::Once)
    }
}

register_source!(SourceEntry::new::<CloudConfig>("cloud", "Cloud that the machine is rented from").order(96));

struct Cloud {
    endpoint: Option<String>,
}

/// Asks one provider. `None`: it is another one, or none.
type Provider = fn(&Metadata) -> Option<CloudMetrics>;

const PROVIDERS: [Provider; 12] = [
    aws::ask,
    gcp::ask,
    azure::ask,
    hcloud::ask,
    upcloud::ask,
    alicloud::ask,
    ovh::ask,
    vultr::ask,
    digitalocean::ask,
    oci::ask,
    scaleway::ask,
    linode::ask,
];

impl Source for Cloud {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        *out.section::<CloudMetrics>() = first_answer(self.endpoint.as_deref());
        Ok(())
    }
}

/// Asks all providers at once. Nothing but nulls when none answers in time.
fn first_answer(endpoint: Option<&str>) -> CloudMetrics {
    let deadline = Instant::now() + LIMIT;
    let (answers, inbox) = mpsc::channel();
    for ask in PROVIDERS {
        let (answers, metadata) = (answers.clone(), Metadata::new(endpoint, deadline));
        // Without a thread this provider is not asked.
        let _ = thread::Builder::new().name("cloud".into()).spawn(move || {
            // Nobody waits when another one was first.
            let _ = ask(&metadata).map(|cloud| answers.send(cloud));
        });
    }
    drop(answers);
    inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())).unwrap_or_default()
}

/// Asks all providers where every answer is the same: for the fuzz target.
pub(crate) fn of_answer(body: &[u8]) -> Vec<CloudMetrics> {
    PROVIDERS.iter().filter_map(|ask| ask(&Metadata::of_answer(body.to_vec()))).collect()
}

#[cfg(test)]
mod tests;
