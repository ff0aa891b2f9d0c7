//! A derivation of a plugin, as the tracker uses any other.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, anyhow, bail, ensure};

use super::derivation::{JsonDerivation, LocalDerivation};
use super::isolated;
use super::sections;
use super::types::{DerivationType, Hosting};
use crate::answer_watch::AnswerWatch;
use crate::background::Background;
use crate::derivation::Derivation;
use crate::job::Run;
use crate::owned_tick::OwnedTick;
use crate::patience::PATIENCE;
use crate::sample::{Sample, Sections};
use crate::source::{Host, Tick};

impl DerivationType {
    /// Builds it for a run.
    ///
    /// # Errors
    /// When its own process cannot be made.
    pub(crate) fn build(&'static self, host: &Host) -> anyhow::Result<Box<dyn Derivation>> {
        let derivation: Box<dyn JsonDerivation> = match &self.hosting {
            Hosting::InProcess { table, original } => {
                Box::new(LocalDerivation::new(&self.info, table, *original, host.clone()))
            }
            Hosting::Isolated => Box::new(isolated::RemoteDerivation::new(self, host.clone())?),
        };
        Ok(Box::new(PluginDerivation { derivation: self, state: State::Begins(derivation) }))
    }
}

/// It works on a thread of its own, because the samples must not hang with it.
struct PluginDerivation {
    derivation: &'static DerivationType,
    state: State,
}

enum State {
    /// The thread comes with the first sample, because processes can be made only while there is one thread.
    Begins(Box<dyn JsonDerivation>),
    Works {
        thread: Background<Question, Answer>,
        watch: AnswerWatch,
    },
    /// There was no thread for it.
    Ended,
}

struct Question {
    tick: OwnedTick,
    run: Arc<Run>,
    sample: String,
}

#[derive(Clone)]
struct Answer {
    /// The number of its sample.
    number: u64,
    text: Result<String, String>,
}

fn answer(derivation: &mut dyn JsonDerivation, question: Question) -> Answer {
    let Question { tick, run, sample } = question;
    let text = derivation.derive(&tick, &run.to_json().to_string(), &sample);
    Answer { number: tick.number, text: text.map_err(|error| format!("{error:#}")) }
}

impl PluginDerivation {
    fn thread(&mut self) -> anyhow::Result<(&Background<Question, Answer>, &mut AnswerWatch)> {
        if let State::Begins(_) = self.state
            && let State::Begins(mut derivation) = std::mem::replace(&mut self.state, State::Ended)
        {
            let work = move |question| answer(&mut *derivation, question);
            let thread = Background::spawn(&self.derivation.info.name, work).context("cannot start its thread")?;
            self.state = State::Works { thread, watch: AnswerWatch::new(PATIENCE) };
        }
        match &mut self.state {
            State::Works { thread, watch } => Ok((thread, watch)),
            _ => bail!("it has no thread"),
        }
    }

    /// Its answer to this sample, if it comes in time.
    fn answer(&mut self, tick: &Tick, sample: &Sample) -> anyhow::Result<Option<String>> {
        let (thread, watch) = self.thread()?;
        let is_busy = thread.is_busy();
        watch.tick(tick, is_busy);
        if is_busy {
            ensure!(!watch.is_overdue(), "has not answered for {} s", PATIENCE.as_secs());
            return Ok(None);
        }
        let mut line = Vec::new();
        sample.write_json(&mut line)?;
        let sample =
            Question { tick: OwnedTick::of(tick), run: Arc::clone(&sample.run), sample: String::from_utf8(line)? };
        // An answer to an earlier sample is too late.
        thread.take_answer(tick.at);
        thread.ask(sample);
        let answer = thread.take_answer(Instant::now() + tick.grace()).map(|(answer, _)| answer);
        let answer = answer.filter(|answer| answer.number == tick.number);
        answer.map(|answer| answer.text.map_err(|error| anyhow!(error))).transpose()
    }
}

impl Derivation for PluginDerivation {
    fn derive(&mut self, tick: &Tick, sample: &Sample, out: &mut Sections) -> anyhow::Result<()> {
        let mut derive = || match self.answer(tick, sample)? {
            Some(text) => sections::read(text.as_bytes(), self.derivation.sections, out),
            None => Ok(()),
        };
        derive().with_context(|| self.derivation.file.display().to_string())
    }
}
