//! A source that tells what was added: how often the CPUs of the machine went from one thread to another.

use anyhow::Context;
use resource_tracker_core::prelude::*;

/// Context switches of the machine.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
struct SwitchMetrics {
    /// Context switches since the sample before. `ctxt` in `/proc/stat`
    #[schemars(transform = Delta("switches"))]
    switches: Option<u64>,
}

impl Section for SwitchMetrics {
    const NAME: &'static str = "switches";
}

register_section!(SwitchMetrics);
register_source!(SourceEntry::new::<SwitchConfig>("switches", "Context switches of the machine"));

/// Context switches of the machine.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
struct SwitchConfig {}

#[typetag::deserialize(name = "switches")]
impl SourceConfig for SwitchConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(Switches { stat: host.procfs.join("stat"), before: None })))
    }
}

struct Switches {
    stat: std::path::PathBuf,
    before: Option<u64>,
}

impl Source for Switches {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(&self.stat)?;
        let now = text.lines().find_map(|line| line.strip_prefix("ctxt ")?.parse().ok()).context("it has no ctxt")?;
        let before = self.before.replace(now);
        out.section::<SwitchMetrics>().switches = before.map(|before| now.saturating_sub(before));
        Ok(())
    }
}

#[test]
fn it_tells_what_was_added() -> anyhow::Result<()> {
    let procfs = tempfile::tempdir()?;
    let tick = Tick::new(1, std::time::Instant::now(), Default::default(), Default::default());
    let mut source = SwitchConfig {}.build(&Host::new(procfs.path(), "/sys"))?.context("it is there")?;
    for (total, added) in [(1000, None), (1700, Some(700))] {
        std::fs::write(procfs.path().join("stat"), format!("cpu 1 2\nctxt {total}\n"))?;
        let mut out = Sections::default();
        source.collect(&tick, &mut out)?;
        assert_eq!(out.section::<SwitchMetrics>().switches, added);
    }
    Ok(())
}
