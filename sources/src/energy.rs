//! Energy of the machine: `/sys/class/powercap` (RAPL).

use std::path::Path;
use std::time::{Duration, Instant};

use resource_tracker_core::{
    Cadence, Host, Schedule, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::{Energy, EnergyMetrics};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter_deltas::CounterDeltas;
use crate::procfile::{ProcFile, assign, attribute};
use resource_tracker_scan::{number, words};

/// Energy of the machine, by RAPL domain. Since kernel 5.10 only root may read it.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(remote = "Self")]
pub struct EnergyConfig {}

from_json!(EnergyConfig);

#[typetag::deserialize(name = "energy")]
impl SourceConfig for EnergyConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        let root = host.sysfs.join("class/powercap");
        let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        let mut domains: Vec<Domain> = names.iter().filter_map(|name| Domain::open(&root.join(name))).collect();
        leave_out_what_is_there_twice(&mut domains);
        if domains.is_empty() {
            log::warn!("source energy: {} has no domain that counts energy", root.display());
            return Ok(None);
        }
        if domains.iter().all(|domain| domain.energy.is_none()) {
            log::warn!("source energy: {} cannot be read without being root; its values are null", root.display());
        }
        Ok(Some(Box::new(Rapl { domains, deltas: CounterDeltas::new("energy") })))
    }

    /// A counter is read by a driver, on the CPUs that it is of.
    fn schedule(&self) -> Schedule {
        Schedule::blocking(Cadence::EveryTick)
    }

    fn is_plainly_absent(&self, host: &Host) -> bool {
        !host.sysfs.join("class/powercap").exists()
    }
}

register_source!(SourceEntry::new::<EnergyConfig>("energy", "Energy of packages, cores and memory (RAPL)").order(70));

/// More than any processor can draw, in watts, so that a counter which seems to tell so has not wrapped but begun anew.
const IMPOSSIBLE: f64 = 2000.0;

struct Rapl {
    domains: Vec<Domain>,
    deltas: CounterDeltas,
}

struct Domain {
    domain: String,
    name: String,
    energy: Option<ProcFile>,
    /// The largest value of the counter, in microjoules.
    range: u64,
    /// What it said last, and when.
    before: Option<(u64, Instant)>,
}

impl Domain {
    fn open(directory: &Path) -> Option<Self> {
        let energy = directory.join("energy_uj");
        if !energy.exists() {
            return None;
        }
        Some(Self {
            domain: directory.file_name()?.to_string_lossy().into_owned(),
            name: attribute(&directory.join("name")).unwrap_or_default(),
            // That it can be opened does not say that it can be read.
            energy: ProcFile::open_if_present(energy).and_then(|mut file| file.read().is_ok().then_some(file)),
            range: attribute(&directory.join("max_energy_range_uj")).and_then(|text| text.parse().ok()).unwrap_or(0),
            before: None,
        })
    }

    /// Microjoules since the last reading, and the time since; 0 the first time. `None` when the counter began anew.
    fn used(&mut self, at: Instant, deltas: &mut CounterDeltas) -> Option<(u64, Duration)> {
        let now = self.energy.as_mut()?.parse(|text| number(words(text).next()?))?;
        let (before, then) = self.before.replace((now, at)).unwrap_or((now, at));
        let time = at.saturating_duration_since(then);
        let wrapped = if now < before { wrapped(self.range, before, now, time) } else { None };
        Some((wrapped.or_else(|| deltas.of(&self.domain, now, before))?, time))
    }
}

/// What a counter that fell has gained if it wrapped at `range`; `None` when nothing can draw so much in the time.
fn wrapped(range: u64, before: u64, now: u64, time: Duration) -> Option<u64> {
    let used = range.checked_sub(before)?.checked_add(now)?;
    (used as f64 / 1e6 <= IMPOSSIBLE * time.as_secs_f64()).then_some(used)
}

/// A package can be there twice: by its registers, and by memory that its driver maps (`intel-rapl-mmio`).
fn leave_out_what_is_there_twice(domains: &mut Vec<Domain>) {
    let by_registers = |domain: &Domain| domain.domain.starts_with("intel-rapl:") && domain.energy.is_some();
    let named: Vec<String> = domains.iter().filter(|it| by_registers(it)).map(|it| it.name.clone()).collect();
    domains.retain(|domain| !domain.domain.starts_with("intel-rapl-mmio:") || !named.contains(&domain.name));
}

impl Source for Rapl {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        let list = &mut out.section::<Energy>().0;
        list.resize_with(self.domains.len(), EnergyMetrics::default);
        for (metrics, domain) in list.iter_mut().zip(&mut self.domains) {
            assign(&mut metrics.domain, &domain.domain);
            assign(&mut metrics.name, &domain.name);
            let used =
                domain.used(tick.at, &mut self.deltas).map(|(micros, time)| (micros as f64 / 1e6, time.as_secs_f64()));
            metrics.joules = used.map(|(joules, _)| joules);
            metrics.watts = used.map(|(joules, secs)| if secs > 0.0 { joules / secs } else { 0.0 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    /// Two seconds after the reading before.
    fn read(source: &mut dyn Source, number: u64) -> Vec<EnergyMetrics> {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        let mut out = Sections::default();
        let (elapsed, interval) = (Duration::from_secs(2), Duration::from_secs(1));
        let tick = Tick::new(number, *START + elapsed * number as u32, elapsed, interval);
        source.collect(&tick, &mut out).unwrap();
        out.get::<Energy>().unwrap().0.clone()
    }

    /// A package whose counter wraps at 1000 J, and its cores, whose counter nobody may read.
    #[test]
    fn a_counter_that_wraps_and_one_that_cannot_be_read() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let domain = |name: &str| root.path().join("class/powercap").join(name);
        let (package, core) = (domain("intel-rapl:0"), domain("intel-rapl:0:0"));
        std::fs::create_dir_all(&package)?;
        std::fs::create_dir_all(core.join("energy_uj"))?;
        std::fs::create_dir_all(domain("intel-rapl"))?;
        std::fs::write(package.join("name"), "package-0\n")?;
        std::fs::write(package.join("max_energy_range_uj"), "1000000000\n")?;
        std::fs::write(package.join("energy_uj"), "999000000\n")?;
        let mut source = EnergyConfig {}.build(&Host::new("/proc", root.path()))?.unwrap();
        assert_eq!(read(&mut *source, 0)[0].joules, Some(0.0));
        std::fs::write(package.join("energy_uj"), "5000000\n")?;
        let list = read(&mut *source, 1);
        assert_eq!((list[0].name.as_str(), list[0].joules, list[0].watts), ("package-0", Some(6.0), Some(3.0)));
        assert_eq!((list[1].domain.as_str(), list[1].joules, list[1].watts), ("intel-rapl:0:0", None, None));
        // What is read after it could not be read covers all the time since.
        std::fs::write(package.join("energy_uj"), "")?;
        assert_eq!(read(&mut *source, 2)[0].watts, None);
        std::fs::write(package.join("energy_uj"), "25000000\n")?;
        let list = read(&mut *source, 3);
        assert_eq!((list[0].joules, list[0].watts), (Some(20.0), Some(5.0)));
        Ok(())
    }

    /// 50 kJ, and then 1 J: a wrap would be 212 kJ, as much as nothing can use in two seconds.
    #[test]
    fn a_counter_that_begins_anew_has_not_wrapped() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let package = root.path().join("class/powercap/intel-rapl:0");
        std::fs::create_dir_all(&package)?;
        std::fs::write(package.join("max_energy_range_uj"), "262143328850\n")?;
        std::fs::write(package.join("energy_uj"), "50000000000\n")?;
        let mut source = EnergyConfig {}.build(&Host::new("/proc", root.path()))?.unwrap();
        read(&mut *source, 0);
        let mut used = |number, microjoules: u64| -> anyhow::Result<_> {
            std::fs::write(package.join("energy_uj"), format!("{microjoules}\n"))?;
            let list = read(&mut *source, number);
            Ok((list[0].joules, list[0].watts))
        };
        assert_eq!(used(1, 1_000_000)?, (None, None));
        assert_eq!(used(2, 11_000_000)?, (Some(10.0), Some(5.0)));
        // A kernel that does not say where it wraps.
        let second = Duration::from_secs(1);
        assert_eq!((wrapped(0, 9, 5, second), wrapped(10, 9, 5, second)), (None, Some(6)));
        Ok(())
    }

    #[test]
    fn a_package_that_is_there_twice_is_listed_once() -> anyhow::Result<()> {
        let domains = |registers_can_be_read: bool| -> anyhow::Result<Vec<String>> {
            let root = tempfile::tempdir()?;
            let labels = [
                ("intel-rapl:0", "package-0\n", registers_can_be_read),
                ("intel-rapl:0:0", "core\n", true),
                ("intel-rapl-mmio:0", "package-0\n", true),
                ("intel-rapl-mmio:1", "package-1\n", true),
            ];
            for (name, label, can_be_read) in labels {
                let folder = root.path().join("class/powercap").join(name);
                std::fs::create_dir_all(&folder)?;
                std::fs::write(folder.join("name"), label)?;
                match can_be_read {
                    true => std::fs::write(folder.join("energy_uj"), "1\n")?,
                    false => std::fs::create_dir(folder.join("energy_uj"))?,
                }
            }
            let mut source = EnergyConfig {}.build(&Host::new("/proc", root.path()))?.unwrap();
            Ok(read(&mut *source, 0).into_iter().map(|metrics| metrics.domain).collect())
        };
        assert_eq!(domains(true)?, ["intel-rapl-mmio:1", "intel-rapl:0", "intel-rapl:0:0"]);
        assert_eq!(domains(false)?.len(), 4, "one of the two can be read");
        Ok(())
    }

    #[test]
    fn a_machine_without() -> anyhow::Result<()> {
        assert!(EnergyConfig {}.build(&Host::new("/proc", "/nonexistent"))?.is_none());
        Ok(())
    }

    /// Recorded on a real machine, where the folder with recordings is at hand.
    #[test]
    fn a_real_machine() -> anyhow::Result<()> {
        let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/fixtures/sys");
        if !recorded.exists() {
            eprintln!("skipped: no recorded machine here");
            return Ok(());
        }
        let mut source = EnergyConfig {}.build(&Host::new("/proc", recorded))?.unwrap();
        let names: Vec<String> = read(&mut *source, 0).into_iter().map(|metrics| metrics.name).collect();
        assert_eq!(names, ["package-0", "core", "package-10"]);
        Ok(())
    }
}
