//! Microsoft Azure.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let path = "/metadata/instance?api-version=2021-02-01";
    let instance = metadata.json("http://169.254.169.254", path, &[("Metadata", "true")])?;
    let get = |name: &str| text(&instance, &["compute", name]);
    cloud("azure", [get("subscriptionId"), get("location"), get("zone"), Some(get("vmSize")?)])
}
