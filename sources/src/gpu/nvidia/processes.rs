//! Which processes use a GPU, and how much.

use nvml_wrapper::Device as Handle;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use resource_tracker_metrics::GpuMetrics;

use crate::gpu::namespace::Namespace;
use crate::gpu::pace::Paced;

use super::library::Library;
use super::shares::{Shares, clocks};

#[derive(Default)]
pub(super) struct Processes {
    listed: Paced<Listed>,
    /// Those that were listed last, and before that: one that has ended since was at work nevertheless.
    last: Vec<u32>,
    before: Vec<u32>,
    /// Those that have a share and were not listed when it was looked.
    strangers: Vec<u32>,
    read: Paced<()>,
    shares: Shares,
}

/// The processes that use a device.
#[derive(Debug, Clone, Default)]
pub(super) struct Listed {
    /// How many of them compute.
    pub(super) computing: u32,
    /// What each holds.
    pub(super) memory: Vec<(u32, Option<u64>)>,
    /// Those that share the context of an MPS server.
    mps: Vec<u32>,
}

impl Processes {
    pub(super) fn fill(
        &mut self,
        metrics: &mut GpuMetrics,
        library: &Library,
        handle: &Handle<'_>,
        count: usize,
        tree: Option<&[i32]>,
        namespace: &mut Namespace,
    ) {
        self.read.get(count, || {
            self.shares.read(clocks(), |since| match handle.process_utilization_stats(since) {
                Ok(samples) => Some(samples),
                // It has no sample, which is no error.
                Err(NvmlError::NotFound) => Some(Vec::new()),
                Err(_) => None,
            });
            Some(())
        });
        let are_named_alike = namespace.is_initial() || library.driver.translates_samples();
        let mut listed = self.listed.get(count, || list(library, handle, namespace));
        self.remember(listed.as_ref());
        if are_named_alike && listed.is_some() && self.has_newcomer() {
            listed = self.listed.fresh(count, true, || list(library, handle, namespace));
            self.remember(listed.as_ref());
            self.strangers = self.shares.pids().filter(|pid| !self.is_listed(*pid)).collect();
        }
        metrics.process_count = listed.as_ref().map(|listed| listed.computing);
        let Some(Listed { memory, mps, .. }) = listed else { return };
        metrics.process_sm_utilization_pct = self.shares.together(|pid| !are_named_alike || self.is_listed(pid));
        let shares = &self.shares;
        // The driver may count the work of a client of MPS to the server.
        let is_known = |pid: u32, share: f64| are_named_alike && (share > 0.0 || !mps.contains(&pid));
        let share = |pid: u32| shares.of(pid).filter(|share| is_known(pid, *share));
        // Where the list has only what is in this namespace, a device may be busy with the work of others.
        let busy = metrics.utilization_pct.filter(|_| !library.driver.translates_lists());
        metrics.processes = namespace.those_in(tree, Some(memory), busy, share);
    }

    fn remember(&mut self, listed: Option<&Listed>) {
        let pids: Vec<u32> = listed.into_iter().flat_map(|listed| &listed.memory).map(|(pid, _)| *pid).collect();
        if pids != self.last {
            self.before = std::mem::replace(&mut self.last, pids);
        }
    }

    fn is_listed(&self, pid: u32) -> bool {
        self.last.contains(&pid) || self.before.contains(&pid)
    }

    /// Whether one may have begun to work since the list was read. It is looked for once.
    fn has_newcomer(&self) -> bool {
        self.shares.pids().any(|pid| !self.is_listed(pid) && !self.strangers.contains(&pid))
    }
}

/// All that use a device. `None` where the device does not tell.
pub(super) fn list(library: &Library, handle: &Handle<'_>, namespace: &Namespace) -> Option<Listed> {
    let newest = !library.driver.has_long_entries();
    let compute =
        whole(newest, || handle.running_compute_processes(), || handle.running_compute_processes_v2()).ok()?;
    let graphics = whole(newest, || handle.running_graphics_processes(), || handle.running_graphics_processes_v2());
    let mps = whole(newest, || handle.mps_running_compute_processes(), || Ok(Vec::new()));
    let (graphics, mps) = (those_that_can_be(graphics)?, those_that_can_be(mps)?);
    let mut listed = Listed { mps: mps.iter().map(|process| process.pid).collect(), ..Listed::default() };
    compute.into_iter().chain(mps).for_each(|process| listed.add(process));
    listed.computing = listed.memory.len() as u32;
    graphics.into_iter().for_each(|process| listed.add(process));
    if !namespace.is_initial() && library.driver.mistakes_memory() {
        listed.memory.iter_mut().for_each(|(_, bytes)| *bytes = None);
    }
    Some(listed)
}

impl Listed {
    fn add(&mut self, process: ProcessInfo) {
        let bytes = match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        };
        // One that is in several lists is in each with the same memory.
        match self.memory.iter_mut().find(|(pid, _)| *pid == process.pid) {
            Some((_, known)) => *known = (*known).max(bytes),
            None => self.memory.push((process.pid, bytes)),
        }
    }
}

type List = Result<Vec<ProcessInfo>, NvmlError>;

/// A list, by the newest version of its call that the library has and that can be used. One that grows while it is read
/// is read again.
fn whole(can_use_newest: bool, newest: impl Fn() -> List, older: impl Fn() -> List) -> List {
    let read = || match can_use_newest.then(&newest) {
        None | Some(Err(NvmlError::FailedToLoadSymbol(_))) => older(),
        Some(list) => list,
    };
    let mut list = read();
    for _ in 0..2 {
        if !matches!(list, Err(NvmlError::InsufficientSize(_))) {
            break;
        }
        list = read();
    }
    list
}

/// The list; a kind of processes that a device or a library does not know has none. `None` where it cannot be read.
fn those_that_can_be(list: List) -> Option<Vec<ProcessInfo>> {
    match list {
        Err(NvmlError::NotSupported | NvmlError::InvalidArg | NvmlError::FailedToLoadSymbol(_)) => Some(Vec::new()),
        list => list.ok(),
    }
}
