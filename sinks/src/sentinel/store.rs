//! The rows of one run in batches, and how far they have got: on disk, or in memory where the disk takes nothing.
//!
//! `run.json` has the state of the run, `NNNNNN.csv` the rows of a batch as they come, `NNNNNN.csv.gz` those of a
//! closed batch, just as it is sent. A batch never changes once it is closed, so sending it again changes nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::run_directory::RunDirectory;
use super::run_files::{LARGEST_FILE, LAST_BATCH, csv, gz};
use super::spool::Spool;
use super::state::{End, State};
use crate::columns::Columns;

/// A loss of power costs the rows of this time at most, unless the disk loses what was synced.
const SYNC: Duration = Duration::from_secs(10);
/// A batch is closed when it has grown to this, even before its time.
const LARGEST_BATCH: usize = 8 << 20;
/// Rows that wait in memory at most, in bytes.
const MEMORY: usize = 8 << 20;

pub(crate) struct Store {
    directory: Option<Arc<RunDirectory>>,
    pub(crate) state: State,
    /// Batches below this number are closed.
    pub(crate) closed: u32,
    /// Rows that the disk did not take, by batch.
    memory: BTreeMap<u32, Vec<u8>>,
    /// Files of batches below this number are gone.
    kept: u32,
    /// The batches of a run that was left behind; some may be missing.
    found: Option<BTreeSet<u32>>,
}

/// The line above the rows of each batch.
pub(crate) fn header() -> String {
    Columns::Sentinel.header() + "\n"
}

impl Store {
    /// The store of a new run. Without a directory everything is in memory.
    pub(crate) fn new(directory: Option<Arc<RunDirectory>>, state: State) -> Self {
        Self { directory, kept: state.next, state, closed: 0, memory: BTreeMap::new(), found: None }
    }

    /// The store of a new run in the spool, where its state is saved.
    pub(crate) fn create(spool: &Spool, state: State) -> io::Result<Self> {
        let (directory, saved) = spool.create(&serde_json::to_vec(&state)?)?;
        if let Err(error) = saved {
            log::warn!("sentinel: cannot write to the spool: {error}; a crash would lose what has not arrived");
        }
        Ok(Self::new(Some(Arc::new(directory)), state))
    }

    /// The store of a run that was left behind: all its batches are closed. `None` when there is nothing in it.
    pub(crate) fn recover(directory: RunDirectory) -> anyhow::Result<Option<Self>> {
        let Some(text) = directory.state()? else { return Ok(None) };
        let state = State::parse(&text).map_err(|problem| anyhow::anyhow!("run.json: {problem}"))?;
        let (found, problems) = directory.batches().context("its files cannot be listed")?;
        for problem in problems {
            log::warn!("{}: {problem}; it is left out", directory.path().display());
        }
        let mut store = Self::new(Some(Arc::new(directory)), state);
        store.closed = found.last().map_or(0, |last| last + 1).max(store.state.next);
        store.found = Some(found);
        Ok(Some(store))
    }

    pub(crate) fn shared_directory(&self) -> Option<Arc<RunDirectory>> {
        self.directory.clone()
    }

    pub(crate) fn directory(&self) -> Option<&RunDirectory> {
        self.directory.as_deref()
    }

    /// How many batches wait.
    pub(crate) fn waiting(&self) -> u32 {
        match &self.found {
            Some(found) => found.range(self.state.next..).count() as u32,
            None => self.closed - self.state.next,
        }
    }

    /// Saves the state.
    pub(crate) fn save(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        directory.save(&serde_json::to_vec(&self.state)?)
    }

    /// Closes a batch, and takes over its rows that the disk did not take.
    fn close(&mut self, batch: Batch) {
        if batch.lost > 0 {
            log::warn!("sentinel: {} rows found room neither on the disk nor in memory and are lost", batch.lost);
        }
        self.closed = batch.number + 1;
        if !batch.memory.is_empty() {
            let given_up = self.keep(batch.number, batch.memory);
            if given_up > 0 {
                log::warn!("sentinel: {given_up} bytes of rows that wait in memory were given up for newer ones");
            }
        }
    }

    /// Ends the run. `batch` was its last one.
    pub(crate) fn end(&mut self, end: End, batch: Batch) -> io::Result<()> {
        if batch.size > 0 {
            self.close(batch);
        }
        self.state.end = Some(end);
        self.save()
    }

    /// Closes a batch that is not the last one: compressed, it takes less of the disk from now on.
    pub(crate) fn close_and_compress(&mut self, batch: Batch) {
        let number = batch.number;
        self.close(batch);
        if let Err(error) = self.compress(number) {
            // It can be sent as it is.
            log::debug!("sentinel: a batch cannot be compressed: {error}");
        }
    }

    /// Takes over rows that the disk did not take. Returns how many bytes were given up for them.
    fn keep(&mut self, batch: u32, rows: Vec<u8>) -> usize {
        self.memory.insert(batch, rows);
        let mut given_up = 0;
        while self.memory.values().map(Vec::len).sum::<usize>() > MEMORY && self.memory.len() > 1 {
            given_up += self.memory.pop_first().map_or(0, |(_, rows)| rows.len());
        }
        given_up
    }

    /// The rows of a batch, with a header; `None` when they are longer than `limit`.
    pub(crate) fn rows(&self, batch: u32, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let mut text = self.written(batch, limit + 1)?;
        if text.len() as u64 > limit {
            return Ok(None);
        }
        // A loss of power can leave a part of a line.
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        if text.is_empty() {
            text = header().into_bytes();
        }
        text.extend_from_slice(self.memory.get(&batch).map_or(&[], Vec::as_slice));
        Ok(Some(text).filter(|text| text.len() as u64 <= limit))
    }

    /// The rows of a batch that are on the disk, up to `limit`.
    fn written(&self, batch: u32, limit: u64) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let Some(directory) = &self.directory else { return Ok(text) };
        if let Some(file) = directory.open_file(&csv(batch))? {
            file.take(limit).read_to_end(&mut text)?;
        } else if let Some(file) = directory.open_file(&gz(batch))? {
            GzDecoder::new(file).take(limit).read_to_end(&mut text)?;
        }
        Ok(text)
    }

    /// A closed batch as it is sent; `None` when it was given up.
    pub(crate) fn body(&mut self, batch: u32) -> io::Result<Option<Vec<u8>>> {
        if !self.memory.contains_key(&batch) {
            let Some(directory) = &self.directory else { return Ok(None) };
            if self.found.as_ref().is_some_and(|found| !found.contains(&batch)) {
                return Ok(None);
            }
            if let Some(body) = directory.read(&gz(batch))? {
                return Ok(Some(body));
            }
            if directory.open_file(&csv(batch))?.is_none() {
                return Ok(None);
            }
        }
        let rows = self.rows(batch, LARGEST_FILE)?;
        let rows =
            rows.ok_or_else(|| io::Error::other(format!("{} has more than {LARGEST_FILE} bytes", csv(batch))))?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&rows)?;
        encoder.finish().map(Some)
    }

    /// Compresses a batch that has been closed.
    fn compress(&self, batch: u32) -> io::Result<()> {
        let (Some(directory), false) = (&self.directory, self.memory.contains_key(&batch)) else { return Ok(()) };
        let Some(mut rows) = directory.open_file(&csv(batch))? else { return Ok(()) };
        directory.write(&gz(batch), |file| {
            let mut encoder = GzEncoder::new(file, Compression::default());
            io::copy(&mut rows, &mut encoder)?;
            encoder.finish().map(drop)
        })?;
        directory.remove_file(&csv(batch));
        Ok(())
    }

    /// Settles batch `next`: it has arrived, or was given up. Its rows are removed once that is saved; until then it
    /// could be sent again, which changes nothing. Returns how many bytes became free.
    pub(crate) fn settle(&mut self, arrived: bool) -> u64 {
        let batch = self.state.next;
        // Missing batches in a row are settled at once.
        let following = self.found.as_ref().and_then(|found| found.range(batch..).next().copied());
        self.state.next = following.filter(|_| !arrived).unwrap_or(0).max(batch + 1);
        if !arrived {
            self.state.lost.extend(batch..self.state.next);
        }
        self.memory.remove(&batch);
        if self.save().is_ok()
            && let Some(directory) = &self.directory
        {
            let settled = self.kept..self.state.next;
            // Of a run that was left behind, only files that are there: numbers say nothing.
            let settled: Vec<u32> = match &self.found {
                Some(found) => found.range(settled).copied().collect(),
                None => settled.collect(),
            };
            self.kept = self.state.next;
            return settled
                .into_iter()
                .map(|batch| directory.remove_file(&csv(batch)) + directory.remove_file(&gz(batch)))
                .sum();
        }
        0
    }

    /// The URI that a batch is sent to.
    pub(crate) fn uri(&self, batch: u32) -> Option<String> {
        let (prefix, run_id) = (self.state.upload_uri_prefix.as_ref()?, self.state.run_id.as_ref()?);
        Some(format!("{}/{run_id}/{}", prefix.trim_end_matches('/'), gz(batch)))
    }

    /// The URIs of all batches that have arrived.
    pub(crate) fn uris(&self) -> Vec<String> {
        let lost: HashSet<u32> = self.state.lost.iter().copied().collect();
        let arrived = (0..self.state.next).filter(|batch| !lost.contains(batch));
        arrived.filter_map(|batch| self.uri(batch)).collect()
    }

    /// Removes the run, once the service has everything.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.directory().map_or(Ok(()), RunDirectory::remove)
    }
}

/// The batch that rows are added to.
pub(crate) struct Batch {
    pub(crate) number: u32,
    file: Option<File>,
    synced: Instant,
    /// Rows that the disk did not take.
    pub(crate) memory: Vec<u8>,
    pub(crate) size: usize,
    pub(crate) lost: u64,
}

impl Batch {
    pub(crate) fn new(number: u32) -> Self {
        Self { number, file: None, synced: Instant::now(), memory: Vec::new(), size: 0, lost: 0 }
    }

    /// Whether it is to be followed by another one, however young it is.
    pub(crate) fn is_full(&self) -> bool {
        self.size >= LARGEST_BATCH
    }

    /// Whether another one can follow: names have six digits.
    pub(crate) fn has_next(&self) -> bool {
        self.number < LAST_BATCH
    }

    /// Adds a row with its line end, to the disk if that takes it.
    ///
    /// # Errors
    /// When the disk did not take it. The row is in memory then, unless that is full too.
    pub(crate) fn add(&mut self, directory: Option<&RunDirectory>, row: &[u8]) -> io::Result<()> {
        if self.size >= LARGEST_BATCH {
            // No number is left for another batch.
            self.lost += 1;
            return Ok(());
        }
        let result = self.write(directory, row);
        match &result {
            // Once a row is in memory the next ones are too, because they come after it.
            Ok(true) => self.size += row.len(),
            Ok(false) | Err(_) if self.memory.len() + row.len() > MEMORY => self.lost += 1,
            Ok(false) | Err(_) => {
                self.size += row.len();
                self.memory.extend_from_slice(row);
            }
        }
        result.map(drop)
    }

    fn write(&mut self, directory: Option<&RunDirectory>, row: &[u8]) -> io::Result<bool> {
        let Some(directory) = directory else { return Ok(false) };
        if !self.memory.is_empty() {
            return Ok(false);
        }
        let mut line = Vec::new();
        if self.file.is_none() {
            self.file = Some(directory.append(&csv(self.number))?);
            line = header().into_bytes();
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

#[cfg(test)]
mod tests {
    use super::super::run_files::Access;
    use super::*;

    fn text(body: &[u8]) -> String {
        let mut text = String::new();
        GzDecoder::new(body).read_to_string(&mut text).map(|_| text).unwrap_or_default()
    }

    #[test]
    fn a_batch_from_its_rows_to_its_end() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open_or_make(&directory.path().join("spool"))?;
        let mut store = Store::create(&spool, State::default())?;
        store.state.run_id = Some("r".into());
        store.state.upload_uri_prefix = Some("s3://b/p/".into());
        store.save()?;
        let mut batch = Batch::new(0);
        batch.add(store.directory(), b"1,2\n")?;
        batch.add(store.directory(), b"3,4\n")?;
        let whole = header() + "1,2\n3,4\n";
        assert_eq!(store.rows(0, 1000)?.as_deref(), Some(whole.as_bytes()));
        assert_eq!(store.rows(0, whole.len() as u64 - 1)?, None);

        store.compress(0)?;
        assert_eq!(store.body(0)?.map(|body| text(&body)), Some(whole.clone()));
        drop(store);
        let left = spool.left_behind(Access::Work)?.next().context("nothing is left")??;
        let mut store = Store::recover(left)?.context("nothing is in it")?;
        assert_eq!((store.closed, store.state.next), (1, 0));
        assert_eq!(store.body(0)?.map(|body| text(&body)), Some(whole));
        assert_eq!(store.uri(0).as_deref(), Some("s3://b/p/r/000000.csv.gz"));
        store.settle(true);
        assert_eq!((store.uris().len(), store.body(0)?), (1, None));
        store.remove()?;
        assert_eq!(spool.left_behind(Access::Work)?.count(), 0);
        Ok(())
    }

    #[test]
    fn half_a_line_is_left_out() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open_or_make(&directory.path().join("spool"))?;
        let store = Store::create(&spool, State::default())?;
        store.directory().ok_or(anyhow::anyhow!("none"))?.append("000000.csv")?.write_all(b"a,b\n1,2\n3,")?;
        assert_eq!(store.rows(0, 100)?.as_deref(), Some(b"a,b\n1,2\n".as_slice()));
        Ok(())
    }

    #[test]
    fn without_a_disk_rows_are_in_memory_with_a_bound() -> anyhow::Result<()> {
        let mut store = Store::new(None, State::default());
        let mut batch = Batch::new(0);
        batch.add(None, b"1\n")?;
        assert_eq!(store.keep(0, std::mem::take(&mut batch.memory)), 0);
        assert_eq!(store.body(0)?.map(|body| text(&body)), Some(header() + "1\n"));
        assert_eq!(store.keep(1, vec![b'x'; MEMORY]), 2);
        assert_eq!(store.body(0)?, None);
        let row = vec![b'y'; MEMORY / 2 + 1];
        batch.add(None, &row)?;
        batch.add(None, &row)?;
        assert_eq!((batch.lost, batch.memory.len()), (1, row.len()));
        Ok(())
    }
}
