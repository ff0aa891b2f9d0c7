//! What a file holds that is there already.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, bail};
use rustix::fs::OFlags;

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
    /// Refuses to add samples to a file of something else.
    pub(super) fn check_at(self, path: &Path) -> anyhow::Result<()> {
        match File::open(path) {
            // Another tracker has just set it aside.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            file => self.check(file.with_context(|| format!("cannot read {}", path.display()))?, path),
        }
    }

    /// As `check_at`, of a file that is open.
    pub(super) fn check(self, file: impl Read, path: &Path) -> anyhow::Result<()> {
        if !self.begin(file) {
            let format = if self.encoder.header().is_some() { "CSV with these columns" } else { "JSON Lines" };
            let compressed = if self.gzip { ", compressed" } else { "" };
            let hint = "name another file, or set if_exists = \"overwrite\"";
            bail!("{} exists and is not {format}{compressed}; {hint}", path.display());
        }
        Ok(())
    }

    /// Whether this is a file of the user's that holds it. A link or a FIFO is not.
    pub(super) fn are_in(self, path: &Path) -> bool {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
        file.is_ok_and(|file| {
            let own = rustix::process::geteuid().as_raw();
            file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.uid() == own) && self.begin(file)
        })
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
