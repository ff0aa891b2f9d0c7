//! The run that is shown, and its state.

use resource_tracker_report::{signal_name, time};

use crate::history::History;
use crate::moment::Moment;
use crate::position::Position;

/// A run is silent when no sample has come for so many intervals, and for so many seconds.
const SILENT_INTERVALS: f64 = 3.0;
const SILENT: f64 = 5.0;

/// Where samples come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Source {
    /// From a tracker in this program.
    Live,
    /// From a recording, which may grow.
    Recording,
    /// From a recording, in its own time or so many times as fast.
    Replay(f64),
}

/// How good a state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Warn,
    Bad,
}

/// All that is drawn.
pub(crate) struct View {
    pub(crate) source: Source,
    /// The title, where samples name no command.
    pub(crate) title: Option<String>,
    pub(crate) history: History,
    pub(crate) position: Position,
    /// How many runs came, with this one.
    pub(crate) runs: usize,
    /// Whether all that was there has been read.
    pub(crate) is_caught_up: bool,
    /// Whether no more samples can come.
    pub(crate) is_ended: bool,
    /// A message, until a key is pressed.
    pub(crate) note: Option<String>,
    /// When the last sample was taken, and when it arrived, in seconds since the Unix epoch.
    taken: f64,
    heard: f64,
}

impl View {
    pub(crate) fn new(source: Source) -> Self {
        Self {
            source,
            title: None,
            history: History::default(),
            position: if source == Source::Live { Position::live() } else { Position::default() },
            runs: 0,
            is_caught_up: source == Source::Live,
            is_ended: false,
            note: None,
            taken: 0.0,
            heard: 0.0,
        }
    }

    /// Takes the next sample. A sample of another run begins anew.
    pub(crate) fn add(&mut self, moment: Moment, now: f64) {
        if self.history.is_empty() || self.history.is_followed_by_another(&moment) {
            self.history = History::default();
            self.position.begin_anew();
            self.runs += 1;
        }
        (self.taken, self.heard) = (moment.at, now);
        self.history.add(moment);
        self.note = self.history.take_problem().or(self.note.take());
    }

    /// The state of the run, in words.
    pub(crate) fn state(&self, now: f64) -> (String, Tone) {
        if self.history.is_empty() {
            let text = if self.is_caught_up { "waiting for the first sample" } else { "reading" };
            return (text.into(), Tone::Warn);
        }
        if let Some(outcome) = self.history.outcome() {
            return match (outcome.exit_code, outcome.signal) {
                (Some(0), _) => ("exited with 0".into(), Tone::Good),
                (Some(code), _) => (format!("exited with {code}"), Tone::Bad),
                (None, Some(signal)) => (format!("was ended by {}", signal_name(signal)), Tone::Bad),
                (None, None) => ("has ended".into(), Tone::Good),
            };
        }
        if let Source::Replay(speed) = self.source
            && !self.is_caught_up
        {
            return (format!("replay, {speed} times as fast"), Tone::Good);
        }
        if !self.is_caught_up {
            return ("reading".into(), Tone::Warn);
        }
        if self.is_ended {
            return ("no more samples".into(), Tone::Warn);
        }
        // The process to be tracked may still appear.
        if let (Some(pid), false) = (self.history.pid(), self.history.has_job()) {
            return (format!("no process {pid} as yet"), Tone::Warn);
        }
        match self.silence(now) {
            Some(secs) => (format!("no new samples for {}", time(secs.round())), Tone::Warn),
            None => ("running".into(), Tone::Good),
        }
    }

    /// For how long no sample has come, if that is longer than it should be.
    fn silence(&self, now: f64) -> Option<f64> {
        // If the clock of the recording is ahead, it counts from when the sample arrived.
        let since = if self.taken > now { self.heard } else { self.taken };
        let silence = now - since;
        let is_long = silence > (SILENT_INTERVALS * self.history.interval()).max(SILENT);
        (is_long && !self.history.is_empty() && self.history.outcome().is_none()).then_some(silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::moment;

    #[test]
    fn the_state_of_a_run() {
        let mut view = View::new(Source::Recording);
        assert_eq!(view.state(0.0).0, "reading");
        view.is_caught_up = true;
        assert_eq!(view.state(0.0).0, "waiting for the first sample");
        view.add(moment(100.0, 1.0, ""), 101.0);
        assert_eq!(view.state(102.0), ("running".into(), Tone::Good));
        assert_eq!(view.state(220.0).0, "no new samples for 2 min 0 s");
        let mut ahead = View::new(Source::Live);
        ahead.add(moment(5000.0, 1.0, ""), 101.0);
        assert_eq!(
            (ahead.state(102.0).0, ahead.state(141.0).0),
            ("running".into(), "no new samples for 40.0 s".into())
        );
        for (end, said, tone) in [
            (r#""exit_code": 0, "signal": null"#, "exited with 0", Tone::Good),
            (r#""exit_code": 7, "signal": null"#, "exited with 7", Tone::Bad),
            (r#""exit_code": null, "signal": 9"#, "was ended by SIGKILL", Tone::Bad),
            (r#""exit_code": null, "signal": null"#, "has ended", Tone::Good),
        ] {
            let end = format!(r#", "outcome": {{{end}, "wall_secs": 1, "samples": 1, "missed_samples": 0}}"#);
            view.add(moment(101.0, 1.0, &end), 101.0);
            assert_eq!(view.state(9999.0), (said.into(), tone));
        }
        assert_eq!(view.runs, 4, "what follows an end is another run");
    }

    #[test]
    fn a_process_that_is_not_there_is_waited_for() {
        let mut view = View::new(Source::Live);
        let of = |pid| Moment { pid: Some(pid), ..Moment::default() };
        view.add(of(7), 0.0);
        assert_eq!(view.state(1.0), ("no process 7 as yet".into(), Tone::Warn));
        view.add(Moment { pid: Some(7), ..moment(1.0, 1.0, "") }, 1.0);
        assert_eq!(view.state(1.0).0, "running");
    }

    #[test]
    fn a_replay_is_one_until_it_is_done() {
        let mut view = View::new(Source::Replay(10.0));
        view.add(moment(100.0, 1.0, ""), 1e9);
        assert_eq!(view.state(1e9).0, "replay, 10 times as fast");
        view.is_caught_up = true;
        assert!(view.state(1e9).0.starts_with("no new samples for "));
    }
}
