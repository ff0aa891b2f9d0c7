//! Alibaba Cloud: with a token, else without.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::Metadata;

const BASE: &str = "http://100.100.100.200";

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let token = metadata.token(BASE, "/latest/api/token", ("X-aliyun-ecs-metadata-token-ttl-seconds", "60"));
    let header = token.as_deref().map(|token| ("X-aliyun-ecs-metadata-token", token));
    let get = |path: &str| metadata.get(BASE, &format!("/latest/meta-data/{path}"), header.as_slice());
    // Only Alibaba has this name for it.
    let region = get("region-id")?;
    cloud("alicloud", [get("owner-account-id"), Some(region), get("zone-id"), get("instance/instance-type")])
}
