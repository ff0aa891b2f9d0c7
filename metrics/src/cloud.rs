use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use resource_tracker_core::Section;
use resource_tracker_core::unit::Info;

/// The cloud that the machine is rented from: `cloud`. It is in one sample, the first after the metadata service has
/// answered or was given up. All fields are null where there is no cloud.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CloudMetrics {
    /// Who rents it out: aws, gcp, azure, hcloud, upcloud, alicloud, ovh, vultr, digitalocean, oci, scaleway, linode
    #[schemars(transform = Info)]
    pub cloud_vendor_id: Option<String>,
    /// Account, project or subscription that pays.
    #[schemars(transform = Info)]
    pub cloud_account_id: Option<String>,
    /// Region of the data centre.
    #[schemars(transform = Info)]
    pub cloud_region_id: Option<String>,
    /// Zone within the region.
    #[schemars(transform = Info)]
    pub cloud_zone_id: Option<String>,
    /// Type of the machine, as the vendor names it.
    #[schemars(transform = Info)]
    pub cloud_instance_type: Option<String>,
}

impl Section for CloudMetrics {
    const NAME: &'static str = "cloud";
}

crate::shared_section!(CloudMetrics);
