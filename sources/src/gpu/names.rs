//! Names of the sources that look for GPUs.

pub(super) const NVIDIA: &str = "nvidia";
pub(super) const AMD: &str = "amd";
pub(super) const DRM: &str = "drm";

/// All of them.
pub(crate) const SOURCES: [&str; 3] = [NVIDIA, AMD, DRM];
