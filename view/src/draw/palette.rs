//! How things look: in the terminal's own sixteen colours, or without any.

use ratatui::style::{Color, Modifier, Style};

/// What things are, and the style of each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Palette {
    /// The job, or the machine where there is none.
    pub(crate) first: Style,
    /// The machine beside a job, or the second of two.
    pub(crate) second: Style,
    pub(crate) limit: Style,
    pub(crate) good: Style,
    pub(crate) warn: Style,
    pub(crate) bad: Style,
    pub(crate) faint: Style,
    pub(crate) strong: Style,
}

impl Palette {
    /// `has_colour`: the terminal has them, and its user wants them.
    pub(crate) fn new(has_colour: bool) -> Self {
        let (strong, faint) = (Style::new().add_modifier(Modifier::BOLD), Style::new().add_modifier(Modifier::DIM));
        if !has_colour {
            return Self { second: faint, faint, strong, good: strong, warn: strong, bad: strong, ..Self::default() };
        }
        Self {
            first: Style::new().fg(Color::Cyan),
            second: Style::new().fg(Color::Blue),
            limit: Style::new().fg(Color::Yellow),
            good: strong.fg(Color::Green),
            warn: strong.fg(Color::Yellow),
            bad: strong.fg(Color::Red),
            faint,
            strong,
        }
    }
}
