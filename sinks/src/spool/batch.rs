//! The batch that rows are added to.

use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::run_directory::RunDirectory;
use super::run_files::open;
use super::state::Batches;

/// A loss of power costs the rows of this time at most, unless the disk loses what was synced.
const SYNC: Duration = Duration::from_secs(10);
/// A batch is closed when it has grown to this, even before its time.
const LARGEST_BATCH: usize = 8 << 20;
/// Rows that wait in memory at most, in bytes.
pub(super) const MEMORY: usize = 8 << 20;

/// The batch that rows are added to.
pub(crate) struct Batch {
    pub(crate) number: u32,
    /// The name of its file.
    name: String,
    /// The line above its rows.
    header: String,
    /// Whether another one can follow.
    pub(crate) has_next: bool,
    file: Option<File>,
    synced: Instant,
    /// Rows that the disk did not take.
    pub(crate) memory: Vec<u8>,
    took_last: bool,
    pub(crate) size: usize,
    /// How many rows are in it.
    pub(crate) rows: u64,
    pub(crate) lost: u64,
}

impl Batch {
    pub(crate) fn new(number: u32, batches: &Batches, last: u32) -> Self {
        let (name, header) = (open(number, batches.extension), batches.header.clone());
        let has_next = number < last;
        Self {
            number,
            name,
            header,
            has_next,
            file: None,
            synced: Instant::now(),
            memory: Vec::new(),
            took_last: true,
            size: 0,
            rows: 0,
            lost: 0,
        }
    }

    /// Whether it is to be followed by another one, however young it is.
    pub(crate) fn is_full(&self) -> bool {
        self.size >= LARGEST_BATCH
    }

    /// Whether it took the row that was added last.
    pub(crate) fn took_last(&self) -> bool {
        self.took_last
    }

    /// Adds a row with its line end, to the disk if that takes it.
    ///
    /// # Errors
    /// When the disk did not take it. The row is in memory then, unless that is full too, or others of the batch are on the
    /// disk and another batch can follow: then it is [not taken](Self::took_last) at all.
    pub(crate) fn add(&mut self, directory: Option<&RunDirectory>, row: &[u8]) -> io::Result<()> {
        if self.size >= LARGEST_BATCH {
            // No number was left for another batch.
            self.lost += 1;
            return Ok(());
        }
        let result = self.write(directory, row);
        self.took_last = !(result.is_err() && self.size > 0 && self.memory.is_empty() && self.has_next);
        if !self.took_last {
            return result.map(drop);
        }
        match &result {
            Ok(true) => (self.size, self.rows) = (self.size + row.len(), self.rows + 1),
            Ok(false) | Err(_) => self.keep(row),
        }
        result.map(drop)
    }

    /// Adds a row to those in memory, unless there is no room. The next ones are there too, because they come after it.
    pub(super) fn keep(&mut self, row: &[u8]) {
        if self.memory.len() + row.len() > MEMORY {
            self.lost += 1;
            return;
        }
        self.memory.extend_from_slice(row);
        (self.size, self.rows) = (self.size + row.len(), self.rows + 1);
    }

    fn write(&mut self, directory: Option<&RunDirectory>, row: &[u8]) -> io::Result<bool> {
        let Some(directory) = directory else { return Ok(false) };
        if !self.memory.is_empty() {
            return Ok(false);
        }
        let mut line = Vec::new();
        if self.file.is_none() {
            self.file = Some(directory.append(&self.name)?);
            line.extend_from_slice(self.header.as_bytes());
        }
        let Some(file) = &mut self.file else { return Ok(false) };
        let length = file.metadata()?.len();
        line.extend_from_slice(row);
        // One call, so that a kill leaves the row whole or out.
        let written = file.write(&line);
        match written {
            Ok(count) if count == line.len() => {
                if self.synced.elapsed() >= SYNC {
                    // If this fails, the row is written all the same, and must not be kept a second time.
                    let _ = file.sync_data();
                    self.synced = Instant::now();
                }
                Ok(true)
            }
            result => {
                let _ = file.set_len(length);
                if length == 0 {
                    self.file = None;
                }
                Err(result.err().unwrap_or_else(|| io::ErrorKind::StorageFull.into()))
            }
        }
    }
}
