//! A tracker that is set up and waits for its run to begin.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, mpsc};

use super::observe::ObserverRunner;
use super::running::Running;
use super::sampler_request::SamplerRequest;
use super::sink_runner::{PendingSink, SinkRunners};
use super::sink_writer::WhenClosed;
use crate::job::Run;
use crate::observer::Observer;

/// A tracker whose sources are being set up. Nothing is read and no sink is called before it [starts](Self::start); when it is
/// dropped, nothing ever is.
pub struct Prepared {
    pub(super) run: Run,
    pub(super) observer: Option<Box<dyn Observer>>,
    pub(super) sinks: Vec<PendingSink>,
    pub(super) when_closed: Option<WhenClosed>,
    pub(super) requests: mpsc::Sender<SamplerRequest>,
    pub(super) begin: mpsc::Sender<Beginning>,
    pub(super) steps: Arc<AtomicUsize>,
}

/// What the sampler begins with.
pub(super) struct Beginning {
    pub(super) run: Arc<Run>,
    pub(super) observer: ObserverRunner,
    pub(super) sinks: Arc<Mutex<SinkRunners>>,
}

impl Prepared {
    /// As [`Tracker::observer`](super::Tracker::observer).
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Tells the process id of the job, which may not have been there before.
    pub fn pid(mut self, pid: i32) -> Self {
        self.run.pid = Some(pid);
        self
    }

    /// Begins, as [`Tracker::start`](super::Tracker::start) does.
    pub fn start(self) -> Running {
        let run = Arc::new(self.run);
        let sinks = Arc::new(Mutex::new(SinkRunners::new(self.sinks, &run, self.when_closed)));
        let observer = ObserverRunner::new(self.observer);
        // If the sampler's thread has ended, there is no sample, and the sinks are closed in order.
        let _ = self.begin.send(Beginning { run, observer, sinks: Arc::clone(&sinks) });
        Running::new(self.requests, sinks, self.steps)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Tracker;
    use super::*;
    use crate::job::Outcome;
    use crate::sample::{Sample, Sections};
    use crate::sink::Sink;
    use crate::source::{Host, Source, SourceConfig, Tick};

    /// Tells what is done with it.
    #[derive(Clone, Debug)]
    struct Tells(mpsc::Sender<String>);

    impl Tells {
        fn tell(&self, what: &str) -> anyhow::Result<()> {
            Ok(self.0.send(what.into())?)
        }
    }

    impl SourceConfig for Tells {
        fn build(&self, _: &Host) -> anyhow::Result<Option<Box<dyn Source>>> {
            self.tell("built")?;
            Ok(Some(Box::new(self.clone())))
        }

        fn typetag_deserialize(&self) {}
    }

    impl Source for Tells {
        fn collect(&mut self, _: &Tick, _: &mut Sections) -> anyhow::Result<()> {
            self.tell("read")
        }

        fn prime(&mut self, _: &Tick, _: &mut Sections) -> anyhow::Result<()> {
            self.tell("primed")
        }
    }

    impl Sink for Tells {
        fn start(&mut self, run: &Run) -> anyhow::Result<()> {
            self.tell(&format!("start {:?}", run.pid))
        }

        fn write(&mut self, _: &Sample) -> anyhow::Result<()> {
            Ok(())
        }
    }

    fn prepared() -> anyhow::Result<(Prepared, mpsc::Receiver<String>)> {
        let (tell, told) = mpsc::channel();
        let tells = Tells(tell);
        let tracker = Tracker::new(Run::default()).source("tells", Box::new(tells.clone())).sink("tells", tells);
        Ok((tracker.prepare()?, told))
    }

    #[test]
    fn one_that_never_begins_is_set_up_and_nothing_else() -> anyhow::Result<()> {
        let (prepared, told) = prepared()?;
        assert_eq!(told.recv()?, "built");
        drop(prepared);
        assert_eq!(told.iter().next(), None, "its thread has ended");
        Ok(())
    }

    #[test]
    fn the_run_is_the_one_that_is_known_when_it_begins() -> anyhow::Result<()> {
        let (prepared, told) = prepared()?;
        let running = prepared.pid(7).start();
        assert!(running.take_last_sample(Duration::from_secs(20)));
        running.finish(Outcome::default());
        let mut told: Vec<String> = told.iter().collect();
        // The sink has a thread of its own.
        told.sort_unstable();
        assert_eq!(told, ["built", "primed", "read", "start Some(7)"]);
        Ok(())
    }
}
