//! The rows of one run in batches, and how far they have got: on disk, or in memory where the disk takes nothing.
//!
//! `run.json` says what is known, `NNNNNN.csv` holds the rows of a batch as they come, `NNNNNN.csv.gz` those of one that
//! is closed, just as it is sent. A batch never changes once it is closed, so sending it again changes nothing.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::room::Room;
use super::spool::RunDirectory;
use crate::columns::Columns;

const STATE: &str = "run.json";
/// A loss of power takes the rows of this time at most, unless the disk itself forgets.
const SYNC: Duration = Duration::from_secs(10);
/// Rows that wait in memory at most, in bytes.
const MEMORY: usize = 8 << 20;

/// What is known of a run, without anything that is secret.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    /// Base address of the service that it belongs to.
    pub(crate) api_url: String,
    /// What it is registered with.
    pub(crate) facts: Map<String, Value>,
    pub(crate) run_id: Option<String>,
    pub(crate) upload_uri_prefix: Option<String>,
    /// Batches below this number have arrived, or were given up.
    pub(crate) next: u32,
    /// Those that were given up.
    pub(crate) lost: Vec<u32>,
    pub(crate) end: Option<End>,
    /// Rows go with the last message, not to the store; never changed once it was tried.
    pub(crate) inline: Option<bool>,
}

/// How the run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) exit_code: Option<i32>,
    pub(crate) status: String,
    pub(crate) at: String,
}

pub(crate) struct Store {
    directory: Option<Arc<RunDirectory>>,
    pub(crate) state: State,
    /// Batches below this number are closed.
    pub(crate) closed: u32,
    /// Rows that the disk did not take, by batch.
    memory: BTreeMap<u32, Vec<u8>>,
    /// Files of batches below this number are gone.
    kept: u32,
}

fn csv(batch: u32) -> String {
    format!("{batch:06}.csv")
}

pub(crate) fn gz(batch: u32) -> String {
    format!("{batch:06}.csv.gz")
}

/// The line above the rows of each batch.
pub(crate) fn header() -> String {
    Columns::Sentinel.header() + "\n"
}

impl Store {
    /// That of a new run. Without a directory everything is in memory.
    pub(crate) fn new(directory: Option<Arc<RunDirectory>>, state: State) -> Self {
        Self { directory, kept: state.next, state, closed: 0, memory: BTreeMap::new() }
    }

    /// That of a run which was left behind: all its batches are closed. `None` when there is nothing in it.
    pub(crate) fn recover(directory: RunDirectory) -> io::Result<Option<Self>> {
        let state = match directory.read(STATE) {
            Ok(text) => serde_json::from_slice(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let number = |name: &str| name.strip_suffix(".gz").unwrap_or(name).strip_suffix(".csv")?.parse::<u32>().ok();
        let last = directory.files().iter().filter_map(|name| number(name)).max();
        let mut store = Self::new(Some(Arc::new(directory)), state);
        store.closed = last.map_or(0, |last| last + 1).max(store.state.next);
        Ok(Some(store))
    }

    pub(crate) fn directory(&self) -> Option<&RunDirectory> {
        self.directory.as_deref()
    }

    /// Writes down what is known.
    pub(crate) fn save(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        let text = serde_json::to_vec(&self.state)?;
        directory.write(STATE, |file| file.write_all(&text))
    }

    /// Nothing is added to `batch` any more: rows that the disk did not take are taken over.
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

    /// The run has ended, and `batch` was its last.
    pub(crate) fn end(&mut self, end: End, batch: Batch) -> io::Result<()> {
        if batch.size > 0 {
            self.close(batch);
        }
        self.state.end = Some(end);
        self.save()
    }

    /// Closes a batch that others come after: it takes less room from now on, and all take at most `room`.
    pub(crate) fn shelve(&mut self, batch: Batch, room: Option<&Room>) {
        let number = batch.number;
        self.close(batch);
        if let Err(error) = self.compress(number) {
            // It can be sent as it is.
            log::debug!("sentinel: a batch cannot be compressed: {error}");
        }
        if let Some(room) = room {
            room.keep_within(self);
        }
    }

    /// Takes over rows that the disk did not take. Says how many bytes were given up for them.
    fn keep(&mut self, batch: u32, rows: Vec<u8>) -> usize {
        self.memory.insert(batch, rows);
        let mut given_up = 0;
        while self.memory.values().map(Vec::len).sum::<usize>() > MEMORY && self.memory.len() > 1 {
            given_up += self.memory.pop_first().map_or(0, |(_, rows)| rows.len());
        }
        given_up
    }

    /// The rows of a batch, with a header.
    pub(crate) fn rows(&self, batch: u32) -> io::Result<Vec<u8>> {
        let mut text = match &self.directory {
            None => Vec::new(),
            Some(directory) => match or_missing(directory.read(&csv(batch)))? {
                Some(text) => text,
                None => match or_missing(directory.read(&gz(batch)))? {
                    Some(body) => {
                        let mut text = Vec::new();
                        GzDecoder::new(body.as_slice()).read_to_end(&mut text)?;
                        text
                    }
                    None => Vec::new(),
                },
            },
        };
        // A loss of power can leave a part of a line.
        text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        if text.is_empty() {
            text = header().into_bytes();
        }
        text.extend_from_slice(self.memory.get(&batch).map_or(&[], Vec::as_slice));
        Ok(text)
    }

    /// A closed batch as it is sent; `None` when it was given up.
    pub(crate) fn body(&mut self, batch: u32) -> io::Result<Option<Vec<u8>>> {
        let in_memory = self.memory.contains_key(&batch);
        if let (Some(directory), false) = (&self.directory, in_memory) {
            if let Some(body) = or_missing(directory.read(&gz(batch)))? {
                return Ok(Some(body));
            }
            if !directory.path().join(csv(batch)).exists() {
                return Ok(None);
            }
        } else if !in_memory {
            return Ok(None);
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.rows(batch)?)?;
        encoder.finish().map(Some)
    }

    /// Compresses a batch that has been closed.
    fn compress(&self, batch: u32) -> io::Result<()> {
        let (Some(directory), false) = (&self.directory, self.memory.contains_key(&batch)) else { return Ok(()) };
        let mut rows = File::open(directory.path().join(csv(batch)))?;
        directory.write(&gz(batch), |file| {
            let mut encoder = GzEncoder::new(file, Compression::default());
            io::copy(&mut rows, &mut encoder)?;
            encoder.finish().map(drop)
        })?;
        directory.remove_file(&csv(batch));
        Ok(())
    }

    /// Batch `next` has arrived, or was given up. Its rows go when that is written down: until then it could be sent
    /// again, which changes nothing.
    pub(crate) fn settle(&mut self, arrived: bool) {
        let batch = self.state.next;
        self.state.next += 1;
        if !arrived {
            self.state.lost.push(batch);
        }
        self.memory.remove(&batch);
        if self.save().is_ok()
            && let Some(directory) = &self.directory
        {
            for settled in self.kept..=batch {
                directory.remove_file(&csv(settled));
                directory.remove_file(&gz(settled));
            }
            self.kept = self.state.next;
        }
    }

    /// Where a batch goes.
    pub(crate) fn uri(&self, batch: u32) -> Option<String> {
        let (prefix, run_id) = (self.state.upload_uri_prefix.as_ref()?, self.state.run_id.as_ref()?);
        Some(format!("{}/{run_id}/{}", prefix.trim_end_matches('/'), gz(batch)))
    }

    /// The URIs of all batches that have arrived.
    pub(crate) fn uris(&self) -> Vec<String> {
        let arrived = (0..self.state.next).filter(|batch| !self.state.lost.contains(batch));
        arrived.filter_map(|batch| self.uri(batch)).collect()
    }

    /// The service has everything.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.directory().map_or(Ok(()), RunDirectory::remove)
    }
}

fn or_missing(read: io::Result<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
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

    /// Adds a row with its line end, to the disk if that takes it.
    ///
    /// # Errors
    /// When the disk did not. The row is in memory then, unless that is full too.
    pub(crate) fn add(&mut self, directory: Option<&RunDirectory>, row: &[u8]) -> io::Result<()> {
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
                    // The row is written all the same, and must not be kept a second time.
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
    use super::super::spool::Spool;
    use super::*;

    fn text(body: &[u8]) -> String {
        let mut text = String::new();
        GzDecoder::new(body).read_to_string(&mut text).map(|_| text).unwrap_or_default()
    }

    #[test]
    fn a_batch_from_its_rows_to_its_end() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open(&directory.path().join("spool"))?;
        let mut store = Store::new(Some(Arc::new(spool.create()?)), State::default());
        store.state.run_id = Some("r".into());
        store.state.upload_uri_prefix = Some("s3://b/p/".into());
        store.save()?;
        let mut batch = Batch::new(0);
        batch.add(store.directory(), b"1,2\n")?;
        batch.add(store.directory(), b"3,4\n")?;
        let whole = header() + "1,2\n3,4\n";
        assert_eq!(store.rows(0)?, whole.as_bytes());

        store.compress(0)?;
        assert_eq!(store.body(0)?.map(|body| text(&body)), Some(whole.clone()));
        drop(store);
        let left = spool.left_behind()?.pop().map(Store::recover);
        let mut store = left.transpose()?.flatten().ok_or(anyhow::anyhow!("nothing is left"))?;
        assert_eq!((store.closed, store.state.next), (1, 0));
        assert_eq!(store.body(0)?.map(|body| text(&body)), Some(whole));
        assert_eq!(store.uri(0).as_deref(), Some("s3://b/p/r/000000.csv.gz"));
        store.settle(true);
        assert_eq!((store.uris().len(), store.body(0)?), (1, None));
        store.remove()?;
        assert_eq!(spool.left_behind()?.len(), 0);
        Ok(())
    }

    #[test]
    fn half_a_line_is_left_out() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open(directory.path())?;
        let store = Store::new(Some(Arc::new(spool.create()?)), State::default());
        store.directory().ok_or(anyhow::anyhow!("none"))?.append("000000.csv")?.write_all(b"a,b\n1,2\n3,")?;
        assert_eq!(store.rows(0)?, b"a,b\n1,2\n");
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
