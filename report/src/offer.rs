//! The cost of a machine that holds the job.

use resource_tracker_metrics::CloudMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::advice::Advice;
use crate::markdown::escape;
use crate::rows::printable;
use crate::summary::Summary;
use crate::text::{Look, labelled};
use crate::units::{memory, time};

const LABEL_WIDTH: usize = "Processes".len();

/// What is looked for: the machine for the next run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerRequirement {
    /// What is enough for all runs that ended well.
    pub advice: Advice,
    /// How long the longest of them took.
    pub wall_secs: f64,
    /// Where that one was.
    pub cloud: Option<CloudMetrics>,
}

/// A machine that somebody rents out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Server {
    /// Who does, as in `cloud.cloud_vendor_id`.
    pub vendor: String,
    /// What the vendor calls it.
    pub name: String,
    /// Its CPUs: x86_64 or arm64. Null when that is not known.
    pub architecture: Option<String>,
    /// Its CPUs, as the vendor counts them.
    pub vcpus: u32,
    /// Its memory.
    pub memory_mib: u64,
    /// Its GPUs.
    pub gpus: u32,
    /// What an hour of it costs where it costs least, on demand, in US dollars.
    pub usd_per_hour: f64,
}

/// The cheapest machine that holds what is demanded, and what it would cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Offer {
    /// What was asked for.
    pub demand: ServerRequirement,
    /// The machine.
    pub server: Server,
    /// What such a run costs on it, if it takes as long there.
    pub usd: f64,
    /// What the machine costs that the run was on. Null when that is not known.
    pub present: Option<Present>,
}

/// What a run costs where it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Present {
    /// What an hour costs, in US dollars.
    pub usd_per_hour: f64,
    /// What the run has cost.
    pub usd: f64,
    /// How much less the offer is; below zero when it is more.
    pub saving_usd: f64,
}

impl ServerRequirement {
    /// The demand so far, with that of another run. Only runs count that are known to have ended well; `None` if there
    /// is none.
    pub fn of(before: Option<Self>, run: &Summary) -> Option<Self> {
        let Some(advice) = run.advice.as_ref().filter(|_| run.is_success()) else { return before };
        let Some(before) = before else {
            return Some(Self { advice: advice.clone(), wall_secs: run.wall_secs(), cloud: run.cloud.clone() });
        };
        let advice = Advice::worst([&before.advice, advice]).unwrap_or(before.advice);
        let (wall_secs, cloud) = match run.wall_secs() >= before.wall_secs {
            true => (run.wall_secs(), run.cloud.clone()),
            false => (before.wall_secs, before.cloud),
        };
        Some(Self { advice, wall_secs, cloud })
    }
}

impl Offer {
    /// The cost of the demanded time on `server`. `present_usd_per_hour`: the price of the machine that the run was on.
    pub fn new(demand: ServerRequirement, server: Server, present_usd_per_hour: Option<f64>) -> Self {
        let cost = |usd_per_hour: f64| usd_per_hour * demand.wall_secs / 3600.0;
        let usd = cost(server.usd_per_hour);
        let present = present_usd_per_hour.map(|usd_per_hour| {
            let present = cost(usd_per_hour);
            Present { usd_per_hour, usd: present, saving_usd: present - usd }
        });
        Self { usd, present, demand, server }
    }

    /// The rows of a summary, all of it printable.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let Server { vendor, name, architecture, vcpus, memory_mib, gpus, usd_per_hour } = &self.server;
        let architecture = architecture.as_ref().map(|architecture| format!(" ({architecture})")).unwrap_or_default();
        let plural = |count: u32, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let gpus = if *gpus == 0 { String::new() } else { format!(", {}", plural(*gpus, "GPU")) };
        let machine = format!(
            "{vendor} {name}{architecture}: {}, {}{gpus}, {} an hour: {} for {}",
            plural(*vcpus, "vCPU"),
            memory(*memory_mib as f64),
            usd(*usd_per_hour),
            usd(self.usd),
            time(self.demand.wall_secs),
        );
        let mut rows = vec![("Cheapest", machine)];
        if let (Some(present), Some(cloud)) = (&self.present, &self.demand.cloud) {
            let text = match present.saving_usd > 0.0 {
                true => {
                    let share = 100.0 * present.saving_usd / present.usd;
                    format!("{} of {} ({share:.0} %)", usd(present.saving_usd), usd(present.usd))
                }
                false => "nothing".to_owned(),
            };
            let name = [&cloud.cloud_vendor_id, &cloud.cloud_instance_type]
                .map(|name| name.as_deref().unwrap_or("?"))
                .join(" ");
            rows.push(("Saves", format!("{text}: {name}, which it was on, is {} an hour", usd(present.usd_per_hour))));
        }
        rows.into_iter().map(|(label, text)| (label, printable(&text))).collect()
    }
}

/// The offer as lines below a summary.
pub fn offer_text(offer: &Offer, look: Look) -> String {
    offer
        .rows()
        .iter()
        .flat_map(|(label, text)| labelled(label, text, LABEL_WIDTH, look))
        .map(|line| line + "\n")
        .collect()
}

/// The offer as items of the list below a summary.
pub fn offer_markdown(offer: &Offer) -> String {
    offer.rows().iter().map(|(label, text)| format!("- **{label}**: {}\n", escape(text))).collect()
}

/// An amount with about three significant digits, and at least two after the point.
fn usd(amount: f64) -> String {
    let digits = if amount > 0.0 { (2.0 - amount.log10().floor()).clamp(2.0, 6.0) as usize } else { 2 };
    let text = format!("${amount:.digits$}");
    let needed = text.trim_end_matches('0').len().max(text.find('.').map_or(0, |point| point + 3));
    text[..needed].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_money() {
        for (amount, text) in [
            (0.0, "$0.00"),
            (0.000_012, "$0.000012"),
            (0.012_345, "$0.0123"),
            (0.5, "$0.50"),
            (0.007_3, "$0.0073"),
            (12.3456, "$12.35"),
            (1234.5, "$1234.50"),
        ] {
            assert_eq!(usd(amount), text);
        }
    }
}
