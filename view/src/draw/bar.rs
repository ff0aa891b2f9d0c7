//! Bars, in eighths of a cell.

use ratatui::style::Style;
use ratatui::text::Span;

use super::palette::Palette;

/// From nothing to a whole cell, from below.
pub(super) const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The second of two figures in one chart or bar.
pub(super) const SHADE: char = '░';
const REST: char = '·';
const LIMIT: char = '│';

/// The number of cells that a share, from 0 to 1, takes of `width`; 0 for NaN.
fn cells(share: f64, width: usize) -> usize {
    (share.clamp(0.0, 1.0) * width as f64).round() as usize
}

/// A bar of what the job has, what others have beside it, and a limit, as shares of the machine.
pub(super) fn shares(
    width: usize,
    first: f64,
    second: f64,
    limit: Option<f64>,
    palette: &Palette,
) -> Vec<Span<'static>> {
    let (first, second) = (cells(first, width), cells(second, width));
    let limit =
        limit.filter(|limit| (0.0..1.0).contains(limit)).map(|limit| cells(limit, width).min(width.saturating_sub(1)));
    let cell = |index: usize| match index {
        _ if Some(index) == limit => (LIMIT, palette.limit),
        _ if index < first => (HEIGHTS[8], palette.first),
        _ if index < second => (SHADE, palette.second),
        _ => (REST, palette.faint),
    };
    (0..width).map(|index| span(cell(index))).collect()
}

/// A bar of one share.
pub(super) fn share(width: usize, share: f64, palette: &Palette) -> Vec<Span<'static>> {
    shares(width, share, 0.0, None, palette)
}

fn span((char, style): (char, Style)) -> Span<'static> {
    Span::styled(char.to_string(), style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_all_its_cells() {
        let text = |first, second, limit| -> String {
            shares(8, first, second, limit, &Palette::default()).iter().map(|span| span.content.as_ref()).collect()
        };
        assert_eq!(text(0.5, 0.75, None), "████░░··");
        assert_eq!(text(0.25, 0.0, Some(0.5)), "██··│···");
        assert_eq!(text(0.25, 1.0, Some(1.0)), "██░░░░░░");
        assert_eq!(text(f64::NAN, -1.0, Some(f64::NAN)), "········");
        assert_eq!(text(9.0, f64::INFINITY, Some(0.999)), "███████│");
    }
}
