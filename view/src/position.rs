//! Which time is shown, and the keys that change it.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::history::History;

/// How much time can be on the screen, in seconds; the step after the last one is the whole run.
const WIDTHS: [f64; 13] =
    [10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 21_600.0, 43_200.0, 86_400.0, 604_800.0];
/// The most time that a live view shows before its user zooms.
const LIVE: f64 = 300.0;
/// The arrow keys go over the screen in so many steps.
const STEPS: f64 = 60.0;

/// What the view shows.
#[derive(Debug, Default)]
pub(crate) struct Position {
    width: Width,
    /// Set while time is held.
    held: Option<Held>,
    /// Which charts are shown, where there is no room for all.
    pub(crate) page: usize,
    pub(crate) has_help: bool,
    /// Whether charts of the job have the scale of the machine.
    pub(crate) has_machine_scale: bool,
}

/// How much time is on the screen.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
enum Width {
    #[default]
    All,
    /// All of the run, or its last minutes.
    Live,
    Seconds(f64),
}

#[derive(Debug, Clone, Copy)]
struct Held {
    /// The right edge.
    end: f64,
    /// The time whose figures are shown.
    cursor: f64,
}

impl Position {
    pub(crate) fn live() -> Self {
        Self { width: Width::Live, ..Self::default() }
    }

    /// Acts on a key. False if the key ends the view.
    pub(crate) fn press(&mut self, key: KeyEvent, history: &History) -> bool {
        let width = self.window(history).1 - self.window(history).0;
        let step = (width / STEPS).max(history.interval());
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char(' ') if self.held.is_some() => self.held = None,
            KeyCode::Char(' ') => self.held = Some(self.hold(history)),
            KeyCode::Left | KeyCode::Char('h') => self.go(-step, history),
            KeyCode::Right | KeyCode::Char('l') => self.go(step, history),
            KeyCode::PageUp => self.go(-width / 2.0, history),
            KeyCode::PageDown => self.go(width / 2.0, history),
            KeyCode::Home => self.go(f64::NEG_INFINITY, history),
            KeyCode::End => self.held = None,
            KeyCode::Char('+' | '=') => self.zoom_in(width, history),
            KeyCode::Char('-' | '_') => self.zoom_out(width, history),
            KeyCode::Tab => self.page = self.page.wrapping_add(1),
            KeyCode::BackTab => self.page = self.page.wrapping_sub(1),
            KeyCode::Char('m') => self.has_machine_scale = !self.has_machine_scale,
            KeyCode::Char('?') => self.has_help = !self.has_help,
            _ => (),
        }
        true
    }

    /// The time that the charts show: from and to.
    pub(crate) fn window(&self, history: &History) -> (f64, f64) {
        let end = self.held.map_or(history.last(), |held| held.end);
        let from = match self.width {
            Width::All => history.first(),
            Width::Live => {
                let length = end - history.first();
                end - WIDTHS.into_iter().find(|width| *width >= length).unwrap_or(LIVE).min(LIVE)
            }
            Width::Seconds(width) => end - width,
        };
        (from.min(end - 0.001), end)
    }

    /// Whether the whole run is on the screen.
    pub(crate) fn is_all(&self) -> bool {
        self.width == Width::All
    }

    /// The time whose figures are shown, if that is not the newest.
    pub(crate) fn cursor(&self) -> Option<f64> {
        self.held.map(|held| held.cursor)
    }

    /// Another run is shown from now on.
    pub(crate) fn begin_anew(&mut self) {
        self.held = None;
    }

    fn hold(&self, history: &History) -> Held {
        self.held.unwrap_or(Held { end: history.last(), cursor: history.last() })
    }

    fn go(&mut self, by: f64, history: &History) {
        let (from, end) = self.window(history);
        let mut held = self.hold(history);
        held.cursor = (held.cursor + by).max(history.first()).min(history.last());
        // The cursor stays on the screen.
        held.end += (held.cursor - end).max(0.0) - (from - held.cursor).max(0.0);
        self.held = Some(held);
    }

    fn zoom_in(&mut self, width: f64, history: &History) {
        let narrower = WIDTHS.iter().rev().find(|narrower| **narrower < width).copied();
        self.zoom(Width::Seconds(narrower.unwrap_or(WIDTHS[0])), width, history);
    }

    fn zoom_out(&mut self, width: f64, history: &History) {
        let wider = WIDTHS.iter().find(|wider| **wider > width && !self.is_all()).copied();
        // A window that is wider than the run shows all of it, unless a short run may still grow.
        let wider = wider.filter(|_| width < history.length().max(LIVE));
        self.zoom(wider.map_or(Width::All, Width::Seconds), width, history);
    }

    fn zoom(&mut self, to: Width, width: f64, history: &History) {
        if let Some(held) = &mut self.held {
            match to {
                // The cursor stays where it is on the screen.
                Width::Seconds(to) => held.end = held.cursor + (held.end - held.cursor) * to / width,
                _ => held.end = history.last(),
            }
        }
        self.width = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::tests::moment;

    fn press(position: &mut Position, history: &History, keys: &[KeyCode]) {
        assert!(keys.iter().all(|key| position.press(KeyEvent::from(*key), history)));
    }

    fn history(seconds: u32) -> History {
        let mut history = History::default();
        (1..=seconds).for_each(|second| history.add(moment(f64::from(second), 1.0, "")));
        history
    }

    #[test]
    fn keys_go_through_the_time() {
        let history = history(1000);
        let mut position = Position::default();
        assert_eq!(position.window(&history), (0.0, 1000.0));
        press(&mut position, &history, &[KeyCode::Char('+'), KeyCode::Char('+')]);
        assert_eq!(position.window(&history), (700.0, 1000.0), "the newest stays");
        press(&mut position, &history, &[KeyCode::Left]);
        assert_eq!((position.cursor(), position.window(&history)), (Some(995.0), (700.0, 1000.0)));
        press(&mut position, &history, &[KeyCode::PageUp; 3]);
        assert_eq!((position.cursor(), position.window(&history)), (Some(545.0), (545.0, 845.0)));
        press(&mut position, &history, &[KeyCode::Home, KeyCode::Left]);
        assert_eq!((position.cursor(), position.window(&history)), (Some(0.0), (0.0, 300.0)));
        press(&mut position, &history, &[KeyCode::PageDown, KeyCode::Char('+')]);
        assert_eq!((position.cursor(), position.window(&history)), (Some(150.0), (90.0, 210.0)), "around the cursor");
        press(&mut position, &history, &[KeyCode::End]);
        assert_eq!((position.cursor(), position.window(&history)), (None, (880.0, 1000.0)));
        press(&mut position, &history, &[KeyCode::Char('-'); 9]);
        assert!(position.is_all());
        press(&mut position, &history, &[KeyCode::Char('+'); 20]);
        assert_eq!(position.window(&history), (990.0, 1000.0));
    }

    #[test]
    fn time_stands_still_and_goes_on() {
        let mut history = history(10);
        let mut position = Position::live();
        press(&mut position, &history, &[KeyCode::Char(' ')]);
        history.add(moment(11.0, 1.0, ""));
        assert_eq!(position.window(&history), (0.0, 10.0));
        press(&mut position, &history, &[KeyCode::Char(' ')]);
        assert_eq!((position.cursor(), position.window(&history)), (None, (-19.0, 11.0)), "in steps");
    }

    #[test]
    fn nothing_can_be_looked_at_before_there_is_something() {
        let history = History::default();
        let mut position = Position::default();
        let keys =
            [KeyCode::Left, KeyCode::Right, KeyCode::Home, KeyCode::Char('+'), KeyCode::Char('-'), KeyCode::PageUp];
        press(&mut position, &history, &keys);
        let (from, to) = position.window(&history);
        assert!(from < to);
        for key in [
            KeyEvent::from(KeyCode::Char('q')),
            KeyEvent::from(KeyCode::Esc),
            KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL),
        ] {
            assert!(!position.press(key, &history));
        }
    }
}
