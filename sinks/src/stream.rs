//! Standard output and standard error.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};

use anyhow::Context;
use resource_tracker_core::{Sample, Sink, SinkContext};
use rustix::event::{PollFd, PollFlags, poll};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::encode::Encoder;

/// Where lines go that go to no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard error when a command is wrapped, because standard output is the command's; else standard output.
    #[default]
    Auto,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A stream of this process that is written to without a buffer.
pub struct OpenStream {
    name: &'static str,
    file: File,
}

impl OpenStream {
    /// Opens it for a sink.
    ///
    /// # Errors
    /// When the stream is not open.
    pub fn new(stream: Stream, context: &SinkContext) -> anyhow::Result<Self> {
        let to_stderr = match stream {
            Stream::Auto => context.wraps_command,
            Stream::Stdout => false,
            Stream::Stderr => true,
        };
        // A duplicate, which the command does not inherit, and which is not buffered by the standard library.
        let (name, duplicate) = match to_stderr {
            true => ("standard error", io::stderr().as_fd().try_clone_to_owned()),
            false => ("standard output", io::stdout().as_fd().try_clone_to_owned()),
        };
        Ok(Self { name, file: File::from(duplicate.with_context(|| format!("{name} is not open"))?) })
    }

    /// The stream itself, to ask what kind it is.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes all of it, with one `write` unless the other side takes it in parts.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        write_whole(&mut self.file, bytes, &mut 0).with_context(|| format!("cannot write to {}", self.name))
    }
}

/// Writes lines to a stream, each with one `write`.
pub(crate) struct StreamSink {
    stream: OpenStream,
    encoder: Encoder,
    header: Option<String>,
    line: Vec<u8>,
}

impl StreamSink {
    pub(crate) fn new(stream: Stream, encoder: Encoder, context: &SinkContext) -> anyhow::Result<Self> {
        Ok(Self { stream: OpenStream::new(stream, context)?, encoder, header: encoder.header(), line: Vec::new() })
    }
}

impl Sink for StreamSink {
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        self.line.clear();
        self.line.extend_from_slice(self.header.as_deref().unwrap_or_default().as_bytes());
        self.encoder.encode(sample, &mut self.line)?;
        self.stream.write(&self.line)?;
        self.header = None;
        Ok(())
    }
}

/// Writes all bytes, with one `write` unless the other side takes them in parts. It waits where another process that
/// shares the stream made it non-blocking. `written` counts what got out, also when it fails.
pub(crate) fn write_whole(mut file: impl Write + AsFd, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match file.write(&bytes[*written..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_writable(file.as_fd())?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait_writable(fd: BorrowedFd<'_>) -> io::Result<()> {
    match poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
