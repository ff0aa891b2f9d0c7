//! Entry points for the fuzz targets: code that parses bytes from others. Not part of the interface.

use std::sync::{Arc, LazyLock};

use crate::plugin::{self, PluginSection};
use crate::sample::{Sample, Sections};

/// The answer of a plugin's source: whatever is read from it makes one line of JSON.
pub fn plugin_answer(bytes: &[u8]) {
    static KNOWN: LazyLock<[PluginSection; 2]> =
        LazyLock::new(|| ["fans", "ib"].map(|name| PluginSection::new(name.to_owned(), serde_json::Value::Null)));
    let mut out = Sections::default();
    if plugin::read_sections(bytes, &*KNOWN, &mut out).is_err() {
        return;
    }
    let sample = Sample::of(out);
    let mut line = Vec::new();
    let written = sample.write_json(&mut line);
    assert!(written.is_ok() && !line.contains(&b'\n') && !line.contains(&b'\r'));
    let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_slice(&line);
    assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(&line));
}

/// A sample for a plugin's sink.
pub fn plugin_sample(text: &str) {
    let keep = |name: &str| if name == "cpu" { "cpu" } else { "other" };
    if let Ok(sample) = Sample::of_run(text, &Arc::default(), keep) {
        let _ = sample.write_json(&mut Vec::new());
    }
}
