//! What an existing file holds.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::bail;

use super::gzip;
use crate::encode::Encoder;

/// How every line of JSON begins.
const JSON: &[u8] = b"{\"timestamp_secs\":";

/// What this sink writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    pub(super) encoder: Encoder,
    pub(super) gzip: bool,
}

impl Contents {
    /// Refuses a file of something else than such samples. `path` is its name in errors.
    pub(super) fn check(self, file: &File, path: &Path) -> anyhow::Result<()> {
        if is_empty(file) || matches!(self.beginning(file), Beginning::Ours | Beginning::Torn) {
            return Ok(());
        }
        let format = if self.encoder.header().is_some() { "CSV with these columns" } else { "JSON Lines" };
        let compressed = if self.gzip { ", compressed" } else { "" };
        let hint = "name another file, or set if_exists = \"overwrite\"";
        bail!("{} exists and is not {format}{compressed}; {hint}", path.display());
    }

    /// Whether a file begins with samples of this kind, beyond doubt. An empty file proves nothing.
    pub(super) fn are_in(self, file: &File) -> bool {
        self.beginning(file) == Beginning::Ours
    }

    /// Whether the last sample of a file is whole.
    pub(super) fn end_whole(self, file: &File) -> io::Result<bool> {
        Ok(match self.gzip {
            true => gzip::ends_whole(&tail(file, gzip::TAIL)?),
            false => tail(file, 1)? == b"\n",
        })
    }

    fn beginning(self, file: &File) -> Beginning {
        let from_start = || file.try_clone().map(|file| FromStart { file, at: 0 });
        let Ok(file) = from_start() else { return Beginning::Other };
        let reader: Box<dyn Read> = if self.gzip { Box::new(gzip::reader(file)) } else { Box::new(file) };
        let mut first = Vec::new();
        // A sample of a machine with many devices is longer, but its beginning tells enough.
        let read = BufReader::new(reader.take(1 << 16)).read_until(b'\n', &mut first);
        let (header, start) = (self.encoder.header(), first.as_slice());
        let expected = header.as_ref().map_or(JSON, |header| header.as_bytes());
        let is_ours = if header.is_some() { start == expected } else { start.starts_with(expected) };
        let is_part = !start.is_empty() && (is_ours || expected.starts_with(start));
        match read {
            Ok(_) if is_ours => Beginning::Ours,
            // A cut line of JSON can be ended with a line end; a cut header cannot be mended.
            Ok(_) if is_part && !self.gzip && header.is_none() => Beginning::Torn,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let is_header = || from_start().is_ok_and(gzip::is_torn_header);
                if is_part || is_header() { Beginning::Torn } else { Beginning::Other }
            }
            _ => Beginning::Other,
        }
    }
}

/// What a file begins with.
#[derive(Debug, PartialEq, Eq)]
enum Beginning {
    /// Samples of this kind.
    Ours,
    /// A part of the first sample: the tracker was killed while it wrote it.
    Torn,
    Other,
}

fn is_empty(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.len() == 0)
}

/// The last bytes of a file, `size` at most.
fn tail(file: &File, size: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let size = length.min(size);
    let mut tail = vec![0; size as usize];
    file.read_exact_at(&mut tail, length - size)?;
    Ok(tail)
}

/// A file from its first byte on, wherever it was read or written last.
struct FromStart {
    file: File,
    at: u64,
}

impl Read for FromStart {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(bytes, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::gzip::Member;
    use super::*;
    use crate::columns::Columns;

    const SAMPLE: &str = "{\"timestamp_secs\":1764000000,\"cpu\":{\"utilization_pct\":0.5,\"processes\":312}}\n";

    fn beginning(encoder: Encoder, gzip: bool, bytes: &[u8]) -> Beginning {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Contents { encoder, gzip }.beginning(&file)
    }

    /// Nearly every reader of gzip takes a few bytes of anything for a header that was cut off.
    #[test]
    fn what_anybody_can_have_written_is_no_proof() {
        let csv = Encoder::Csv(Columns::Tracker);
        let gzipped = |text: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        };
        let header = &b"\x1f\x8b\x08"[..];
        for bytes in [b"", &b"hi"[..], b"notes\n", header, &gzipped(b""), &gzipped(b"{")] {
            for encoder in [Encoder::Json, csv] {
                assert_ne!(beginning(encoder, true, bytes), Beginning::Ours, "{bytes:?}");
                assert_ne!(beginning(encoder, false, bytes), Beginning::Ours, "{bytes:?}");
            }
        }
        let with_name = &b"\x1f\x8b\x08\x08"[..];
        for bytes in [&b"hi"[..], b"notes\n", with_name, &gzipped(b"{"), &gzipped(b"")[..15]] {
            assert_eq!(beginning(Encoder::Json, true, bytes), Beginning::Other, "{bytes:?}");
        }
    }

    #[test]
    fn a_first_sample_that_was_cut_off_is_torn() {
        let member = Member::new().add(SAMPLE.as_bytes()).unwrap();
        assert_eq!(beginning(Encoder::Json, true, &member), Beginning::Ours);
        assert_eq!(beginning(Encoder::Json, false, SAMPLE.as_bytes()), Beginning::Ours);
        assert_eq!(beginning(Encoder::Json, false, b"{\"time"), Beginning::Torn);
        assert_eq!(beginning(Encoder::Csv(Columns::Tracker), false, b"timestamp,"), Beginning::Other);
        let is_known = |length: &usize| beginning(Encoder::Json, true, &member[..*length]) != Beginning::Other;
        assert!((1..=10).all(|length| is_known(&length)));
        // Behind that, as soon as the first letter comes out.
        let first = (11..member.len()).find(is_known).unwrap();
        assert!((first..member.len()).all(|length| is_known(&length)), "{first} of {}", member.len());
        assert_eq!(beginning(Encoder::Json, true, &member[..first]), Beginning::Torn);
    }
}
