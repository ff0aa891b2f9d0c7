//! When a GPU that can sleep is read: to read it wakes it, and to read it often keeps it awake.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::procfile::attribute;

/// How long a GPU is idle before it is left alone.
const IDLE: Duration = Duration::from_secs(10);

/// How long a GPU that is left alone has to fall asleep: with amdgpu that takes 5 s, with NVIDIA's driver about 6.
const FALLS_ASLEEP: Duration = Duration::from_secs(30);

/// A GPU that does not fall asleep in that time is kept awake by another program. How long it is read before it is left
/// alone again.
const KEPT_AWAKE: Duration = Duration::from_secs(600);

/// The power state of a PCI device, which the kernel knows without asking the device
/// (`Documentation/ABI/testing/sysfs-devices-power`).
#[derive(Debug)]
pub(super) struct Power {
    folder: PathBuf,
}

impl Power {
    /// `device` is a folder of sysfs.
    pub(super) fn of(device: &Path) -> Self {
        Self { folder: device.join("power") }
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.says("runtime_status", &["suspended", "suspending"])
    }

    /// Whether the kernel may let it sleep.
    pub(super) fn is_managed(&self) -> bool {
        self.says("control", &["auto"])
    }

    fn says(&self, name: &str, words: &[&str]) -> bool {
        attribute(&self.folder.join(name)).is_some_and(|text| words.contains(&text.as_str()))
    }
}

/// Whether a GPU is read, or left alone so that it can sleep.
#[derive(Debug)]
pub(super) struct SleepPolicy {
    state: State,
    patience: Duration,
}

#[derive(Debug)]
enum State {
    Read { idle_since: Option<Instant> },
    LeftAlone { since: Instant },
    Asleep,
}

impl Default for SleepPolicy {
    fn default() -> Self {
        Self { state: State::Read { idle_since: None }, patience: IDLE }
    }
}

impl SleepPolicy {
    /// Whether the GPU is read now. `is_used`: by the job, as far as can be seen without asking the GPU.
    pub(super) fn should_read(&mut self, is_asleep: bool, is_used: impl FnOnce() -> bool, now: Instant) -> bool {
        if is_asleep {
            *self = Self { state: State::Asleep, patience: IDLE };
            return false;
        }
        match self.state {
            State::Read { .. } => return true,
            // Another program has woken it.
            State::Asleep => (),
            State::LeftAlone { since } if now.saturating_duration_since(since) >= FALLS_ASLEEP => {
                self.patience = KEPT_AWAKE;
            }
            State::LeftAlone { .. } if is_used() => (),
            State::LeftAlone { .. } => return false,
        }
        self.state = State::Read { idle_since: None };
        true
    }

    /// Takes in whether the GPU was idle at a reading. Whether it is left alone from now on, which needs that it
    /// `can_sleep`.
    pub(super) fn record_reading(&mut self, is_idle: bool, can_sleep: impl FnOnce() -> bool, now: Instant) -> bool {
        let State::Read { idle_since } = &mut self.state else { return true };
        let since = *idle_since.get_or_insert(now);
        if !is_idle {
            *idle_since = None;
        } else if now.saturating_duration_since(since) >= self.patience {
            // Where it cannot sleep, the question comes up again after as long a time.
            *idle_since = None;
            if can_sleep() {
                self.state = State::LeftAlone { since: now };
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NO: fn() -> bool = || false;
    const YES: fn() -> bool = || true;

    #[test]
    fn an_idle_gpu_is_left_alone_until_somebody_wakes_it() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut policy = SleepPolicy::default();
        assert!(policy.should_read(false, NO, at(0)) && !policy.record_reading(true, YES, at(0)));
        assert!(!policy.record_reading(false, YES, at(8)), "it works");
        assert!(!policy.record_reading(true, YES, at(9)) && !policy.record_reading(true, YES, at(18)));
        assert!(policy.record_reading(true, YES, at(19)));
        assert!(!policy.should_read(false, NO, at(20)), "it is about to fall asleep");
        assert!(!policy.should_read(true, NO, at(26)) && !policy.should_read(true, YES, at(500)));
        assert!(policy.should_read(false, NO, at(501)), "it was woken");
        // One that sleeps from the beginning.
        assert!(!SleepPolicy::default().should_read(true, NO, at(0)));
    }

    #[test]
    fn one_that_is_used_or_cannot_sleep_is_read_on() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let mut policy = SleepPolicy::default();
        for secs in 0..100 {
            assert!(policy.should_read(false, NO, at(secs)) && !policy.record_reading(true, NO, at(secs)));
        }
        assert!(!policy.record_reading(true, YES, at(100)));
        assert!(
            policy.record_reading(true, YES, at(110)) && policy.should_read(false, YES, at(111)),
            "the job has opened it"
        );
        // Left alone, and kept awake by another program.
        assert!(!policy.record_reading(true, YES, at(120)) && policy.record_reading(true, YES, at(130)));
        assert!(!policy.should_read(false, NO, at(159)) && policy.should_read(false, NO, at(160)));
        assert!(
            !policy.record_reading(true, YES, at(160))
                && !policy.record_reading(true, YES, at(759))
                && policy.record_reading(true, YES, at(760))
        );
    }

    /// The words are those of `Documentation/ABI/testing/sysfs-devices-power`.
    #[test]
    fn what_the_kernel_says_of_its_power() {
        let device = tempfile::tempdir().unwrap();
        let power = Power::of(device.path());
        assert!(!power.is_asleep() && !power.is_managed(), "a kernel without runtime power management");
        fs::create_dir(device.path().join("power")).unwrap();
        for (status, is_asleep) in
            [("active", false), ("suspended", true), ("suspending", true), ("resuming", false), ("unsupported", false)]
        {
            fs::write(device.path().join("power/runtime_status"), format!("{status}\n")).unwrap();
            assert_eq!(power.is_asleep(), is_asleep, "{status}");
        }
        for (control, is_managed) in [("on", false), ("auto", true)] {
            fs::write(device.path().join("power/control"), format!("{control}\n")).unwrap();
            assert_eq!(power.is_managed(), is_managed, "{control}");
        }
    }
}
