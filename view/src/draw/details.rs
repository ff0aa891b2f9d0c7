//! The figures of the time that is looked at: cores, disks, networks, GPUs, waiting.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use resource_tracker_report::{bytes, memory};

use super::bar::{HEIGHTS, share};
use super::header::LABELS;
use super::palette::Palette;
use crate::moment::{Cpu, Disk, Gpu, Job, Moment, Network, Process, Waiting};
use crate::view::View;

/// From this width on there are two columns.
const WIDE: u16 = 160;
/// More lines of bars than these are too many: each core is one character then.
const CORE_LINES: usize = 4;
const CORE_BAR: usize = 8;
const GROUP: usize = 8;
const LONGEST_NAME: usize = 16;

/// The lines about one thing.
struct Part {
    label: &'static str,
    lines: Vec<Line<'static>>,
}

/// All parts, before it is known how much room there is.
pub(super) struct Details<'a> {
    /// Beside each other.
    columns: Vec<Vec<Part>>,
    palette: &'a Palette,
}

impl<'a> Details<'a> {
    pub(super) fn of(view: &View, width: u16, palette: &'a Palette) -> Self {
        let count = if width >= WIDE { 2 } else { 1 };
        let mut columns: Vec<Vec<Part>> = (0..count).map(|_| Vec::new()).collect();
        if let Some(moment) = view.history.at(view.position.cursor()) {
            let parts = parts(moment, usize::from(width) / count - LABELS - 2, palette);
            for part in parts.into_iter().filter(|part| !part.lines.is_empty()) {
                // It goes to the column with most room.
                if let Some(column) = columns.iter_mut().min_by_key(|column| lines(column)) {
                    column.push(part);
                }
            }
        }
        Self { columns, palette }
    }

    /// How many lines it takes to show all.
    pub(super) fn height(&self) -> u16 {
        let most = self.columns.iter().map(|column| lines(column)).max().unwrap_or(0);
        u16::try_from(most).unwrap_or(u16::MAX)
    }

    pub(super) fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let width = area.width / self.columns.len().max(1) as u16;
        let gap = u16::from(self.columns.len() > 1);
        for (x, column) in (area.x..).step_by(width.max(1).into()).zip(&self.columns) {
            let rooms = rooms(&column.iter().map(|part| part.lines.len()).collect::<Vec<_>>(), area.height.into());
            let mut y = area.y;
            for (part, room) in column.iter().zip(rooms) {
                for (index, line) in part.lines.iter().take(room).enumerate() {
                    if index == 0 {
                        buffer.set_stringn(x, y, part.label, LABELS, self.palette.strong);
                    }
                    let left = width.saturating_sub(LABELS as u16 + gap);
                    buffer.set_line(x + LABELS as u16, y, line, left);
                    let hidden = part.lines.len() - room;
                    if index + 1 == room && hidden > 0 {
                        let more = format!("  and {hidden} more");
                        let at = (line.width() as u16).min(left.saturating_sub(more.len() as u16));
                        buffer.set_string(x + LABELS as u16 + at, y, more, self.palette.faint);
                    }
                    y += 1;
                }
            }
        }
    }
}

fn lines(column: &[Part]) -> usize {
    column.iter().map(|part| part.lines.len()).sum()
}

/// Shares out the lines: one for each part, then more for the parts that want more.
fn rooms(wanted: &[usize], mut room: usize) -> Vec<usize> {
    let mut rooms = vec![0; wanted.len()];
    while room > 0 && rooms != wanted {
        for (given, wanted) in rooms.iter_mut().zip(wanted) {
            if *given < *wanted && room > 0 {
                (*given, room) = (*given + 1, room - 1);
            }
        }
    }
    rooms
}

fn parts(moment: &Moment, width: usize, palette: &Palette) -> [Part; 7] {
    let part = |label, lines| Part { label, lines };
    [
        part("Cores", moment.cpu.as_ref().map(|cpu| cores(cpu, width, palette)).unwrap_or_default()),
        part("Job", moment.job.as_ref().and_then(job).into_iter().collect()),
        part("GPUs", gpus(&moment.gpus, palette)),
        part("Disks", disks(&moment.disks)),
        part("Network", networks(&moment.networks)),
        part("Busiest", processes(&moment.processes)),
        part("Waiting", moment.waiting.as_ref().and_then(waiting).into_iter().collect()),
    ]
}

fn cores(cpu: &Cpu, width: usize, palette: &Palette) -> Vec<Line<'static>> {
    let digits = cpu.numbers.iter().max().map_or(1, |number| number.to_string().len());
    // The number, the bar, the share, and what is between.
    let cell = digits + 1 + CORE_BAR + 6 + 2;
    let beside = (width / cell).max(1);
    let cores: Vec<(usize, f64)> = cpu.numbers.iter().copied().zip(cpu.per_core.iter().copied()).collect();
    if cores.len() > beside * CORE_LINES {
        return small_cores(&cores, width, digits, palette);
    }
    let line = |cores: &[(usize, f64)]| {
        let mut spans = Vec::new();
        for (number, percent) in cores {
            spans.push(Span::styled(format!("{number:>digits$} "), palette.faint));
            spans.extend(share(CORE_BAR, percent / 100.0, palette));
            spans.push(Span::raw(format!(" {percent:>3.0} %  ")));
        }
        Line::from(spans)
    };
    cores.chunks(beside).map(line).collect()
}

/// Many cores: each is one character, as high as the core is busy, in groups.
fn small_cores(cores: &[(usize, f64)], width: usize, digits: usize, palette: &Palette) -> Vec<Line<'static>> {
    let groups = (width.saturating_sub(digits + 1) / (GROUP + 1)).max(1);
    let height = |percent: f64| {
        let height = (percent.clamp(0.0, 100.0) / 100.0 * 8.0).round() as usize;
        if height == 0 { '·' } else { HEIGHTS[height] }
    };
    let line = |cores: &[(usize, f64)]| {
        let first = cores.first().map_or(0, |(number, _)| *number);
        let groups =
            cores.chunks(GROUP).map(|group| group.iter().map(|(_, percent)| height(*percent)).collect::<String>());
        let text = groups.collect::<Vec<_>>().join(" ");
        Line::from(vec![Span::styled(format!("{first:>digits$} "), palette.faint), Span::styled(text, palette.first)])
    };
    cores.chunks(groups * GROUP).map(line).collect()
}

fn job(job: &Job) -> Option<Line<'static>> {
    let mut words = Vec::new();
    if let (Some(read), Some(written)) = (job.read, job.written) {
        words.push(rates(read, "read", written, "written"));
    }
    let counted = |count: u32, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    words.extend(job.processes.map(|count| counted(count, "process", "processes")));
    words.extend(job.threads.map(|count| counted(count, "thread", "threads")));
    words.extend(job.swap.filter(|swap| *swap >= 1.0).map(|swap| format!("{} in swap", memory(swap))));
    (!words.is_empty()).then(|| Line::from(words.join("  ")))
}

fn gpus(gpus: &[Gpu], palette: &Palette) -> Vec<Line<'static>> {
    let line = |(index, gpu): (usize, &Gpu)| {
        let mut spans = vec![Span::styled(format!("{index} "), palette.faint)];
        if let Some(used) = gpu.used {
            spans.extend(share(CORE_BAR, used / 100.0, palette));
            spans.push(Span::raw(format!(" {used:>3.0} %")));
        }
        let mut words = String::new();
        if let (Some(held), Some(total)) = (gpu.memory, gpu.memory_total) {
            words += &format!("  {:>8} of {}", memory(held), memory(total));
        }
        words += &gpu.watts.map(|watts| format!("  {watts:>3.0} W")).unwrap_or_default();
        words += &gpu.celsius.map(|celsius| format!("  {celsius} °C")).unwrap_or_default();
        spans.push(Span::raw(format!("{words}  ")));
        spans.push(Span::styled(gpu.name.clone(), palette.faint));
        Line::from(spans)
    };
    gpus.iter().enumerate().map(line).collect()
}

fn disks(disks: &[Disk]) -> Vec<Line<'static>> {
    let width = names(disks.iter().map(|disk| disk.name.as_str()));
    let line = |disk: &Disk| {
        let mut words = format!("{}  ", name(&disk.name, width));
        words += &rates(disk.read.unwrap_or(0.0), "read", disk.written.unwrap_or(0.0), "written");
        words += &disk.busy.map(|busy| format!("  {busy:>3.0} % busy")).unwrap_or_default();
        words += &disk.fullest.as_ref().map(|(mount, used)| format!("  {mount} {used:.0} % full")).unwrap_or_default();
        Line::from(words)
    };
    disks.iter().map(line).collect()
}

fn networks(networks: &[Network]) -> Vec<Line<'static>> {
    let width = names(networks.iter().map(|network| network.name.as_str()));
    let line = |network: &Network| {
        format!("{}  {}", name(&network.name, width), rates(network.received, "received", network.sent, "sent")).into()
    };
    networks.iter().map(line).collect()
}

fn processes(processes: &[Process]) -> Vec<Line<'static>> {
    let width = names(processes.iter().map(|process| process.name.as_str()));
    let line = |process: &Process| {
        let (cores, held) = (process.cores, memory(process.memory));
        format!("{:>7}  {}  {cores:>6.2} cores  {held:>8}", process.pid, name(&process.name, width)).into()
    };
    processes.iter().map(line).collect()
}

fn waiting(waiting: &Waiting) -> Option<Line<'static>> {
    let parts = [(waiting.cpu, "CPU"), (waiting.memory, "memory"), (waiting.storage, "storage")];
    let parts = parts.into_iter().filter_map(|(percent, what)| Some(format!("{what} {:.0} %", percent?)));
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| Line::from(format!("{} (any program of the machine)", parts.join(", "))))
}

/// Two rates, aligned with those of other lines.
fn rates(one: f64, is: &str, other: f64, is_other: &str) -> String {
    format!("{:>7}/s {is}  {:>7}/s {is_other}", bytes(one.max(0.0)), bytes(other.max(0.0)))
}

/// The width of a column of names.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).max().unwrap_or(0).min(LONGEST_NAME)
}

fn name(name: &str, width: usize) -> String {
    let name: String = name.chars().take(width).collect();
    format!("{name:<width$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_a_line_before_another_has_more() {
        assert_eq!(rooms(&[4, 1, 30], 10), [4, 1, 5]);
        assert_eq!(rooms(&[4, 1, 30], 2), [1, 1, 0]);
        assert_eq!(rooms(&[2, 1], 10), [2, 1]);
        assert_eq!(rooms(&[], 10), [0; 0]);
    }
}
