//! The parts that a GPU is divided into (MIG), each used as a device of its own.

use nvml_wrapper::Device as Handle;
use resource_tracker_metrics::GpuMetrics;

use crate::gpu::namespace::Namespace;
use crate::gpu::pace::Paced;
use crate::gpu::vram::set_vram;

use super::gpm::Gpm;
use super::library::Library;
use super::processes;

/// A part whose facts were asked once.
pub(super) struct Part {
    index: u32,
    facts: GpuMetrics,
    /// The GPU instance that it is in, which counts its use.
    instance: Option<u32>,
    memory: Paced<(u64, u64)>,
    gpm: Gpm,
}

impl Part {
    fn new(library: &Library, parent: &GpuMetrics, handle: &Handle<'_>, uuid: String, index: u32) -> Self {
        let facts = facts(parent, handle, uuid, index);
        let instance = library.extra.gpu_instance(handle);
        Self { index, facts, instance, memory: Paced::default(), gpm: Gpm::default() }
    }
}

/// All parts of a device. The index of a part can have holes.
pub(super) fn read(
    parts: &mut Vec<Part>,
    parent: &GpuMetrics,
    library: &'static Library,
    whole: &Handle<'static>,
    count: usize,
    tree: Option<&[i32]>,
    namespace: &mut Namespace,
) -> Vec<GpuMetrics> {
    let indices = 0..whole.mig_device_count().unwrap_or(0);
    let found: Vec<(u32, Handle<'_>)> =
        indices.filter_map(|index| Some((index, whole.mig_device_by_index(index).ok()?))).collect();
    parts.retain(|part| found.iter().any(|(index, _)| *index == part.index));
    let read = |(index, handle): (u32, Handle<'_>)| {
        let uuid = handle.uuid().unwrap_or_default();
        let known = parts.iter().position(|part| part.index == index && part.facts.uuid == uuid);
        let place = known.unwrap_or_else(|| {
            parts.retain(|part| part.index != index);
            parts.push(Part::new(library, parent, &handle, uuid, index));
            parts.len() - 1
        });
        let part = &mut parts[place];
        let mut metrics = part.facts.clone();
        let memory = part.memory.get(count, || library.memory(&handle));
        set_vram(&mut metrics, memory.map(|(total, _)| total), memory.map(|(_, used)| used));
        if let Some(instance) = part.instance {
            // The whole device is asked, because the handle of a part is not asked whether it counts.
            let counted = part.gpm.read(library, || whole.gpm_support(), || whole.gpm_mig_sample(instance));
            metrics.sm_utilization_pct = counted.sm_utilization_pct;
        }
        let listed = processes::list(library, &handle, namespace);
        metrics.process_count = listed.as_ref().map(|listed| listed.computing);
        metrics.processes = namespace.those_in(tree, listed.map(|listed| listed.memory), None, |_| None);
        metrics
    };
    found.into_iter().map(read).collect()
}

fn facts(parent: &GpuMetrics, handle: &Handle<'_>, uuid: String, index: u32) -> GpuMetrics {
    let mut metrics = GpuMetrics {
        uuid,
        name: handle.name().unwrap_or_else(|_| parent.name.clone()),
        device_type: parent.device_type.clone(),
        host_id: format!("{}/{index}", parent.host_id),
        detail: parent.detail.clone(),
        parent_uuid: Some(parent.uuid.clone()),
        ..GpuMetrics::default()
    };
    if let Ok(attributes) = handle.attributes() {
        metrics.detail.insert("multiprocessors".into(), attributes.multiprocessor_count.to_string());
    }
    metrics
}
