//! The cards as the kernel knows them. NVML wakes them all when it starts, and holds them awake until it is let go of.

use std::path::{Path, PathBuf};

use resource_tracker_core::Host;
use resource_tracker_metrics::GpuMetrics;

use crate::gpu::sleep_policy::Power;
use crate::job::folder_of_process;
use crate::procfile::attribute;

/// The name of a card that was not asked yet.
const UNKNOWN: &str = "NVIDIA GPU";

/// The cards of NVIDIA's driver, in the order of their PCI addresses, which is NVML's.
pub(super) struct Cards {
    procfs: PathBuf,
    list: Vec<Card>,
}

struct Card {
    address: String,
    power: Power,
}

impl Cards {
    pub(super) fn find(host: &Host) -> Self {
        let root = host.sysfs.join("bus/pci/drivers/nvidia");
        let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
        // Beside them are files such as `bind`.
        let is_address = |name: &String| name.split([':', '.']).count() == 4;
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut addresses: Vec<String> = names.filter(is_address).collect();
        addresses.sort_unstable();
        let card = |address: String| Card { power: Power::of(&root.join(&address)), address };
        Self { procfs: host.procfs.clone(), list: addresses.into_iter().map(card).collect() }
    }

    pub(super) fn are_asleep(&self) -> bool {
        !self.list.is_empty() && self.list.iter().all(|card| card.power.is_asleep())
    }

    /// Whether all of them would sleep if no program used them. Asked only while they are awake, because the driver may
    /// need that for its answer.
    pub(super) fn can_sleep(&self) -> bool {
        let can_sleep = |card: &Card| {
            let file = self.procfs.join("driver/nvidia/gpus").join(&card.address).join("power");
            card.power.is_managed() && attribute(&file).is_some_and(|text| is_enabled(&text))
        };
        !self.list.is_empty() && self.list.iter().all(can_sleep)
    }

    /// Whether a process of the job has one open.
    pub(super) fn are_used_by(&self, tree: &[i32]) -> bool {
        tree.iter().any(|pid| {
            let files = std::fs::read_dir(folder_of_process(&self.procfs, *pid).join("fd"));
            let is_card = |file: &Path| {
                std::fs::read_link(file).is_ok_and(|target| target.to_string_lossy().starts_with("/dev/nvidia"))
            };
            files.into_iter().flatten().flatten().any(|file| is_card(&file.path()))
        })
    }

    /// The cards as far as they are known without NVML. (`/proc/driver/nvidia/gpus/ADDRESS/information` wakes them.)
    pub(super) fn names(&self) -> impl Iterator<Item = GpuMetrics> {
        self.list.iter().enumerate().map(|(index, card)| GpuMetrics {
            uuid: card.address.clone(),
            name: UNKNOWN.into(),
            device_type: "GPU".into(),
            host_id: format!("nvidia{index}"),
            detail: [("pci_bus_id".to_owned(), card.address.clone())].into(),
            ..GpuMetrics::default()
        })
    }
}

/// `Runtime D3 status: Enabled (fine-grained)`, among other lines. Others are `Disabled by default` and `Not supported`, with
/// which the kernel's own status says nothing.
fn is_enabled(power: &str) -> bool {
    let status = power.lines().find_map(|line| line.strip_prefix("Runtime D3 status:"));
    status.is_some_and(|status| status.trim_start().starts_with("Enabled"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// `power` as `nv_procfs_read_power` of the open kernel module writes it.
    #[test]
    fn cards_that_can_sleep() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let host = Host::new(root.path(), root.path());
        assert!(!Cards::find(&host).are_asleep() && !Cards::find(&host).can_sleep(), "no driver");
        write("bus/pci/drivers/nvidia/bind", "");
        for (address, status) in [("0000:01:00.0", "active"), ("0000:41:00.0", "suspended")] {
            let device = format!("bus/pci/drivers/nvidia/{address}");
            write(&format!("{device}/power/runtime_status"), status);
            write(&format!("{device}/power/control"), "auto\n");
            let power = "Runtime D3 status:          Enabled (fine-grained)\nVideo Memory:               Active\n\n\
                GPU Hardware Support:\n Video Memory Self Refresh: Supported\n Video Memory Off:          Supported\n";
            write(&format!("driver/nvidia/gpus/{address}/power"), power);
        }
        let cards = Cards::find(&host);
        let names: Vec<GpuMetrics> = cards.names().collect();
        assert_eq!(names.iter().map(|gpu| gpu.uuid.as_str()).collect::<Vec<_>>(), ["0000:01:00.0", "0000:41:00.0"]);
        assert!(!cards.are_asleep(), "one of them works");
        assert!(cards.can_sleep());
        write("bus/pci/drivers/nvidia/0000:01:00.0/power/runtime_status", "suspended\n");
        assert!(cards.are_asleep());
        for status in ["Disabled by default", "Not supported", "?"] {
            write("driver/nvidia/gpus/0000:41:00.0/power", &format!("Runtime D3 status:          {status}\n"));
            assert!(!cards.can_sleep(), "{status}");
        }
        assert!(!cards.are_used_by(&[std::process::id() as i32]));
    }

    #[test]
    fn a_process_that_has_one_open() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("42/fd")).unwrap();
        std::os::unix::fs::symlink("/dev/null", root.path().join("42/fd/0")).unwrap();
        let cards = Cards::find(&Host::new(root.path(), root.path()));
        assert!(!cards.are_used_by(&[41, 42]));
        std::os::unix::fs::symlink("/dev/nvidia0", root.path().join("42/fd/3")).unwrap();
        assert!(cards.are_used_by(&[41, 42]) && !cards.are_used_by(&[41]));
    }
}
