//! DigitalOcean.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let droplet = metadata.json("http://169.254.169.254", "/metadata/v1.json", &[])?;
    droplet.get("droplet_id")?;
    let region = text(&droplet, &["region"]);
    cloud("digitalocean", [None, region.clone(), region, None])
}
