//! Loads a plugin and calls everything in it many times: `plugin-soak FILE TIMES [sysfs=PATH] [KEY=VALUE]…`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use resource_tracker_core::plugin::Isolation;
use resource_tracker_core::registry::{ComponentKind, Registry};
use resource_tracker_core::{Host, Outcome, Run, Sample, Sections, Settings, SinkContext, Tick};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().context("which plugin?")?;
    let times: u64 = arguments.next().context("how often?")?.parse()?;
    let mut registry = Registry::new();
    registry.load(Path::new(&file), Isolation::None)?;
    let mut settings = Settings::of(registry);
    let mut host = Host::default();
    for assignment in arguments {
        if let Some(path) = assignment.strip_prefix("sysfs=") {
            host.sysfs = path.into();
            continue;
        }
        settings = settings.set_assignment("argument", &assignment)?;
    }
    for kind in ComponentKind::all() {
        for component in settings.registry().of(kind) {
            settings = settings.switch("all", component.name, true);
        }
    }
    let second = Duration::from_secs(1);
    for (name, config) in settings.sources()? {
        let mut source = config.build(&host)?.with_context(|| format!("{name} has nothing to read"))?;
        let mut out = Sections::default();
        for number in 0..times {
            source.collect(&Tick::new(number, Instant::now(), second, second), &mut out)?;
        }
        println!("{name}: {times} readings");
    }
    for (name, config) in settings.sinks()? {
        let mut sink = config.build(&SinkContext::default())?;
        sink.start(&Run::default())?;
        for _ in 0..times {
            sink.write(&Sample::default())?;
        }
        sink.finish(&Outcome::default())?;
        println!("{name}: {times} samples");
    }
    // The plugin stays loaded until the process ends: what it is made of is no leak.
    std::process::exit(i32::from(settings.registry().plugins().next().is_none()))
}
