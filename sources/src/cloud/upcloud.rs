//! UpCloud.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let server = metadata.json("http://169.254.169.254", "/metadata/v1.json", &[])?;
    let is_it = text(&server, &["cloud_name"]).is_some_and(|name| name == "upcloud");
    let region = text(&server, &["region"]);
    is_it.then(|| cloud("upcloud", [None, region.clone(), region, text(&server, &["plan"])]))?
}
