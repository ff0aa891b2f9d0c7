//! A source: how long the machine has been up.

use std::path::PathBuf;

use anyhow::Context;
use resource_tracker_core::prelude::*;

/// The section that the source writes: `"uptime": {"secs": 12.3}` in every sample.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
struct UptimeMetrics {
    /// Time since the machine was started. `/proc/uptime`
    #[schemars(transform = Counter("seconds"))]
    secs: f64,
}

impl Section for UptimeMetrics {
    const NAME: &'static str = "uptime";
}

register_section!(UptimeMetrics);

/// Its configuration: the table `[sources.uptime]`. Every key has a default.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct UptimeConfig {
    /// Count in days instead of seconds.
    days: bool,
}

#[typetag::deserialize(name = "uptime")]
impl SourceConfig for UptimeConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let path = host.procfs.join("uptime");
        // `None` says that the hardware is not here, which is no error.
        if !path.exists() {
            return Ok(None);
        }
        Ok(Some(Box::new(Uptime { path, unit: if self.days { 86_400.0 } else { 1.0 } })))
    }
}

register_source!(SourceEntry::new::<UptimeConfig>("uptime", "How long the machine has been up").on_by_default());

struct Uptime {
    path: PathBuf,
    unit: f64,
}

impl Source for Uptime {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(&self.path)?;
        let secs: f64 = text.split(' ').next().unwrap_or_default().parse().context("no number in /proc/uptime")?;
        out.section::<UptimeMetrics>().secs = secs / self.unit;
        Ok(())
    }
}
