//! Scaleway.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let server = metadata.json("http://169.254.42.42", "/conf?format=json", &[])?;
    let zone = text(&server, &["zone"]);
    // `fr-par-1` is in `fr-par`.
    let region = zone.as_ref().and_then(|zone| zone.rsplit_once('-')).map(|(region, _)| region.to_owned());
    let account = text(&server, &["project"]).or_else(|| text(&server, &["organization"]));
    cloud("scaleway", [account, region, zone, Some(text(&server, &["commercial_type"])?)])
}
