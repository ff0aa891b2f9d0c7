//! A chart: figures over time as columns, one above the other where they have scales of their own.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use resource_tracker_report::{Span as Phase, time};

use super::bar::{HEIGHTS, SHADE};
use super::palette::Palette;
use crate::history::History;

/// Columns of the labels on the left.
const LABELS: u16 = 10;
const LIMIT: &str = "─";
/// Bands of so many lines have an empty one between them.
const ROOMY: u16 = 5;

/// A chart, without its place on the screen.
pub(super) struct Chart {
    pub(super) title: &'static str,
    pub(super) bands: Vec<Band>,
    /// What the parts of the band, or the bands, stand for.
    pub(super) legend: Vec<(char, &'static str)>,
}

/// Columns with a scale of their own.
pub(super) struct Band {
    pub(super) name: &'static str,
    pub(super) values: Vec<f32>,
    /// Values of a second figure, drawn behind them.
    pub(super) behind: Vec<f32>,
    pub(super) limit: Option<f64>,
    /// The value at full height, as a number and as a text.
    pub(super) top: f64,
    pub(super) label: String,
}

/// The time that all charts show.
pub(super) struct Axis<'a> {
    pub(super) history: &'a History,
    pub(super) window: (f64, f64),
    pub(super) cursor: Option<f64>,
}

/// How many columns a chart of this width has.
pub(super) fn columns(width: u16) -> usize {
    usize::from(width.saturating_sub(LABELS))
}

impl Axis<'_> {
    /// The column of a time, if it is on the screen.
    fn column(&self, time: f64, count: u16) -> Option<u16> {
        let (from, to) = self.window;
        let share = (time - from) / (to - from);
        // The right edge belongs to the last column.
        (0.0..=1.0).contains(&share).then(|| ((share * f64::from(count)) as u16).min(count.saturating_sub(1)))
    }

    fn time(&self, at: f64) -> String {
        let secs = at - self.history.first();
        match secs {
            ..0.0 => String::new(),
            0.0..0.001 => "0 s".into(),
            _ => time(secs),
        }
    }

    fn phases(&self) -> impl Iterator<Item = &Phase> {
        let (from, to) = self.window;
        self.history.phases().iter().filter(move |phase| phase.from <= to && phase.to.is_none_or(|end| end > from))
    }
}

/// Draws the chart: a title, the names of phases if there are any, the columns, and the times at both ends.
pub(super) fn draw(chart: &Chart, axis: &Axis, area: Rect, palette: &Palette, buffer: &mut Buffer) {
    let has_phases = axis.phases().next().is_some();
    let above = 1 + u16::from(has_phases);
    if area.height < above + 2 || area.width <= LABELS {
        return;
    }
    title(chart, area, palette, buffer);
    let plot =
        Rect { x: area.x + LABELS, y: area.y + above, width: area.width - LABELS, height: area.height - above - 1 };
    let count = chart.bands.len().max(1) as u16;
    let gap = u16::from(plot.height >= ROOMY * count);
    let height = (plot.height + gap) / count;
    for (index, band) in (0..).zip(&chart.bands) {
        // The lowest band stands on the line of times.
        let bottom = plot.bottom() - (count - 1 - index) * height;
        let place = Rect { y: bottom + gap - height, height: height - gap, ..plot };
        labels(band, place, palette, buffer);
        columns_of(band, place, palette, buffer);
    }
    if has_phases {
        phases(axis, plot, palette, buffer);
    }
    if let Some(column) = axis.cursor.and_then(|cursor| axis.column(cursor, plot.width)) {
        line(plot, column, "│", palette, buffer);
    }
    times(axis, Rect { y: plot.bottom(), height: 1, ..plot }, palette, buffer);
}

/// When the chart, or the run, begins, and when it ends.
fn times(axis: &Axis, place: Rect, palette: &Palette, buffer: &mut Buffer) {
    let (from, to) = axis.window;
    let begin = from.max(axis.history.first());
    let (first, last) = (axis.time(begin), axis.time(to));
    let left = axis.column(begin, place.width).unwrap_or(0);
    let right = place.width.saturating_sub(last.chars().count() as u16);
    if usize::from(left) + first.chars().count() < right.into() {
        buffer.set_string(place.x + left, place.y, first, palette.faint);
    }
    buffer.set_stringn(place.x + right, place.y, last, (place.width - right).into(), palette.faint);
}

fn title(chart: &Chart, area: Rect, palette: &Palette, buffer: &mut Buffer) {
    let mut spans = vec![Span::styled(format!("{:<1$}", chart.title, usize::from(LABELS)), palette.strong)];
    for (char, name) in &chart.legend {
        let style = match *char {
            SHADE => palette.second,
            '─' => palette.limit,
            _ => palette.first,
        };
        spans.push(Span::styled(char.to_string(), style));
        spans.push(Span::styled(format!(" {name}  "), palette.faint));
    }
    buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
}

fn labels(band: &Band, place: Rect, palette: &Palette, buffer: &mut Buffer) {
    let width = usize::from(LABELS - 1);
    for (y, text) in [(place.y, band.label.as_str()), (place.y + 1, band.name)] {
        if y < place.bottom() {
            let style = if text == band.name { Style::new() } else { palette.faint };
            buffer.set_stringn(place.x - LABELS, y, format!("{text:>width$}"), width, style);
        }
    }
}

fn columns_of(band: &Band, place: Rect, palette: &Palette, buffer: &mut Buffer) {
    let eighths = |value: f32| {
        let share = (f64::from(value) / band.top).clamp(0.0, 1.0);
        (share * 8.0 * f64::from(place.height)).round() as u16
    };
    let limit = band.limit.filter(|limit| *limit <= band.top * 1.001).map(|limit| {
        let row = (limit / band.top * f64::from(place.height)).ceil() as u16;
        place.height.saturating_sub(row.max(1))
    });
    for column in 0..place.width {
        let of = |values: &[f32]| values.get(usize::from(column)).map_or(0, |value| eighths(*value));
        let (value, behind) = (of(&band.values), of(&band.behind));
        for row in 0..place.height {
            // The eighths below this cell.
            let below = 8 * (place.height - row - 1);
            let Some(cell) = buffer.cell_mut((place.x + column, place.y + row)) else { continue };
            let filled = value.saturating_sub(below).min(8);
            if filled > 0 {
                cell.set_char(HEIGHTS[usize::from(filled)]).set_style(palette.first);
            } else if limit == Some(row) {
                cell.set_symbol(LIMIT).set_style(palette.limit);
            } else if behind >= below + 4 {
                cell.set_char(SHADE).set_style(palette.second);
            }
        }
    }
}

/// A line down the chart, beside what is drawn.
fn line(plot: Rect, column: u16, symbol: &str, palette: &Palette, buffer: &mut Buffer) {
    for y in plot.top()..plot.bottom() {
        if let Some(cell) = buffer.cell_mut((plot.x + column, y)) {
            if cell.symbol() == " " {
                cell.set_symbol(symbol).set_style(palette.strong);
            } else {
                cell.set_style(cell.style().add_modifier(Modifier::REVERSED));
            }
        }
    }
}

/// Where phases begin, and their names, as far as there is room before the next one.
fn phases(axis: &Axis, plot: Rect, palette: &Palette, buffer: &mut Buffer) {
    let y = plot.y - 1;
    let mut begins: Vec<(u16, &Phase)> =
        axis.phases().map(|phase| (axis.column(phase.from, plot.width).unwrap_or(0), phase)).collect();
    begins.sort_by_key(|(column, _)| *column);
    for (index, (column, phase)) in begins.iter().enumerate() {
        let next = begins.get(index + 1).map_or(plot.width, |(next, _)| *next);
        let room = usize::from(next.saturating_sub(*column));
        if axis.column(phase.from, plot.width).is_some() {
            for row in plot.top()..plot.bottom() {
                if let Some(cell) = buffer.cell_mut((plot.x + column, row)).filter(|cell| cell.symbol() == " ") {
                    cell.set_symbol("┊").set_style(palette.faint);
                }
            }
        }
        let style = if phase.to.is_none() { palette.strong } else { palette.faint };
        buffer.set_stringn(plot.x + column, y, format!("┊{} ", phase.name), room, style);
    }
}
