//! GPUs: what each does, and what the job has of them. One folder a vendor.

mod amd;
mod board;
mod drm;
mod fdinfo;
mod namespace;
mod nvidia;
mod pace;
mod visible;

pub use amd::AmdConfig;
pub use drm::DrmConfig;
pub use nvidia::NvidiaConfig;

pub(crate) use board::Board;

use std::sync::Arc;

use resource_tracker_core::{Host, Tick};
use resource_tracker_metrics::GpuMetrics;

use crate::allocation::Allocation;
use crate::procfile::percent;
use board::{Devices, Share};

/// Sets what memory a device has and uses. None of them tells more used than there is.
fn set_vram(metrics: &mut GpuMetrics, total: Option<u64>, used: Option<u64>) {
    let used = used.map(|used| total.map_or(used, |total| used.min(total)));
    metrics.vram_total_bytes = total;
    metrics.vram_used_bytes = used;
    metrics.vram_used_pct = total.zip(used).map(|(total, used)| percent(used as f64, total as f64));
}

/// What a counter gained since it was last read, and keeps its new value; nothing the first time or after a reset.
fn gained(before: &mut Option<u64>, now: Option<u64>) -> Option<u64> {
    let now = now?;
    let before = before.replace(now).unwrap_or(now);
    Some(now.saturating_sub(before))
}

/// The devices of a vendor, as `host` tells them. Parts of a device are not counted beside it.
fn devices(gpus: &[GpuMetrics]) -> Devices {
    let whole = || gpus.iter().filter(|gpu| gpu.parent_uuid.is_none());
    Devices {
        model: whole().next().map(|gpu| gpu.name.clone()),
        count: whole().count() as u32,
        vram_bytes: whole().filter_map(|gpu| gpu.vram_total_bytes).sum(),
    }
}

/// What the job has of a vendor's devices; `None` when no device tells.
fn share_of_job(gpus: &[GpuMetrics]) -> Option<Share> {
    let telling = || gpus.iter().filter(|gpu| gpu.processes.is_some());
    let lists = telling().filter_map(|gpu| gpu.processes.as_deref());
    let share = lists.map(Share::of).reduce(Share::plus)?;
    // A device that tells how busy it is, and has no process of the job, is not used by it.
    let idle = telling().any(|gpu| gpu.utilization_pct.is_some()).then_some(0.0);
    Some(Share { usage: share.usage.or(idle), ..share })
}

/// Tells the other sources what was read.
fn tell(board: &Board, allocation: &Allocation, source: &'static str, gpus: &[GpuMetrics], tick: &Tick) {
    board.found(source, devices(gpus));
    let share = tick.tracked.as_ref().and_then(|_| share_of_job(gpus));
    board.used_by_job(source, share, tick.at);
    let secs = tick.elapsed.as_secs_f64();
    let machine: f64 = gpus.iter().filter_map(|gpu| gpu.utilization_pct).sum::<f64>() / 100.0;
    allocation.add(|used| {
        used.machine_gpu += machine * secs;
        if let Some(usage) = share.and_then(|share| share.usage) {
            *used.job_gpu.get_or_insert_default() += usage * secs;
        }
    });
}

/// What the sources of all vendors need.
struct Shared {
    board: Arc<Board>,
    allocation: Arc<Allocation>,
}

impl Shared {
    fn new(host: &Host) -> anyhow::Result<Self> {
        Ok(Self { board: Board::shared(host)?, allocation: Allocation::shared(host)? })
    }
}
