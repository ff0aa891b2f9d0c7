//! `run.json`: what is known of a run that waits, without anything that is secret.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::run_files::LAST_OF_SIX;

/// What a sink knows of a run of its own.
pub(crate) trait State: Serialize + Clone + Send + 'static {
    /// Whether `run.json` says how far the run has got. Where it does not, what is sent again after a crash changes nothing
    /// and is not much.
    const SAVES_PROGRESS: bool = true;

    /// The sink, in warnings.
    fn sink(&self) -> &'static str;

    /// Reads a saved state.
    ///
    /// # Errors
    /// When it is not what the sink writes. The error repeats nothing of it.
    fn parse(text: &[u8]) -> Result<Self, String>;

    /// Batches below this number have arrived, or were given up.
    fn next(&self) -> u32;

    /// Notes that the batches from `next` on and below `below` are settled, and whether they are lost.
    fn settle(&mut self, below: u32, is_lost: bool);

    /// The greatest number of a batch.
    fn last_batch(&self) -> u32 {
        LAST_OF_SIX
    }

    /// The run was left behind, and last written at that moment. A tracker that was killed did not see how it ended.
    fn is_left(&mut self, _written: SystemTime) {}
}

/// The state of a run that rows are added to, or that is sent.
pub(crate) trait RowsState: State {
    /// What its batches are.
    fn batches(&self) -> Batches;
}

/// What the batches of a run are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Batches {
    /// The end of their names.
    pub(crate) extension: &'static str,
    /// The line above the rows of each, with its end.
    pub(crate) header: String,
    /// Whether it is lines, which are compressed, by gzip, when it is closed. Otherwise it is sent as it is.
    pub(crate) is_lines: bool,
}

/// The state of any sink's run, to give up batches of it. The rest of it stays as it is.
#[derive(Clone, Serialize)]
pub(super) struct AnyState {
    next: u32,
    lost: Vec<u32>,
    #[serde(flatten)]
    rest: BTreeMap<String, Box<RawValue>>,
}

impl State for AnyState {
    fn sink(&self) -> &'static str {
        "the spool"
    }

    fn parse(text: &[u8]) -> Result<Self, String> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Progress {
            next: u32,
            lost: Vec<u32>,
        }
        let Progress { next, lost } = serde_json::from_slice(text).map_err(|error| place(&error))?;
        let mut rest: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(text).map_err(|error| place(&error))?;
        for key in ["next", "lost"] {
            rest.remove(key);
        }
        Ok(Self { next, lost, rest })
    }

    fn next(&self) -> u32 {
        self.next
    }

    fn settle(&mut self, below: u32, is_lost: bool) {
        // Only the first sink that had a spool, which does not name itself, tells which are lost.
        if is_lost && !self.rest.contains_key("sink") {
            self.lost.extend(self.next..below);
        }
        self.next = below;
    }

    fn last_batch(&self) -> u32 {
        u32::MAX - 1
    }
}

/// The sink whose run it is; `None` for the first that had a spool, which names none.
pub(crate) fn sink_of(text: &[u8]) -> Result<Option<String>, String> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        sink: Option<String>,
    }
    let named: Named = serde_json::from_slice(text).map_err(|error| place(&error))?;
    Ok(named.sink)
}

/// What is wrong with a JSON text, and where, without quoting it.
pub(crate) fn place(error: &serde_json::Error) -> String {
    let what = match error.classify() {
        serde_json::error::Category::Eof => "it ends too early",
        serde_json::error::Category::Data => "a value is missing, or is of another type",
        serde_json::error::Category::Io | serde_json::error::Category::Syntax => "it is no JSON, or too deep",
    };
    format!("{what} (line {}, column {})", error.line(), error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_state_stays_as_it_is() -> Result<(), Box<dyn std::error::Error>> {
        let text = r#"{"next":3,"lost":[1],"sink":"s3","facts":{"a":[1.50,"x"]}}"#;
        let mut state = AnyState::parse(text.as_bytes())?;
        state.settle(5, true);
        let mut first = AnyState::parse(br#"{"next":3,"lost":[1]}"#)?;
        first.settle(5, true);
        assert_eq!(serde_json::to_string(&first)?, r#"{"next":5,"lost":[1,3,4]}"#);
        let again: serde_json::Value = serde_json::from_slice(&serde_json::to_vec(&state)?)?;
        let expected = r#"{"next":5,"lost":[1],"sink":"s3","facts":{"a":[1.50,"x"]}}"#;
        assert_eq!(again, serde_json::from_str::<serde_json::Value>(expected)?);
        assert_eq!(sink_of(text.as_bytes())?.as_deref(), Some("s3"));
        assert_eq!(sink_of(b"{}")?, None);
        assert!(AnyState::parse(br#"{"next":-1}"#).is_err() && sink_of(b"SECRET").is_err());
        Ok(())
    }
}
