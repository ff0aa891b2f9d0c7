//! Recordings as files: JSON Lines, compressed or not, of one run or of several, whole or set aside in parts.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flate2::bufread::MultiGzDecoder;
use resource_tracker_core::Sample;
use resource_tracker_metrics::RunMetrics;
use resource_tracker_sinks::open_part;

use crate::kinds::Kinds;
use crate::parts::NamedFiles;
use crate::recorded::{LeftOut, RecordedSample, sample_of};
use crate::run_statistics::RunStatistics;
use crate::summary::Summary;

/// What stands for standard input.
const STDIN: &str = "-";
const BUFFER: usize = 256 << 10;
/// No line of a recording is longer, in bytes. A sample has some kilobytes; one of a machine with thousands of devices some
/// megabytes.
pub const LONGEST_LINE: u64 = 64 << 20;
/// A file with so many bad lines before the first good one is no recording.
pub const BAD_LINES: u64 = 1000;
/// Names of sections that one file may have.
const SECTIONS: usize = 1000;

/// A run as it was recorded.
pub struct RecordedRun {
    /// The file that it begins in.
    pub path: PathBuf,
    /// What its samples say.
    pub summary: Summary,
}

/// Looks at recordings while they are read.
pub trait RunVisitor {
    /// The next sample of the run.
    fn sample(&mut self, _sample: &Sample) {}

    /// The run has ended.
    ///
    /// # Errors
    /// An error ends the reading.
    fn run(&mut self, run: RecordedRun) -> anyhow::Result<()>;
}

impl<F: FnMut(RecordedRun) -> anyhow::Result<()>> RunVisitor for F {
    fn run(&mut self, run: RecordedRun) -> anyhow::Result<()> {
        self(run)
    }
}

/// Reads all runs of these files, in order, and hands each over; `-` is standard input. Each file is read once. A file
/// that begins in the middle of a run is read after the parts that were set aside of it, and may continue a run that
/// ended just before.
///
/// # Errors
/// When a file cannot be read, or is no recording; and what `take` fails with.
pub fn read_runs(
    paths: &[PathBuf],
    kinds: &Kinds,
    mut take: &mut dyn FnMut(RecordedRun) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    visit_runs(paths, kinds, &mut take)
}

/// Like [`read_runs`], for a visitor that looks at the samples as well.
///
/// # Errors
/// As [`read_runs`].
pub fn visit_runs(paths: &[PathBuf], kinds: &Kinds, visitor: &mut dyn RunVisitor) -> anyhow::Result<()> {
    let mut reader = Reader { kinds, named: NamedFiles::new(paths), visitor, current: None };
    for path in paths {
        if reader.named.take(path)
            && let Err(error) = reader.read_set(path)
        {
            // The run that was being read is handed over first.
            reader.end_run()?;
            return Err(error);
        }
    }
    reader.end_run()
}

struct Reader<'a> {
    kinds: &'a Kinds,
    named: NamedFiles,
    visitor: &'a mut dyn RunVisitor,
    current: Option<CurrentRun>,
}

#[derive(Default)]
struct CurrentRun {
    path: PathBuf,
    statistics: RunStatistics,
    problems: Vec<String>,
}

impl Reader<'_> {
    /// Reads a file, after the parts that were set aside of it.
    fn read_set(&mut self, path: &Path) -> anyhow::Result<()> {
        let mut file = open(path)?;
        let mut first = Vec::new();
        // An error comes again when the rest of the file is read.
        let _ = file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut first);
        let goes_on = sample_of(&first).is_ok_and(|line| line.sample.read_all::<RunMetrics>().next().is_none());
        if goes_on && path != Path::new(STDIN) {
            let parts = self.named.take_before(path);
            for part in parts.with_context(|| format!("cannot look for parts of {}", path.display()))? {
                if part.is_named {
                    self.read(&part.path, open(&part.path)?)?;
                } else if let Err(error) = open_unnamed(&part.path, path).and_then(|file| self.read(&part.path, file)) {
                    // Nobody named it: it can be something else with such a name.
                    self.note(path, format!("{error:#}; it is left out"));
                }
            }
        }
        self.read(path, Box::new(io::Cursor::new(first).chain(file)))
    }

    fn read(&mut self, path: &Path, mut file: Box<dyn BufRead>) -> anyhow::Result<()> {
        let name = path.display();
        let (mut line, mut number, mut samples, mut names) = (Vec::new(), 0_u64, 0_u64, Vec::new());
        let mut left_out = LeftOut::default();
        loop {
            line.clear();
            number += 1;
            let end = file.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
            if let Err(error) = end {
                if samples == 0 {
                    return Err(error).with_context(|| format!("cannot read {name}"));
                }
                self.note(path, format!("{name} ends early, in line {number}: {error}"));
                break;
            }
            let has_nothing_good = samples == 0 && left_out.lines() == BAD_LINES;
            if line.is_empty() || has_nothing_good {
                break;
            }
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if line.len() as u64 == LONGEST_LINE {
                bail!("{name} is no recording: line {number} is longer than {} MiB", LONGEST_LINE >> 20);
            }
            match sample_of(&line) {
                Ok(RecordedSample { sample, impossible }) => {
                    samples += 1;
                    left_out.add_figures(number, &impossible);
                    check_names(&sample, &mut names)
                        .with_context(|| format!("{name} is no recording: line {number}"))?;
                    self.add(path, &sample, samples == 1)?;
                }
                Err(_) if !line.ends_with(b"\n") && samples > 0 => {
                    self.note(path, format!("the last line of {name} is cut short"));
                }
                Err(problem) => left_out.add_line(number, &problem),
            }
        }
        if samples == 0 {
            bail!(
                "{name} is no recording: {}",
                if left_out.lines() > 0 { left_out.first_line() } else { "it is empty" }
            );
        }
        left_out.sentences(&format!(" of {name}")).for_each(|sentence| self.note(path, sentence));
        Ok(())
    }

    fn add(&mut self, path: &Path, sample: &Sample, is_first_of_file: bool) -> anyhow::Result<()> {
        if self.current.as_ref().is_some_and(|run| run.statistics.is_followed_by_another(sample, is_first_of_file)) {
            self.end_run()?;
        }
        let kinds = self.kinds;
        self.current(path).statistics.add(sample, kinds);
        self.visitor.sample(sample);
        Ok(())
    }

    fn note(&mut self, path: &Path, problem: String) {
        self.current(path).problems.push(problem);
    }

    fn current(&mut self, path: &Path) -> &mut CurrentRun {
        self.current.get_or_insert_with(|| CurrentRun { path: path.to_owned(), ..CurrentRun::default() })
    }

    fn end_run(&mut self) -> anyhow::Result<()> {
        let Some(run) = self.current.take() else { return Ok(()) };
        let mut summary = run.statistics.summary();
        // An outcome says how many samples there were. Without it, each problem may stand for a missing sample.
        summary.is_whole &= summary.outcome.is_some() || run.problems.is_empty();
        summary.problems.extend(run.problems);
        self.visitor.run(RecordedRun { path: run.path, summary })
    }
}

fn open(path: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let opened = || -> io::Result<Box<dyn BufRead>> {
        if path == Path::new(STDIN) {
            return decompressed(io::stdin());
        }
        decompressed(File::open(path)?)
    };
    opened().with_context(|| format!("cannot read {}", path.display()))
}

/// A part of the recording `of` that the user has not named.
fn open_unnamed(part: &Path, of: &Path) -> anyhow::Result<Box<dyn BufRead>> {
    let opened = fs::metadata(of).and_then(|of| open_part(part, of.uid())).and_then(decompressed);
    opened.with_context(|| format!("cannot read {}", part.display()))
}

/// The file, decompressed if it is compressed.
fn decompressed(file: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut file = BufReader::with_capacity(BUFFER, file);
    let is_compressed = file.fill_buf()?.starts_with(&[0x1f, 0x8b]);
    Ok(if is_compressed {
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(file)))
    } else {
        Box::new(file)
    })
}

/// Adds the names of the sections to those that the file had before. Names stay in memory for good, so they must be
/// few.
///
/// # Errors
/// When the file has more sections than any recording.
pub fn check_names(sample: &Sample, names: &mut Vec<&'static str>) -> anyhow::Result<()> {
    for (name, _) in sample.sections() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > SECTIONS {
        bail!("has more than {SECTIONS} sections");
    }
    Ok(())
}
