//! Draws a view into the cells of a terminal.

mod bar;
mod chart;
mod charts;
mod details;
mod header;
mod palette;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

pub(crate) use palette::Palette;

use crate::view::View;
use header::HEADER;

/// In fewer columns or lines than these, nothing useful has room.
const SMALLEST: (u16, u16) = (60, 16);
/// The lines of a chart and of the details that are worth their place.
const CHART: u16 = 7;
const FEWEST_DETAILS: u16 = 4;
/// From here on there is an empty line between the parts.
const SPACIOUS: u16 = 32;

const KEYS: [(&str, &str); 9] = [
    ("q, Esc, Ctrl-C", "quit"),
    ("space", "hold time, and let it go on"),
    ("left, right", "go to another time, and see its figures"),
    ("PgUp, PgDn", "go by half of what is shown"),
    ("Home, End", "go to the beginning; back to the newest"),
    ("+ -", "show less or more time"),
    ("Tab", "show other charts, where there is no room for all"),
    ("m", "draw the job on the scale of the machine"),
    ("?", "these keys"),
];
const SHORT_KEYS: &str = "q quit  space hold  \u{2190}\u{2192} go  + - zoom  Tab charts  ? keys";

/// Draws the view. `now` is in seconds since the Unix epoch.
pub(crate) fn draw(view: &View, now: f64, palette: &Palette, frame: &mut Frame) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let lines = [
            "This terminal is too small:".to_owned(),
            format!("{} x {}, where at least", area.width, area.height),
            format!("{} x {} are needed.", SMALLEST.0, SMALLEST.1),
        ];
        for (y, line) in (area.y..area.bottom()).zip(lines) {
            buffer.set_stringn(area.x, y, line, area.width.into(), palette.strong);
        }
        return;
    }
    let gap = u16::from(area.height >= SPACIOUS);
    header::draw(view, now, area, palette, buffer);
    let body = Rect { y: area.y + HEADER + gap, height: area.height - HEADER - 1 - 2 * gap, ..area };
    if view.position.has_help {
        for (y, (keys, meaning)) in (body.y + 1..body.bottom()).zip(KEYS) {
            let line = Line::from(vec![Span::styled(format!("{keys:<17}"), palette.strong), Span::raw(meaning)]);
            buffer.set_line(body.x, y, &line, body.width);
        }
    } else if !view.history.is_empty() {
        let details = details::Details::of(view, body.width, palette);
        let most = (body.height * 55 / 100).min(body.height.saturating_sub(CHART + gap)).max(FEWEST_DETAILS);
        let height = details.height().clamp(FEWEST_DETAILS, most);
        let above = Rect { height: body.height - height - gap, ..body };
        charts::draw(view, above, palette, buffer);
        details.draw(Rect { y: above.bottom() + gap, height, ..body }, buffer);
    }
    let foot = Rect { y: area.bottom() - 1, height: 1, ..area };
    match &view.note {
        Some(message) => buffer.set_stringn(foot.x, foot.y, message, foot.width.into(), palette.warn),
        None => buffer.set_stringn(foot.x, foot.y, SHORT_KEYS, foot.width.into(), palette.faint),
    };
}
