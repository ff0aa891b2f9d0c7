//! libdrm, loaded when it is there: what the kernel tells only by ioctl.

use std::fs::File;
use std::path::Path;

use libamdgpu_top::AMDGPU::{AmdgpuDeviceHandle, GPU_INFO};
use libamdgpu_top::LibDrmAmdgpu;

pub(super) struct LibDrm {
    handle: AmdgpuDeviceHandle,
}

impl LibDrm {
    /// `None` when the library or the device file is missing, or may not be opened: sysfs has to do then.
    pub(super) fn open(device: &Path) -> Option<Self> {
        let library = LibDrmAmdgpu::new().ok()?;
        let file = File::options().read(true).write(true).open(device).ok()?;
        let (handle, _, _) = library.init_amdgpu_device_handle(file).ok()?;
        Some(Self { handle })
    }

    pub(super) fn compute_units(&self) -> Option<u32> {
        self.handle.device_info().ok().map(|info| info.cu_active_number()).filter(|units| *units > 0)
    }

    /// Total and used bytes.
    pub(super) fn memory(&self) -> Option<(u64, u64)> {
        let memory = self.handle.memory_info().ok()?;
        Some((memory.vram.total_heap_size, memory.vram.heap_usage))
    }
}
