//! The fields of sections that the statistics are made of.
//!
//! Each of them can be missing: in a recording of an older version, which did not have it yet, that figure alone is not known. The
//! types of `resource_tracker_metrics`, in which most of them are always there, could not be read then.

use resource_tracker_core::Section;
use resource_tracker_metrics::{
    CgroupMetrics, CpuMetrics, DiskMetrics, DiskMountMetrics, Disks, GpuMetrics, Gpus, MemoryMetrics, NetworkMetrics,
    Networks, OutcomeMetrics, PressureMetrics, ResourcePressure, RunMetrics,
};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::outcome::OutcomeSummary;
use crate::run::RunSummary;

/// The fields of a section that are looked at.
pub trait Fields: Section + DeserializeOwned + TakeOver<Self::Whole> {
    /// The section as its source writes it.
    type Whole: Section;
}

/// What takes over the value of something else. The memory that it has is used again: this is done at every tick.
pub trait TakeOver<From> {
    /// Takes it over.
    fn take_over(&mut self, from: &From);
}

impl<T: Clone> TakeOver<Option<T>> for Option<T> {
    fn take_over(&mut self, from: &Option<T>) {
        self.clone_from(from);
    }
}

impl<T: Clone> TakeOver<T> for Option<T> {
    fn take_over(&mut self, from: &T) {
        match self {
            Some(own) => own.clone_from(from),
            None => *self = Some(from.clone()),
        }
    }
}

/// A list takes over each item of another one.
fn take_over_each<T: TakeOver<From> + Default, From>(own: &mut Vec<T>, from: &[From]) {
    own.resize_with(from.len(), T::default);
    own.iter_mut().zip(from).for_each(|(own, from)| own.take_over(from));
}

/// Some of the fields of a type, each of which can be missing.
macro_rules! fields {
    ($vis:vis $name:ident of $whole:ty { $($field:ident: $type:ty),* $(,)? }) => {
        #[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
        #[doc = concat!("What is looked at of [`", stringify!($whole), "`].")]
        $vis struct $name {
            $(#[doc = concat!("`", stringify!($field), "`")] $vis $field: Option<$type>,)*
        }

        impl TakeOver<$whole> for $name {
            fn take_over(&mut self, from: &$whole) {
                $(self.$field.take_over(&from.$field);)*
            }
        }
    };
}

/// Makes a section of the fields of one item, or of a list of items.
macro_rules! section {
    ($name:ident of $whole:ty) => {
        impl Section for $name {
            const NAME: &'static str = <$whole>::NAME;
        }

        impl Fields for $name {
            type Whole = $whole;
        }
    };
    ($list:ident: [$item:ident] of $whole:ty) => {
        #[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub(crate) struct $list(pub(crate) Vec<$item>);

        impl TakeOver<$whole> for $list {
            fn take_over(&mut self, from: &$whole) {
                take_over_each(&mut self.0, &from.0);
            }
        }

        section!($list of $whole);
    };
}

fields!(pub CpuFields of CpuMetrics {
    cores_used: f64,
    steal_cores: f64,
    iowait_cores: f64,
    per_core_pct: Vec<f64>,
    processes_running: u32,
    processes_blocked: u32,
});
section!(CpuFields of CpuMetrics);

fields!(pub(crate) MemoryFields of MemoryMetrics {
    total_mib: u64,
    unavailable_mib: u64,
    swap_used_mib: u64,
});
section!(MemoryFields of MemoryMetrics);

fields!(pub(crate) NetworkFields of NetworkMetrics {
    interface: String,
    ifindex: u32,
    is_counted: bool,
    rx_bytes_per_sec: f64,
    tx_bytes_per_sec: f64,
    rx_bytes_total: u64,
    tx_bytes_total: u64,
});
section!(NetworkList: [NetworkFields] of Networks);

fields!(pub(crate) GpuFields of GpuMetrics {
    uuid: String,
    name: String,
    parent_uuid: String,
    utilization_pct: f64,
    sm_utilization_pct: f64,
    vram_used_bytes: u64,
    vram_total_bytes: u64,
    power_watts: f64,
    energy_joules: f64,
    temperature_celsius: u32,
    throttle_reasons: Vec<String>,
});
section!(GpuList: [GpuFields] of Gpus);

fields!(pub(crate) CgroupFields of CgroupMetrics {
    path: String,
    cpu_limit_cores: f64,
    cpu_periods: u64,
    cpu_throttled_periods: u64,
    cpu_throttled_pct: f64,
    cpu_throttled_secs: f64,
    cpu_pressure_some_secs: f64,
    memory_limit_mib: f64,
    memory_high_mib: f64,
    memory_peak_mib: f64,
    memory_pressure_some_secs: f64,
    oom_kills: u64,
    io_read_bytes: u64,
    io_write_bytes: u64,
    io_pressure_some_secs: f64,
});
section!(CgroupFields of CgroupMetrics);

fields!(pub(crate) MountFields of DiskMountMetrics {
    mount_point: String,
    filesystem: String,
    used_pct: f64,
    used_bytes: u64,
    available_bytes: u64,
});

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DiskFields {
    pub(crate) device: Option<String>,
    pub(crate) is_counted: Option<bool>,
    pub(crate) mounts: Option<Vec<MountFields>>,
    pub(crate) read_bytes_per_sec: Option<f64>,
    pub(crate) write_bytes_per_sec: Option<f64>,
    pub(crate) read_bytes_total: Option<u64>,
    pub(crate) write_bytes_total: Option<u64>,
    pub(crate) utilization_pct: Option<f64>,
}

impl TakeOver<DiskMetrics> for DiskFields {
    fn take_over(&mut self, disk: &DiskMetrics) {
        self.device.take_over(&disk.device);
        self.is_counted = Some(disk.is_counted);
        take_over_each(self.mounts.get_or_insert_default(), &disk.mounts);
        self.read_bytes_per_sec = disk.read_bytes_per_sec;
        self.write_bytes_per_sec = disk.write_bytes_per_sec;
        self.read_bytes_total = disk.read_bytes_total;
        self.write_bytes_total = disk.write_bytes_total;
        self.utilization_pct = disk.utilization_pct;
    }
}
section!(DiskList: [DiskFields] of Disks);

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PressureFields {
    cpu: Option<WaitFields>,
    memory: Option<WaitFields>,
    io: Option<WaitFields>,
}

/// Of a resource: the share of the interval in which some waited for it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct WaitFields {
    some: Option<StallFields>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct StallFields {
    interval_pct: Option<f64>,
}

impl PressureFields {
    /// Shares of time in which a task waited for a CPU, for memory and for storage.
    pub(crate) fn waited_pct(&self) -> [Option<f64>; 3] {
        [&self.cpu, &self.memory, &self.io].map(|of| of.as_ref()?.some.as_ref()?.interval_pct)
    }
}

impl TakeOver<PressureMetrics> for PressureFields {
    fn take_over(&mut self, pressure: &PressureMetrics) {
        let wait =
            |of: ResourcePressure| WaitFields { some: Some(StallFields { interval_pct: Some(of.some.interval_pct) }) };
        *self = Self { cpu: pressure.cpu.map(wait), memory: pressure.memory.map(wait), io: pressure.io.map(wait) };
    }
}
section!(PressureFields of PressureMetrics);

impl TakeOver<RunMetrics> for RunSummary {
    fn take_over(&mut self, run: &RunMetrics) {
        *self = Self::from(run);
    }
}
section!(RunSummary of RunMetrics);

impl TakeOver<OutcomeMetrics> for OutcomeSummary {
    fn take_over(&mut self, outcome: &OutcomeMetrics) {
        *self = Self::from(outcome);
    }
}
section!(OutcomeSummary of OutcomeMetrics);
