//! A service that knows which machines can be rented, and for how much: Keeper's interface.

use std::time::Duration;

use resource_tracker_report::{Advice, Offer, ServerRequirement, cheapest_server, least_price, wanted_gpus};
use resource_tracker_sinks::http;
use url::Url;

/// The time for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// How many to ask for: the cheapest ones can be without a price for an hour.
const SERVERS: &str = "25";
const MIB_PER_GIB: f64 = 1024.0;
/// No vendor, and no type of a machine, has a longer one.
const LONGEST_NAME: usize = 100;

/// The service.
pub(crate) struct Servers {
    url: Url,
}

/// An offer, and what is missing in it.
pub(crate) struct Found {
    pub(crate) offer: Offer,
    pub(crate) problem: Option<String>,
}

impl Servers {
    /// The service at this address.
    ///
    /// # Errors
    /// When requests may not go to that address.
    pub(crate) fn at(url: &str, allow_http: bool) -> Result<Self, String> {
        Ok(Self { url: http::address("--servers", url, allow_http, "say --allow-http")? })
    }

    /// The cheapest machine that holds what is demanded.
    ///
    /// # Errors
    /// When the service does not answer, or knows no such machine.
    pub(crate) fn cheapest(&self, demand: ServerRequirement) -> Result<Found, String> {
        let what = self.path(&["servers"]).to_string();
        let answer = http::get(&what, &self.query(&demand.advice), LIMIT)?;
        let cheapest =
            cheapest_server(&what, &answer.ok_or_else(|| format!("{what}: the answer is 404"))?, &demand.advice)?;
        let (present, problem) = match self.present_price(&demand) {
            Ok(price) => (price, None),
            Err(problem) => (None, Some(problem)),
        };
        Ok(Found { offer: Offer::new(demand, cheapest, present), problem })
    }

    /// What the machine that the run was on costs for an hour: the least in its region, or anywhere. `None` if that is
    /// not known.
    fn present_price(&self, demand: &ServerRequirement) -> Result<Option<f64>, String> {
        let cloud = demand.cloud.as_ref();
        let names = cloud.and_then(|cloud| cloud.cloud_vendor_id.as_deref().zip(cloud.cloud_instance_type.as_deref()));
        // Names from a recording must not lead to another page.
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.len() <= LONGEST_NAME;
        let Some((vendor, name)) = names.filter(|(vendor, name)| is_name(vendor) && is_name(name)) else {
            return Ok(None);
        };
        let url = self.path(&["server", vendor, name, "prices"]);
        let Some(answer) = http::get(url.as_str(), &url, LIMIT)? else { return Ok(None) };
        least_price(url.as_str(), &answer, cloud.and_then(|cloud| cloud.cloud_region_id.as_deref()))
    }

    fn path(&self, segments: &[&str]) -> Url {
        let mut url = self.url.clone();
        // It has a host, and so a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        url
    }

    fn query(&self, advice: &Advice) -> Url {
        let mut url = self.path(&["servers"]);
        // The service takes GiB, and answers in MiB.
        let gib = |mib: u64| (mib as f64 / MIB_PER_GIB).to_string();
        let mut query = url.query_pairs_mut();
        query.append_pair("vcpus_min", &advice.cores.to_string()).append_pair("memory_min", &gib(advice.memory_mib));
        if let Some(gpus) = wanted_gpus(advice) {
            query.append_pair("gpu_min", &gpus.to_string());
            if let Some(memory) = advice.gpu_memory_mib {
                query.append_pair("gpu_memory_total", &gib(memory));
            }
        }
        query
            .append_pair("order_by", "min_price_ondemand")
            .append_pair("order_dir", "asc")
            .append_pair("limit", SERVERS);
        drop(query);
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked() {
        let servers = Servers::at("https://keeper.example.com/api/", false).unwrap();
        let advice: Advice = serde_json::from_value(serde_json::json!({
            "cores": 3, "cores_used": 2.5, "memory_mib": 1152, "memory_peak_mib": 891.0, "gpus": 2, "gpu_memory_mib": 5120,
            "slurm": "", "kubernetes": "", "docker": "",
        }))
        .unwrap();
        let expected = "https://keeper.example.com/api/servers?vcpus_min=3&memory_min=1.125&gpu_min=2&gpu_memory_total=5\
                        &order_by=min_price_ondemand&order_dir=asc&limit=25";
        assert_eq!(servers.query(&advice).as_str(), expected);
        let mut without = advice;
        (without.gpus, without.gpu_memory_mib) = (Some(0), None);
        let without = servers.query(&without);
        assert!(!without.as_str().contains("gpu"), "{without}");
        let path = servers.path(&["server", "../x?y", "a/b", "prices"]);
        assert_eq!(path.as_str(), "https://keeper.example.com/api/server/..%2Fx%3Fy/a%2Fb/prices");
    }
}
