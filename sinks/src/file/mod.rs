//! Samples in a file: JSON Lines or CSV, compressed or not, rotated or not.

mod output;
mod rotation;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use resource_tracker_core::{Outcome, Sample, Sink, SinkConfig, SinkContext, SinkEntry, register_sink, through_json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::columns::Columns;
use crate::encode::{Encoder, Format};
use output::Output;
use rotation::Rotation;

/// A compressed file grows by whole gzip members, each of this much text or this much time. What is not written yet
/// is lost when the tracker is killed.
const MEMBER_BYTES: usize = 256 * 1024;
const MEMBER_TIME: Duration = Duration::from_secs(10);

/// Samples in a file.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(default, remote = "Self")]
pub struct FileConfig {
    /// The file. Its directory must exist.
    pub path: PathBuf,
    /// How samples are written; csv when the name ends in .csv or .csv.gz, else json.
    pub format: Option<Format>,
    /// Which columns a CSV has.
    pub columns: Columns,
    /// Whether the file is compressed; yes when the name ends in .gz. It then grows every 10 seconds.
    pub gzip: Option<bool>,
    /// What happens when the file exists and is not empty.
    #[schemars(extend("x-needs-named-file" = true))]
    pub if_exists: IfExists,
    /// Permissions of a new file, octal, less the umask.
    pub mode: String,
    /// Begin a new file when this one has so many bytes; 0: never. The full one, run.jsonl, becomes run.1.jsonl, then
    /// run.2.jsonl, and so on.
    pub rotate_bytes: u64,
    /// Begin a new file when this one is so many seconds old; 0: never.
    #[schemars(range(min = 0.0))]
    pub rotate_secs: f64,
    /// Delete the oldest full file when there are more than this; 0: keep all.
    pub rotate_keep: u32,
}

/// What happens to a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IfExists {
    /// Samples are added at its end, if it holds samples of the same format.
    #[default]
    Append,
    /// Its contents are lost.
    Overwrite,
    /// The run does not begin.
    Fail,
}

impl Default for FileConfig {
    fn default() -> Self {
        Self {
            path: PathBuf::new(),
            format: None,
            columns: Columns::default(),
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
    fn encoder(&self) -> Encoder {
        let name = self.path.to_string_lossy();
        let is_csv = name.trim_end_matches(".gz").ends_with(".csv");
        Encoder::new(self.format.unwrap_or(if is_csv { Format::Csv } else { Format::Json }), self.columns)
    }

    /// The permissions of a new file.
    fn permissions(&self) -> anyhow::Result<u32> {
        let mode = u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777);
        mode.with_context(|| format!("mode = {:?}: must be octal, such as \"0640\"", self.mode))
    }

    fn is_compressed(&self) -> bool {
        self.gzip.unwrap_or_else(|| has_suffix(&self.path, "gz"))
    }
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|extension| extension == suffix)
}

through_json!(FileConfig);

#[typetag::deserialize(name = "file")]
impl SinkConfig for FileConfig {
    fn check(&self) -> anyhow::Result<()> {
        if self.path.as_os_str().is_empty() {
            bail!("path: is missing; it must name the file, such as path = \"run.jsonl\"");
        }
        self.permissions()?;
        if !(self.rotate_secs >= 0.0 && self.rotate_secs.is_finite()) {
            bail!("rotate_secs = {}: must be a number of 0 or more", self.rotate_secs);
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = std::fs::metadata(folder.unwrap_or(Path::new(".")));
        folder.map(drop).with_context(|| format!("cannot write to {}", self.path.display()))
    }

    fn build(&self, _: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        self.check()?;
        let encoder = self.encoder();
        let output = Output::open(&self.path, self.permissions()?, self.if_exists, encoder, self.is_compressed())?;
        Ok(Box::new(FileSink {
            output,
            encoder,
            rotation: Rotation::new(self.rotate_bytes, Duration::from_secs_f64(self.rotate_secs), self.rotate_keep),
            gzip: self.is_compressed(),
            text: Vec::new(),
            begun: Instant::now(),
        }))
    }
}

register_sink!(SinkEntry::new::<FileConfig>("file", "JSON Lines or CSV in a file, compressed and rotated if wanted"));

struct FileSink {
    output: Output,
    encoder: Encoder,
    rotation: Rotation,
    gzip: bool,
    /// What is not written yet: the line, or the text of the next gzip member.
    text: Vec<u8>,
    begun: Instant,
}

impl Sink for FileSink {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        if self.text.is_empty() {
            self.begun = Instant::now();
        }
        self.encoder.encode(sample, &mut self.text)?;
        if self.gzip && self.text.len() < MEMBER_BYTES && self.begun.elapsed() < MEMBER_TIME {
            return Ok(());
        }
        self.flush()
    }

    fn finish(&mut self, _: &Outcome) -> anyhow::Result<()> {
        self.flush()
    }
}

impl FileSink {
    fn flush(&mut self) -> anyhow::Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        if self.rotation.is_due(&self.output) {
            self.rotation.rotate(&mut self.output)?;
        }
        let header = self.encoder.header();
        let result = match self.gzip {
            true => self.output.append(header.map(compress).transpose()?.as_deref(), &compress(&self.text)?),
            false => self.output.append(header.as_ref().map(String::as_bytes), &self.text),
        };
        self.text.clear();
        result
    }
}

fn compress(text: impl AsRef<[u8]>) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_ref())?;
    encoder.finish()
}
