//! Which charts there are, and where.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use resource_tracker_report::{bytes, memory};

use super::bar::SHADE;
use super::chart::{Axis, Band, Chart, columns, draw as draw_chart};
use super::palette::Palette;
use crate::history::Series;
use crate::view::View;

/// The least height of a chart.
const HEIGHT: u16 = 9;
/// If each has so many columns, three charts stand side by side.
const ROOMY: u16 = 56;
const BETWEEN: u16 = 2;
/// Less than this is no pressure, in percent.
const PRESSURE: f32 = 1.0;

/// Draws as many charts as there is room for; the others are on further pages.
pub(super) fn draw(view: &View, area: Rect, palette: &Palette, buffer: &mut Buffer) {
    let all = kinds(view);
    if all.is_empty() {
        return;
    }
    let widest = if area.width >= 3 * ROOMY { 3 } else { 2 };
    let below = usize::from(area.height / HEIGHT).min(all.len().div_ceil(widest)).max(1);
    let beside = all.len().div_ceil(below).min(widest);
    let pages = all.len().div_ceil(beside * below).max(1);
    let page = view.position.page % pages;
    let width = (area.width + BETWEEN) / beside as u16 - BETWEEN;
    let axis =
        Axis { history: &view.history, window: view.position.window(&view.history), cursor: view.position.cursor() };
    let count = columns(width);
    for (index, kind) in all.iter().skip(page * beside * below).take(beside * below).enumerate() {
        let (row, column) = ((index / beside) as u16, (index % beside) as u16);
        // Lines that are left over go to the upper charts.
        let edge = |row: u16| (area.height * row).div_ceil(below as u16);
        let place = Rect {
            x: area.x + column * (width + BETWEEN),
            y: area.y + edge(row),
            width,
            height: edge(row + 1) - edge(row),
        };
        draw_chart(&kind.chart(view, count), &axis, place, palette, buffer);
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Cores,
    Memory,
    Disks,
    Network,
    Gpus,
    Waiting,
}

/// The charts for which some figure is known.
fn kinds(view: &View) -> Vec<Kind> {
    let history = &view.history;
    let of = [
        (Kind::Cores, [Series::JobCores, Series::MachineCores]),
        (Kind::Memory, [Series::JobMemory, Series::MachineMemory]),
        (Kind::Gpus, [Series::GpuUsed, Series::GpuMemory]),
        (Kind::Disks, [Series::DiskRead, Series::DiskWritten]),
        (Kind::Network, [Series::Received, Series::Sent]),
    ];
    let known = of.into_iter().filter(|(_, figures)| figures.iter().any(|series| history.has(*series)));
    let mut kinds: Vec<Kind> = known.map(|(kind, _)| kind).collect();
    if [Series::WaitCpu, Series::WaitMemory, Series::WaitStorage].iter().any(|series| history.peak(*series) >= PRESSURE)
    {
        kinds.push(Kind::Waiting);
    }
    kinds
}

impl Kind {
    fn chart(self, view: &View, count: usize) -> Chart {
        let reader = Reader { view, count };
        match self {
            Self::Cores => {
                let cores = |value: f64| format!("{}", (100.0 * value).round() / 100.0);
                reader.of_both("Cores", [Series::JobCores, Series::MachineCores, Series::CoreLimit], nice, &cores)
            }
            Self::Memory => reader.of_both(
                "Memory",
                [Series::JobMemory, Series::MachineMemory, Series::MemoryLimit],
                nice_binary,
                &memory,
            ),
            Self::Disks => reader.rates("Disks", [(Series::DiskRead, "read"), (Series::DiskWritten, "written")]),
            Self::Network => reader.rates("Network", [(Series::Received, "received"), (Series::Sent, "sent")]),
            Self::Gpus => reader.percents("GPUs", &[(Series::GpuUsed, "in use"), (Series::GpuMemory, "memory")]),
            Self::Waiting => reader.percents(
                "Waiting",
                &[(Series::WaitCpu, "for a CPU"), (Series::WaitMemory, "memory"), (Series::WaitStorage, "storage")],
            ),
        }
    }
}

struct Reader<'a> {
    view: &'a View,
    count: usize,
}

impl Reader<'_> {
    fn values(&self, series: Series) -> Vec<f32> {
        self.view.history.columns(series, self.view.position.window(&self.view.history), self.count)
    }

    /// The job before the machine, with the limit of the one or the other.
    fn of_both(
        &self,
        title: &'static str,
        [job, machine, limit]: [Series; 3],
        nice: fn(f64) -> f64,
        text: &dyn Fn(f64) -> String,
    ) -> Chart {
        let has_job = self.view.history.has(job);
        let (job, machine, limit) = (self.values(job), self.values(machine), highest(&self.values(limit)));
        let (values, mut behind) = if has_job { (job, machine) } else { (machine, Vec::new()) };
        let beside = highest(&behind).unwrap_or(0.0);
        let mut all = highest(&values).unwrap_or(0.0);
        if self.view.position.has_machine_scale {
            all = all.max(beside);
        }
        // A limit that is far away would leave the chart empty.
        let is_near = limit.is_some_and(|limit| all >= limit / 4.0);
        let top = limit.filter(|_| is_near).map_or_else(|| nice(all), |limit| limit.max(all));
        // And a machine that is busy otherwise would fill it.
        if beside > top {
            behind.clear();
        }
        let limit = limit.filter(|_| is_near && has_job);
        let mut legend = vec![('█', if has_job { "job" } else { "machine" })];
        legend.extend((!behind.is_empty()).then_some((SHADE, "machine")));
        legend.extend(limit.map(|_| ('─', "limit")));
        Chart { title, bands: vec![Band { name: "", values, behind, limit, top, label: text(top) }], legend }
    }

    fn rates(&self, title: &'static str, series: [(Series, &'static str); 2]) -> Chart {
        let bands = series.map(|(series, name)| {
            let values = self.values(series);
            // No scale ends below this.
            let top = nice(highest(&values).unwrap_or(0.0).max(1000.0));
            Band { name, values, behind: Vec::new(), limit: None, top, label: format!("{}/s", bytes(top)) }
        });
        Chart { title, bands: bands.into(), legend: beneath(series.map(|(_, name)| name)) }
    }

    fn percents(&self, title: &'static str, series: &[(Series, &'static str)]) -> Chart {
        let band = |(series, name): &(Series, &'static str)| {
            let values = self.values(*series);
            Band { name, values, behind: Vec::new(), limit: None, top: 100.0, label: "100 %".into() }
        };
        Chart { title, bands: series.iter().map(band).collect(), legend: beneath(series.iter().map(|(_, name)| *name)) }
    }
}

/// A legend for the bands, from the top down.
fn beneath(names: impl IntoIterator<Item = &'static str>) -> Vec<(char, &'static str)> {
    let names: Vec<&str> = names.into_iter().collect();
    let places: &[char] = if names.len() > 2 { &['▀', '■', '▄'] } else { &['▀', '▄'] };
    places.iter().copied().zip(names).collect()
}

/// The highest known value.
fn highest(values: &[f32]) -> Option<f64> {
    values.iter().copied().filter(|value| value.is_finite()).reduce(f32::max).map(f64::from)
}

/// The next of 1, 2, 5, 10, 20, …
fn nice(value: f64) -> f64 {
    let mut step = 1.0;
    // Every measured value is below this bound.
    while step < value && step < 1e18 {
        step *= 10.0;
    }
    [step / 5.0, step / 2.0].into_iter().find(|less| *less >= value.max(1.0)).unwrap_or(step)
}

/// The next of 1, 2, 4, 8, …
fn nice_binary(value: f64) -> f64 {
    let mut step = 1.0;
    while step < value && step < 1e18 {
        step *= 2.0;
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round_and_hold_all() {
        let nices = [0.0, 0.3, 1.0, 1.01, 3.0, 7.0, 10.0, 1234.0].map(nice);
        assert_eq!(nices, [1.0, 1.0, 1.0, 2.0, 5.0, 10.0, 10.0, 2000.0]);
        assert_eq!([0.0, 100.0, 129.0].map(nice_binary), [1.0, 128.0, 256.0]);
        assert!([nice(f64::INFINITY), nice(f64::NAN), nice_binary(f64::INFINITY)].iter().all(|top| *top >= 1.0));
    }
}
