//! A file that may still grow, compressed or not.

use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::Context;
use flate2::write::MultiGzDecoder;

const PIECE: usize = 64 << 10;
const MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The end of a compressed file begins with this empty last block. The sink `file` writes the next sample over that
/// end.
const LAST_BLOCK: [u8; 2] = [3, 0];
/// The length of that end: the block, a checksum and a length.
const END: usize = 10;

/// Which file it is, whatever its name.
pub(crate) type Identity = (u64, u64);

/// An open file, read up to a position.
pub(crate) struct GrowingFile {
    input: Input,
    /// `None` until its first bytes are there.
    format: Option<Format>,
    piece: Vec<u8>,
}

enum Input {
    File {
        file: File,
        position: u64,
    },
    /// A pipe: what was read is gone from it.
    Stream(Box<dyn Read + Send>),
}

enum Format {
    Text,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
}

/// The result of a look at the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// There was more.
    More,
    /// That was all, as yet.
    End,
    /// It is shorter than it was: it begins anew.
    Shrunk,
}

impl GrowingFile {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let opened = || -> io::Result<Input> {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(if metadata.is_file() { Input::File { file, position: 0 } } else { Input::Stream(Box::new(file)) })
        };
        Ok(Self::of(opened().with_context(|| format!("cannot read {}", path.display()))?))
    }

    /// Opens a part of the recording that nobody named.
    pub(crate) fn open_part(path: &Path, owner: u32) -> anyhow::Result<Self> {
        let file = resource_tracker_sinks::open_part(path, owner);
        let file = file.with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::of(Input::File { file, position: 0 }))
    }

    pub(crate) fn stdin() -> Self {
        Self::of(Input::Stream(Box::new(io::stdin())))
    }

    fn of(input: Input) -> Self {
        Self { input, format: None, piece: Vec::new() }
    }

    /// `None` of a pipe, which is read when something comes.
    pub(crate) fn identity(&self) -> Option<Identity> {
        self.metadata().map(|file| (file.dev(), file.ino()))
    }

    /// The user that owns it; `None` of a pipe.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.metadata().map(|file| file.uid())
    }

    fn metadata(&self) -> Option<Metadata> {
        match &self.input {
            Input::File { file, .. } => file.metadata().ok(),
            Input::Stream(_) => None,
        }
    }

    /// Adds to `text` what has come since the last look, a piece at a time. On an error, it adds what comes before the
    /// error.
    pub(crate) fn read(&mut self, text: &mut Vec<u8>) -> io::Result<Look> {
        self.piece.resize(PIECE, 0);
        let count = match &mut self.input {
            Input::File { file, position } => {
                if file.metadata()?.len() < *position {
                    (*position, self.format) = (0, None);
                    return Ok(Look::Shrunk);
                }
                file.read_at(&mut self.piece, *position)?
            }
            Input::Stream(stream) => {
                let count = stream.read(&mut self.piece)?;
                // One byte does not tell the format.
                let more = if count == 1 && self.format.is_none() { stream.read(&mut self.piece[1..])? } else { 0 };
                count + more
            }
        };
        self.piece.truncate(count);
        if self.format.is_none() && count >= MAGIC.len() {
            let is_gzip = self.piece.starts_with(&MAGIC);
            self.format =
                Some(if is_gzip { Format::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))) } else { Format::Text });
        }
        let taken = match (&mut self.format, &self.input) {
            (None, _) => 0,
            // The end is not taken in: the next sample is written over it.
            (Some(Format::Gzip(_)), Input::File { .. }) if is_end(&self.piece) => count.saturating_sub(END),
            _ => count,
        };
        if taken == 0 {
            return Ok(Look::End);
        }
        match &mut self.format {
            Some(Format::Gzip(decoder)) => {
                let (written, flushed) = (decoder.write_all(&self.piece[..taken]), decoder.flush());
                text.append(decoder.get_mut());
                written.and(flushed)?;
            }
            _ => text.extend_from_slice(&self.piece[..taken]),
        }
        if let Input::File { position, .. } = &mut self.input {
            *position += taken as u64;
        }
        Ok(Look::More)
    }
}

/// Whether these bytes end like a compressed file of this program. If they are too few to tell, or a whole piece, they
/// may.
fn is_end(piece: &[u8]) -> bool {
    piece.len() == PIECE || piece.len() < END || piece[piece.len() - END..].starts_with(&LAST_BLOCK)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use resource_tracker_core::{Run, Sample, SinkConfig, SinkContext};
    use resource_tracker_sinks::FileConfig;

    use super::*;

    fn all(file: &mut GrowingFile, text: &mut Vec<u8>) -> Look {
        loop {
            match file.read(text).unwrap() {
                Look::More => (),
                look => return look,
            }
        }
    }

    #[test]
    fn a_compressed_recording_is_read_while_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl.gz");
        let config = FileConfig { path: path.clone(), ..FileConfig::default() };
        let mut sink = config.build(&SinkContext::new(false)).unwrap();
        sink.start(&Run::default()).unwrap();
        let (mut file, mut text) = (None, Vec::new());
        for number in 1..=3000_u64 {
            let words = format!("{number:x}").repeat(40);
            let line = format!(r#"{{"timestamp_ms": {number}, "elapsed_secs": 1, "a": {{"b": "{words}"}}}}"#);
            sink.write(&Sample::from_json(&line).unwrap()).unwrap();
            let file = file.get_or_insert_with(|| GrowingFile::open(&path).unwrap());
            assert_eq!(all(file, &mut text), Look::End);
            let lines = text.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines as u64, number, "each sample is there as soon as it was written, in every member");
        }
    }

    /// The end, over which the next sample is written, may lie in two pieces.
    #[test]
    fn an_end_is_held_back_across_two_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl.gz");
        for length in PIECE - 1..=PIECE + END + 1 {
            let (mut first, mut written) = (Vec::new(), 0);
            while written + END != length {
                first.resize(first.len() + length - written - END, b'a');
                written = compressed(&[&first]).len();
            }
            let end = [&LAST_BLOCK[..], &[0; END - LAST_BLOCK.len()]].concat();
            fs::write(&path, [compressed(&[&first]), end.clone()].concat()).unwrap();
            let (mut file, mut text) = (GrowingFile::open(&path).unwrap(), Vec::new());
            assert_eq!(all(&mut file, &mut text), Look::End);
            assert!(text == first, "{length}");
            fs::write(&path, [compressed(&[&first, b"next"]), end].concat()).unwrap();
            assert_eq!(all(&mut file, &mut text), Look::End);
            assert!(text == [&first[..], b"next"].concat(), "{length}");
        }
    }

    /// A compressed file without its end, to which each of these was added.
    fn compressed(texts: &[&[u8]]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
        for text in texts {
            encoder.write_all(text).unwrap();
            encoder.flush().unwrap();
        }
        encoder.get_ref().clone()
    }

    #[test]
    fn files_of_other_programs_are_read_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("other.gz");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let written = "{}\n".repeat(50_000);
        encoder.write_all(written.as_bytes()).unwrap();
        let bytes = encoder.finish().unwrap();
        // In pieces, the first of one byte.
        let (mut file, mut text) = (None, Vec::new());
        for end in [1, 2, 9, 11, bytes.len() - 3, bytes.len()] {
            fs::write(&path, &bytes[..end]).unwrap();
            all(file.get_or_insert_with(|| GrowingFile::open(&path).unwrap()), &mut text);
        }
        assert!(text == written.as_bytes());
    }

    #[test]
    fn a_file_that_is_cut_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        fs::write(&path, "first\n").unwrap();
        let (mut file, mut text) = (GrowingFile::open(&path).unwrap(), Vec::new());
        assert_eq!(all(&mut file, &mut text), Look::End);
        fs::write(&path, "2\n").unwrap();
        assert_eq!(all(&mut file, &mut text), Look::Shrunk);
        assert_eq!(all(&mut file, &mut text), Look::End);
        assert_eq!(text, b"first\n2\n");
        assert!(GrowingFile::open(folder.path()).is_err());
    }
}
