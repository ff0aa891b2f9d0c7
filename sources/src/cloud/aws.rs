//! Amazon Web Services: IMDSv2, else v1.

use resource_tracker_metrics::CloudMetrics;

use super::answer::cloud;
use super::metadata::{Metadata, text};

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let base = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| "http://169.254.169.254".into());
    let token = metadata.token(&base, "/latest/api/token", ("X-aws-ec2-metadata-token-ttl-seconds", "60"));
    let header = token.as_deref().map(|token| ("X-aws-ec2-metadata-token", token));
    let get = |path: &str| metadata.get(&base, &format!("/latest/meta-data/{path}"), header.as_slice());
    // Other clouds answer at the same paths.
    if get("services/domain")?.trim() != "amazonaws.com" {
        return None;
    }
    let identity = get("identity-credentials/ec2/info").and_then(|info| serde_json::from_str(&info).ok());
    let account = identity.and_then(|identity| text(&identity, &["AccountId"]));
    cloud("aws", [account, get("placement/region"), get("placement/availability-zone"), get("instance-type")])
}
