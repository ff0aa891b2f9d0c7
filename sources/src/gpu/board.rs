//! What the GPU sources have found, for the sources that tell it: `host` names the GPUs, `process` what the job has.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use resource_tracker_core::Host;
use resource_tracker_metrics::GpuProcess;

#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    source: &'static str,
    /// `None` while the source is still looking.
    devices: Option<Devices>,
    job: Option<(Share, Instant)>,
}

/// The GPUs of a machine.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Devices {
    /// Name of the first.
    pub(crate) model: Option<String>,
    pub(crate) count: u32,
    /// Of all together.
    pub(crate) vram_bytes: u64,
}

/// What the job has of them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Share {
    /// GPUs in use; `None` where the hardware does not tell it by process.
    pub(crate) usage: Option<f64>,
    pub(crate) vram_bytes: u64,
    /// Devices of which it used a share.
    pub(crate) utilized: u32,
}

impl Share {
    /// Of one device.
    pub(crate) fn of(processes: &[GpuProcess]) -> Self {
        let used = processes.iter().filter_map(|process| process.utilization_pct).reduce(|a, b| a + b);
        Self {
            usage: used.map(|pct| pct.min(100.0) / 100.0),
            vram_bytes: processes.iter().filter_map(|process| process.vram_bytes).sum(),
            utilized: used.is_some_and(|pct| pct > 0.0).into(),
        }
    }

    /// Of these and those.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            usage: self.usage.into_iter().chain(other.usage).reduce(|a, b| a + b),
            vram_bytes: self.vram_bytes + other.vram_bytes,
            utilized: self.utilized + other.utilized,
        }
    }
}

impl Board {
    /// The one of this run.
    pub(crate) fn shared(host: &Host) -> anyhow::Result<Arc<Self>> {
        host.shared(|| Ok(Self::default()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, source: &'static str, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.lock();
        match entries.iter_mut().find(|entry| entry.source == source) {
            Some(entry) => change(entry),
            None => {
                let mut entry = Entry { source, devices: None, job: None };
                change(&mut entry);
                entries.push(entry);
            }
        }
    }

    /// A source looks for its devices, which can take a while.
    pub(crate) fn looking(&self, source: &'static str) {
        self.update(source, |_| ());
    }

    /// A source has found these.
    pub(crate) fn found(&self, source: &'static str, devices: Devices) {
        self.update(source, |entry| entry.devices = Some(devices));
    }

    /// A source has nothing to read.
    pub(crate) fn absent(&self, source: &'static str) {
        self.found(source, Devices::default());
    }

    /// Whether no source has said a word.
    pub(crate) fn is_silent(&self) -> bool {
        self.lock().is_empty()
    }

    /// What the job has of the devices of a source, as of now.
    pub(crate) fn used_by_job(&self, source: &'static str, share: Option<Share>, now: Instant) {
        self.update(source, |entry| entry.job = share.map(|share| (share, now)));
    }

    /// The GPUs of the machine; `None` while a source is still looking, or when none looks.
    pub(crate) fn devices(&self) -> Option<Devices> {
        let entries = self.lock();
        entries.first()?;
        entries.iter().try_fold(Devices::default(), |sum, entry| {
            let devices = entry.devices.as_ref()?;
            Some(Devices {
                model: sum.model.or_else(|| devices.model.clone()),
                count: sum.count + devices.count,
                vram_bytes: sum.vram_bytes + devices.vram_bytes,
            })
        })
    }

    /// What the job has of all GPUs, from answers that are not older than `age`.
    pub(crate) fn share_of_job(&self, now: Instant, age: Duration) -> Option<Share> {
        let entries = self.lock();
        let fresh = entries.iter().filter_map(|entry| entry.job);
        let fresh = fresh.filter(|(_, at)| now.saturating_duration_since(*at) <= age).map(|(share, _)| share);
        fresh.reduce(Share::plus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_known_when_every_source_has_answered() {
        let board = Board::default();
        assert!(board.is_silent() && board.devices().is_none());
        board.looking("a");
        board.looking("b");
        let two = Devices { model: Some("M".into()), count: 2, vram_bytes: 20 };
        board.found("a", two.clone());
        assert_eq!(board.devices(), None);
        board.absent("b");
        assert_eq!(board.devices(), Some(two));
        board.found("c", Devices { model: Some("N".into()), count: 1, vram_bytes: 5 });
        assert_eq!(board.devices(), Some(Devices { model: Some("M".into()), count: 3, vram_bytes: 25 }));
    }

    #[test]
    fn shares_add_up_while_they_are_fresh() {
        let (board, now) = (Board::default(), Instant::now());
        let age = Duration::from_secs(2);
        assert_eq!(board.share_of_job(now, age), None);
        board.used_by_job("a", Some(Share { usage: None, vram_bytes: 7, utilized: 0 }), now);
        board.used_by_job("b", Some(Share { usage: Some(0.5), vram_bytes: 1, utilized: 1 }), now);
        assert_eq!(board.share_of_job(now, age), Some(Share { usage: Some(0.5), vram_bytes: 8, utilized: 1 }));
        assert_eq!(board.share_of_job(now + 2 * age, age), None);
    }
}
