//! The counters of `/proc/net/dev`.

use resource_tracker_scan::{lines, numbers};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) rx: Direction,
    pub(super) tx: Direction,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Direction {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) errors: u64,
    pub(super) dropped: u64,
}

impl Counters {
    /// Whether they were reset since, or are of another interface.
    pub(super) fn fell_since(&self, before: &Counters) -> bool {
        self.rx.bytes < before.rx.bytes || self.tx.bytes < before.tx.bytes
    }
}

/// The interfaces of `/proc/net/dev` but loopback. `has_garbage` becomes true when a line cannot be read.
pub(super) fn interfaces<'a>(text: &'a [u8], has_garbage: &mut bool) -> impl Iterator<Item = (&'a [u8], Counters)> {
    // It has headings at least.
    *has_garbage = text.is_empty();
    let read = move |line: &'a [u8]| {
        let interface = parse_line(line);
        *has_garbage |= interface.is_none() && !line.contains(&b'|');
        interface
    };
    lines(text).filter_map(read).filter(|(name, _)| *name != b"lo")
}

/// `  eth0: 9014029 240 0 0 …`: eight columns received, eight sent. The two lines of headings have no numbers.
fn parse_line(line: &[u8]) -> Option<(&[u8], Counters)> {
    let colon = line.iter().rposition(|byte| *byte == b':')?;
    let name = line[..colon].trim_ascii();
    let mut columns = numbers(&line[colon + 1..]);
    let mut direction = || {
        let [bytes, packets, errors, dropped] = std::array::from_fn(|_| columns.next());
        columns.by_ref().take(4).count();
        Some(Direction { bytes: bytes?, packets: packets?, errors: errors?, dropped: dropped? })
    };
    Some((name, Counters { rx: direction()?, tx: direction()? }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agrees_with_the_procfs_crate_about_this_machine() -> anyhow::Result<()> {
        use procfs::FromBufRead;
        let text = std::fs::read("/proc/net/dev")?;
        let theirs = procfs::net::InterfaceDeviceStatus::from_buf_read(&text[..])?.0;
        let ours: Vec<_> = lines(&text).filter_map(parse_line).collect();
        assert_eq!(ours.len(), theirs.len());
        for (name, counters) in ours {
            let status = &theirs[std::str::from_utf8(name)?];
            assert_eq!((counters.rx.bytes, counters.rx.dropped), (status.recv_bytes, status.recv_drop));
            assert_eq!((counters.tx.bytes, counters.tx.errors), (status.sent_bytes, status.sent_errs));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            parse_line(&line);
        }
    }
}
