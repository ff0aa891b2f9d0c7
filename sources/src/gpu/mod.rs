//! GPUs: what each does, and what the job has of them. One folder a vendor.

mod amd;
mod counter;
mod drm;
mod fdinfo;
mod names;
mod namespace;
mod nvidia;
mod pace;
mod share;
mod sleep_policy;
mod visible;
mod vram;

pub use amd::AmdConfig;
pub use drm::DrmConfig;
pub use nvidia::NvidiaConfig;

pub(crate) use names::SOURCES;
pub(crate) use share::{DrmShare, Share};
