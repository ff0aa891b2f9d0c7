//! Vultr.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let server = metadata.json("http://169.254.169.254", "/v1.json", &[])?;
    let is_it = ["instanceid", "instance-v2-id"].iter().any(|name| server.get(name).is_some());
    let region = text(&server, &["region", "regioncode"])?;
    is_it.then(|| cloud("vultr", [None, Some(region.clone()), Some(region), None]))?
}
