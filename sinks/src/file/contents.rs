//! What a file holds that is there already.

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
    /// Refuses to add samples to a file of something else. `path` is what it is called.
    pub(super) fn check(self, file: &File, path: &Path) -> anyhow::Result<()> {
        if self.are_in(file) {
            return Ok(());
        }
        let format = if self.encoder.header().is_some() { "CSV with these columns" } else { "JSON Lines" };
        let compressed = if self.gzip { ", compressed" } else { "" };
        let hint = "name another file, or set if_exists = \"overwrite\"";
        bail!("{} exists and is not {format}{compressed}; {hint}", path.display());
    }

    /// Whether a file is empty, or holds samples of this kind.
    pub(super) fn are_in(self, file: &File) -> bool {
        let is_empty = file.metadata().is_ok_and(|metadata| metadata.len() == 0);
        is_empty || file.try_clone().is_ok_and(|file| self.begin(FromStart { file, at: 0 }))
    }

    fn begin(self, file: impl Read) -> bool {
        let reader: Box<dyn Read + '_> = if self.gzip { Box::new(gzip::reader(file)) } else { Box::new(file) };
        let mut first = Vec::new();
        // A sample of a machine with many devices is longer, but its beginning tells enough.
        let read = BufReader::new(reader.take(1 << 16)).read_until(b'\n', &mut first);
        // A tracker that was killed in its first write.
        let is_torn = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::UnexpectedEof);
        match self.encoder.header() {
            _ if read.is_err() && !is_torn => false,
            Some(header) => first == header.as_bytes() || is_torn && header.as_bytes().starts_with(&first),
            None => first.starts_with(JSON) || JSON.starts_with(&first),
        }
    }
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
