//! How busy the multiprocessors are, as GPUs since Hopper count it themselves.

use std::time::{Duration, Instant};

use nvml_wrapper::Device as Handle;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{GpmSample, Nvml};

use super::library::Library;

/// Two samples have to be this far apart to say something.
const APART: Duration = Duration::from_millis(100);

#[derive(Default)]
pub(super) struct Gpm {
    is_supported: Option<bool>,
    before: Option<(GpmSample<'static>, Instant)>,
    utilization: Option<f64>,
}

impl Gpm {
    /// The share of time in percent, over the time since the sample before.
    pub(super) fn utilization(
        &mut self,
        library: &'static Library,
        handle: &Handle<'static>,
        now: Instant,
    ) -> Option<f64> {
        if !*self.is_supported.get_or_insert_with(|| handle.gpm_support().unwrap_or(false)) {
            return None;
        }
        if self.before.as_ref().is_some_and(|(_, at)| now.saturating_duration_since(*at) < APART) {
            return self.utilization;
        }
        let sample = handle.gpm_sample();
        let Ok(sample) = sample else {
            // Also when only root may profile.
            self.is_supported = Some(false);
            return None;
        };
        self.utilization = self.before.as_ref().and_then(|(before, _)| between(library.nvml, before, &sample));
        self.before = Some((sample, now));
        self.utilization
    }
}

fn between(nvml: &'static Nvml, before: &GpmSample<'static>, now: &GpmSample<'static>) -> Option<f64> {
    let metrics = gpm_metrics_get(nvml, before, now, &[GpmMetricId::SmUtil]).ok()?;
    let metric = metrics.into_iter().next()?.ok()?;
    Some(metric.value.clamp(0.0, 100.0)).filter(|value| value.is_finite())
}
