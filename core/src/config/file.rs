//! The TOML file: its values, what is wrong with it, and on which line a key stands.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::Path;

use figment::value::Dict;
use toml::de::{DeTable, DeValue};

/// Larger files are no configuration.
const MAX_SIZE: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(super) struct ConfigFile {
    /// Its path as the user gave it.
    pub(super) name: String,
    pub(super) values: Option<Dict>,
    /// What is wrong with the file as a whole, with the position where there is one.
    pub(super) problem: Option<String>,
    /// Whether there is no such file.
    pub(super) missing: bool,
    text: String,
}

impl ConfigFile {
    pub(super) fn read(path: &Path) -> Self {
        let name = path.display().to_string();
        let mut file = Self { name, values: None, problem: None, missing: false, text: String::new() };
        let read = File::open(path).and_then(|file| {
            let mut text = String::new();
            file.take(MAX_SIZE + 1).read_to_string(&mut text).map(|_| text)
        });
        match read {
            Err(error) => {
                file.missing = error.kind() == ErrorKind::NotFound;
                file.problem = Some(format!("{}: cannot be read: {error}", file.name));
            }
            Ok(text) if text.len() as u64 > MAX_SIZE => {
                file.problem =
                    Some(format!("{}: is larger than {MAX_SIZE} bytes, so it is no configuration", file.name));
            }
            Ok(text) => match super::toml::parse(&text) {
                Ok(values) => (file.values, file.text) = (Some(values), text),
                Err(error) => {
                    let message = error.message().replace('\n', ", ");
                    let (line, column) = line_and_column(&text, &error.span().unwrap_or(0..0));
                    file.problem = Some(format!("{}:{line}:{column}: {message}", file.name));
                }
            },
        }
        file
    }

    /// `FILE:LINE:COLUMN` of a key, or of the nearest table above it that is written down.
    pub(super) fn position(&self, key: &str) -> String {
        let span = DeTable::parse(&self.text).ok().and_then(|document| key_span(document.get_ref(), key));
        match span {
            Some(span) => {
                let (line, column) = line_and_column(&self.text, &span);
                format!("{}:{line}:{column}", self.name)
            }
            None => self.name.clone(),
        }
    }
}

fn key_span(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let (key, item) = table.get_key_value(first)?;
    let deeper = match (rest, item.get_ref()) {
        (Some(rest), DeValue::Table(table)) => key_span(table, rest),
        _ => None,
    };
    deeper.or_else(|| Some(key.span()))
}

fn line_and_column(text: &str, span: &Range<usize>) -> (usize, usize) {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
