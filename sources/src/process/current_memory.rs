//! What a process has of each kind of memory at a tick.

use crate::job::{Image, Member};

/// The memory of a process at this tick, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CurrentMemory {
    pub(super) image: Image,
    pub(super) parent: i32,
    /// Whether it runs the program that it was forked in.
    pub(super) is_fork: bool,
    /// What its minor faults so far can have made private or new.
    pub(super) faulted: u64,
    pub(super) resident: u64,
    /// The most that it ever had resident or in swap, as far as that is known.
    pub(super) most: u64,
    /// `None` while its `status` was not read.
    pub(super) kinds: Option<Kinds>,
    pub(super) swap: u64,
    pub(super) hugetlb: u64,
}

/// Resident memory by kind when the `status` of the process was read, in bytes. The rest is pages of files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kinds {
    pub(super) anon: u64,
    pub(super) shmem: u64,
}

/// Resident memory of a process now, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Resident {
    pub(super) anon: u64,
    pub(super) shmem: u64,
    /// Pages of files, and all of which the kind is not known yet.
    pub(super) file: u64,
}

impl CurrentMemory {
    /// The memory of a member, on a machine with pages of this size.
    pub(super) fn new(member: &Member, page: u64) -> Self {
        let status = member.status.unwrap_or_default();
        let memory = status.memory;
        let resident = member.stat.rss.saturating_mul(page);
        Self {
            image: member.stat.image(),
            parent: member.stat.parent,
            is_fork: member.stat.is_fork,
            faulted: member.stat.minor_faults.saturating_mul(page),
            resident,
            most: status.peak_rss.max(resident).saturating_add(memory.swap.unwrap_or(0)),
            // Where the kernel tells no kinds (before 4.5), all of it counts as anonymous.
            kinds: member
                .status
                .map(|_| Kinds { anon: memory.anon.unwrap_or(u64::MAX), shmem: memory.shmem.unwrap_or(0) }),
            swap: memory.swap.unwrap_or(0),
            hugetlb: memory.hugetlb.unwrap_or(0),
        }
    }

    /// Its resident memory by kind. What came since the kinds were read can be of any: it counts as pages of files.
    pub(super) fn split(&self) -> Resident {
        let known = self.kinds.unwrap_or(Kinds { anon: 0, shmem: 0 });
        let anon = known.anon.min(self.resident);
        let shmem = known.shmem.min(self.resident - anon);
        Resident { anon, shmem, file: self.resident - anon - shmem }
    }

    /// Without knowledge of its kinds, all of it counts as anonymous.
    pub(super) fn with_kinds(self) -> Self {
        Self { kinds: self.kinds.or(Some(Kinds { anon: u64::MAX, shmem: 0 })), ..self }
    }

    /// Whether it may share anonymous memory with a parent.
    pub(super) fn may_inherit(&self) -> bool {
        self.is_fork && self.image.stack != 0
    }
}
