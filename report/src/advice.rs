//! What to ask for the next time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::memory;

/// The advised memory is the peak times this, because the next run may need a little more.
const MEMORY_HEADROOM: f64 = 1.2;
/// The least memory that is advised: an interpreter alone takes that.
const LEAST_MEMORY_MIB: u64 = 64;
/// No machine has more; a recording can say anything.
const MOST_MEMORY_MIB: f64 = 1e15;
const MOST_CORES: f64 = 1e9;
/// Advised cores are whole: a fraction up to this is not rounded up to one more.
const CORE_ROUNDING: f64 = 0.05;

/// What to ask for, as numbers and as others write them.
///
/// Cores are what 95 % of the samples stay below, rounded up; all that there were, or one for each thread, when these were in
/// use for half of the time or others had them, because more may have helped. Memory is the peak and a fifth, rounded up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Advice {
    /// Whole cores.
    pub cores: u32,
    /// The same before it was rounded up.
    pub cores_used: f64,
    /// Memory.
    pub memory_mib: u64,
    /// The peak that it follows from, of what was needed or was mapped of files.
    pub memory_peak_mib: f64,
    /// GPUs. Null when nothing is known of any.
    pub gpus: Option<u32>,
    /// The most GPU memory that the job had.
    pub gpu_memory_mib: Option<u64>,
    /// Who makes the GPUs, which flags ask for. Null where none are advised.
    #[serde(default)]
    pub gpu_vendor: Option<GpuVendor>,
    /// Flags of Slurm's `sbatch` and `srun`.
    pub slurm: String,
    /// `requests` and `limits` of a Kubernetes container, as YAML in one line.
    pub kubernetes: String,
    /// Flags of `docker run`.
    pub docker: String,
}

/// GPUs that the job used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedGpus {
    /// So many at a time.
    pub(crate) count: u32,
    /// The most memory that it had of all.
    pub(crate) memory_mib: Option<u64>,
    pub(crate) vendor: GpuVendor,
}

/// What is known of GPUs of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gpus {
    /// Nothing.
    Unknown,
    /// That it used none.
    None,
    /// That it used these.
    Used(UsedGpus),
}

/// Who makes a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum GpuVendor {
    /// NVIDIA.
    Nvidia,
    /// AMD.
    Amd,
}

impl GpuVendor {
    /// The vendor of the device with this identifier: NVIDIA's begin with what it is, and AMD's are PCI addresses.
    pub(crate) fn of_uuid(uuid: &str) -> Self {
        if ["GPU-", "MIG-"].iter().any(|start| uuid.starts_with(start)) { Self::Nvidia } else { Self::Amd }
    }

    fn kubernetes(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia.com/gpu",
            Self::Amd => "amd.com/gpu",
        }
    }

    /// The flags of `docker run` for so many GPUs. AMD's are given by their device files, all at once.
    fn docker(self, count: u32) -> String {
        match self {
            Self::Nvidia => format!("--gpus={count}"),
            Self::Amd => "--device=/dev/kfd --device=/dev/dri".into(),
        }
    }
}

impl Advice {
    /// For a person: the numbers, and the flags of Slurm.
    pub fn in_words(&self) -> String {
        format!("{}; Slurm: {}", self.numbers(), self.slurm)
    }

    /// The numbers alone.
    pub fn numbers(&self) -> String {
        let plural = |count: u32, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let held = self.gpu_memory_mib.map(|held| format!(" with {}", memory(held as f64))).unwrap_or_default();
        let gpus = self.gpus.filter(|gpus| *gpus > 0).map(|gpus| format!(", {}{held}", plural(gpus, "GPU")));
        let gpus = gpus.unwrap_or_default();
        format!("{}, {}{gpus}", plural(self.cores, "core"), memory(self.memory_mib as f64))
    }

    /// The advice that is enough for all of these.
    pub fn worst<'a>(of: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        of.into_iter().cloned().reduce(|one, other| {
            let (cores, memory) =
                (one.cores_used.max(other.cores_used), one.memory_peak_mib.max(other.memory_peak_mib));
            let none = if one.gpus.or(other.gpus).is_some() { Gpus::None } else { Gpus::Unknown };
            let count = one.gpus.max(other.gpus).filter(|count| *count > 0);
            let vendor = one.gpu_vendor.or(other.gpu_vendor).unwrap_or(GpuVendor::Nvidia);
            let memory_mib = one.gpu_memory_mib.max(other.gpu_memory_mib);
            let gpus = count.map_or(none, |count| Gpus::Used(UsedGpus { count, memory_mib, vendor }));
            Self::new(cores, memory, gpus)
        })
    }

    /// The advice for a run with these figures.
    pub(crate) fn new(cores_used: f64, memory_peak_mib: f64, gpus: Gpus) -> Self {
        let cores = ((cores_used.min(MOST_CORES) - CORE_ROUNDING).ceil() as u32).max(1);
        let memory_mib = round_up((memory_peak_mib * MEMORY_HEADROOM).ceil().min(MOST_MEMORY_MIB) as u64);
        let used = if let Gpus::Used(used) = gpus { Some(used) } else { None };
        let of_gpus = |text: fn(UsedGpus) -> String| used.map(text).unwrap_or_default();
        let slurm_gpus = of_gpus(|used| format!(" --gpus={}", used.count));
        let docker_gpus = of_gpus(|used| format!(" {}", used.vendor.docker(used.count)));
        let limit_gpus = of_gpus(|used| format!(", {}: {}", used.vendor.kubernetes(), used.count));
        let millicores = (((cores_used.min(MOST_CORES) * 20.0).ceil() as u64).max(1) * 50).min(u64::from(cores) * 1000);
        Self {
            cores,
            cores_used,
            memory_mib,
            memory_peak_mib,
            gpus: if gpus == Gpus::Unknown { None } else { Some(used.map_or(0, |used| used.count)) },
            gpu_memory_mib: used.and_then(|used| used.memory_mib),
            gpu_vendor: used.map(|used| used.vendor),
            slurm: format!("--cpus-per-task={cores} --mem={memory_mib}M{slurm_gpus}"),
            kubernetes: format!(
                "resources: {{requests: {{cpu: {millicores}m, memory: {memory_mib}Mi}}, limits: {{memory: {memory_mib}Mi{limit_gpus}}}}}"
            ),
            docker: format!("--cpus={cores} --memory={memory_mib}m{docker_gpus}"),
        }
    }
}

/// Rounds up to a number that a person would write: steps of a sixteenth of the next power of two.
fn round_up(mib: u64) -> u64 {
    let step = (mib.max(1).next_power_of_two() / 16).max(16);
    mib.next_multiple_of(step).max(LEAST_MEMORY_MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let used = |count, memory_mib, vendor| Gpus::Used(UsedGpus { count, memory_mib, vendor });
        let advice = Advice::new(2.5, 891.0, used(2, Some(5000), GpuVendor::Nvidia));
        assert_eq!((advice.cores, advice.memory_mib), (3, 1152), "2.5 cores are not 2");
        assert_eq!(advice.slurm, "--cpus-per-task=3 --mem=1152M --gpus=2");
        assert_eq!(
            advice.in_words(),
            "3 cores, 1.12 GiB, 2 GPUs with 4.88 GiB; Slurm: --cpus-per-task=3 --mem=1152M --gpus=2"
        );
        assert_eq!(advice.docker, "--cpus=3 --memory=1152m --gpus=2");
        assert_eq!(
            advice.kubernetes,
            "resources: {requests: {cpu: 2500m, memory: 1152Mi}, limits: {memory: 1152Mi, nvidia.com/gpu: 2}}"
        );
        let advice = Advice::new(2.5, 891.0, used(1, Some(5000), GpuVendor::of_uuid("0000:03:00.0")));
        assert_eq!(advice.docker, "--cpus=3 --memory=1152m --device=/dev/kfd --device=/dev/dri");
        assert!(advice.kubernetes.contains("amd.com/gpu: 1") && advice.slurm.ends_with("--gpus=1"));
        let idle = Advice::new(0.01, 3.0, Gpus::Unknown);
        assert_eq!((idle.cores, idle.memory_mib), (1, 64));
        assert_eq!(idle.slurm, "--cpus-per-task=1 --mem=64M");
        assert_eq!(Advice::new(1.04, 3.0, Gpus::None).cores, 1);
    }

    #[test]
    fn memory_in_round_numbers_and_never_less() {
        for (mib, rounded) in [(0, 64), (65, 80), (1070, 1152), (16_000, 16_384), (17_000, 18_432)] {
            assert_eq!(round_up(mib), rounded, "{mib}");
        }
        assert!((0..100_000).all(|mib| round_up(mib) >= mib && round_up(mib) <= 64 + mib + mib / 7));
    }

    #[test]
    fn several_runs_ask_for_the_most_of_each() {
        let used = Gpus::Used(UsedGpus { count: 1, memory_mib: Some(7), vendor: GpuVendor::Nvidia });
        let (one, other) = (Advice::new(4.0, 100.0, Gpus::Unknown), Advice::new(1.0, 2000.0, used));
        let worst = Advice::worst([&one, &other]).unwrap();
        assert_eq!((worst.cores, worst.memory_mib, worst.gpus), (4, 2560, Some(1)));
        assert_eq!(Advice::worst([]), None);
    }
}
