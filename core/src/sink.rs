//! Where samples go.

use std::fmt::Debug;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::job::{Outcome, Run};
use crate::patience::PATIENCE;
use crate::sample::Sample;

pub use crate::sink_context::SinkContext;
pub use crate::sink_entry::SinkEntry;

/// Something that takes samples. It lives on a thread of its own and may block; samples wait in a bounded queue.
pub trait Sink: Send {
    /// The run begins: what is known about it.
    ///
    /// # Errors
    /// Logged once; samples are written all the same.
    fn start(&mut self, _run: &Run) -> anyhow::Result<()> {
        Ok(())
    }

    /// Takes one sample, whole or not at all.
    ///
    /// # Errors
    /// Logged once; the sink is tried again after a pause that grows, and the samples meanwhile are lost to it. A
    /// broken pipe (an [`std::io::Error`] of that kind, anywhere in the chain) means that no reader is left: the sink
    /// is closed for good.
    fn write(&mut self, sample: &Sample) -> anyhow::Result<()>;

    /// How long a sample may wait for the ones that come after it. Asked once, when the sink has started.
    ///
    /// With zero, the default, it is written at once. A sink whose output is not read at once returns more, and is
    /// woken once for several samples: to wake it costs more than what many a sink does with a sample. No more than 16
    /// wait so, and none when the run ends.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    /// The run has ended: flush and close.
    ///
    /// # Errors
    /// Logged.
    fn finish(&mut self, _outcome: &Outcome) -> anyhow::Result<()> {
        Ok(())
    }
}

/// The configuration of a sink, which knows how to build it. `#[typetag::deserialize(name = "…")]` on the
/// implementation gives the name of its type.
#[typetag::deserialize(tag = "type")]
pub trait SinkConfig: Debug + Send + Sync {
    /// Checks whether it could work, without opening or changing anything. `config check` calls it, and so does a run
    /// before it builds the sink.
    ///
    /// # Errors
    /// Those of [`build`](Self::build) that do not depend on the destination.
    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }

    /// Opens the destination, before the command starts.
    ///
    /// # Errors
    /// When it cannot work at all: the run does not begin.
    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>>;

    /// How long the end of the run waits for the sink while it makes no progress.
    fn patience(&self) -> Duration {
        PATIENCE
    }
}

impl SinkEntry {
    /// Describes the sink that configuration `C` builds. `name` is its typetag name and unique among components.
    pub const fn new<C>(name: &'static str, description: &'static str) -> Self
    where
        C: SinkConfig + DeserializeOwned + Serialize + JsonSchema + Default,
    {
        Self {
            name,
            description,
            schema: |generator| generator.subschema_for::<C>(),
            defaults: || serde_json::to_value(C::default()),
        }
    }
}

/// Registers a sink: `register_sink!(SinkEntry::new::<MyConfig>("my", "Where it writes"))`.
#[macro_export]
macro_rules! register_sink {
    ($entry:expr) => {
        $crate::reexport::inventory::submit! { $entry }
    };
}
