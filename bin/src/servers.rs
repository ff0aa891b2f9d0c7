//! A service that knows which machines can be rented, and for how much: Keeper's interface.

use std::time::Duration;

use resource_tracker_report::{Advice, Demand, Offer, Server};
use resource_tracker_sinks::http;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

/// An answer takes so long at most.
const LIMIT: Duration = Duration::from_secs(10);
/// The cheapest ones can be without a price for an hour.
const SERVERS: &str = "25";
const MIB_PER_GIB: f64 = 1024.0;
/// Names are shorter, prices are lower.
const LONGEST_NAME: usize = 100;
const HIGHEST_USD: f64 = 1e6;

/// The service.
pub(crate) struct Servers {
    url: Url,
}

/// A machine, and what is missing in what is said of it.
pub(crate) struct Found {
    pub(crate) offer: Offer,
    pub(crate) problem: Option<String>,
}

/// A machine as the service lists it. What its answer has besides is left alone.
#[derive(Deserialize)]
struct Listed {
    vendor_id: String,
    server_id: String,
    api_reference: Option<String>,
    cpu_architecture: Option<String>,
    vcpus: u32,
    /// MiB
    memory_amount: f64,
    gpu_count: Option<f64>,
    /// MiB
    gpu_memory_total: Option<f64>,
    /// The lowest of all regions, in US dollars for an hour.
    min_price_ondemand: Option<f64>,
}

/// A price of a machine in a zone.
#[derive(Deserialize)]
struct Price {
    region_id: Option<String>,
    allocation: String,
    operating_system: Option<String>,
    unit: Option<String>,
    currency: Option<String>,
    price: f64,
}

impl Servers {
    /// At this address, which is that of the whole service.
    ///
    /// # Errors
    /// When it is none that may be spoken to.
    pub(crate) fn at(url: &str, allow_http: bool) -> Result<Self, String> {
        Ok(Self { url: http::address("--servers", url, allow_http, "say --allow-http")? })
    }

    /// The cheapest machine that holds what is demanded.
    ///
    /// # Errors
    /// In words, when the service does not tell.
    pub(crate) fn cheapest(&self, demand: Demand) -> Result<Found, String> {
        let what = self.path(&["servers"]).to_string();
        let listed: Vec<Listed> =
            ask(&what, &self.query(&demand.advice))?.ok_or_else(|| format!("{what}: the answer is 404"))?;
        let holding = listed.into_iter().filter_map(|listed| listed.holding(&demand.advice));
        let cheapest = holding.min_by(|one, other| one.usd_per_hour.total_cmp(&other.usd_per_hour));
        let cheapest = cheapest.ok_or_else(|| {
            let Advice { cores, memory_mib, .. } = demand.advice;
            let gpus = wanted_gpus(&demand.advice).map(|gpus| format!(" and {gpus} GPUs")).unwrap_or_default();
            format!("{what}: no machine with a price has {cores} cores, {memory_mib} MiB{gpus}")
        })?;
        let (present, problem) = match self.present_price(&demand) {
            Ok(price) => (price, None),
            Err(problem) => (None, Some(problem)),
        };
        Ok(Found { offer: Offer::new(demand, cheapest, present), problem })
    }

    /// What an hour costs of the machine that the run was on: the least in its region, or anywhere. `None`: nobody knows.
    fn present_price(&self, demand: &Demand) -> Result<Option<f64>, String> {
        let cloud = demand.cloud.as_ref();
        let names = cloud.and_then(|cloud| cloud.cloud_vendor_id.as_deref().zip(cloud.cloud_instance_type.as_deref()));
        let Some((vendor, name)) = names else { return Ok(None) };
        let url = self.path(&["server", vendor, name, "prices"]);
        let Some(prices) = ask::<Price>(url.as_str(), &url)? else { return Ok(None) };
        let region = cloud.and_then(|cloud| cloud.cloud_region_id.as_deref());
        let is = |value: &Option<String>, wanted: &str| {
            value.as_ref().is_none_or(|value| value.eq_ignore_ascii_case(wanted))
        };
        let hourly = prices.into_iter().filter(|price| {
            price.allocation == "ondemand"
                && is(&price.operating_system, "linux")
                && is(&price.unit, "hour")
                && is(&price.currency, "usd")
                && is_price(price.price)
        });
        let (there, elsewhere): (Vec<Price>, Vec<Price>) =
            hourly.partition(|price| region.is_some() && price.region_id.as_deref() == region);
        let prices = if there.is_empty() { elsewhere } else { there };
        Ok(prices.into_iter().map(|price| price.price).min_by(f64::total_cmp))
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
        // It is asked in GiB, and answers in MiB.
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

impl Listed {
    /// If it has a price and holds what is asked for, whatever the service has understood.
    fn holding(self, advice: &Advice) -> Option<Server> {
        let gpus = self.gpu_count.unwrap_or(0.0);
        let gpu_memory = self.gpu_memory_total.unwrap_or(0.0);
        let has_gpus = wanted_gpus(advice)
            .is_none_or(|wanted| gpus >= f64::from(wanted) && gpu_memory >= advice.gpu_memory_mib.unwrap_or(0) as f64);
        let holds = self.vcpus >= advice.cores && self.memory_amount >= advice.memory_mib as f64 && has_gpus;
        let usd_per_hour = self.min_price_ondemand.filter(|price| is_price(*price))?;
        let shortened = |name: String| name.chars().take(LONGEST_NAME).collect();
        holds.then(|| Server {
            vendor: shortened(self.vendor_id),
            name: shortened(self.api_reference.unwrap_or(self.server_id)),
            architecture: self.cpu_architecture.map(shortened),
            vcpus: self.vcpus,
            memory_mib: self.memory_amount as u64,
            gpus: gpus as u32,
            usd_per_hour,
        })
    }
}

/// None is as good as no GPU.
fn wanted_gpus(advice: &Advice) -> Option<u32> {
    advice.gpus.filter(|gpus| *gpus > 0)
}

fn is_price(usd: f64) -> bool {
    usd > 0.0 && usd <= HIGHEST_USD
}

/// The items of the list that is the answer, as far as they can be read. `None`: there is no such thing.
fn ask<T: DeserializeOwned>(what: &str, url: &Url) -> Result<Option<Vec<T>>, String> {
    let Some(body) = http::get(what, url, LIMIT)? else { return Ok(None) };
    let items: Vec<serde_json::Value> =
        serde_json::from_slice(&body).map_err(|_| format!("{what}: the answer is no list of objects"))?;
    let (count, read): (usize, Vec<T>) =
        (items.len(), items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect());
    match read.is_empty() && count > 0 {
        true => Err(format!("{what}: nothing in the answer is what was asked for")),
        false => Ok(Some(read)),
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
        let without = servers.query(&Advice { gpus: Some(0), gpu_memory_mib: None, ..advice });
        assert!(!without.as_str().contains("gpu"), "{without}");
        let path = servers.path(&["server", "../x?y", "a/b", "prices"]);
        assert_eq!(path.as_str(), "https://keeper.example.com/api/server/..%2Fx%3Fy/a%2Fb/prices");
    }
}
