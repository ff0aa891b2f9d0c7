//! How much of a GPU each process uses.
//!
//! The driver notes six times a second how busy the device was, and with which processes. For each process that had
//! work, NVML gives the mean over the notes since a timestamp, and the time of its last note. It gives nothing for a
//! process without work, nor for times in which no process had any.

use std::collections::HashMap;

use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample as Sample;
use rustix::time::{ClockId, clock_gettime};

/// Microseconds between two samples: "between 1 second and 1/6 second, depending on the product" (`nvml.h`).
const SHORTEST: u64 = 166_667;
const LONGEST: u64 = 1_000_000;

/// A timestamp that is further ahead of the clock than this is invalid.
const AHEAD: u64 = 1_000_000;

/// A timestamp that is further behind a clock than this is not of that clock.
const APART: u64 = 60_000_000;

/// The clocks that drivers are known to stamp samples with, in microseconds: the time of day, and that since the boot.
pub(super) type Clocks = [u64; 2];

pub(super) fn clocks() -> Clocks {
    [ClockId::Realtime, ClockId::Boottime].map(|clock| {
        let now = clock_gettime(clock);
        now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
    })
}

#[derive(Default)]
pub(super) struct Shares {
    /// Which clock the driver uses, once that is known.
    clock: Option<usize>,
    /// When samples were first asked for. A driver that was just loaded remembers nothing from before.
    first: Option<Clocks>,
    /// When samples were last asked for.
    asked: Option<Clocks>,
    /// The timestamp of the newest sample.
    newest: u64,
    /// The shortest time between two samples, as far as they are read more often than they are taken.
    period: Option<u64>,
    /// By process, in percent. `None` for a process whose share is not known, and for all before there are two
    /// readings.
    shares: Option<HashMap<u32, Option<f64>>>,
}

impl Shares {
    /// Reads the samples since the last reading. `ask` gets a timestamp and gives the samples after it, or `None` when
    /// the device does not give any.
    pub(super) fn read(&mut self, now: Clocks, ask: impl Fn(u64) -> Option<Vec<Sample>>) {
        let Some(mut samples) = ask(self.since()) else {
            *self = Self::default();
            return;
        };
        if self.clock.is_none() {
            self.clock =
                samples.iter().find_map(|sample| now.iter().position(|clock| is_near(*clock, sample.timestamp)));
            // The first answer was a mean over all that the driver remembers.
            if self.clock.is_some() && self.asked.is_some() {
                samples = ask(self.since()).unwrap_or_default();
            }
        }
        self.take(&samples, now);
    }

    /// The share of a process.
    pub(super) fn of(&self, pid: u32) -> Option<f64> {
        self.shares.as_ref()?.get(&pid).copied().unwrap_or(Some(0.0))
    }

    /// The processes that have a share, or had use of which the share is not known.
    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.shares.iter().flat_map(HashMap::keys).copied()
    }

    /// The shares of these processes together. Of others, which the device does not list, a sample may be invalid.
    pub(super) fn together(&self, is_listed: impl Fn(u32) -> bool) -> Option<f64> {
        let listed = self.shares.as_ref()?.iter().filter(|(pid, _)| is_listed(**pid));
        Some(listed.filter_map(|(_, share)| *share).sum::<f64>().min(100.0))
    }

    /// The timestamp to ask from. A time without use is not asked for again, because the mean over it would hide what
    /// comes after it; but a sample may arrive late.
    fn since(&self) -> u64 {
        let Some((clock, (first, asked))) = self.clock.zip(self.first.zip(self.asked)) else { return self.newest };
        self.newest.max(asked[clock].saturating_sub(LONGEST)).max(first[clock])
    }

    fn take(&mut self, samples: &[Sample], now: Clocks) {
        let since = self.since();
        let before = self.asked.replace(now);
        // The minimum is for a clock that was set back.
        self.first = Some(self.first.map_or(now, |first| [0, 1].map(|clock| first[clock].min(now[clock]))));
        let Some(clock) = self.clock else {
            // A timestamp of an unknown clock shows that the device was used, and not when.
            let is_idle = samples.iter().all(|sample| sample.pid == 0);
            self.shares = (before.is_some() && is_idle).then(HashMap::new);
            return;
        };
        let now = now[clock];
        // This holds also when the clock was set back.
        self.newest = self.newest.min(now + AHEAD);
        // The driver's buffer has entries for samples that were never taken, whose content may be invalid.
        let fresh = samples.iter().filter(|sample| sample.pid != 0 && sample.timestamp > since);
        let (real, unreal): (Vec<_>, Vec<_>) =
            fresh.partition(|sample| sample.sm_util <= 100 && sample.timestamp <= now + AHEAD);
        let newest = real.iter().map(|sample| sample.timestamp).max();
        let Some(before) = before.map(|before| before[clock]) else {
            // Use before the first reading does not count.
            self.newest = newest.unwrap_or(0);
            return;
        };
        if let Some(newest) = newest {
            // The mean may cover more than the time since the last reading.
            let weight = self.periods(since, now, newest) / self.periods(before, now, newest);
            let share = |sample: &Sample| (sample.pid, Some((f64::from(sample.sm_util) * weight).min(100.0)));
            self.shares = Some(real.into_iter().map(share).collect());
            if now.saturating_sub(before) < SHORTEST {
                let period = (newest - self.newest).clamp(SHORTEST, LONGEST);
                self.period = Some(self.period.map_or(period, |known| known.min(period)));
            }
            self.newest = newest;
        } else if now.saturating_sub(self.newest) > self.period() + self.period() / 4 {
            // By now the next sample would be here if the device was used.
            self.shares = Some(HashMap::new());
        }
        if let Some(shares) = &mut self.shares {
            shares.extend(unreal.into_iter().map(|sample| (sample.pid, None)));
        }
    }

    fn period(&self) -> u64 {
        self.period.unwrap_or(SHORTEST)
    }

    /// How many samples the driver took between two times, one at least, if it took one at `newest`.
    fn periods(&self, from: u64, to: u64, newest: u64) -> f64 {
        // The one before is nearer to them, so that what the period lacks adds up less.
        let sampled = if self.newest > 0 { self.newest } else { newest % self.period() };
        let until = |time: u64| time.saturating_sub(sampled) / self.period();
        until(to).saturating_sub(until(from)).max(1) as f64
    }
}

fn is_near(clock: u64, timestamp: u64) -> bool {
    timestamp <= clock + AHEAD && clock.saturating_sub(timestamp) < APART
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    /// The time of day of the log that nvtop's issue 110 shows.
    const DAY: u64 = 1_623_157_629_331_552;
    const BOOT: u64 = 5_000 * SECOND;

    fn sample(pid: u32, sm_util: u32, timestamp: u64) -> Sample {
        Sample { pid, timestamp, sm_util, mem_util: 0, enc_util: 0, dec_util: 0 }
    }

    /// A driver as its sources and the logs of its users show it. It notes every 167 ms (three stamps in nvtop's issue
    /// 110 are 23, 7 and 7 times that apart) for each process how much of the time since the last note it used, in a
    /// ring of 100 (`NV2080_CTRL_PERF_GPUMON_SAMPLE_COUNT_PERFMON_UTIL`), and tells the mean over all notes since a
    /// timestamp (`gpuacctProcessGpuUtil` divides by all of them as well), of those that had any.
    struct Driver {
        clock: usize,
        uses: fn(u64) -> Vec<(u32, f64)>,
    }

    const NOTED: u64 = 167_130;

    impl Driver {
        fn ask(&self, now: u64, since: u64) -> Option<Vec<Sample>> {
            let start = [DAY, BOOT][self.clock];
            let last = now / NOTED;
            let kept = last.saturating_sub(100).max(start / NOTED + 1).max(since / NOTED + 1);
            let notes: Vec<u64> = (kept..=last).filter(|note| note * NOTED > since).collect();
            let mut told: HashMap<u32, (f64, u64)> = HashMap::new();
            for note in &notes {
                let millis = |micros: u64| (micros - start) / 1000;
                let range = millis((note * NOTED - NOTED).max(start))..millis(note * NOTED);
                let count = range.end.saturating_sub(range.start).max(1) as f64;
                for (pid, used) in range.flat_map(|milli| (self.uses)(milli)) {
                    let (sum, newest) = told.entry(pid).or_default();
                    *sum += used / count;
                    *newest = note * NOTED;
                }
            }
            let told =
                told.into_iter().map(|(pid, (sum, at))| sample(pid, (sum / notes.len() as f64 + 1e-6) as u32, at));
            Some(told.filter(|sample| sample.sm_util > 0).collect())
        }

        /// The shares of a process, read every `tick` milliseconds.
        fn shares(&self, shares: &mut Shares, pid: u32, from: u64, until: u64, tick: u64) -> Vec<Option<f64>> {
            let ticks = (from..until).step_by(tick as usize);
            let read = |milli: u64| {
                let now = [DAY + milli * 1000, BOOT + milli * 1000];
                shares.read(now, |since| self.ask(now[self.clock], since));
                shares.of(pid)
            };
            ticks.map(read).collect()
        }
    }

    /// The first reading with use in it comes late, when the driver has noted it twice or more.
    #[test]
    fn use_that_begins_before_a_late_reading_is_not_more_than_it_was() {
        let driver = Driver { clock: 0, uses: |milli| if milli >= 1000 { vec![(7, 60.0)] } else { Vec::new() } };
        for late in (1100..1700).step_by(13) {
            let mut shares = Shares::default();
            driver.shares(&mut shares, 7, 0, 1000, 100);
            let told = driver.shares(&mut shares, 7, late, late + 1, 1)[0].unwrap_or(0.0);
            assert!(told < 62.0, "{told} at {late} ms");
        }
    }

    /// The driver was loaded for the first reading, and has no notes from before.
    #[test]
    fn use_that_begins_with_the_driver_is_not_more_than_it_was() {
        for tick in (10..400).step_by(7) {
            let driver = Driver { clock: 0, uses: |milli| if milli >= 20 { vec![(7, 60.0)] } else { Vec::new() } };
            let told = driver.shares(&mut Shares::default(), 7, 0, 2000, tick);
            let most = told.iter().flatten().fold(0.0f64, |most, share| most.max(*share));
            assert!((59.0..62.0).contains(&most), "{most} every {tick} ms: {told:?}");
        }
    }

    #[test]
    fn steady_use_is_told_as_it_is() {
        for (clock, tick) in [(0, 10), (0, 100), (1, 100), (0, 250), (0, 1000), (1, 5000)] {
            let driver = Driver { clock, uses: |_| vec![(7, 60.0), (8, 30.0)] };
            let mut shares = Shares::default();
            let told = driver.shares(&mut shares, 7, 3000, 30_000, tick);
            // Use before the first reading does not count, and nothing is known before the first sample.
            let unknown = told.iter().take_while(|share| share.is_none()).count();
            assert!(unknown >= 1 && (unknown as u64 - 1) * tick < 200, "{tick} ms: {unknown}");
            let other = told[unknown..].iter().find(|share| **share != Some(60.0));
            assert_eq!((other, shares.together(|_| true)), (None, Some(90.0)), "{tick} ms");
            assert_eq!(shares.together(|pid| pid == 7), Some(60.0), "the other one is not listed");
            assert_eq!(shares.of(9), Some(0.0));
        }
    }

    /// One ends while the other goes on, and then this one as well.
    #[test]
    fn a_share_does_not_outlive_the_use() {
        fn uses(milli: u64) -> Vec<(u32, f64)> {
            [(7, 50.0, 10_000), (8, 40.0, 12_000)]
                .into_iter()
                .filter(|(.., end)| milli < *end)
                .map(|(pid, used, _)| (pid, used))
                .collect()
        }
        let driver = Driver { clock: 0, uses };
        for (tick, lives) in [(50, 350), (100, 400), (1000, 2000)] {
            let mut shares = Shares::default();
            driver.shares(&mut shares, 7, 5000, 10_000 + lives + 1, tick);
            assert_eq!((shares.of(7), shares.of(8).unwrap().round()), (Some(0.0), 40.0), "{tick}");
            driver.shares(&mut shares, 8, 10_000 + lives + tick, 12_000 + lives + 1, tick);
            assert_eq!((shares.of(8), shares.together(|_| true)), (Some(0.0), Some(0.0)), "{tick}");
        }
    }

    /// The sum over the run is what was used, also where most of the time nothing is.
    #[test]
    fn a_share_counts_for_the_time_that_its_samples_cover() {
        for tick in [50, 100, 200, 500, 1000, 2000] {
            let driver = Driver { clock: 0, uses: |milli| if milli % 1350 < 150 { vec![(7, 100.0)] } else { vec![] } };
            let told = driver.shares(&mut Shares::default(), 7, 2000, 122_000, tick);
            let mean = told.iter().flatten().sum::<f64>() / told.len() as f64;
            // The driver tells whole percent of a mean over up to a second more, and cuts off the rest.
            assert!((9.8..12.2).contains(&mean), "{tick} ms: {mean:.2} % of 11.11 %");
        }
        let driver = Driver { clock: 0, uses: |milli| if milli > 60_000 { vec![(7, 80.0)] } else { vec![] } };
        let mut shares = Shares::default();
        driver.shares(&mut shares, 7, 0, 60_000, 100);
        let told = driver.shares(&mut shares, 7, 60_000, 65_000, 100);
        let seen = told.iter().flatten().filter(|pct| **pct > 0.0).count();
        let sum: f64 = told.iter().flatten().sum();
        assert!(seen >= 46 && (sum / 50.0 - 80.0).abs() < 5.0, "{told:?}");
    }

    /// What nvtop's issue 110 shows beside zombies, whose numbers were not listed, and 97 entries of zeros.
    #[test]
    fn samples_that_are_none() {
        let garbage = [
            sample(50_554, 37_100, 217_144_956_601_725),
            sample(50_021, 38_305, 158_819_300_671_603),
            sample(50_017, 0, 49_936),
            sample(0, 0, 0),
        ];
        let driver = Driver { clock: 0, uses: |_| vec![(7, 60.0)] };
        let mut shares = Shares::default();
        for milli in (3000..6000).step_by(100) {
            let now = [DAY + milli * 1000, BOOT + milli * 1000];
            shares.read(now, |since| Some(driver.ask(now[0], since)?.into_iter().chain(garbage.clone()).collect()));
            if milli >= 3200 {
                assert_eq!((shares.of(7), shares.together(|_| true)), (Some(60.0), Some(60.0)));
            }
        }
        // Of a process that is there, such a sample says nothing, and not that it used nothing.
        let now = [DAY + 6 * SECOND, BOOT + 6 * SECOND];
        let of_one = |share, timestamp| {
            let mut shares = Shares::default();
            for (tick, samples) in
                [vec![sample(8, 5, now[0])], vec![sample(8, 5, now[0] + SECOND), sample(7, share, timestamp)]]
                    .into_iter()
                    .enumerate()
            {
                shares.read(now.map(|clock| clock + tick as u64 * SECOND), |_| Some(samples.clone()));
            }
            (shares.of(7), shares.of(8))
        };
        assert_eq!(of_one(37_100, now[0] + SECOND), (None, Some(5.0)));
        assert_eq!(of_one(50, now[0] + 3600 * SECOND), (None, Some(5.0)), "in the future");
        assert_eq!(of_one(50, now[0]), (Some(0.0), Some(5.0)), "seen before");
    }

    #[test]
    fn a_timestamp_in_the_future_and_a_clock_that_is_set_back_do_not_poison() {
        let steady = Driver { clock: 0, uses: |_| vec![(7, 60.0)] };
        let mut shares = Shares::default();
        steady.shares(&mut shares, 7, 3000, 5000, 100);
        let now = [DAY + 5 * SECOND, BOOT + 5 * SECOND];
        let future = sample(8, 50, DAY + 4000 * SECOND);
        shares.read(now, |since| Some([steady.ask(now[0], since).unwrap(), vec![future.clone()]].concat()));
        let told = steady.shares(&mut shares, 7, 5100, 6000, 100);
        assert_eq!(told, vec![Some(60.0); 9]);
        // An hour back.
        let told: Vec<_> = (0..40)
            .map(|tick| {
                let now = [DAY - 3600 * SECOND + tick * SECOND / 10, BOOT + 6 * SECOND + tick * SECOND / 10];
                shares.read(now, |since| {
                    Some([sample(7, 60, now[0])].into_iter().filter(|s| s.timestamp > since).collect())
                });
                shares.of(7)
            })
            .collect();
        assert_eq!(told[20..], vec![Some(60.0); 20]);
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let now = [DAY, BOOT];
        let mut shares = Shares::default();
        assert_eq!((shares.of(7), shares.together(|_| true)), (None, None));
        shares.read(now, |_| Some(Vec::new()));
        assert_eq!(shares.of(7), None, "there is no time before it");
        shares.read(now.map(|clock| clock + SECOND), |_| Some(Vec::new()));
        assert_eq!((shares.of(7), shares.together(|_| true)), (Some(0.0), Some(0.0)), "nobody used it");
        shares.read(now.map(|clock| clock + 2 * SECOND), |_| None);
        assert_eq!((shares.of(7), shares.together(|_| true)), (None, None));
        // Stamps of a clock that is not known.
        for tick in 0..3 {
            shares.read(now.map(|clock| clock + tick * SECOND), |_| Some(vec![sample(7, 50, 900_000 * SECOND + tick)]));
            assert_eq!((shares.of(7), shares.together(|_| true)), (None, None));
        }
    }
}
