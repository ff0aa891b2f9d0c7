//! The NVML library: found, loaded, and never unloaded.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{anyhow, bail};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::driver::Driver;
use super::extra::Extra;

/// The name that the dynamic linker looks for.
pub(super) const DEFAULT: &str = "libnvidia-ml.so.1";

/// Where distributions and container runtimes put it.
pub(super) const FOLDERS: [&str; 8] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
    "/run/opengl-driver/lib",
    "/usr/lib/wsl/lib",
];

pub(super) struct Library {
    pub(super) nvml: &'static Nvml,
    pub(super) extra: Extra,
    pub(super) driver: Driver,
    pub(super) driver_version: Option<String>,
    pub(super) cuda_version: Option<String>,
}

impl Library {
    /// Lets go of the GPUs, which NVML holds awake. NVML counts its users: others in this process keep it. No handle
    /// may be used after.
    pub(super) fn let_go(&self) {
        if let Ok(shutdown) = &self.nvml.lib().nvmlShutdown {
            // SAFETY: the function is that of this name in nvml.h, and takes nothing.
            unsafe { shutdown() };
        }
    }

    /// Takes up the GPUs again.
    fn take_up(&self) -> Result<(), NvmlError> {
        let init = self.nvml.lib().nvmlInit_v2.as_ref();
        let init = init.map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
        // SAFETY: the function is that of this name in nvml.h, and takes nothing.
        nvml_wrapper::error::nvml_try(unsafe { init() })
    }

    /// Total and used bytes of a device. Drivers before 510 have an older call only.
    pub(super) fn memory(&self, handle: &Device<'_>) -> Option<(u64, u64)> {
        match handle.memory_info() {
            Ok(memory) => Some((memory.total, memory.used)),
            Err(NvmlError::FailedToLoadSymbol(_)) => self.extra.memory(handle),
            Err(_) => None,
        }
    }
}

/// NVML is one for the whole process, so trackers that run side by side share it. A device's handle must not outlive
/// it, and it has threads and handlers of its own: it stays until the process ends.
static LOADED: Mutex<Vec<(PathBuf, &'static Library)>> = Mutex::new(Vec::new());

/// Loads the library, or takes it up again. `None`: there is none, or no driver, or it cannot be used, and a warning
/// says so.
///
/// # Errors
/// When it may work later.
pub(super) fn open(configured: Option<&Path>) -> anyhow::Result<Option<&'static Library>> {
    let path = configured.unwrap_or(Path::new(DEFAULT));
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = loaded.iter().find(|(known, _)| known == path) {
        return match library.take_up() {
            Ok(()) => Ok(Some(library)),
            Err(error) => refuse(path, configured.is_some(), error),
        };
    }
    match load(path) {
        Ok(library) => {
            let library: &'static Library = Box::leak(Box::new(library));
            loaded.push((path.to_owned(), library));
            Ok(Some(library))
        }
        Err(error) => refuse(path, configured.is_some(), error),
    }
}

fn load(path: &Path) -> Result<Library, NvmlError> {
    // It is never dropped: that would call what an old or a wrong library may not have.
    let nvml: &'static Nvml = Box::leak(Box::new(Nvml::builder().lib_path(path.as_os_str()).init()?));
    // Without these calls there is nothing to report.
    if nvml.device_count()? > 0
        && let Err(error @ NvmlError::FailedToLoadSymbol(_)) = nvml.device_by_index(0)
    {
        return Err(error);
    }
    let version = nvml.sys_driver_version().ok();
    let cuda = nvml.sys_cuda_driver_version().ok();
    Ok(Library {
        extra: Extra::open(path)?,
        driver: Driver::new(version.as_deref()),
        driver_version: version,
        cuda_version: cuda.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        nvml,
    })
}

fn refuse(path: &Path, configured: bool, error: NvmlError) -> anyhow::Result<Option<&'static Library>> {
    let name = path.display();
    match error {
        NvmlError::LibloadingError(error) if !configured && is_missing(&error) => Ok(None),
        // A container for machines with and without GPUs has the library everywhere.
        NvmlError::DriverNotLoaded if !configured => Ok(None),
        NvmlError::LibloadingError(error) => {
            log::warn!("source nvidia: cannot load {name}: {error}; it is off");
            Ok(None)
        }
        NvmlError::FailedToLoadSymbol(error) => {
            log::warn!("source nvidia: {name} is no NVML, or one that is too old: {error}; it is off");
            Ok(None)
        }
        error @ (NvmlError::LibRmVersionMismatch | NvmlError::DriverNotLoaded | NvmlError::NoPermission) => {
            log::warn!("source nvidia: {name} cannot be used: {error}; it is off");
            Ok(None)
        }
        error => bail!(anyhow!(error).context(format!("{name} does not start"))),
    }
}

/// Whether the linker has found nothing of that name, and not a file that it cannot use.
fn is_missing(error: &libloading::Error) -> bool {
    let text = error.to_string();
    text.starts_with(DEFAULT) && text.contains("No such file or directory")
}
