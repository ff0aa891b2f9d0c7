//! CPU times and what else `/proc/stat` counts.

use crate::procfile::{percent, unreadable};
use resource_tracker_scan::{lines, number, words};

/// CPU times in ticks. The kernel has guest time inside user and nice as well.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Times {
    pub(super) user: u64,
    pub(super) nice: u64,
    pub(super) system: u64,
    idle: u64,
    pub(super) iowait: u64,
    pub(super) irq: u64,
    pub(super) softirq: u64,
    pub(super) steal: u64,
    pub(super) guest: u64,
}

impl Times {
    /// The columns of a `cpu` line; old kernels have fewer, but never less than four. `None` where one is no number, or none
    /// that can be a time.
    fn parse(columns: &[u8]) -> Option<Self> {
        let mut values = [0; 10];
        let mut count = 0;
        for (value, word) in values.iter_mut().zip(words(columns)) {
            *value = number(word).filter(|ticks| *ticks < u64::MAX / 16)?;
            count += 1;
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice] = values;
        let guest = guest + guest_nice;
        (count >= 4).then_some(Self { user, nice, system, idle, iowait, irq, softirq, steal, guest })
    }

    /// What was added since. Some counters (iowait, steal) can go back a little; that counts as nothing.
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(before.user),
            nice: self.nice.saturating_sub(before.nice),
            system: self.system.saturating_sub(before.system),
            idle: self.idle.saturating_sub(before.idle),
            iowait: self.iowait.saturating_sub(before.iowait),
            irq: self.irq.saturating_sub(before.irq),
            softirq: self.softirq.saturating_sub(before.softirq),
            steal: self.steal.saturating_sub(before.steal),
            guest: self.guest.saturating_sub(before.guest),
        }
    }

    pub(super) fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq + self.steal
    }

    pub(super) fn sum(&self) -> u64 {
        self.busy() + self.idle + self.iowait
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Stat {
    pub(super) total: Times,
    pub(super) cpus: Vec<(u64, Times)>,
    /// `None` where the kernel does not count it.
    pub(super) context_switches: Option<u64>,
    pub(super) forks: Option<u64>,
    pub(super) running: u32,
    pub(super) blocked: u32,
}

impl Stat {
    pub(super) fn has_cpus_of(&self, other: &Self) -> bool {
        self.cpus.iter().map(|(index, _)| index).eq(other.cpus.iter().map(|(index, _)| index))
    }

    /// So many ticks of `all` that passed, in cores.
    pub(super) fn cores(&self, ticks: u64, all: &Times) -> f64 {
        percent(ticks as f64, all.sum() as f64) / 100.0 * self.cpus.len() as f64
    }

    /// Reads `/proc/stat` over what was here, keeping the list's memory.
    ///
    /// # Errors
    /// When a line cannot be read, or that of all CPUs is not there. What is here then is of no use.
    pub(super) fn parse(&mut self, text: &[u8]) -> anyhow::Result<()> {
        let mut cpus = std::mem::take(&mut self.cpus);
        cpus.clear();
        *self = Self { cpus, ..Self::default() };
        let mut has_total = false;
        for line in lines(text) {
            has_total |= line.starts_with(b"cpu ");
            self.take(line).ok_or_else(|| unreadable("/proc/stat", line))?;
        }
        anyhow::ensure!(has_total, "/proc/stat has no line for all CPUs");
        Ok(())
    }

    /// `None` when the line cannot be read.
    fn take(&mut self, line: &[u8]) -> Option<()> {
        let Some(space) = line.iter().position(|byte| *byte == b' ') else { return Some(()) };
        let (key, rest) = (&line[..space], &line[space + 1..]);
        match key {
            b"cpu" => self.total = Times::parse(rest)?,
            b"ctxt" => self.context_switches = Some(number(rest)?),
            b"processes" => self.forks = Some(number(rest)?),
            b"procs_running" => self.running = u32::try_from(number(rest)?).ok()?,
            b"procs_blocked" => self.blocked = u32::try_from(number(rest)?).ok()?,
            _ => {
                if let Some(index) = key.strip_prefix(b"cpu") {
                    self.cpus.push((number(index)?, Times::parse(rest)?));
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        use procfs::CurrentSI;
        let text = std::fs::read("/proc/stat")?;
        let mut ours = Stat::default();
        ours.parse(&text)?;
        let theirs = procfs::KernelStats::current()?;
        assert_eq!(ours.cpus.len(), theirs.cpu_time.len());
        assert!(theirs.total.user >= ours.total.user && theirs.total.user - ours.total.user < 1000);
        assert!(Some(theirs.ctxt) >= ours.context_switches && Some(theirs.processes) >= ours.forks);
        assert!(ours.context_switches > Some(0) && ours.forks > Some(0));
        Ok(())
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Stat::default().parse(&text);
        }
    }
}
