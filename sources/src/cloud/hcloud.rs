//! Hetzner Cloud. Its metadata does not tell the type of the machine: `instance-id` is its number.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::Metadata;

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let yaml = metadata.get("http://169.254.169.254", "/hetzner/v1/metadata", &[])?;
    let get = |key: &str| {
        let value = yaml.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(value.trim().trim_matches(['"', '\'']).to_owned())
    };
    let zone = get("availability-zone");
    cloud("hcloud", [None, Some(get("region").or_else(|| zone.clone())?), zone, None])
}
