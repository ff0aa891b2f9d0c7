//! What the command says of itself: lines that come through a pipe of the tracker's.
//!
//! Nobody inherits the pipe. Who may look at the tracker (a process of the same user, or root) opens `/proc/PID/fd/100` of it,
//! writes a line, and closes it: no file is made, and nothing of the command's environment or descriptors is changed.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use resource_tracker_core::{Schedule, Sections, Source, Tick};
use resource_tracker_metrics::{Mark, MarkKind, Marks};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

/// The pipe has the first of these numbers, or the first that is free: commands use lower ones.
pub const MARK_DESCRIPTORS: RangeInclusive<i32> = 100..=115;

/// What a pipe holds.
const PIPE: usize = 64 << 10;
/// More than is said between two samples, as a rule.
const READ: usize = 4096;
/// Names are cut there, in bytes.
const LONGEST_NAME: usize = 200;
/// So many in a sample; what a command says beyond that is in the next one.
const MOST_MARKS: usize = 1000;

/// A line of the pipe that is JSON. Any other line is the name of a phase that begins when it is read.
#[derive(Debug, Serialize, Deserialize)]
pub struct MarkLine {
    /// What the moment is called.
    pub name: String,
    /// What begins or ends there.
    #[serde(default)]
    pub kind: MarkKind,
    /// When that is, in milliseconds since the Unix epoch.
    pub at_ms: Option<u64>,
}

/// Reads what the command has said since the tick before.
#[derive(Debug)]
pub struct MarkSource {
    pipe: OwnedFd,
    buffer: Vec<u8>,
    /// What is in the buffer, or comes, was not said before.
    since_ms: u64,
}

impl MarkSource {
    /// It is read at every tick.
    pub const SCHEDULE: Schedule = Schedule::new(resource_tracker_core::Cadence::EveryTick);

    /// Makes the pipe.
    ///
    /// # Errors
    /// When the system gives none, or no descriptor of such a number: `ulimit -n`, which is an invalid input, or all are taken.
    pub fn open() -> io::Result<Self> {
        let (read, _) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let (first, last) = (*MARK_DESCRIPTORS.start(), *MARK_DESCRIPTORS.end());
        let pipe = rustix::io::fcntl_dupfd_cloexec(read, first)?;
        // Nobody would look for it there.
        if pipe.as_raw_fd() > last {
            return Err(io::Error::other(format!("descriptors {first} to {last} are taken")));
        }
        Ok(Self { pipe, buffer: Vec::new(), since_ms: now_ms() })
    }

    /// The number of the descriptor, where that is not the one that programs try first.
    pub fn unusual_descriptor(&self) -> Option<i32> {
        let number = self.pipe.as_raw_fd();
        (number != *MARK_DESCRIPTORS.start()).then_some(number)
    }

    /// Appends what there is to the buffer, in which part of a line can be left.
    fn read(&mut self) -> io::Result<()> {
        while self.buffer.len() < 2 * PIPE {
            self.buffer.reserve(READ);
            match rustix::io::read(&self.pipe, spare_capacity(&mut self.buffer)) {
                // Nobody has it open, or nobody says anything.
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(_) | Err(Errno::INTR) => (),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Source for MarkSource {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        self.read()?;
        let now = now_ms();
        let Some(end) = self.buffer.iter().rposition(|byte| *byte == b'\n') else {
            self.since_ms = now;
            if self.buffer.len() >= PIPE {
                // Whoever writes that means no mark.
                self.buffer.clear();
            }
            return Ok(());
        };
        let marks = &mut out.section::<Marks>().0;
        marks.clear();
        // No sample comes that could have the rest.
        let most = if tick.last { usize::MAX } else { MOST_MARKS };
        let mut done = 0;
        for line in self.buffer[..=end].split_inclusive(|byte| *byte == b'\n') {
            if marks.len() == most {
                break;
            }
            marks.extend(mark(line, self.since_ms, now));
            done += line.len();
        }
        self.buffer.drain(..done);
        if done > end {
            self.since_ms = now;
        }
        Ok(())
    }

    fn prime(&mut self, _: &Tick, _: &mut Sections) -> anyhow::Result<()> {
        Ok(())
    }
}

/// What a line says, which came after the one time and not after the other.
fn mark(line: &[u8], since_ms: u64, now_ms: u64) -> Option<Mark> {
    let text = String::from_utf8_lossy(line);
    let line = match serde_json::from_str::<MarkLine>(&text) {
        Ok(line) => line,
        // Whoever wrote it meant no name.
        Err(_) if text.trim_start().starts_with('{') => return None,
        Err(_) => MarkLine { name: text.into_owned(), kind: MarkKind::Next, at_ms: None },
    };
    let printable: String = line.name.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let mut name = printable.trim().to_owned();
    let end = (0..=LONGEST_NAME).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    name.truncate(end);
    // A clock that was set between the two is not believed.
    let at_ms = line.at_ms.unwrap_or(now_ms).min(now_ms).max(since_ms.min(now_ms));
    (!name.is_empty()).then_some(Mark { name, kind: line.kind, at_ms })
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    fn read(source: &mut MarkSource) -> Option<Vec<Mark>> {
        let tick = Tick::new(1, Instant::now(), Duration::from_secs(1), Duration::from_secs(1));
        let mut out = Sections::default();
        source.collect(&tick, &mut out).unwrap();
        out.get::<Marks>().map(|marks| marks.0.clone())
    }

    #[test]
    fn what_is_said_is_in_one_sample() {
        let mut source = MarkSource::open().unwrap();
        let write = || {
            let path = format!("/proc/self/fd/{}", source.pipe.as_raw_fd());
            File::options().write(true).open(path).unwrap()
        };
        assert!(source.pipe.as_raw_fd() >= 100);
        let (mut one, mut other) = (write(), write());
        assert_eq!(read(&mut source), None);
        writeln!(one, "epoch 1").unwrap();
        writeln!(other, r#"{{"name": "load", "kind": "begin", "at_ms": 5}}"#).unwrap();
        write!(one, "epo").unwrap();
        let before = source.since_ms;
        let marks = read(&mut source).unwrap();
        let expected = [("epoch 1", MarkKind::Next), ("load", MarkKind::Begin)];
        let said: Vec<_> = marks.iter().map(|mark| (mark.name.as_str(), mark.kind)).collect();
        assert_eq!(said, expected);
        assert_eq!(marks[1].at_ms, before, "it was not said before it was listened to");
        assert_eq!(read(&mut source), None);
        writeln!(one, "ch 2\n\n{{broken").unwrap();
        assert_eq!(read(&mut source).unwrap().len(), 1, "a line in two parts, and two that say nothing");
        drop((one, other));
        assert_eq!(read(&mut source), None, "nobody has it open");
    }

    #[test]
    fn a_command_that_never_ends_a_line_fills_nothing() {
        let mut source = MarkSource::open().unwrap();
        let path = format!("/proc/self/fd/{}", source.pipe.as_raw_fd());
        let mut pipe = File::options().write(true).open(path).unwrap();
        for _ in 0..10 {
            pipe.write_all(&[b'x'; PIPE]).unwrap();
            assert_eq!(read(&mut source), None);
            assert!(source.buffer.len() <= 3 * PIPE);
        }
        pipe.write_all(b"\n").unwrap();
        writeln!(pipe, "then").unwrap();
        assert!(read(&mut source).unwrap().iter().any(|mark| mark.name == "then"));
    }

    #[test]
    fn more_than_a_sample_has_is_in_the_next_one() {
        let mut source = MarkSource::open().unwrap();
        let path = format!("/proc/self/fd/{}", source.pipe.as_raw_fd());
        let mut pipe = File::options().write(true).open(path).unwrap();
        let before = source.since_ms;
        let lines: String =
            (0..MOST_MARKS + 1).map(|number| format!("{{\"name\": \"{number}\", \"at_ms\": {before}}}\n")).collect();
        pipe.write_all(lines.as_bytes()).unwrap();
        assert_eq!(read(&mut source).unwrap().len(), MOST_MARKS);
        let rest = read(&mut source).unwrap();
        assert_eq!(rest.iter().map(|mark| mark.name.as_str()).collect::<Vec<_>>(), [MOST_MARKS.to_string()]);
        assert_eq!(rest[0].at_ms, before, "it keeps its time");
        pipe.write_all("x\n".repeat(2 * MOST_MARKS).as_bytes()).unwrap();
        let mut tick = Tick::new(1, Instant::now(), Duration::from_secs(1), Duration::from_secs(1));
        tick.last = true;
        let mut out = Sections::default();
        source.collect(&tick, &mut out).unwrap();
        assert_eq!(out.get::<Marks>().unwrap().0.len(), 2 * MOST_MARKS, "there is no next one");
    }

    proptest! {
        #[test]
        fn any_line_is_a_mark_of_this_interval_or_none(line in prop::collection::vec(any::<u8>(), 0..300), since in 0..100u64) {
            if let Some(mark) = mark(&line, since, 100) {
                prop_assert!(mark.name.len() <= LONGEST_NAME && !mark.name.contains(char::is_control));
                prop_assert!((since..=100).contains(&mark.at_ms));
            }
        }
    }
}
