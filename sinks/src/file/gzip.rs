//! Compressed text that is a whole gzip file after every addition.
//!
//! A member is compressed as one stream, so that a sample costs little more than what is new in it. It is flushed and
//! ended with each sample, and the next one is written over that end.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use flate2::{Compress, Compression, Crc, FlushCompress};

/// A member with so much text is full, and the next one begins. A torn end can cost as much.
const TEXT: u64 = 256 * 1024;

/// How much of the end of a file is looked at: more than a member has.
pub(super) const TAIL: u64 = 128 * 1024;

/// More than a tail of this sink unpacks to, with room for bytes that only look like a member. The file of a stranger
/// could unpack to far more, again and again.
const LARGEST_TAIL: u64 = 64 << 20;

/// RFC 1952: deflate, no flags, no time, an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// The last block, which is empty: final, fixed codes, end of block.
const LAST_BLOCK: [u8; 2] = [3, 0];

/// A member that can still grow.
pub(super) struct Member {
    deflate: Compress,
    crc: Crc,
}

impl Member {
    pub(super) fn new() -> Self {
        Self { deflate: Compress::new(Compression::default(), false), crc: Crc::new() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.deflate.total_in() >= TEXT
    }

    /// Adds text. The returned bytes replace the end of the member in the file.
    pub(super) fn add(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        let mut bytes = if self.deflate.total_in() == 0 { HEADER.to_vec() } else { Vec::new() };
        let start = self.deflate.total_in();
        loop {
            bytes.reserve(1024 + text.len() / 8);
            let rest = &text[(self.deflate.total_in() - start) as usize..];
            self.deflate.compress_vec(rest, &mut bytes, FlushCompress::Sync)?;
            // The flush is done when there was room left after it.
            if self.deflate.total_in() - start == text.len() as u64 && bytes.len() < bytes.capacity() {
                break;
            }
        }
        self.crc.update(text);
        bytes.extend(self.end());
        Ok(bytes)
    }

    /// The end of the member as it is now.
    pub(super) fn end(&self) -> Vec<u8> {
        [&LAST_BLOCK[..], &self.crc.sum().to_le_bytes(), &self.crc.amount().to_le_bytes()].concat()
    }
}

/// Whether a file whose last bytes these are ends with a whole member.
pub(super) fn ends_whole(tail: &[u8]) -> bool {
    let mut left = LARGEST_TAIL;
    for start in headers(tail) {
        let mut members = &tail[start..];
        let mut is_chain = false;
        while !members.is_empty() {
            let mut member = flate2::bufread::GzDecoder::new(members).take(left);
            let unpacked = io::copy(&mut member, &mut io::sink());
            left = left.min(member.limit());
            if unpacked.is_err() || left == 0 {
                break;
            }
            members = member.into_inner().into_inner();
            is_chain = true;
        }
        // The checksum was right, so this was the beginning of a member.
        if is_chain {
            return members.is_empty();
        }
        if left == 0 {
            break;
        }
    }
    false
}

/// Where a member can begin.
fn headers(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(3).enumerate().filter(|(_, window)| *window == &HEADER[..3]).map(|(start, _)| start)
}

/// Whether a file ends within the header that this sink writes. Nothing can be read of such a file.
pub(super) fn is_torn_header(file: impl Read) -> bool {
    let mut bytes = Vec::new();
    let read = file.take(HEADER.len() as u64 + 1).read_to_end(&mut bytes);
    read.is_ok() && !bytes.is_empty() && HEADER.starts_with(&bytes)
}

/// The text of a file, as far as it can be read.
pub(super) fn reader(file: impl Read) -> impl Read {
    MultiGzDecoder::new(file)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text_of(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        reader(bytes).read_to_end(&mut text).unwrap();
        text
    }

    /// Thousands of beginnings of members before one tail that unpacks to much.
    #[test]
    fn a_tail_that_was_made_to_cost_time_is_given_up() {
        let mut zeros = Compress::new(Compression::best(), false);
        let mut bomb = Vec::with_capacity(128 << 10);
        zeros.compress_vec(&vec![0; 32 << 20], &mut bomb, FlushCompress::Sync).unwrap();
        let tail = [[0x1f, 0x8b, 8, 8, 1, 1, 1, 1, 1, 1].repeat(6400), vec![0], bomb].concat();
        let start = std::time::Instant::now();
        assert!(!ends_whole(&tail));
        // Without the limit, 200 GB would be unpacked.
        assert!(start.elapsed() < std::time::Duration::from_secs(60));
    }

    proptest! {
        #[test]
        fn it_is_whole_after_every_addition(texts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..5000), 1..8)) {
            let (mut file, mut member, mut all) = (Vec::new(), Member::new(), Vec::new());
            for text in texts {
                file.truncate(file.len().saturating_sub(member.end().len()));
                file.extend(member.add(&text)?);
                all.extend(text);
                prop_assert_eq!(&text_of(&file), &all);
                prop_assert!(ends_whole(&file));
                prop_assert!(file.ends_with(&member.end()));
            }
        }

        #[test]
        fn a_torn_end_is_seen(cut in 1usize..60, members in 1usize..4) {
            let member = Member::new().add(b"one line that is long enough to be cut anywhere\n")?;
            let whole = member.repeat(members);
            prop_assert!(ends_whole(&whole));
            let torn = &whole[..whole.len() - cut.min(member.len() - 1)];
            prop_assert!(!ends_whole(torn));
        }

        #[test]
        fn the_tail_of_a_long_file_is_enough(from in 0usize..300) {
            let whole: Vec<u8> = (0..40).flat_map(|number| Member::new().add(format!("{number}\n").as_bytes()).unwrap()).collect();
            prop_assert!(ends_whole(&whole[from..]));
        }

        #[test]
        fn any_bytes_are_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            ends_whole(&bytes);
        }
    }
}
