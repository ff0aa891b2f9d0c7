//! How busy the multiprocessors are, as GPUs since Hopper count it themselves.

use std::time::{Duration, Instant};

use nvml_wrapper::GpmSample;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::gpm_metrics_get;

use super::library::Library;

/// Two samples say something if they are further apart: "should be greater than 100ms", says NVML's header.
const APART: Duration = Duration::from_millis(100);

const METRICS: [GpmMetricId; 3] = [GpmMetricId::SmUtil, GpmMetricId::PcieTxPerSec, GpmMetricId::PcieRxPerSec];

/// The unit of what goes over PCIe.
const MIB: f64 = 1024.0 * 1024.0;

/// What was counted between two samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) sm_utilization_pct: Option<f64>,
    /// Bytes a second.
    pub(super) pcie_tx: Option<f64>,
    pub(super) pcie_rx: Option<f64>,
}

/// A device that failed is left alone for so long.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Gpm {
    is_supported: Option<bool>,
    /// When it failed, if it did when it was asked last.
    failed: Option<Instant>,
    before: Option<(GpmSample<'static>, Instant)>,
    counted: Counted,
}

impl Gpm {
    /// Whether the device counts, and did so when it was asked last.
    pub(super) fn is_at_work(&self) -> bool {
        self.is_supported == Some(true) && self.failed.is_none()
    }

    /// What was counted since the sample before. `supports` and `sample` ask NVML.
    pub(super) fn read(
        &mut self,
        library: &'static Library,
        supports: impl FnOnce() -> Result<bool, NvmlError>,
        sample: impl FnOnce() -> Result<GpmSample<'static>, NvmlError>,
    ) -> Counted {
        let now = Instant::now();
        let is_left_alone = self.failed.is_some_and(|at| now.saturating_duration_since(at) < PAUSE);
        if self.is_supported == Some(false) || is_left_alone {
            return Counted::default();
        }
        if self.before.as_ref().is_some_and(|(_, at)| now.saturating_duration_since(*at) <= APART) {
            return self.counted;
        }
        let is_supported = self.is_supported.map_or_else(supports, Ok);
        let sample = match is_supported.and_then(|is| if is { sample() } else { Err(NvmlError::NotSupported) }) {
            Ok(sample) => sample,
            Err(error) => {
                // Others can be of this moment.
                let is_for_good = matches!(
                    error,
                    NvmlError::NotSupported | NvmlError::NoPermission | NvmlError::FailedToLoadSymbol(_)
                );
                let is_supported = if is_for_good { Some(false) } else { self.is_supported };
                *self = Self { is_supported, failed: Some(now), ..Self::default() };
                return Counted::default();
            }
        };
        (self.is_supported, self.failed) = (Some(true), None);
        self.counted =
            self.before.as_ref().map_or_else(Counted::default, |(before, _)| between(library, before, &sample));
        self.before = Some((sample, now));
        self.counted
    }

    /// Gives its sample back, before NVML is let go of.
    pub(super) fn let_go(&mut self) {
        *self = Self { is_supported: self.is_supported, failed: self.failed, ..Self::default() };
    }
}

fn between(library: &'static Library, before: &GpmSample<'static>, now: &GpmSample<'static>) -> Counted {
    let metrics = gpm_metrics_get(library.nvml, before, now, &METRICS).unwrap_or_default();
    let mut values = metrics.into_iter().map(|metric| metric.ok().map(|metric| metric.value));
    let mut next = || values.next().flatten().filter(|value| value.is_finite() && *value >= 0.0);
    Counted {
        sm_utilization_pct: next().map(|pct| pct.min(100.0)),
        pcie_tx: next().map(|mib| mib * MIB),
        pcie_rx: next().map(|mib| mib * MIB),
    }
}
