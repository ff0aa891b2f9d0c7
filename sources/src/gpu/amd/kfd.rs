//! Processes that compute (ROCm, HIP): `/sys/class/kfd/kfd`. Their work is not in the files of DRM.

use std::path::{Path, PathBuf};

use resource_tracker_metrics::GpuProcess;

use crate::procfile::{attribute, percent};
use resource_tracker_scan::number;

pub(super) struct Kfd {
    root: PathBuf,
}

/// A device that can compute.
pub(super) struct Node {
    gpu_id: u64,
    pub(super) compute_units: u32,
    /// `gfx_target_version`, such as 90010 for gfx90a.
    pub(super) target: Option<u64>,
}

/// A process that computes on it.
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) vram_bytes: Option<u64>,
    /// Compute units that its waves in flight would fill, in percent of all.
    pub(super) cu_occupancy_pct: Option<f64>,
}

impl Kfd {
    pub(super) fn new(sysfs: &Path) -> Self {
        Self { root: sysfs.join("class/kfd/kfd") }
    }

    /// The device with this render minor.
    pub(super) fn node(&self, minor: u64) -> Option<Node> {
        let nodes = std::fs::read_dir(self.root.join("topology/nodes")).ok()?.flatten();
        nodes.map(|entry| entry.path()).find_map(|node| {
            let properties = std::fs::read_to_string(node.join("properties")).ok()?;
            let property = |name: &str| {
                let line = properties.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
                number(line.trim().as_bytes())
            };
            if property("drm_render_minor")? != minor {
                return None;
            }
            let units = property("simd_count")? / property("simd_per_cu").filter(|simds| *simds > 0)?;
            let gpu_id = number(attribute(&node.join("gpu_id"))?.as_bytes())?;
            let target = property("gfx_target_version");
            Some(Node { gpu_id, compute_units: u32::try_from(units).ok()?, target })
        })
    }

    /// The processes that compute on a device; `None` when that cannot be known.
    pub(super) fn processes(&self, node: &Node) -> Option<Vec<Process>> {
        let entries = std::fs::read_dir(self.root.join("proc")).ok()?.flatten();
        let process = |entry: std::fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let value = |name: String| number(attribute(&entry.path().join(name))?.as_bytes());
            let vram_bytes = value(format!("vram_{}", node.gpu_id))?;
            let occupied = value(format!("stats_{}/cu_occupancy", node.gpu_id));
            let share = occupied.map(|units| percent(units as f64, node.compute_units.into()).min(100.0));
            // The kernel lists every process with every device.
            (vram_bytes > 0 || share.is_some_and(|pct| pct > 0.0)).then_some(Process {
                pid,
                vram_bytes: Some(vram_bytes),
                cu_occupancy_pct: share,
            })
        };
        Some(entries.filter_map(process).collect())
    }
}

/// Joins the lists of processes that draw and of those that compute. `listed` are all that compute. No counter has how
/// long a process computes, so its share of the time is not known, whatever it draws.
pub(super) fn joined(drawing: Vec<GpuProcess>, mut computing: Vec<GpuProcess>, listed: &[Process]) -> Vec<GpuProcess> {
    for process in &mut computing {
        let one = listed.iter().find(|one| i32::try_from(one.pid) == Ok(process.pid));
        process.cu_occupancy_pct = one.and_then(|one| one.cu_occupancy_pct);
    }
    for process in drawing {
        match computing.iter_mut().find(|known| known.pid == process.pid) {
            // Newer kernels count the memory of both in both places.
            Some(known) => known.vram_bytes = known.vram_bytes.max(process.vram_bytes),
            None => computing.push(process),
        }
    }
    computing
}
