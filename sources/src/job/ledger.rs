//! What processes used that the tracker waited for as their parent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::stat::Io;
use super::status::Switches;

/// What processes used that the tracker waited for as their parent: the root, and orphans that it adopted. Each
/// includes the children that it waited for itself, as in `getrusage(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Their sum.
    pub usage: Usage,
    /// Whether the root is among them. Procfs may still show it as a zombie, which must not count again.
    pub root: bool,
}

/// What ended processes used: `struct rusage` of `wait4(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode.
    pub utime: Duration,
    /// CPU time in the kernel.
    pub stime: Duration,
    /// The most memory that one of them had resident, in bytes.
    pub max_rss: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that needed a disk.
    pub major_faults: u64,
    /// Context switches.
    pub switches: Switches,
    /// What they read and wrote.
    pub io: Io,
    /// Whether `/proc/PID/io` of one of them could not be read. Then `read_bytes` and `write_bytes` come from
    /// `ru_inblock` and `ru_oublock`, and the rest of its `io` is missing.
    pub lacks_io: bool,
}

impl Usage {
    /// The sum of both, with the larger peak.
    pub fn plus(self, other: Self) -> Self {
        Self {
            utime: self.utime + other.utime,
            stime: self.stime + other.stime,
            max_rss: self.max_rss.max(other.max_rss),
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            switches: self.switches.plus(other.switches),
            io: self.io.each(other.io, u64::saturating_add),
            lacks_io: self.lacks_io || other.lacks_io,
        }
    }

    /// The same with what `/proc/PID/io` said of them.
    pub fn with_io(self, io: Io) -> Self {
        Self { io, lacks_io: false, ..self }
    }
}

impl Reaped {
    /// An orphan was reaped.
    pub fn orphan(&mut self, usage: Usage) {
        self.usage = self.usage.plus(usage);
    }

    /// The root was reaped.
    pub fn root(&mut self, usage: Usage) {
        *self = Self { usage: self.usage.plus(usage), root: true };
    }
}

/// The record of what processes used. The thread that waits for them writes it, and each tick reads it.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Reaped>>);

impl Ledger {
    /// Calls `reap`, which waits for ended processes and enters what they used. No tick reads the record meanwhile, so
    /// each tick finds a process either in procfs or in the record. `reap` must not wait for a process that still runs.
    pub fn reap<T>(&self, reap: impl FnOnce(&mut Reaped) -> T) -> T {
        reap(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The sum so far.
    pub fn reaped(&self) -> Reaped {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_looks_between_the_end_of_a_process_and_its_entry() {
        let ledger = Ledger::default();
        let has_begun = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                ledger.reap(|reaped| {
                    has_begun.wait();
                    std::thread::sleep(Duration::from_millis(50));
                    reaped.root(Usage { max_rss: 7, ..Usage::default() });
                });
            });
            has_begun.wait();
            assert_eq!(ledger.reaped(), Reaped { usage: Usage { max_rss: 7, ..Usage::default() }, root: true });
        });
    }
}
