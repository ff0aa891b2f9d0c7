//! The head of the screen: the run, its state, and what it uses of the machine.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use resource_tracker_report::{memory, time};

use super::bar::shares;
use super::palette::Palette;
use crate::view::{Source, Tone, View};

/// Its lines.
pub(super) const HEADER: u16 = 4;
/// Columns of the labels to the left of bars and details.
pub(super) const LABELS: usize = 9;
/// From this width on bars are longer.
const WIDE: u16 = 120;

/// How much of something is in use, as a bar and in words, the most important first.
struct Meter {
    bar: Vec<Span<'static>>,
    words: Vec<String>,
}

impl Meter {
    fn text(text: &str) -> Self {
        Self { bar: Vec::new(), words: vec![text.to_owned()] }
    }
}

pub(super) fn draw(view: &View, now: f64, area: Rect, palette: &Palette, buffer: &mut Buffer) {
    let (state, tone) = view.state(now);
    let tone = match tone {
        Tone::Good => palette.good,
        Tone::Warn => palette.warn,
        Tone::Bad => palette.bad,
    };
    both(area, 0, Span::styled(title(view), palette.strong), Span::styled(state, tone), buffer);
    both(area, 1, Span::styled(facts(view), palette.faint), Span::styled(place(view), palette.strong), buffer);
    let bar = if area.width < WIDE { 16 } else { 40 };
    let meters = [("CPU", cpu(view, bar, palette)), ("Memory", used(view, bar, palette))];
    for (y, (label, meter)) in (area.y + 2..).zip(meters) {
        let mut line = Line::from(Span::styled(format!("{label:<LABELS$}"), palette.strong));
        let gap = if meter.bar.is_empty() { "" } else { "  " };
        line.extend(meter.bar);
        for (index, word) in meter.words.iter().enumerate() {
            let between = if index == 0 { gap } else { ", " };
            // A word that does not fit as a whole is left out.
            if line.width() + between.len() + word.len() <= area.width.into() {
                line.push_span(format!("{between}{word}"));
            }
        }
        buffer.set_line(area.x, y, &line, area.width);
    }
}

/// A text on the left, and one on the right that is never cut.
fn both(area: Rect, line: u16, left: Span, right: Span, buffer: &mut Buffer) {
    let width = (right.width() as u16).min(area.width);
    let y = area.y + line;
    buffer.set_span(area.right() - width, y, &right, width);
    let room = area.width.saturating_sub(width + 2);
    buffer.set_span(area.x, y, &left, room);
    if left.width() > usize::from(room) && room > 3 {
        buffer.set_string(area.x + room - 3, y, "...", left.style);
    }
}

fn title(view: &View) -> String {
    let history = &view.history;
    let other = || view.title.clone();
    let machine = || history.host().map_or("the machine".into(), |host| format!("the machine {host}"));
    let tracked = || match history.pid() {
        Some(pid) if history.has_job() => format!("process {pid}"),
        None if history.has_job() => "the process that was tracked".into(),
        _ => machine(),
    };
    history.command().or_else(other).unwrap_or_else(tracked)
}

/// The process, the host, and the time so far.
fn facts(view: &View) -> String {
    let history = &view.history;
    let mut facts = Vec::new();
    facts.extend(history.pid().map(|pid| format!("pid {pid}")));
    facts.extend(history.host().map(|host| format!("on {host}")));
    if !history.is_empty() {
        facts.push(time(history.length()));
        let interval = history.interval();
        let every = if interval.fract() == 0.0 && interval < 60.0 { format!("{interval} s") } else { time(interval) };
        facts.push(format!("a sample every {every}"));
    }
    if view.runs > 1 {
        facts.push(format!("run {}", view.runs));
    }
    facts.join(", ")
}

/// Which time is shown.
fn place(view: &View) -> String {
    let (history, position) = (&view.history, &view.position);
    let (from, to) = position.window(history);
    match position.cursor() {
        _ if history.is_empty() => String::new(),
        Some(cursor) => format!("held at {} of {}", time(cursor - history.first()), time(history.length())),
        None if position.is_all() => "all of it".into(),
        None => format!("the last {}", time(to - from)),
    }
}

fn cpu(view: &View, width: usize, palette: &Palette) -> Meter {
    let Some(moment) = view.history.at(view.position.cursor()) else { return Meter::text(waiting(view)) };
    let machine = moment.cpu.as_ref();
    let cpus = machine.map(|cpu| cpu.per_core.len() as f64).filter(|cpus| *cpus > 0.0);
    let of = |limit: Option<f64>| limit.map(|limit| format!(" of {}", number(limit))).unwrap_or_default();
    let Some(job) = &moment.job else {
        let Some(machine) = machine else { return Meter::text("not recorded") };
        let share = machine.cores / cpus.unwrap_or(f64::INFINITY);
        return Meter {
            bar: shares(width, share, 0.0, None, palette),
            words: vec![format!("{:.2}{} cores", machine.cores, of(cpus))],
        };
    };
    let all = cpus.or(job.core_limit).unwrap_or(f64::INFINITY);
    let share = |cores: Option<f64>| cores.map_or(0.0, |cores| cores / all);
    let limit = job.core_limit.map(|limit| limit / all);
    let mut words = vec![job.cores.map_or("nothing".into(), |cores| format!("{cores:.2}{} cores", of(job.core_limit)))];
    words.extend(machine.map(|cpu| format!("machine {:.2}{}", cpu.cores, of(cpus))));
    Meter { bar: shares(width, share(job.cores), share(machine.map(|cpu| cpu.cores)), limit, palette), words }
}

fn used(view: &View, width: usize, palette: &Palette) -> Meter {
    let Some(moment) = view.history.at(view.position.cursor()) else { return Meter::text("") };
    let machine = moment.memory.as_ref().filter(|memory| memory.total > 0.0);
    let Some(job) = &moment.job else {
        let Some(machine) = machine else { return Meter::text("not recorded") };
        let mut words = vec![format!("{} of {}", memory(machine.used), memory(machine.total))];
        words.extend((machine.swap >= 1.0).then(|| format!("swap {}", memory(machine.swap))));
        return Meter { bar: shares(width, machine.used / machine.total, 0.0, None, palette), words };
    };
    let all = machine.map(|memory| memory.total).or(job.memory_limit).unwrap_or(f64::INFINITY);
    let share = |mib: Option<f64>| mib.map_or(0.0, |mib| mib / all);
    let limit = job.memory_limit.map(|limit| limit / all);
    let of = job.memory_limit.map(|limit| format!(" of {}", memory(limit))).unwrap_or_default();
    let mut words: Vec<String> = job.memory.map(|held| format!("{} resident", memory(held))).into_iter().collect();
    let peak = job.peak_memory.or(view.history.peak_memory());
    // Files that are mapped are resident as well, and not in what was needed.
    words.extend(peak.map(|peak| format!("needed {}{of}", memory(peak))));
    words.extend(machine.map(|machine| format!("machine {}", memory(machine.used))));
    Meter { bar: shares(width, share(job.memory), share(machine.map(|memory| memory.used)), limit, palette), words }
}

fn waiting(view: &View) -> &'static str {
    match view.source {
        Source::Live => "the first sample comes after one interval",
        _ if view.is_caught_up => "the file has no sample as yet",
        _ => "",
    }
}

/// Whole numbers without decimals.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}
