//! Samples in a file: JSON Lines or CSV, compressed or not, rotated or not.

mod contents;
mod destination;
mod gzip;
mod if_exists;
mod location;
mod lock;
mod output;
mod rotation;

pub use if_exists::IfExists;
pub use rotation::{open_part, set_aside_from, set_aside_of};

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use resource_tracker_core::{
    Outcome, PATIENCE, Sample, Sink, SinkConfig, SinkContext, SinkEntry, from_json, register_sink,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::encode::{Encoder, Format};
use contents::Contents;
use destination::Destination;
use gzip::Member;
use lock::Turn;
use output::Output;
use rotation::Rotation;

/// How often others may fill the new file before a sample is written to it all the same.
const ROTATIONS: usize = 16;

/// So many bytes of lines wait at most for a turn at the end of a compressed file.
const WAITING: usize = 64 * 1024;

/// Samples in a file.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct FileConfig {
    /// The file. Its directory must exist.
    #[schemars(extend("x-needs-named-file" = ["jsonl", "jsonl.gz", "ndjson", "ndjson.gz", "csv", "csv.gz"]))]
    pub path: PathBuf,
    /// How samples are written; csv when the name ends in .csv or .csv.gz, else json.
    pub format: Option<Format>,
    /// Which columns a CSV has; tracker unless set. A name that says nothing about the format then means CSV.
    pub columns: Option<Columns>,
    /// Whether the file is compressed; yes when the name ends in .gz. It can be read after every sample.
    pub gzip: Option<bool>,
    /// What happens when the file exists and is not empty.
    #[schemars(extend("x-needs-named-file" = true))]
    pub if_exists: IfExists,
    /// Permissions of a new file, octal, less the umask.
    #[schemars(extend("examples" = ["0640"], "x-needs-named-file" = true))]
    pub mode: String,
    /// Begin a new file when this one has so many bytes; 0: never. The full one, run.jsonl, becomes run.1.jsonl, the
    /// next one run.2.jsonl, and so on; a name that is taken is left out.
    pub rotate_bytes: u64,
    /// Begin a new file when this one is so many seconds old; 0: never.
    #[schemars(range(min = 0.0))]
    pub rotate_secs: f64,
    /// Delete the oldest full file when there are more than this; 0: keep all. Only files of yours that hold such samples
    /// count, and none is deleted whose end is torn.
    #[schemars(extend("x-needs-named-file" = true))]
    pub rotate_keep: u32,
}

impl Default for FileConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            format: None,
            columns: None,
            gzip: None,
            if_exists: IfExists::default(),
            mode: "0600".into(),
            rotate_bytes: 0,
            rotate_secs: 0.0,
            rotate_keep: 0,
        }
    }
}

impl FileConfig {
    /// The encoder for which the name, the format and the columns ask.
    ///
    /// # Errors
    /// When they contradict each other.
    fn encoder(&self) -> anyhow::Result<Encoder> {
        let name = self.path.to_string_lossy();
        let by_name = match Path::new(name.trim_end_matches(".gz")).extension().and_then(|suffix| suffix.to_str()) {
            Some("csv") => Some(Format::Csv),
            Some("json" | "jsonl" | "ndjson") => Some(Format::Json),
            _ => None,
        };
        let by_columns = self.columns.map(|_| Format::Csv);
        match self.format.or(by_name).or(by_columns).unwrap_or(Format::Json) {
            Format::Csv => Ok(Encoder::Csv(self.columns.unwrap_or_default())),
            Format::Json if by_columns.is_none() => Ok(Encoder::Json),
            Format::Json if self.format.is_some() => {
                bail!("columns: JSON has none; leave them out, or say format = \"csv\" (--format csv)")
            }
            Format::Json => bail!(
                "columns: {} is JSON by its name, which has no columns; name it .csv, or say format = \"csv\" (--format csv)",
                self.path.display()
            ),
        }
    }

    /// The permissions of a new file.
    fn permissions(&self) -> anyhow::Result<u32> {
        let mode = u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777);
        mode.with_context(|| format!("mode = {:?}: must be octal, such as \"0640\"", self.mode))
    }

    fn rotation(&self) -> anyhow::Result<Rotation> {
        let age = Duration::try_from_secs_f64(self.rotate_secs).ok();
        let age =
            age.with_context(|| format!("rotate_secs = {}: must be a number of seconds, 0 or more", self.rotate_secs))?;
        Ok(Rotation::new(self.rotate_bytes, age, self.rotate_keep))
    }

    fn contents(&self) -> anyhow::Result<Contents> {
        Ok(Contents { encoder: self.encoder()?, gzip: self.is_compressed() })
    }

    fn open(&self) -> anyhow::Result<FileSink> {
        self.check()?;
        let (rotation, contents) = (self.rotation()?, self.contents()?);
        let output = Output::open(&self.path, self.permissions()?, self.if_exists, contents, rotation.is_on())?;
        Ok(FileSink {
            output,
            contents,
            rotation,
            last: None,
            lines: Vec::new(),
            begun: false,
            has_written: false,
            warned: false,
        })
    }

    fn is_compressed(&self) -> bool {
        self.gzip.unwrap_or_else(|| has_suffix(&self.path, "gz"))
    }
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|extension| extension == suffix)
}

from_json!(FileConfig);

#[typetag::deserialize(name = "file")]
impl SinkConfig for FileConfig {
    fn check(&self) -> anyhow::Result<()> {
        if self.path.as_os_str().is_empty() {
            bail!("path: is missing; it must name the file, such as path = \"run.jsonl\"");
        }
        self.permissions()?;
        let (rotation, contents) = (self.rotation()?, self.contents()?);
        if rotation.is_on() && matches!(Destination::of(&self.path)?, Destination::Stream(_)) {
            bail!(
                "rotate_bytes and rotate_secs need a file that can be renamed; {} is a descriptor, a device or a pipe",
                self.path.display()
            );
        }
        Output::check(&self.path, self.if_exists, contents)
    }

    fn patience(&self) -> Duration {
        let takes_turns = self.is_compressed() || self.rotation().is_ok_and(|rotation| rotation.is_on());
        // The last lines wait for their turn like all others.
        if takes_turns { lock::LONGEST * 2 } else { PATIENCE }
    }

    fn build(&self, _: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        Ok(Box::new(self.open()?))
    }
}

register_sink!(SinkEntry::new::<FileConfig>("file", "JSON Lines or CSV in a file, compressed and rotated if wanted"));

struct FileSink {
    output: Output,
    contents: Contents,
    rotation: Rotation,
    last: Option<LastMember>,
    /// The line that is written, and before it those that wait for a turn.
    lines: Vec<u8>,
    /// Whether the end of the file was found whole, or was mended.
    begun: bool,
    has_written: bool,
    warned: bool,
}

/// The gzip member that this sink wrote last.
struct LastMember {
    member: Member,
    /// The length of the file after that.
    end: u64,
    /// Which of the files it is in, by [`Output::changes`].
    file: u64,
}

impl Sink for FileSink {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        let waiting = self.lines.len();
        self.contents.encoder.encode(sample, &mut self.lines).inspect_err(|_| self.lines.truncate(waiting))?;
        self.write_lines(WAITING)
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        if self.lines.is_empty() { Ok(()) } else { self.write_lines(0) }
    }
}

impl FileSink {
    /// Writes the lines. While another program has the turn, and may be changing the end of a compressed file, they
    /// wait for another sample, unless they are more than `waiting` bytes.
    fn write_lines(&mut self, waiting: usize) -> anyhow::Result<()> {
        // In a plain file that is not rotated, a line is one write, which needs no lock.
        let result = if self.begun && !self.rotation.is_on() && !self.contents.gzip {
            self.output.look().and_then(|()| self.add(Turn::Unlocked)).map(|()| true)
        } else {
            self.output.take_turn().and_then(|mut turn| {
                if turn == Turn::Busy && self.contents.gzip && self.lines.len() <= waiting {
                    return Ok(false);
                }
                let result = self.prepare(&mut turn).and_then(|()| self.add(turn));
                self.output.end_turn(turn);
                result.map(|()| true)
            })
        };
        if !matches!(result, Ok(false)) {
            self.lines.clear();
        }
        result.map(drop)
    }

    /// Mends the end of the file before the first write, and begins a new file when that is due.
    fn prepare(&mut self, turn: &mut Turn) -> anyhow::Result<()> {
        if !self.begun && *turn != Turn::Busy {
            if self.output.is_regular() && self.output.len() > 0 {
                // It was looked at before, but others can have begun it since.
                self.output.check_contents()?;
                *turn = self.mend(*turn)?;
            }
            self.begun = true;
        }
        for _ in 0..ROTATIONS {
            let is_due = self.rotation.is_on() && self.rotation.is_due(self.output.len(), self.output.age());
            if *turn == Turn::Busy || !is_due || self.output.has_moved() {
                break;
            }
            if let Err(error) = self.output.set_aside() {
                self.warn(&error, "samples are added to the file as it is");
                break;
            }
            let deleted =
                self.output.location().map_or(Ok(()), |location| self.rotation.delete_old(location, self.contents));
            if let Err(error) = deleted {
                self.warn(&error, "it is left");
            }
            *turn = self.output.take_turn()?;
        }
        Ok(())
    }

    /// Mends an end in the middle of a sample, which a killed tracker left: it would spoil what is added.
    fn mend(&mut self, turn: Turn) -> anyhow::Result<Turn> {
        if self.output.ends_whole()? {
            return Ok(turn);
        }
        if !self.contents.gzip {
            self.output.append(b"\n")?;
            return Ok(turn);
        }
        // Nothing after a torn end can be decompressed, and the end is not ours to cut off.
        let path = self.output.path().display().to_string();
        match self.output.set_aside() {
            Ok(aside) => log::warn!("{path} ends in the middle of a sample; it is kept as {}", aside.display()),
            Err(error) => {
                self.warn(&error, "samples are added behind an end that is torn, where they are hard to read")
            }
        }
        self.output.take_turn()
    }

    /// Adds the line, and before it the header of a file that is empty.
    fn add(&mut self, turn: Turn) -> anyhow::Result<()> {
        let is_empty = if self.output.is_regular() { self.output.len() == 0 } else { !self.has_written };
        let header = self.contents.encoder.header().filter(|_| is_empty);
        if let Some(header) = header {
            self.lines.splice(..0, header.into_bytes());
        }
        if self.contents.gzip { self.add_compressed(turn) } else { self.output.append(&self.lines) }?;
        self.has_written = true;
        Ok(())
    }

    fn add_compressed(&mut self, turn: Turn) -> anyhow::Result<()> {
        let is_ours = turn == Turn::Held && self.output.is_regular();
        let (length, file) = (self.output.len(), self.output.changes());
        // The member is the end of the file if nothing was added since, and the file is not another one of that length.
        let is_end = |last: &LastMember| is_ours && last.end == length && last.file == file && !last.member.is_full();
        let mut grown = None;
        if let Some(LastMember { mut member, end: end_of_file, .. }) = self.last.take().filter(is_end) {
            let end = member.end();
            let bytes = member.add(&self.lines)?;
            grown = self.output.replace_end(end_of_file, &end, &bytes)?.then_some(member);
        }
        let member = match grown {
            Some(member) => member,
            None => {
                let mut member = Member::new();
                self.output.append(&member.add(&self.lines)?)?;
                member
            }
        };
        self.last = is_ours.then(|| LastMember { member, end: self.output.len(), file });
        Ok(())
    }

    fn warn(&mut self, error: &anyhow::Error, so: &str) {
        if !std::mem::replace(&mut self.warned, true) {
            log::warn!("{error:#}; {so}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    /// The new file can have the length, and the inode, of the one that was written to before.
    #[test]
    fn a_member_is_never_grown_in_another_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.jsonl.gz");
        let config = FileConfig { path: path.clone(), rotate_bytes: 1 << 20, ..FileConfig::default() };
        let (mut one, mut other) = (config.open().unwrap(), config.open().unwrap());
        let write = |sink: &mut FileSink, number: u8| {
            sink.lines = format!("{{\"timestamp_secs\":{number}}}\n").into_bytes();
            sink.write_lines(0).unwrap();
            std::fs::metadata(&path).unwrap().len()
        };
        let length = write(&mut one, 1);
        std::fs::rename(&path, directory.path().join("aside")).unwrap();
        assert_eq!(write(&mut other, 2), length);
        write(&mut one, 3);
        let mut text = String::new();
        gzip::reader(std::fs::File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"timestamp_secs\":2}\n{\"timestamp_secs\":3}\n");
    }
}
