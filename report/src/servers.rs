//! Answers of a service that lists machines for rent and their prices: Keeper's interface.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::advice::Advice;
use crate::offer::Server;

/// Bounds of a plausible answer: names are shorter, prices in between, and machines smaller.
const LONGEST_NAME: usize = 100;
const LOWEST_USD: f64 = 1e-6;
const HIGHEST_USD: f64 = 1e6;
const MOST_GPUS: f64 = 1e6;
const MOST_MIB: f64 = 1e13;

/// A machine as the service lists it. Other fields of the answer are ignored.
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

impl Listed {
    /// The machine, if it has a price and holds what is asked for.
    fn holding(self, advice: &Advice) -> Option<Server> {
        let gpus = self.gpu_count.unwrap_or(0.0);
        let gpu_memory = self.gpu_memory_total.unwrap_or(0.0);
        let has_gpus = wanted_gpus(advice)
            .is_none_or(|wanted| gpus >= f64::from(wanted) && gpu_memory >= advice.gpu_memory_mib.unwrap_or(0) as f64);
        let has_memory = (advice.memory_mib as f64..=MOST_MIB).contains(&self.memory_amount);
        let holds = self.vcpus >= advice.cores && has_memory && has_gpus && gpus <= MOST_GPUS;
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

/// The cheapest machine in an answer to `/servers` that holds what is asked for: the service may have ignored the
/// filters. `what`: the request, for errors.
///
/// # Errors
/// When the answer is no list of machines, or none of them holds that.
pub fn cheapest_server(what: &str, answer: &[u8], advice: &Advice) -> Result<Server, String> {
    let holding = items::<Listed>(what, answer)?.into_iter().filter_map(|listed| listed.holding(advice));
    let cheapest = holding.min_by(|one, other| one.usd_per_hour.total_cmp(&other.usd_per_hour));
    cheapest.ok_or_else(|| {
        let Advice { cores, memory_mib, .. } = advice;
        let gpus = wanted_gpus(advice).map(|gpus| format!(" and {gpus} GPUs")).unwrap_or_default();
        format!("{what}: no machine with a price has {cores} cores, {memory_mib} MiB{gpus}")
    })
}

/// The lowest hourly price in an answer to `/prices`, in US dollars: in the region, or anywhere if the region has none.
/// `None` when there is no price.
///
/// # Errors
/// When the answer is no list of prices.
pub fn least_price(what: &str, answer: &[u8], region: Option<&str>) -> Result<Option<f64>, String> {
    let is =
        |value: &Option<String>, wanted: &str| value.as_ref().is_none_or(|value| value.eq_ignore_ascii_case(wanted));
    let hourly = items::<Price>(what, answer)?.into_iter().filter(|price| {
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

/// The items of the list that is the answer, as far as they can be read.
fn items<T: DeserializeOwned>(what: &str, answer: &[u8]) -> Result<Vec<T>, String> {
    let items: Vec<serde_json::Value> =
        serde_json::from_slice(answer).map_err(|_| format!("{what}: the answer is no list of objects"))?;
    let (count, read): (usize, Vec<T>) =
        (items.len(), items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect());
    match read.is_empty() && count > 0 {
        true => Err(format!("{what}: nothing in the answer is what was asked for")),
        false => Ok(read),
    }
}

/// How many GPUs are asked for. `None` for no GPU.
pub fn wanted_gpus(advice: &Advice) -> Option<u32> {
    advice.gpus.filter(|gpus| *gpus > 0)
}

fn is_price(usd: f64) -> bool {
    (LOWEST_USD..=HIGHEST_USD).contains(&usd)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_cheapest_that_holds_it() {
        let advice = json!({
            "cores": 3, "cores_used": 2.5, "memory_mib": 1152, "memory_peak_mib": 891.0, "gpus": 1, "gpu_memory_mib": 5120,
            "slurm": "", "kubernetes": "", "docker": "",
        });
        let advice: Advice = serde_json::from_value(advice).unwrap();
        let machine = |cores: u32, gpus: f64, usd: f64| {
            json!({ "vendor_id": "v", "server_id": format!("{cores}-{gpus}"), "vcpus": cores, "memory_amount": 2048,
                "gpu_count": gpus, "gpu_memory_total": 1e300, "min_price_ondemand": usd })
        };
        let all = [
            machine(4, 1.0, 0.5),
            machine(2, 1.0, 0.1),
            machine(8, 2.0, 0.25),
            machine(8, 2.0, -1.0),
            machine(8, 1e300, 0.1),
            json!(7),
        ];
        let answer = serde_json::to_vec(&all).unwrap();
        assert_eq!(cheapest_server("it", &answer, &advice).unwrap().name, "8-2");
        for (answer, problem) in [
            (&b""[..], "it: the answer is no list of objects"),
            (b"\xff", "it: the answer is no list of objects"),
            (b"[1]", "it: nothing in the answer is what was asked for"),
            (b"[]", "it: no machine with a price has 3 cores, 1152 MiB and 1 GPUs"),
        ] {
            assert_eq!(cheapest_server("it", answer, &advice), Err(problem.to_owned()));
        }
    }

    #[test]
    fn prices_of_the_region_come_first() {
        let price = |region: &str, price: f64| json!({ "region_id": region, "allocation": "ondemand", "price": price });
        let answer = |prices: &[serde_json::Value]| serde_json::to_vec(prices).unwrap();
        let both = answer(&[price("here", 2.0), price("there", 1.0), price("here", 1e308)]);
        assert_eq!(least_price("it", &both, Some("here")), Ok(Some(2.0)));
        assert_eq!(least_price("it", &both, Some("nowhere")), Ok(Some(1.0)));
        assert_eq!(least_price("it", b"[]", None), Ok(None));
    }
}
