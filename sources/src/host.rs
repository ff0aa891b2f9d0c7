//! The machine itself, once: names, CPUs, memory, storage.

use std::path::Path;

use resource_tracker_core::{
    Cadence, Host, Schedule, Section, Sections, Source, SourceConfig, SourceEntry, Tick, from_json, register_source,
};
use resource_tracker_metrics::HostMetrics;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::disk::storage_bytes;
use crate::procfile::{attribute, read_once};
use resource_tracker_scan::value_of;

/// Names, CPUs, memory, GPUs and storage of the machine.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct HostConfig {
    /// Fields to leave out everywhere, such as host_ip.
    pub suppress: Vec<HostField>,
}

/// Defines the fields that can be left out, and how.
macro_rules! fields {
    ($($variant:ident $field:ident,)*) => {
        /// A field of the section `host`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        #[allow(missing_docs, reason = "they are those of the section")]
        pub enum HostField {
            $($variant,)*
        }

        impl HostField {
            /// The names of all.
            pub const NAMES: &[&str] = &[$(stringify!($field),)*];
        }

        fn suppress(facts: &mut HostMetrics, suppressed: &[HostField]) {
            $(if suppressed.contains(&HostField::$variant) { facts.$field = None; })*
        }
    };
}

fields! {
    HostId host_id,
    HostName host_name,
    HostIp host_ip,
    HostAllocation host_allocation,
    HostVcpus host_vcpus,
    HostCpuModel host_cpu_model,
    HostMemoryMib host_memory_mib,
    HostGpuModel host_gpu_model,
    HostGpuCount host_gpu_count,
    HostGpuVramMib host_gpu_vram_mib,
    HostStorageGb host_storage_gb,
}

from_json!(HostConfig);

#[typetag::deserialize(name = "host")]
impl SourceConfig for HostConfig {
    fn build(&self, host: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        Ok(Some(Box::new(HostSource { host: host.clone(), suppressed: self.suppress.clone() })))
    }

    /// A driver may serve what is read of a drive or of an address, and take its time.
    fn schedule(&self) -> Schedule {
        Schedule::blocking(Cadence::Once)
    }
}

register_source!(
    SourceEntry::new::<HostConfig>("host", "Names, CPUs, memory, GPUs and storage of the machine")
        .on_by_default()
        .order(95)
);

struct HostSource {
    host: Host,
    suppressed: Vec<HostField>,
}

impl Source for HostSource {
    fn collect(&mut self, _: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        *out.section() = HostFacts { facts: read(&self.host), suppressed: self.suppressed.clone() };
        Ok(())
    }
}

/// What the machine tells of itself, and what of it the user does not want to be told.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct HostFacts {
    pub(crate) facts: HostMetrics,
    suppressed: Vec<HostField>,
}

impl Section for HostFacts {
    const NAME: &'static str = "host";
    const IS_INTERNAL: bool = true;
}

impl HostFacts {
    /// Takes out what is not to be told.
    pub(crate) fn suppress(&self, facts: &mut HostMetrics) {
        suppress(facts, &self.suppressed);
    }
}

fn read(host: &Host) -> HostMetrics {
    let procfs = |name: &str| read_once(&host.procfs.join(name)).unwrap_or_default();
    let cpuinfo = String::from_utf8_lossy(&procfs("cpuinfo")).into_owned();
    let cpus = cpuinfo.lines().filter(|line| line.split(':').next().is_some_and(|key| key.trim() == "processor"));
    let model = cpuinfo.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == "model name");
    HostMetrics {
        host_id: id(&host.sysfs, Path::new("/etc/machine-id")),
        host_name: attribute(&host.procfs.join("sys/kernel/hostname")),
        host_ip: ipv4(),
        host_vcpus: u32::try_from(cpus.count()).ok().filter(|count| *count > 0),
        host_cpu_model: model.map(|(_, model)| model.trim().to_owned()).filter(|model| !model.is_empty()),
        host_memory_mib: value_of(&procfs("meminfo"), "MemTotal").map(|kib| kib / 1024),
        host_storage_gb: storage_bytes(&host.sysfs).map(|bytes| bytes as f64 / 1e9),
        ..HostMetrics::default()
    }
}

/// On AWS the asset tag is the instance's id; elsewhere it can be anything.
fn id(sysfs: &Path, machine_id: &Path) -> Option<String> {
    let tag = attribute(&sysfs.join("class/dmi/id/board_asset_tag"));
    tag.filter(|tag| tag.starts_with("i-")).or_else(|| attribute(machine_id))
}

fn ipv4() -> Option<String> {
    let mut addresses = nix::ifaddrs::getifaddrs().ok()?.filter_map(|interface| {
        Some(interface.address?.as_sockaddr_in()?.ip()).filter(|address| !address.is_loopback())
    });
    addresses.next().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_machine_with_two_cpus() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let write = |path: &str, text: &str| -> anyhow::Result<()> {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap_or(root.path()))?;
            Ok(fs::write(path, text)?)
        };
        write(
            "cpuinfo",
            "processor\t: 0\nmodel name\t: AMD EPYC 9R14\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 9R14\n",
        )?;
        write("meminfo", "MemTotal:        2097152 kB\nMemFree: 1 kB\n")?;
        write("sys/kernel/hostname", "node7\n")?;
        write("class/dmi/id/board_asset_tag", "i-0abc\n")?;
        write("block/nvme0n1/size", "2000000\n")?;
        write("block/dm-0/size", "1000000\n")?;
        write("block/dm-0/slaves/nvme0n1/x", "")?;
        write("block/loop0/size", "8\n")?;
        let facts = read(&Host::new(root.path(), root.path()));
        assert_eq!((facts.host_id.as_deref(), facts.host_name.as_deref()), (Some("i-0abc"), Some("node7")));
        assert_eq!((facts.host_vcpus, facts.host_cpu_model.as_deref()), (Some(2), Some("AMD EPYC 9R14")));
        assert_eq!((facts.host_memory_mib, facts.host_storage_gb), (Some(2048), Some(1.024)));
        write("class/dmi/id/board_asset_tag", "No Asset Tag\n")?;
        write("machine-id", "0123\n")?;
        assert_eq!(id(root.path(), &root.path().join("machine-id")).as_deref(), Some("0123"));
        Ok(())
    }

    #[test]
    fn a_suppressed_field_is_not_there() -> anyhow::Result<()> {
        let mut facts = HostMetrics { host_ip: Some("10.0.0.1".into()), host_vcpus: Some(2), ..HostMetrics::default() };
        suppress(&mut facts, &[HostField::HostIp]);
        assert_eq!(serde_json::to_string(&facts)?, r#"{"host_vcpus":2}"#);
        Ok(())
    }
}
