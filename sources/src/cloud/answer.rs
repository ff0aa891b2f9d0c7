//! What is believed of an answer.

use resource_tracker_metrics::CloudMetrics;

/// The longest are those of Oracle, with some 90 characters.
const LONGEST_NAME: usize = 255;

/// What a provider knows, and nothing that is empty or is no name: an answer can be anything.
pub(super) fn cloud(vendor: &str, [account, region, zone, instance_type]: [Option<String>; 4]) -> Option<CloudMetrics> {
    let known = |value: Option<String>| value.map(|value| value.trim().to_owned()).filter(|value| is_name(value));
    Some(CloudMetrics {
        cloud_vendor_id: Some(vendor.to_owned()),
        cloud_account_id: known(account),
        cloud_region_id: known(region),
        cloud_zone_id: known(zone),
        cloud_instance_type: known(instance_type),
    })
}

/// Accounts, regions, zones and types of instances are short words.
fn is_name(text: &str) -> bool {
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}
