//! The whole command line with components that misbehave.
#![no_main]

use std::time::Duration;

use anyhow::bail;
use resource_tracker_core::{
    Cadence, Host, Sample, Schedule, Section, Sections, Sink, SinkConfig, SinkContext, SinkEntry, Source, SourceConfig,
    SourceEntry, Tick, register_section, register_sink, register_source,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

resource_tracker::main!();

/// How a component misbehaves.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Fails,
    Sleeps,
    SleepsAtTheEnd,
    Panics,
}

impl Fault {
    fn happen(self) -> anyhow::Result<()> {
        match self {
            Fault::Fails => bail!("the sensor is on fire"),
            Fault::Sleeps | Fault::SleepsAtTheEnd => std::thread::sleep(Duration::from_secs(60)),
            Fault::Panics => panic!("index out of cheese"),
        }
        Ok(())
    }
}

/// A section that a faulty source never gets to write.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
struct FaultySection {
    value: u32,
}

impl Section for FaultySection {
    const NAME: &'static str = "faulty";
}

register_section!(FaultySection);

impl Source for Fault {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        if tick.last || !matches!(self, Fault::SleepsAtTheEnd) {
            self.happen()?;
        }
        out.section::<FaultySection>().value = 1;
        Ok(())
    }
}

impl Sink for Fault {
    fn write(&mut self, _: &Sample) -> anyhow::Result<()> {
        self.happen()
    }
}

macro_rules! faulty {
    ($source:ident, $source_name:literal, $sink:ident, $sink_name:literal, $fault:expr, $blocking:expr) => {
        #[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
        struct $source {}

        #[typetag::deserialize(name = $source_name)]
        impl SourceConfig for $source {
            fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
                Ok(Some(Box::new($fault)))
            }

            fn schedule(&self) -> Schedule {
                if $blocking { Schedule::blocking(Cadence::EveryTick) } else { Schedule::default() }
            }
        }

        register_source!(SourceEntry::new::<$source>($source_name, "A source that misbehaves"));

        #[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
        struct $sink {}

        #[typetag::deserialize(name = $sink_name)]
        impl SinkConfig for $sink {
            fn build(&self, _: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
                Ok(Box::new($fault))
            }
        }

        register_sink!(SinkEntry::new::<$sink>($sink_name, "A sink that misbehaves"));
    };
}

faulty!(FailingSource, "failing", FailingSink, "failing-sink", Fault::Fails, false);
faulty!(SleepingSource, "sleeping", SleepingSink, "sleeping-sink", Fault::Sleeps, true);
faulty!(TiringSource, "tiring", TiringSink, "tiring-sink", Fault::SleepsAtTheEnd, false);
faulty!(PanickingSource, "panicking", PanickingSink, "panicking-sink", Fault::Panics, false);
