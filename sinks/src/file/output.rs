//! One file that grows by whole lines, whatever happens to it or to the disk.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use flate2::read::MultiGzDecoder;

use super::IfExists;
use crate::encode::Encoder;
use crate::stream::write_whole;

/// How often it is looked whether the file is still where it was.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Output {
    path: PathBuf,
    mode: u32,
    file: File,
    /// The device and number of a regular file.
    inode: Option<(u64, u64)>,
    needs_header: bool,
    said_gone: bool,
    looked: Instant,
    opened: Instant,
}

impl Output {
    /// Opens the file, which must hold what `encoder` writes if it holds anything.
    pub(super) fn open(
        path: &Path,
        mode: u32,
        if_exists: IfExists,
        encoder: Encoder,
        gzip: bool,
    ) -> anyhow::Result<Self> {
        let existing = std::fs::metadata(path).ok().filter(|metadata| metadata.is_file() && metadata.len() > 0);
        match if_exists {
            IfExists::Append if existing.is_some() => check_contents(path, encoder, gzip)?,
            IfExists::Fail if existing.is_some() => bail!("{} exists already", path.display()),
            _ => (),
        }
        let (file, metadata) = open(path, mode)?;
        if if_exists == IfExists::Overwrite && metadata.is_file() {
            file.set_len(0).with_context(|| format!("cannot empty {}", path.display()))?;
        }
        let now = Instant::now();
        let mut output = Self {
            path: path.to_owned(),
            mode,
            file,
            inode: None,
            needs_header: true,
            said_gone: false,
            looked: now,
            opened: now,
        };
        output.adopt(&metadata);
        output.end_torn_line(gzip)?;
        Ok(output)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// How many bytes the file has.
    pub(super) fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    /// How long ago it was opened.
    pub(super) fn age(&self) -> Duration {
        self.opened.elapsed()
    }

    /// Opens the path again, after the file there was moved away.
    pub(super) fn reopen(&mut self) -> anyhow::Result<()> {
        let (file, metadata) = open(&self.path, self.mode)?;
        self.file = file;
        self.opened = Instant::now();
        self.adopt(&metadata);
        Ok(())
    }

    fn adopt(&mut self, metadata: &Metadata) {
        self.inode = metadata.is_file().then(|| (metadata.dev(), metadata.ino()));
        self.needs_header = true;
    }

    /// Appends whole lines with one write, after `header` where the file is empty.
    pub(super) fn append(&mut self, header: Option<&[u8]>, lines: &[u8]) -> anyhow::Result<()> {
        self.follow()?;
        let Some(header) = header.filter(|_| self.needs_header) else {
            return self.write(lines);
        };
        // Two trackers that share the file must not both find it empty.
        let locked = self.file.lock().is_ok();
        let result = match self.inode.is_some() && self.len() > 0 {
            true => self.write(lines),
            false => self.write(&[header, lines].concat()),
        };
        if locked {
            // The lock ends with the file at the latest.
            let _ = self.file.unlock();
        }
        self.needs_header = result.is_err();
        result
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let mut written = 0;
        write_whole(&self.file, bytes, &mut written).map_err(|error| {
            // Half a line is worse than none: take it back, unless somebody else has written after it.
            if let (Some(_), Ok(end)) = (self.inode, (&self.file).stream_position())
                && written > 0
                && self.len() == end
            {
                let _ = self.file.set_len(end.saturating_sub(written as u64));
            }
            anyhow::Error::new(error).context(format!("cannot write to {}", self.path.display()))
        })
    }

    /// Begins the file anew when it was deleted, or follows the path when it was moved away.
    fn follow(&mut self) -> anyhow::Result<()> {
        if self.inode.is_none() || self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        let there = std::fs::metadata(&self.path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
        if there != self.inode {
            self.reopen()?;
            if !std::mem::replace(&mut self.said_gone, true) {
                log::warn!("{} was deleted or moved away; it is begun anew", self.path.display());
            }
        }
        Ok(())
    }

    /// A tracker that was killed in the middle of a line must not spoil the next one as well.
    fn end_torn_line(&mut self, gzip: bool) -> anyhow::Result<()> {
        let mut last = [b'\n'];
        let length = if self.inode.is_some() && !gzip { self.len() } else { 0 };
        if length > 0 && self.file.read_exact_at(&mut last, length - 1).is_ok() && last != *b"\n" {
            self.write(b"\n")?;
        }
        Ok(())
    }
}

fn open(path: &Path, mode: u32) -> anyhow::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(mode);
    // A pipe opened for both sides does not wait for a reader, who may come later. What is to be continued is read.
    let special = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_char_device());
    let file = if special { options.open(path) } else { options.read(true).open(path) };
    let opened = file.and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    opened.with_context(|| format!("cannot write to {}", path.display()))
}

/// Refuses to add samples to a file of something else.
fn check_contents(path: &Path, encoder: Encoder, gzip: bool) -> anyhow::Result<()> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let reader: Box<dyn Read> = if gzip { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };
    let mut first = Vec::new();
    // A sample of a machine with many devices is longer, but its beginning tells enough.
    let read = BufReader::new(reader.take(1 << 16)).read_until(b'\n', &mut first);
    let fits = read.is_ok()
        && match encoder.header() {
            Some(header) => first == header.as_bytes(),
            None => first.starts_with(b"{"),
        };
    if !fits {
        let format = if encoder.header().is_some() { "CSV with these columns" } else { "JSON Lines" };
        let hint = "name another file, or set if_exists = \"overwrite\"";
        bail!("{} exists and is not {format}{}; {hint}", path.display(), if gzip { ", compressed" } else { "" });
    }
    Ok(())
}
