//! Google Cloud.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::Metadata;

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let host = std::env::var("GCE_METADATA_HOST").ok().filter(|host| !host.is_empty());
    let base = format!("http://{}", host.as_deref().unwrap_or("metadata.google.internal"));
    let get =
        |path: &str| metadata.get_of(&base, &format!("/computeMetadata/v1/{path}"), ("Metadata-Flavor", "Google"));
    // `projects/123/machineTypes/n2-standard-4`, `projects/123/zones/europe-west1-b`
    let last = |path: String| path.trim().rsplit('/').next().unwrap_or_default().to_owned();
    let machine_type = last(get("instance/machine-type")?);
    let zone = get("instance/zone").map(last);
    let region = zone.as_ref().and_then(|zone| zone.rsplit_once('-')).map(|(region, _)| region.to_owned());
    cloud("gcp", [get("project/project-id"), region, zone, Some(machine_type)])
}
