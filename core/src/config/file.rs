//! The TOML file: its values, what is wrong with it, and on which line a key stands.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::Path;

use figment::value::Dict;
use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, ConfigErrorKind};
use crate::trust;

/// Larger files are no configuration.
const MAX_SIZE: u64 = 1 << 20;

/// A configuration file that was read, or could not be.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    /// Its path as the user gave it.
    pub(super) name: String,
    /// Whether the user named it; a file that was merely found may set less.
    pub(super) is_named: bool,
    pub(super) values: Option<Dict>,
    /// What is wrong with the file as a whole, with the position where there is one.
    pub(super) problem: Option<ConfigError>,
    /// Whether there is no such file.
    pub(super) missing: bool,
    text: String,
}

impl ConfigFile {
    /// Reads a file that the user named.
    pub fn named(path: &Path) -> Self {
        let mut file = Self::empty(path, true);
        match File::open(path) {
            Ok(open) => file.read(open),
            Err(error) => {
                file.missing = error.kind() == ErrorKind::NotFound;
                file.problem = Some(problem(&file.name, format!("cannot be read: {error}")));
            }
        }
        file
    }

    /// Reads a file that the user did not name, at the place where one is looked for. It has to be
    /// [trusted](crate::trust), and may not set what [needs a named file](super::NEEDS_NAMED_FILE). A missing file is
    /// no problem.
    pub fn found(path: &Path) -> Self {
        let mut file = Self::empty(path, false);
        match trust::open_found(path) {
            Ok(Some(open)) => file.read(open),
            Ok(None) => file.missing = true,
            Err(why) => {
                let name = &file.name;
                let why = format!("is not read, because {why}; to read it all the same: -c ./{name}");
                file.problem = Some(problem(name, why));
            }
        }
        file
    }

    /// Reads a file that the administrator of the machine has put there for everybody. It has to be
    /// [trusted](crate::trust), and may set everything. A missing file is no problem.
    pub fn of_site(path: &Path) -> Self {
        let mut file = Self::empty(path, true);
        match trust::open_found(path) {
            Ok(Some(open)) => file.read(open),
            Ok(None) => file.missing = true,
            Err(why) => file.problem = Some(problem(&file.name, format!("is not read, because {why}"))),
        }
        file
    }

    fn empty(path: &Path, is_named: bool) -> Self {
        let name = path.display().to_string();
        Self { name, is_named, values: None, problem: None, missing: false, text: String::new() }
    }

    fn read(&mut self, file: File) {
        let mut text = String::new();
        match file.take(MAX_SIZE + 1).read_to_string(&mut text) {
            Err(error) => self.problem = Some(problem(&self.name, format!("cannot be read: {error}"))),
            Ok(length) if length as u64 > MAX_SIZE => {
                let why = format!("is larger than {MAX_SIZE} bytes, so it is no configuration");
                self.problem = Some(problem(&self.name, why));
            }
            Ok(_) => match super::toml::parse(&text) {
                Ok(values) => (self.values, self.text) = (Some(values), text),
                Err(error) => {
                    let span = error.span().unwrap_or(0..0);
                    let message = match starts_bare_value(&text, &span) {
                        true => "this is no value; if it is a text, put it in quotes".to_owned(),
                        false => error.message().replace('\n', ", "),
                    };
                    let (line, column) = line_and_column(&text, &span);
                    self.problem = Some(problem(&format!("{}:{line}:{column}", self.name), message));
                }
            },
        }
    }

    /// What is wrong with the file as a whole, so that it counts as empty. The key is the file, with the place in it.
    pub fn problem(&self) -> Option<&ConfigError> {
        self.problem.as_ref()
    }

    /// Whether it was found, not named by the user, and has values.
    pub fn was_found(&self) -> bool {
        !self.is_named && self.values.is_some()
    }

    /// Whether there is no such file.
    pub fn is_missing(&self) -> bool {
        self.missing
    }

    /// The path as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far from the beginning a key stands, or the nearest table above it that is written down.
    pub(super) fn offset(&self, key: &str) -> Option<usize> {
        Some(self.span(key)?.start)
    }

    fn span(&self, key: &str) -> Option<Range<usize>> {
        DeTable::parse(&self.text).ok().and_then(|document| key_span(document.get_ref(), key))
    }

    /// `FILE:LINE:COLUMN` of a key, or of the nearest table above it that is written down.
    pub(super) fn position(&self, key: &str) -> String {
        match self.span(key) {
            Some(span) => {
                let (line, column) = line_and_column(&self.text, &span);
                format!("{}:{line}:{column}", self.name)
            }
            None => self.name.clone(),
        }
    }
}

fn problem(place: &str, problem: String) -> ConfigError {
    ConfigError::new(ConfigErrorKind::File, place, problem)
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

/// Whether a position is at or in a value that should have been in quotes, as in `name = train`.
fn starts_bare_value(text: &str, span: &Range<usize>) -> bool {
    let Some(before) = text.get(..span.start) else { return false };
    let line = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
    let is_part = |c: char| !c.is_whitespace() && !"=[]{},\"'".contains(c);
    let before_value = line.trim_end_matches(is_part);
    let first = text[span.start - (line.len() - before_value.len())..].chars().next();
    let is_value = before_value.contains('=') && before_value.trim_end().ends_with(['=', '[', ',']);
    is_value && first.is_some_and(is_part) && !before_value.trim_start().starts_with('#')
}

fn line_and_column(text: &str, span: &Range<usize>) -> (usize, usize) {
    let before = text.get(..span.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
