//! The counters of CPUs of several kinds: fast and frugal cores have a PMU each, and an event is counted on one of them only.

use std::path::Path;

use crate::procfile::attribute;

/// What counts events of some of the CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pmu {
    /// Such as `cpu_atom`.
    pub(super) name: String,
    /// What the kernel calls it in an event.
    pub(super) number: u32,
}

/// The PMUs of the CPUs, if there are several: a single one, the kernel finds by itself.
pub(super) fn of_cpus(sysfs: &Path) -> Vec<Pmu> {
    let entries = std::fs::read_dir(sysfs.join("bus/event_source/devices")).into_iter().flatten().flatten();
    let mut pmus: Vec<Pmu> = entries
        // Only the PMU of CPUs has a file `cpus`; a PMU beside the cores has a `cpumask`.
        .filter(|entry| entry.path().join("cpus").exists())
        .filter_map(|entry| {
            let number = attribute(&entry.path().join("type"))?.parse().ok()?;
            Some(Pmu { name: entry.file_name().to_string_lossy().into_owned(), number })
        })
        .collect();
    pmus.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    if pmus.len() > 1 { pmus } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_and_frugal_cores() {
        let root = tempfile::tempdir().unwrap();
        let add = |name: &str, number: &str, cpus: &str| {
            let folder = root.path().join("bus/event_source/devices").join(name);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("type"), number).unwrap();
            std::fs::write(folder.join(cpus), "0-3\n").unwrap();
        };
        add("uncore_imc_0", "20\n", "cpumask");
        add("software", "1\n", "nothing");
        add("cpu_core", "4\n", "cpus");
        assert_eq!(of_cpus(root.path()), [], "it is alone");
        add("cpu_atom", "10\n", "cpus");
        let names: Vec<_> = of_cpus(root.path()).into_iter().map(|pmu| (pmu.name, pmu.number)).collect();
        assert_eq!(names, [("cpu_atom".to_owned(), 10), ("cpu_core".to_owned(), 4)]);
    }
}
