//! OVHcloud, an OpenStack that is known by its name server.

use resource_tracker_metrics::CloudMetrics;
use serde_json::Value;

use super::answer::cloud;
use super::metadata::{Metadata, text};

const BASE: &str = "http://169.254.169.254";
const NAME_SERVER: &str = "213.186.33.99";

pub(super) fn ask(metadata: &Metadata) -> Option<CloudMetrics> {
    let network = metadata.json(BASE, "/openstack/latest/network_data.json", &[])?;
    if !has_name_server(&network) {
        return None;
    }
    let server = metadata.json(BASE, "/openstack/latest/meta_data.json", &[]).unwrap_or_default();
    let get = |name: &str| text(&server, &[name]);
    let instance_type = metadata.get(BASE, "/latest/meta-data/instance-type", &[]);
    let zone = get("availability_zone");
    let region = text(&server, &["region"]).or_else(|| text(&server, &["meta", "region"])).or_else(|| zone.clone());
    cloud("ovh", [get("project_id"), region, zone, instance_type])
}

fn has_name_server(network: &Value) -> bool {
    let services = |value: &Value| value.get("services").and_then(Value::as_array).cloned().unwrap_or_default();
    let networks = network.get("networks").and_then(Value::as_array).into_iter().flatten();
    let all = services(network).into_iter().chain(networks.flat_map(services));
    all.into_iter().any(|service| text(&service, &["address"]).is_some_and(|address| address == NAME_SERVER))
}
