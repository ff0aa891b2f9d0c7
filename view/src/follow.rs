//! A recording from its first sample on, and while it grows.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, bail};
use resource_tracker_metrics::RunMetrics;
use resource_tracker_report::{BAD_LINES, LONGEST_LINE, LeftOut, RecordedSample, check_names, sample_of};
use resource_tracker_sinks::set_aside_of;

use crate::feed::{Event, ScreenSink};
use crate::growing::{GrowingFile, Identity, Look};
use crate::moment::{Moment, pid_of};

/// The time between two looks for more.
const PAUSE: Duration = Duration::from_millis(200);
/// A file that does not begin like a sample, and has no end of a line within so many bytes, is no recording.
const LONGEST_GUESS: usize = 64 << 10;
const STDIN: &str = "-";

/// Gives the samples of a recording to the screen, from a thread of its own, until the screen is closed. `-` is standard input.
///
/// # Errors
/// When the file cannot be opened, or the system gives no thread. What is wrong with its contents ends the view.
pub fn follow(path: &Path, feed: ScreenSink) -> anyhow::Result<()> {
    let mut file = if path == Path::new(STDIN) { GrowingFile::stdin() } else { GrowingFile::open(path)? };
    let path = path.to_owned();
    let work = move || match follow_to_its_end(&path, &mut file, &mut Lines::new(&path, feed.clone())) {
        Ok(()) => feed.tell(Event::Ended),
        Err(error) => feed.tell(Event::Failed(error)),
    };
    thread::Builder::new().name("follow".into()).spawn(work).context("cannot start a thread")?;
    Ok(())
}

/// A pipe has an end. A file has none: it can always grow, or be followed by another one.
fn follow_to_its_end(path: &Path, file: &mut GrowingFile, lines: &mut Lines) -> anyhow::Result<()> {
    if let Some((identity, owner)) = file.identity().zip(file.owner()) {
        for part in older_parts(path, identity) {
            lines.name = part.display().to_string();
            lines.read_all(&mut GrowingFile::open_part(&part, owner)?)?;
            lines.end_file()?;
        }
        lines.name = path.display().to_string();
    }
    loop {
        lines.read_all(file)?;
        lines.check()?;
        let Some((identity, owner)) = file.identity().zip(file.owner()) else {
            lines.end_file()?;
            return lines.check();
        };
        lines.tell_caught_up();
        match next_after(path, identity, owner) {
            Some(next) => {
                // Lines may have been written after the last look, before the file got its new name.
                lines.read_all(file)?;
                lines.end_file()?;
                *file = next;
            }
            None => thread::sleep(PAUSE),
        }
    }
}

/// The parts that were set aside of a recording, if its file begins within a run.
fn older_parts(path: &Path, identity: Identity) -> Vec<PathBuf> {
    let mut first = Vec::new();
    if let Ok(mut file) = GrowingFile::open(path) {
        let mut before = 0;
        while !first[before..].contains(&b'\n') && first.len() as u64 <= LONGEST_LINE {
            before = first.len();
            if !matches!(file.read(&mut first), Ok(Look::More)) {
                break;
            }
        }
    }
    let line = first.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let goes_on = sample_of(line).is_ok_and(|line| line.sample.read_all::<RunMetrics>().next().is_none());
    if !goes_on {
        return Vec::new();
    }
    let parts = set_aside_of(path).unwrap_or_default();
    // The file itself may have been set aside by now.
    parts.into_iter().filter(|part| identity_of(part).is_some_and(|part| part != identity)).collect()
}

/// The file that continues this one, once this one was set aside and there is another.
fn next_after(path: &Path, identity: Identity, owner: u32) -> Option<GrowingFile> {
    if identity_of(path)? == identity {
        return None;
    }
    let parts = set_aside_of(path).unwrap_or_default();
    let after = parts.iter().skip_while(|part| identity_of(part) != Some(identity)).nth(1);
    match after {
        Some(part) => GrowingFile::open_part(part, owner).ok(),
        None => GrowingFile::open(path).ok(),
    }
}

fn identity_of(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The lines of a recording, file by file.
struct Lines {
    /// The file that is read.
    name: String,
    feed: ScreenSink,
    /// What was read and is no whole line yet.
    text: Vec<u8>,
    /// How much of it is known to have no end of a line.
    searched: usize,
    number: u64,
    samples: u64,
    left_out: LeftOut,
    /// How much of `left_out` the screen was told.
    told: u64,
    /// The line up to which the screen knows that all was read.
    caught_up: Option<u64>,
    names: Vec<&'static str>,
    /// An error in reading the file, of which nothing more is read then.
    damage: Option<io::Error>,
}

impl Lines {
    fn new(path: &Path, feed: ScreenSink) -> Self {
        Self {
            name: path.display().to_string(),
            feed,
            text: Vec::new(),
            searched: 0,
            number: 0,
            samples: 0,
            left_out: LeftOut::default(),
            told: 0,
            caught_up: None,
            names: Vec::new(),
            damage: None,
        }
    }

    /// Reads all that is in the file so far. A line that is not whole waits for its rest.
    fn read_all(&mut self, file: &mut GrowingFile) -> anyhow::Result<()> {
        while self.damage.is_none() {
            match file.read(&mut self.text) {
                Ok(Look::More) => {
                    self.take()?;
                    // To read more of a pipe may take long.
                    if file.identity().is_none() {
                        self.tell_caught_up();
                    }
                }
                Ok(Look::End) => return Ok(()),
                Ok(Look::Shrunk) => {
                    self.text.clear();
                    self.searched = 0;
                }
                Err(error) => {
                    self.take()?;
                    self.feed.note(format!("{} ends early: {error}", self.name));
                    self.damage = Some(error);
                }
            }
        }
        Ok(())
    }

    /// Ends a file: nothing can complete its last line any more.
    fn end_file(&mut self) -> anyhow::Result<()> {
        (self.damage, self.searched) = (None, 0);
        let last = std::mem::take(&mut self.text);
        if last.is_empty() { Ok(()) } else { self.line(&last) }
    }

    fn take(&mut self) -> anyhow::Result<()> {
        let mut text = std::mem::take(&mut self.text);
        let mut begin = 0;
        while let Some(length) = text[self.searched..].iter().position(|byte| *byte == b'\n') {
            let end = self.searched + length;
            self.line(&text[begin..end])?;
            (begin, self.searched) = (end + 1, end + 1);
        }
        text.drain(..begin);
        self.searched = text.len();
        self.text = text;
        if self.text.len() as u64 > LONGEST_LINE {
            bail!("{} is no recording: line {} is longer than {} MiB", self.name, self.number + 1, LONGEST_LINE >> 20);
        }
        // A line that never ends is not looked at anywhere else.
        if self.text.len() > LONGEST_GUESS { self.check_beginning() } else { Ok(()) }
    }

    fn line(&mut self, line: &[u8]) -> anyhow::Result<()> {
        self.number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        match sample_of(line) {
            Ok(RecordedSample { sample, impossible }) => {
                self.samples += 1;
                self.left_out.add_figures(self.number, &impossible);
                check_names(&sample, &mut self.names)
                    .with_context(|| format!("{} is no recording: line {}", self.name, self.number))?;
                let moment = Moment::of(&sample, None);
                // The process id is read only where a run begins.
                let pid = if self.samples == 1 || moment.run.is_some() { pid_of(line) } else { None };
                self.feed.give(Moment { pid, ..moment })?;
            }
            Err(problem) => {
                self.left_out.add_line(self.number, &problem);
                if self.samples == 0 && self.left_out.lines() == BAD_LINES {
                    self.check()?;
                }
            }
        }
        Ok(())
    }

    fn tell_caught_up(&mut self) {
        if self.caught_up.replace(self.number) != Some(self.number) {
            self.feed.tell(Event::CaughtUp);
        }
    }

    /// Says what was left out. Fails when there was no sample, and what is there cannot become one.
    fn check(&mut self) -> anyhow::Result<()> {
        if self.samples == 0
            && let Some(error) = self.damage.take()
        {
            return Err(error).with_context(|| format!("cannot read {}", self.name));
        }
        if self.samples == 0 && self.left_out.lines() > 0 {
            bail!("{} is no recording: {}", self.name, self.left_out.first_line());
        }
        if self.left_out.count() > self.told {
            self.told = self.left_out.count();
            self.feed.note(self.left_out.sentences("").collect::<Vec<_>>().join("; "));
        }
        self.check_beginning()
    }

    /// Fails when the beginning of the first line cannot become a sample.
    fn check_beginning(&self) -> anyhow::Result<()> {
        let begin = self.text.iter().find(|byte| !byte.is_ascii_whitespace());
        if self.samples == 0 && begin.is_some_and(|byte| *byte != b'{') {
            bail!("{} is no recording: line {} is no JSON object", self.name, self.number + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::feed::{Inbox, channel};

    fn line(second: u64, more: &str) -> String {
        format!("{{\"timestamp_ms\": {second}000, \"elapsed_secs\": 1, \"pid\": 7{more}}}\n")
    }

    const RUN: &str = r#", "run": {"id": "1", "command": ["a"], "started_ms": 1, "interval_secs": 1, "version": "1", "labels": {}, "tags": {}}"#;

    fn seconds(inbox: &Inbox, count: usize) -> Vec<f64> {
        let next = || inbox.samples.recv_timeout(Duration::from_secs(60)).unwrap().at;
        (0..count).map(|_| next()).collect()
    }

    fn failure(contents: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, contents).unwrap();
        let (feed, inbox) = channel();
        follow(&path, feed).unwrap();
        loop {
            match inbox.events.recv_timeout(Duration::from_secs(60)).unwrap() {
                Event::Failed(error) => return format!("{error:#}").replace(&path.display().to_string(), "x"),
                Event::Note(_) => (),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_torn_line_waits_for_its_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let mut written = fs::File::create(&path).unwrap();
        let (feed, inbox) = channel();
        let (mut file, mut lines) = (GrowingFile::open(&path).unwrap(), Lines::new(&path, feed));
        let whole = line(1, RUN);
        for (text, seen) in [
            ("", vec![]),
            (&whole[..20], vec![]),
            (&whole[20..], vec![1.0]),
            (&(line(2, "") + "no sample\n" + &line(3, "")), vec![2.0, 3.0]),
        ] {
            written.write_all(text.as_bytes()).unwrap();
            lines.read_all(&mut file).unwrap();
            lines.check().unwrap();
            assert_eq!(inbox.samples.try_iter().map(|moment| moment.at).collect::<Vec<_>>(), seen);
        }
        let notes: Vec<String> = inbox.events.try_iter().filter_map(note).collect();
        assert_eq!(notes.len(), 1);
        assert!(notes[0].starts_with("1 line was left out: line 3 is no JSON object"), "{notes:?}");
    }

    fn note(event: Event) -> Option<String> {
        if let Event::Note(note) = event { Some(note) } else { None }
    }

    #[test]
    fn files_that_were_set_aside_are_read_before_and_between() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("run.1.jsonl"), line(1, RUN)).unwrap();
        fs::write(at("run.2.jsonl"), line(2, "")).unwrap();
        fs::write(at("run.jsonl"), line(3, "")).unwrap();
        let (feed, inbox) = channel();
        follow(&at("run.jsonl"), feed).unwrap();
        assert_eq!(seconds(&inbox, 3), [1.0, 2.0, 3.0]);
        // The recording is set aside twice between two looks.
        fs::rename(at("run.jsonl"), at("run.3.jsonl")).unwrap();
        fs::File::options().append(true).open(at("run.3.jsonl")).unwrap().write_all(line(4, "").as_bytes()).unwrap();
        fs::write(at("run.4.jsonl"), line(5, "")).unwrap();
        fs::write(at("run.jsonl"), line(6, "")).unwrap();
        assert_eq!(seconds(&inbox, 3), [4.0, 5.0, 6.0]);
    }

    #[test]
    fn a_part_that_is_torn_or_damaged_hides_nothing_of_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
        compressed.write_all(line(2, "").repeat(5000).as_bytes()).unwrap();
        compressed.flush().unwrap();
        let mut damaged = compressed.get_ref().clone();
        damaged.extend([0xff; 20]);
        fs::write(at("run.1.jsonl"), line(1, RUN) + &line(9, "")[..20]).unwrap();
        fs::write(at("run.2.jsonl"), damaged).unwrap();
        fs::write(at("run.jsonl"), line(3, "")).unwrap();
        let (feed, inbox) = channel();
        follow(&at("run.jsonl"), feed).unwrap();
        let until = |last: f64| {
            let next = || inbox.samples.recv_timeout(Duration::from_secs(60)).unwrap().at;
            let mut seen = vec![next()];
            while seen[seen.len() - 1] != last {
                seen.push(next());
                seen.dedup();
            }
            seen
        };
        assert_eq!(until(3.0), [1.0, 2.0, 3.0]);
        // The current file breaks off, and another one continues the run.
        fs::File::options()
            .append(true)
            .open(at("run.jsonl"))
            .unwrap()
            .write_all(&line(9, "").as_bytes()[..20])
            .unwrap();
        fs::rename(at("run.jsonl"), at("run.3.jsonl")).unwrap();
        fs::write(at("run.jsonl"), line(4, "")).unwrap();
        assert_eq!(until(4.0), [4.0]);
        let mut notes = Vec::new();
        while !notes.iter().any(|note: &String| note.starts_with("2 lines were left out: line 2 is no JSON object")) {
            notes.extend(note(inbox.events.recv_timeout(Duration::from_secs(60)).unwrap()));
        }
        let damage = format!("{} ends early: ", at("run.2.jsonl").display());
        assert!(notes.iter().any(|note| note.starts_with(&damage)), "{notes:?}");
    }

    #[test]
    fn what_is_no_recording_is_said() {
        for (contents, said) in [
            (
                &b"timestamp,cpu\n1,2\n"[..],
                "x is no recording: line 1 is of a CSV; only JSON Lines can be read (--format json)",
            ),
            (b"\n{}\n", "x is no recording: line 2 has no timestamp_ms"),
            (b"\x89PNG", "x is no recording: line 1 is no JSON object"),
            (b"{\"timestamp_ms\": NaN}\n", "x is no recording: line 1 is no JSON object"),
            (
                b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
                "cannot read x: ",
            ),
        ] {
            let failure = failure(contents);
            assert!(failure.starts_with(said), "{failure}");
        }
        let mut endless = Lines::new(Path::new("zero"), channel().0);
        let failure = endless.read_all(&mut GrowingFile::open(Path::new("/dev/zero")).unwrap()).unwrap_err();
        assert_eq!(failure.to_string(), "zero is no recording: line 1 is no JSON object");
        assert!(follow(Path::new("/nonexistent"), channel().0).is_err());
    }
}
