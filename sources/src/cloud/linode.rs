//! Linode, of Akamai.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

const BASE: &str = "http://169.254.169.254";

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let token = metadata.token(BASE, "/v1/token", ("Metadata-Token-Expiry-Seconds", "60"))?;
    let headers = [("Metadata-Token", token.as_str()), ("Accept", "application/json")];
    let instance = metadata.json(BASE, "/v1/instance", &headers)?;
    let get = |name: &str| text(&instance, &[name]);
    cloud("linode", [get("account_euuid"), get("region"), None, Some(get("type")?)])
}
