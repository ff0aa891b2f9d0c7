//! What kinds of memory are charged to a cgroup: `memory.stat`.

use resource_tracker_scan::value_of;

/// Bytes of each kind, of the cgroup and those below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryStat {
    pub(crate) anon: u64,
    /// Page cache, without `shmem`.
    pub(crate) file: u64,
    pub(crate) shmem: u64,
    /// What the kernel keeps for itself and gives back when memory is short; v1 does not tell.
    pub(crate) reclaimable: u64,
    /// The part of the page cache that was not used lately.
    pub(crate) inactive_file: Option<u64>,
}

impl MemoryStat {
    pub(crate) fn parse_v2(text: &[u8]) -> Option<Self> {
        let shmem = value_of(text, "shmem")?;
        let file = value_of(text, "file")?.saturating_sub(shmem);
        let reclaimable = value_of(text, "slab_reclaimable").unwrap_or(0);
        let inactive_file = value_of(text, "inactive_file");
        Some(Self { anon: value_of(text, "anon")?, file, shmem, reclaimable, inactive_file })
    }

    pub(crate) fn parse_v1(text: &[u8]) -> Option<Self> {
        let shmem = value_of(text, "total_shmem")?;
        let file = value_of(text, "total_cache")?.saturating_sub(shmem);
        let inactive_file = value_of(text, "total_inactive_file");
        Some(Self { anon: value_of(text, "total_rss")?, file, shmem, reclaimable: 0, inactive_file })
    }

    /// What the kernel can take back without a loss.
    pub(crate) fn cache(&self) -> u64 {
        self.file.saturating_add(self.reclaimable)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_versions_tell_page_cache_apart() {
        let v2 = b"anon 100\nfile 70\nkernel 9\nshmem 20\nfile_mapped 5\ninactive_file 30\nslab_reclaimable 4\n";
        let stat = MemoryStat { anon: 100, file: 50, shmem: 20, reclaimable: 4, inactive_file: Some(30) };
        assert_eq!(MemoryStat::parse_v2(v2), Some(stat));
        assert_eq!(stat.cache(), 54);
        let v1 = b"cache 1\nrss 1\nshmem 1\ninactive_file 1\ntotal_cache 70\ntotal_rss 100\ntotal_shmem 20\ntotal_inactive_file 30\n";
        assert_eq!(MemoryStat::parse_v1(v1), Some(MemoryStat { reclaimable: 0, ..stat }));
        assert_eq!((MemoryStat::parse_v1(v2), MemoryStat::parse_v2(b"anon x\nfile 1\nshmem 1\n")), (None, None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(text in prop::collection::vec(any::<u8>(), 0..200)) {
            MemoryStat::parse_v1(&text);
            MemoryStat::parse_v2(&text);
        }
    }
}
