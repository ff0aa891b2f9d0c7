//! Both sides of the contract in one process, where Miri can look at them: what this crate exports is used as a plugin.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use super::abi::PluginTable;
use super::derivation::{JsonDerivation, LocalDerivation};
use super::load::{Plugin, inspect, keep};
use crate::owned_tick::OwnedTick;
use crate::unit::Gauge;
use crate::{
    Derivation, DerivationEntry, Host, ObservedJob, Outcome, Run, Sample, Section, Sections, Sink, SinkConfig,
    SinkContext, SinkEntry, Source, SourceConfig, SourceEntry, Tick, register_derivation, register_section,
    register_sink, register_source,
};

#[derive(Clone, Default, Serialize, JsonSchema)]
struct Fans {
    #[schemars(transform = Gauge("rpm"))]
    rpm: f64,
    pids: Vec<i32>,
}

impl Section for Fans {
    const NAME: &'static str = "fans";
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
struct FansConfig {
    /// What the fans do.
    does: String,
}

impl Default for FansConfig {
    fn default() -> Self {
        Self { does: "turn".into() }
    }
}

#[typetag::deserialize(name = "test-fans")]
impl SourceConfig for FansConfig {
    fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
        match self.does.as_str() {
            "missing" => Ok(None),
            "stuck" => anyhow::bail!("the fans are stuck"),
            does => {
                log::warn!("the fans {does}");
                Ok(Some(Box::new(FanSource { breaks: does == "break" })))
            }
        }
    }
}

register_source!(SourceEntry::new::<FansConfig>("test-fans", "Fans"));

struct FanSource {
    breaks: bool,
}

impl Source for FanSource {
    fn collect(&mut self, tick: &Tick, out: &mut Sections) -> anyhow::Result<()> {
        if self.breaks {
            std::panic::panic_any("broken");
        }
        log::info!("tick {}", tick.number);
        let fans: &mut Fans = out.section();
        fans.rpm = tick.elapsed.as_secs_f64() * 1000.0 + tick.interval.as_secs_f64();
        fans.pids = tick.job.map(|job| job.members.to_vec()).unwrap_or_default();
        Ok(())
    }
}

static CALLS: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
struct CallsConfig {}

#[typetag::deserialize(name = "test-calls")]
impl SinkConfig for CallsConfig {
    fn build(&self, context: &SinkContext) -> anyhow::Result<Box<dyn Sink>> {
        log::warn!("a sink is opened");
        say(format!("open {} {}", context.wraps_command, context.host.procfs.display()));
        Ok(Box::new(CallSink))
    }
}

register_sink!(SinkEntry::new::<CallsConfig>("test-calls", "Remembers its calls"));

struct CallSink;

fn say(call: String) {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).push(call);
}

impl Sink for CallSink {
    fn start(&mut self, run: &Run) -> anyhow::Result<()> {
        say(format!("start {:?} {:?}", run.job.name, run.interval));
        Ok(())
    }

    fn write(&mut self, sample: &Sample) -> anyhow::Result<()> {
        log::warn!("a sample");
        #[derive(Deserialize)]
        struct Rpm {
            rpm: f64,
        }
        say(format!("write {:?}", sample.read::<Rpm>("fans").map(|fans| fans.rpm)));
        Ok(())
    }

    fn finish(&mut self, outcome: &Outcome) -> anyhow::Result<()> {
        say(format!("finish {:?}", outcome.exit_code));
        Ok(())
    }
}

/// What follows from the fans.
#[derive(Clone, Default, Serialize, JsonSchema)]
struct Draught {
    litres: f64,
    samples: u64,
    job: Option<String>,
}

impl Section for Draught {
    const NAME: &'static str = "draught";
}

register_section!(Draught);

#[derive(Default)]
struct DraughtOfFans {
    samples: u64,
}

impl Derivation for DraughtOfFans {
    fn derive(&mut self, tick: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
        #[derive(Deserialize)]
        struct Rpm {
            rpm: f64,
        }
        log::info!("tick {}", tick.number);
        let Some(fans) = sample.read::<Rpm>("fans") else { std::panic::panic_any("no fans") };
        self.samples += 1;
        let (litres, job) = (fans.rpm * 2.0, sample.run().job.name.clone());
        *out.section() = Draught { litres, samples: self.samples, job };
        Ok(())
    }
}

register_derivation!(DerivationEntry::new::<DraughtOfFans>("test-draught", "What the fans move"));

extern "C" fn entry(abi_version: u32) -> *const PluginTable {
    super::export::table(abi_version, "test", "0.1.0")
}

fn plugin() -> &'static Plugin {
    // SAFETY: it is this crate's own.
    let loaded = unsafe { inspect(entry) }.unwrap();
    keep(Path::new("libtest.so"), loaded)
}

fn tick(number: u64) -> Tick<'static> {
    let (elapsed, interval) = (Duration::from_secs(number), Duration::from_millis(500));
    Tick { job: Some(ObservedJob::new(7, true, &[7, 8])), ..Tick::new(number, Instant::now(), elapsed, interval) }
}

#[test]
fn a_source_is_described_configured_read_and_closed() {
    let source = *plugin().sources.iter().find(|source| source.info.component.name == "test-fans").unwrap();
    assert_eq!((source.info.component.defaults.clone(), source.info.order), (json!({ "does": "turn" }), 1000));
    assert_eq!(source.info.component.schema["properties"]["does"]["description"], "What the fans do.");
    let open = |does: &str| {
        let values: Map<_, _> = [("does".to_owned(), json!(does))].into_iter().collect();
        source.configure(values).unwrap().build(&Host::default())
    };
    assert!(source.configure([("does".to_owned(), json!(5))].into_iter().collect()).is_err());
    assert!(open("missing").unwrap().is_none());
    assert_eq!(format!("{:#}", open("stuck").err().unwrap()), "libtest.so: the fans are stuck");

    let mut fans = open("turn").unwrap().unwrap();
    let mut out = Sections::default();
    // The component was announced, and its section was not: a section that was not announced is refused.
    let error = format!("{:#}", fans.collect(&tick(2), &mut out).unwrap_err());
    assert!(error.contains("\"fans\" is no section of the plugin"), "{error}");

    let mut broken = open("break").unwrap().unwrap();
    for _ in 0..2 {
        let error = format!("{:#}", broken.collect(&tick(1), &mut out).unwrap_err());
        assert_eq!(error, "libtest.so: it panicked: broken");
    }
}

#[test]
fn a_sink_gets_the_run_as_it_was() {
    let sink = *plugin().sinks.iter().find(|sink| sink.info.component.name == "test-calls").unwrap();
    let config = sink.configure(Map::new()).unwrap();
    let mut open = config.build(&SinkContext::new(true).with_host(Host::new("/host/proc", "/sys"))).unwrap();
    let mut run = Run::default();
    run.job.name = Some("nightly".into());
    open.start(&run).unwrap();
    let mut sections = Sections::default();
    sections.section::<Fans>().rpm = 1200.0;
    let sample = Sample::of(sections);
    open.write(&sample).unwrap();
    open.finish(&Outcome { exit_code: Some(3), signal: None }).unwrap();
    drop(open);
    let calls = CALLS.lock().unwrap();
    assert_eq!(*calls, ["open true /host/proc", "start Some(\"nightly\") 1s", "write Some(1200.0)", "finish Some(3)"]);
}

/// Without the thread that it has in a run, whose answer could be late.
#[test]
fn a_derivation_sees_the_sample_and_its_run() {
    let derivation = *plugin().derivations.iter().find(|derivation| derivation.info.name == "test-draught").unwrap();
    assert_eq!(derivation.info.description, "What the fans move");
    let (table, original) = derivation.hosting.in_process().unwrap();
    let mut open = LocalDerivation::new(&derivation.info, table, original, Host::default());
    let mut run = Run::default();
    run.job.name = Some("nightly".into());
    let run = run.to_json().to_string();
    let mut derive = |sample: &str| open.derive(&OwnedTick::of(&tick(1)), &run, sample);
    for samples in [1, 2] {
        let expected = json!({ "draught": { "litres": 2400.0, "samples": samples, "job": "nightly" } });
        let derived: serde_json::Value =
            serde_json::from_str(&derive(r#"{"timestamp_ms":5,"fans":{"rpm":1200}}"#).unwrap()).unwrap();
        assert_eq!(derived, expected);
    }
    for _ in 0..2 {
        assert_eq!(derive("{}").unwrap_err().to_string(), "it panicked: no fans");
    }
}
