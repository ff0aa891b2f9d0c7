//! A summary for a terminal.

use std::io::IsTerminal;
use std::os::fd::AsFd;

use anstyle::{AnsiColor, Style};
use rustix::termios::tcgetwinsize;
use textwrap::core::display_width;

use crate::rows::{Row, Rows};
use crate::summary::Summary;

/// The most lines, in a terminal that has room for bars.
const LINES: usize = 20;
const BAR: usize = 16;
/// A terminal that is narrower has no bars.
const WIDE: usize = 72;
/// Stands for what was cut off.
const ELLIPSIS: &str = "...";
/// No line is cut shorter than this.
const NARROWEST: usize = 20;

/// How a summary is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Columns of the terminal; what is longer is cut. 0: nothing is cut.
    pub width: usize,
    /// Whether it has colours.
    pub colour: bool,
}

impl Look {
    /// The look for this stream. Colours are for terminals that have them, unless `NO_COLOR` is set.
    pub fn of(stream: &(impl AsFd + IsTerminal)) -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let size = tcgetwinsize(stream).ok().filter(|_| stream.is_terminal());
        let colour = stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb;
        Self { width: size.map_or(0, |size| size.ws_col.into()), colour }
    }
}

/// The summary in at most 20 lines.
pub fn text(summary: &Summary, look: Look) -> String {
    let rows = Rows::of(summary);
    let style = |style: Style| if look.colour { style } else { Style::new() };
    let bold = bold(look);
    let ending = match rows.has_failed {
        true => style(Style::new().bold().fg_color(Some(AnsiColor::Red.into()))),
        false => bold,
    };
    let mut lines = vec![
        format!("{bold}{}{bold:#}", cut(&rows.title, look.width)),
        format!("{ending}{}{ending:#}", cut(&rows.ending, look.width)),
    ];
    let has_bars = look.width == 0 || look.width >= WIDE;
    let labels = rows.rows.iter().map(|row| row.label.as_str()).chain(rows.remarks.iter().map(|(label, _)| *label));
    let label_width = labels.map(str::len).max().unwrap_or(0);
    let left = |bar: usize| left(look, label_width + 2 + bar);
    let remarks: Vec<Vec<String>> =
        rows.remarks.iter().map(|(label, text)| labelled(label, text, label_width, look)).collect();
    // A narrow terminal gets more lines.
    let limit = if has_bars { LINES } else { usize::MAX };
    let shown = rows_with_room(&rows.rows, limit - lines.len(), remarks.iter().map(Vec::len).sum());
    for row in &shown {
        let bar = row.share.filter(|_| has_bars).map(|share| format!("{}  ", bar(share))).unwrap_or_default();
        let text = cut(&row.text, left(bar.len()));
        lines.push(format!("{bold}{:label_width$}{bold:#}  {bar}{text}", row.label));
    }
    let mut left_out = rows.rows.len() - shown.len();
    for (index, remark) in remarks.iter().enumerate() {
        // The last line may have to say that there is more.
        let is_last = index + 1 == remarks.len() && left_out == 0;
        if lines.len() + remark.len() + usize::from(!is_last) > limit {
            left_out += remarks.len() - index;
            break;
        }
        lines.extend(remark.iter().cloned());
    }
    if left_out > 0 {
        let text = format!("{left_out} more, in `summary --json FILE` of a recording");
        lines.extend(labelled("...", &text, label_width, look).into_iter().take(1));
    }
    lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// The rows that there is room for beside the remarks, which matter more than some of them.
fn rows_with_room(rows: &[Row], room: usize, remarks: usize) -> Vec<&Row> {
    /// So many lines are for what is said of the run; notes beyond these make no row go.
    const REMARKS: usize = 9;
    /// The rows that go first: the programs that were busiest, the processes, the phases.
    const LESS: [&str; 3] = ["Busiest", "Processes", "Phase"];
    let mut shown: Vec<&Row> = rows.iter().collect();
    let room = room.saturating_sub(remarks.min(REMARKS));
    for label in LESS {
        // One line says that there is more.
        if shown.len() + usize::from(shown.len() < rows.len()) > room {
            shown.retain(|row| !row.label.starts_with(label));
        }
    }
    shown
}

fn bold(look: Look) -> Style {
    if look.colour { Style::new().bold() } else { Style::new() }
}

/// The columns left beside `taken` ones. 0 means no limit.
fn left(look: Look, taken: usize) -> usize {
    if look.width == 0 { 0 } else { look.width.saturating_sub(taken).max(NARROWEST) }
}

/// A text beside its label, on as many lines as it takes.
pub(crate) fn labelled(label: &str, text: &str, label_width: usize, look: Look) -> Vec<String> {
    let (bold, width) = (bold(look), left(look, label_width + 2));
    // A flag is one word, to be copied.
    let options = textwrap::Options::new(if width == 0 { usize::MAX } else { width })
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    let wrapped = textwrap::wrap(text, options);
    let line = |(index, text)| {
        let label = if index == 0 { label } else { "" };
        format!("{bold}{label:label_width$}{bold:#}  {text}")
    };
    wrapped.into_iter().enumerate().map(line).collect()
}

/// `[####------]`: the share that was used.
fn bar(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * BAR as f64).round() as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full))
}

/// As much of the text as there is room for. Letters of some scripts take two columns.
fn cut(text: &str, width: usize) -> String {
    if width == 0 || display_width(text) <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(ELLIPSIS.len());
    let has_room = |char: &char| {
        let columns = display_width(char.encode_utf8(&mut [0; 4]));
        left.checked_sub(columns).inspect(|rest| left = *rest).is_some()
    };
    text.chars().take_while(has_room).chain(ELLIPSIS.chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_no_more_columns_than_there_are() {
        assert_eq!(
            [cut("a long text", 0), cut("a long text", 11), cut("a long text", 10)],
            ["a long text", "a long text", "a long ..."]
        );
        assert_eq!(
            [cut("模型訓練を始める", 16), cut("模型訓練を始める", 15), cut("模型訓練を始める", 10)],
            ["模型訓練を始める", "模型訓練を始...", "模型訓..."]
        );
        assert_eq!([cut("train — “a”", 11), cut("train — “a”", 10)], ["train — “a”", "train —..."]);
    }
}
