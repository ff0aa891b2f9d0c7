//! Oracle Cloud Infrastructure.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let instance =
        metadata.json("http://169.254.169.254", "/opc/v2/instance/", &[("Authorization", "Bearer Oracle")])?;
    let get = |name: &str| text(&instance, &[name]);
    let region = get("canonicalRegionName").or_else(|| get("region"));
    let account = get("tenantId").or_else(|| get("compartmentId"));
    cloud("oci", [account, region, get("availabilityDomain"), Some(get("shape")?)])
}
