//! The rows of one run in batches, and how far they have got: on disk, or in memory where the disk takes nothing.
//!
//! `run.json` has the state of the run, `NNNNNN.csv` the rows of a batch as they come, `NNNNNN.csv.gz` those of a
//! closed batch, just as it is sent. A batch never changes once it is closed, so sending it again changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::SystemTime;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::batch::{Batch, MEMORY};
use super::folder::Spool;
use super::run_directory::RunDirectory;
use super::run_files::{LARGEST_FILE, STATE, closed, open};
use super::state::{Batches, RowsState, State};
use crate::http::Failure;

pub(crate) struct Store<S> {
    directory: Option<Arc<RunDirectory>>,
    pub(crate) state: S,
    /// Batches below this number are closed.
    pub(crate) closed: u32,
    /// Rows that the disk did not take, by batch.
    memory: BTreeMap<u32, Vec<u8>>,
    /// Files of batches below this number are gone.
    kept: u32,
    /// The batches of a run that was left behind; some may be missing.
    found: Option<BTreeSet<u32>>,
    /// How many were passed over, and stay.
    passed: u32,
    /// How many files are there that are not the user's, or not the user's alone.
    left_out: u32,
}

impl<S: State> Store<S> {
    /// The store of a new run. Without a directory everything is in memory.
    pub(crate) fn new(directory: Option<Arc<RunDirectory>>, state: S) -> Self {
        Self {
            directory,
            kept: state.next(),
            state,
            closed: 0,
            memory: BTreeMap::new(),
            found: None,
            passed: 0,
            left_out: 0,
        }
    }

    /// The store of a new run in the spool, where its state is saved.
    pub(crate) fn create(spool: &Spool, state: S) -> io::Result<Self> {
        let (directory, saved) = spool.create(&serde_json::to_vec(&state)?)?;
        if let Err(error) = saved {
            log::warn!("{}: cannot write to the spool: {error}; a crash would lose what has not arrived", state.sink());
        }
        Ok(Self::new(Some(Arc::new(directory)), state))
    }

    /// The store of a run that was left behind: all its batches are closed. `None` when there is nothing in it.
    pub(crate) fn recover(directory: RunDirectory) -> anyhow::Result<Option<Self>> {
        let Some(left) = directory.left()? else { return Ok(None) };
        let mut state = S::parse(&left.state).map_err(not_a_state)?;
        state.is_left(directory.modified().unwrap_or_else(SystemTime::now));
        let mut store = Self::new(Some(Arc::new(directory)), state);
        store.left_out = left.left_out;
        store.found = Some(left.batches.range(..=store.state.last_batch()).copied().collect());
        store.closed = store.found.iter().flatten().last().map_or(0, |last| last + 1).max(store.next());
        Ok(Some(store))
    }

    /// The next batch to send.
    pub(crate) fn next(&self) -> u32 {
        self.state.next()
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
            Some(found) => found.range(self.next()..).count() as u32,
            None => self.closed - self.next(),
        }
    }

    /// Saves the state.
    pub(crate) fn save(&self) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        directory.save(&serde_json::to_vec(&self.state)?)
    }

    /// Settles batch `next`: it has arrived, or was given up. Its rows are removed once that is saved; until then it
    /// could be sent again, which changes nothing. Returns how many bytes became free.
    pub(crate) fn settle(&mut self, arrived: bool) -> u64 {
        let batch = self.next();
        // Missing batches in a row are settled at once.
        let following = self.found.as_ref().and_then(|found| found.range(batch..).next().copied());
        let next = following.filter(|_| !arrived).unwrap_or(0).max(batch + 1);
        self.state.settle(next, !arrived);
        self.memory.remove(&batch);
        let Some(directory) = &self.directory else { return 0 };
        if S::SAVES_PROGRESS && self.save().is_err() {
            return 0;
        }
        let settled = std::mem::replace(&mut self.kept, next)..next;
        // Of a run that was left behind, only files that are there: numbers say nothing.
        match &self.found {
            Some(found) => found.range(settled).map(|batch| directory.remove_batch(*batch)).sum(),
            None => settled.map(|batch| directory.remove_batch(batch)).sum(),
        }
    }

    /// Passes over batch `next`, which stays for a later attempt. Says whether it is on the disk: otherwise it stays where it
    /// is, and is to be settled.
    pub(crate) fn pass(&mut self) -> bool {
        let batch = self.next();
        if self.directory.is_none() || self.memory.contains_key(&batch) {
            return false;
        }
        self.passed += 1;
        self.kept = batch + 1;
        self.state.settle(batch + 1, true);
        true
    }

    /// How many files of batches could not be looked at.
    pub(crate) fn left_out(&self) -> u32 {
        self.left_out
    }

    /// How many were passed over.
    pub(crate) fn passed(&self) -> u32 {
        self.passed
    }

    /// Removes the run, once the service has everything.
    pub(crate) fn remove(&self) -> io::Result<()> {
        self.directory().map_or(Ok(()), RunDirectory::remove)
    }
}

impl<S: RowsState> Store<S> {
    /// Closes a batch, and takes over its rows that the disk did not take.
    fn close(&mut self, batch: Batch) {
        if batch.lost > 0 {
            let (sink, lost) = (self.state.sink(), batch.lost);
            log::warn!("{sink}: {lost} rows found room neither on the disk nor in memory and are lost");
        }
        self.closed = batch.number + 1;
        if !batch.memory.is_empty() {
            let given_up = self.keep(batch.number, batch.memory);
            if given_up > 0 {
                let sink = self.state.sink();
                log::warn!("{sink}: {given_up} bytes of rows that wait in memory were given up for newer ones");
            }
        }
    }

    /// Ends the run. `batch` was its last one, and the state now says so.
    pub(crate) fn end(&mut self, batch: Batch) -> io::Result<()> {
        if batch.size > 0 {
            self.close(batch);
        }
        self.save()
    }

    /// Closes a batch that is not the last one: compressed, it takes less of the disk from now on.
    pub(crate) fn close_and_compress(&mut self, batch: Batch) {
        let number = batch.number;
        self.close(batch);
        if self.state.batches().is_lines
            && let Err(error) = self.compress(number)
        {
            // It can be sent as it is.
            log::debug!("{}: a batch cannot be compressed: {error}", self.state.sink());
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
        let Batches { header, is_lines, .. } = self.state.batches();
        let mut text = self.written(batch, limit + 1)?;
        if text.len() as u64 > limit {
            return Ok(None);
        }
        if is_lines {
            // A loss of power can leave a part of a line.
            text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
        }
        if text.is_empty() {
            text = header.into_bytes();
        }
        text.extend_from_slice(self.memory.get(&batch).map_or(&[], Vec::as_slice));
        Ok(Some(text).filter(|text| text.len() as u64 <= limit))
    }

    /// The rows of a batch that are on the disk, up to `limit`.
    fn written(&self, batch: u32, limit: u64) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        let Some(directory) = &self.directory else { return Ok(text) };
        let (open, closed) = self.names(batch);
        if let Some(file) = directory.open_file(&open)? {
            file.take(limit).read_to_end(&mut text)?;
        } else if let Some(file) = directory.open_file(&closed)? {
            GzDecoder::new(file).take(limit).read_to_end(&mut text)?;
        }
        Ok(text)
    }

    /// A closed batch as it is sent; `None` when it was given up, or nothing is in it.
    pub(crate) fn body(&mut self, batch: u32) -> io::Result<Option<Vec<u8>>> {
        let (open, closed) = self.names(batch);
        if !self.memory.contains_key(&batch) {
            let Some(directory) = &self.directory else { return Ok(None) };
            if self.found.as_ref().is_some_and(|found| !found.contains(&batch)) {
                return Ok(None);
            }
            if let Some(body) = directory.read(&closed)? {
                return Ok(Some(body));
            }
            if directory.open_file(&open)?.is_none() {
                return Ok(None);
            }
        }
        let rows = self.rows(batch, LARGEST_FILE)?;
        let rows = rows.ok_or_else(|| io::Error::other(format!("{open} has more than {LARGEST_FILE} bytes")))?;
        if rows.is_empty() || !self.state.batches().is_lines {
            return Ok(Some(rows).filter(|rows| !rows.is_empty()));
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&rows)?;
        encoder.finish().map(Some)
    }

    /// The next batch that waits, as it is sent; `None` when none does.
    pub(crate) fn next_body(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        while self.next() < self.closed {
            if let Some(body) = self.body(self.next()).map_err(|error| unreadable(&error))? {
                return Ok(Some(body));
            }
            self.settle(false);
        }
        Ok(None)
    }

    /// Compresses a batch that has been closed.
    fn compress(&self, batch: u32) -> io::Result<()> {
        let (Some(directory), false) = (&self.directory, self.memory.contains_key(&batch)) else { return Ok(()) };
        let (open, closed) = self.names(batch);
        let Some(mut rows) = directory.open_file(&open)? else { return Ok(()) };
        directory.write(&closed, |file| {
            let mut encoder = GzEncoder::new(file, Compression::default());
            io::copy(&mut rows, &mut encoder)?;
            encoder.finish().map(drop)
        })?;
        directory.remove_file(&open);
        Ok(())
    }

    /// The names of a batch as its rows come, and when it is compressed.
    fn names(&self, batch: u32) -> (String, String) {
        let extension = self.state.batches().extension;
        (open(batch, extension), closed(batch, extension))
    }
}

/// The error of a state that cannot be read.
pub(crate) fn not_a_state(problem: String) -> anyhow::Error {
    anyhow::anyhow!("{STATE}: {problem}")
}

/// What it means that rows cannot be read.
pub(crate) fn unreadable(error: &io::Error) -> Failure {
    let problem = format!("the spool cannot be used: {error}");
    match error.kind() {
        // The file is damaged, which stays so. Other errors of a disk can pass.
        ErrorKind::Other | ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            Failure::Permanent(problem)
        }
        _ => Failure::Temporary(problem, None),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::super::run_files::Access;
    use super::*;

    fn text(body: &[u8]) -> String {
        let mut text = String::new();
        GzDecoder::new(body).read_to_string(&mut text).map(|_| text).unwrap_or_default()
    }

    /// A state that is only how far it has got.
    #[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
    struct Rows {
        next: u32,
        lost: Vec<u32>,
    }

    impl State for Rows {
        fn sink(&self) -> &'static str {
            "rows"
        }

        fn parse(text: &[u8]) -> Result<Self, String> {
            serde_json::from_slice(text).map_err(|error| error.to_string())
        }

        fn next(&self) -> u32 {
            self.next
        }

        fn settle(&mut self, below: u32, is_lost: bool) {
            self.lost.extend((self.next..below).filter(|_| is_lost));
            self.next = below;
        }
    }

    impl RowsState for Rows {
        fn batches(&self) -> Batches {
            Batches { extension: "csv", header: "a,b\n".into(), is_lines: true }
        }
    }

    fn batch(number: u32) -> Batch {
        Batch::new(number, &Rows::default().batches(), 999_999)
    }

    #[test]
    fn a_batch_from_its_rows_to_its_end() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open_or_make(&directory.path().join("spool"))?;
        let store = Store::create(&spool, Rows::default())?;
        let mut first = batch(0);
        first.add(store.directory(), b"1,2\n")?;
        first.add(store.directory(), b"3,4\n")?;
        let whole = "a,b\n1,2\n3,4\n";
        assert_eq!(store.rows(0, 1000)?.as_deref(), Some(whole.as_bytes()));
        assert_eq!(store.rows(0, whole.len() as u64 - 1)?, None);

        store.compress(0)?;
        drop(store);
        let left = spool.left_behind(Access::Work)?.next().context("nothing is left")??;
        let mut store = Store::<Rows>::recover(left)?.context("nothing is in it")?;
        assert_eq!((store.closed, store.next(), store.waiting()), (1, 0, 1));
        assert_eq!(store.body(0)?.map(|body| text(&body)).as_deref(), Some(whole));
        store.settle(true);
        assert_eq!((store.state.lost.len(), store.body(0)?, store.waiting()), (0, None, 0));
        store.remove()?;
        assert_eq!(spool.left_behind(Access::Work)?.count(), 0);
        Ok(())
    }

    #[test]
    fn a_batch_that_is_passed_over_stays() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open_or_make(&directory.path().join("spool"))?;
        let mut store = Store::create(&spool, Rows::default())?;
        for number in 0..3 {
            let mut rows = batch(number);
            rows.add(store.directory(), b"1,2\n")?;
            store.close_and_compress(rows);
        }
        store.settle(true);
        assert!(store.pass() && store.next_body().is_ok_and(|body| body.is_some()));
        store.settle(true);
        assert_eq!((store.passed(), store.next_body()), (1, Ok(None)));
        let directory = store.directory().context("none")?.batches()?.0;
        assert_eq!(directory.into_iter().collect::<Vec<_>>(), [1]);
        let mut in_memory = Store::new(None, Rows::default());
        assert!(!in_memory.pass(), "it would be lost");
        Ok(())
    }

    #[test]
    fn half_a_line_is_left_out() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let spool = Spool::open_or_make(&directory.path().join("spool"))?;
        let store = Store::create(&spool, Rows::default())?;
        store.directory().context("none")?.append("000000.csv")?.write_all(b"a,b\n1,2\n3,")?;
        assert_eq!(store.rows(0, 100)?.as_deref(), Some(b"a,b\n1,2\n".as_slice()));
        Ok(())
    }

    #[test]
    fn without_a_disk_rows_are_in_memory_with_a_bound() -> anyhow::Result<()> {
        let mut store = Store::new(None, Rows::default());
        let mut rows = batch(0);
        rows.add(None, b"1\n")?;
        assert_eq!(store.keep(0, std::mem::take(&mut rows.memory)), 0);
        assert_eq!(store.body(0)?.map(|body| text(&body)).as_deref(), Some("a,b\n1\n"));
        assert_eq!(store.keep(1, vec![b'x'; MEMORY]), 2);
        assert_eq!(store.body(0)?, None);
        let row = vec![b'y'; MEMORY / 2 + 1];
        rows.add(None, &row)?;
        rows.add(None, &row)?;
        assert_eq!((rows.lost, rows.memory.len()), (1, row.len()));
        Ok(())
    }
}
