//! The built-in sources. Linking this crate registers them; one file holds one source: its configuration, its state,
//! its parsing and its tests.

pub mod cgroup;
mod cpu;
mod disk;
mod memory;
mod network;
mod pids;
mod pressure;
mod process;
mod procfile;
mod scan;

pub use cgroup::CgroupConfig;
pub use cpu::CpuConfig;
pub use disk::DiskConfig;
pub use memory::MemoryConfig;
pub use network::NetworkConfig;
pub use pressure::PressureConfig;
pub use process::ProcessConfig;
