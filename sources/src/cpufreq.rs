//! At which frequency the CPUs run: `/sys/devices/system/cpu/cpu*/cpufreq`.

use resource_tracker_core::prelude::*;
use resource_tracker_metrics::{CpufreqMetrics, cpu_list};

use crate::procfile::ProcFile;
use resource_tracker_scan::{number, words};

register_source!(SourceEntry::new::<CpufreqConfig>("cpufreq", "At which frequency the CPUs run"));

/// At which frequency the CPUs run. A virtual machine is seldom told.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct CpufreqConfig {}

from_json!(CpufreqConfig);

#[typetag::deserialize(name = "cpufreq")]
impl SourceConfig for CpufreqConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let folder = host.sysfs.join("devices/system/cpu");
        let entries = std::fs::read_dir(&folder)?.flatten();
        let numbers = entries.filter_map(|entry| number(entry.file_name().as_encoded_bytes().strip_prefix(b"cpu")?));
        let file = |cpu| ProcFile::open_if_present(folder.join(format!("cpu{cpu}/cpufreq/scaling_cur_freq")));
        let mut cpus: Vec<(u64, ProcFile)> = numbers.filter_map(|cpu| Some((cpu, file(cpu)?))).collect();
        cpus.sort_unstable_by_key(|(cpu, _)| *cpu);
        if cpus.is_empty() {
            log::warn!("source cpufreq: no CPU in {} tells its frequency", folder.display());
            return Ok(None);
        }
        Ok(Some(Box::new(Cpufreq { cpus })))
    }

    /// Some drivers ask each CPU.
    fn schedule(&self) -> Schedule {
        Schedule::blocking(Cadence::EveryTick)
    }
}

struct Cpufreq {
    cpus: Vec<(u64, ProcFile)>,
}

impl Source for Cpufreq {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        // One that is offline cannot be read.
        let read = |file: &mut ProcFile| number(words(file.read().ok()?).next()?);
        let told = self.cpus.iter_mut().filter_map(|(cpu, file)| Some((*cpu, read(file)? as f64 / 1e3)));
        let (cpus, frequencies): (Vec<u64>, Vec<f64>) = told.unzip();
        let sum: f64 = frequencies.iter().sum();
        *out.section() = CpufreqMetrics {
            cpus: cpu_list::text(cpus),
            min_mhz: frequencies.iter().copied().reduce(f64::min),
            mean_mhz: (!frequencies.is_empty()).then(|| sum / frequencies.len() as f64),
            max_mhz: frequencies.iter().copied().reduce(f64::max),
            per_core_mhz: frequencies,
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_those_that_tell() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        for (cpu, kilohertz) in [("cpu10", "800000\n"), ("cpu2", "3200000\n"), ("cpu3", "<unknown>\n")] {
            let folder = root.path().join("devices/system/cpu").join(cpu).join("cpufreq");
            std::fs::create_dir_all(&folder)?;
            std::fs::write(folder.join("scaling_cur_freq"), kilohertz)?;
        }
        std::fs::create_dir(root.path().join("devices/system/cpu/cpuidle"))?;
        let source = CpufreqConfig::default().build(&Host::new(root.path(), root.path()))?;
        let mut out = Sections::default();
        let tick = Tick::new(1, std::time::Instant::now(), std::time::Duration::ZERO, std::time::Duration::ZERO);
        source.ok_or(anyhow::anyhow!("absent"))?.collect(&tick, &mut out)?;
        let expected = CpufreqMetrics {
            cpus: "2,10".to_owned(),
            per_core_mhz: vec![3200.0, 800.0],
            min_mhz: Some(800.0),
            mean_mhz: Some(2000.0),
            max_mhz: Some(3200.0),
        };
        assert_eq!(out.get::<CpufreqMetrics>(), Some(&expected));
        Ok(())
    }
}
