// Charts on one axis of time.

// Colours of Okabe and Ito, which colour-blind people tell apart; on dark, the light ones come first.
const COLOURS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#595959"],
  dark: ["#56b4e9", "#e69f00", "#1fbf92", "#f0e442", "#cc79a7", "#d55e00", "#bdbdbd"],
};
// More lines than colours are told apart by how they are broken.
const DASHES = [{}, { line: [3, 3], swatch: "dotted" }, { line: [10, 3, 2, 3], swatch: "dashed" }];
const HEIGHT = 210;
// Room for the names of phases above a chart.
const NAMES = 15;
// A limit that is so far above all else is not shown at first, nor a machine so far above the job: the rest would be a flat line.
const FAR = { limit: 4, machine: 3 };
// Phases are told that are so near to the cursor, in pixels: short ones are hard to meet.
const NEAR = 4;
// Steps on an axis of memory.
const BINARY = Array.from({ length: 40 }, (_, power) => 2 ** (power - 10));

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const faint = (hex, share) => hex + Math.round(share * 255).toString(16).padStart(2, "0");
const highest = (series) => Math.max(...(series.high ?? series.mean).filter((value) => value !== null));

const board = {
  charts: [],
  span: 0,
  zoom: null,

  // All charts show this part of the time; null: all of it.
  show(from, to) {
    this.zoom = from === null ? null : [Math.max(0, from), Math.min(this.span, to)];
    if (this.zoom && this.zoom[1] - this.zoom[0] >= this.span * 0.999) this.zoom = null;
    const [min, max] = this.range();
    for (const chart of this.charts) chart.plot?.setScale("x", { min, max });
  },

  range() {
    return this.zoom ?? [0, this.span];
  },

  // Closer by this factor, and moved by this share of what is seen.
  move(factor, share) {
    const [from, to] = this.range();
    const [width, middle] = [(to - from) / factor, (from + to) / 2 + share * (to - from)];
    const start = Math.min(Math.max(0, middle - width / 2), Math.max(0, this.span - width));
    this.show(start, start + width);
  },

  // Draws them anew, in other colours.
  redraw() {
    for (const chart of this.charts) chart.draw();
  },
};

const keys = { "+": [2, 0], "=": [2, 0], "-": [0.5, 0], "ArrowLeft": [1, -0.25], "ArrowRight": [1, 0.25] };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, th *")) return;
  if (event.key === "0") board.show(null);
  else if (Object.hasOwn(keys, event.key)) board.move(...keys[event.key]);
  else return;
  event.preventDefault();
});

const toolbar = () =>
  element(
    "div",
    { class: "tools", role: "toolbar", "aria-label": "Part of the time" },
    button("Closer", () => board.move(2, 0), { title: "Key +" }),
    button("Wider", () => board.move(0.5, 0), { title: "Key -" }),
    button("Earlier", () => board.move(1, -0.25), { title: "Key Left" }),
    button("Later", () => board.move(1, 0.25), { title: "Key Right" }),
    button("All", () => board.show(null), { title: "Key 0, or a double click" }),
    element("span", { class: "hint" }, "Drag over a chart to look closer."),
  );

// The longest beginning of a name that there is room for.
const fitting = (context, name, room) => {
  const fits = (length) => context.measureText(name.slice(0, length)).width <= room;
  if (fits(name.length)) return name;
  let [short, long] = [0, name.length];
  while (long - short > 1) {
    const middle = (short + long) >> 1;
    if (fits(middle)) short = middle;
    else long = middle;
  }
  return name.slice(0, short);
};

// The phases that were named, as bands with their names above them.
const drawPhases = (plot, run) => {
  const { left, top, width, height } = plot.bbox;
  const context = plot.ctx;
  const ratio = devicePixelRatio;
  const [shade, text] = [colour("--phase"), colour("--text")];
  context.save();
  context.beginPath();
  context.rect(left, top - NAMES * ratio, width, height + NAMES * ratio);
  context.clip();
  context.font = `${11 * ratio}px system-ui, sans-serif`;
  context.textBaseline = "top";
  const narrow = context.measureText("i").width;
  let bands = 0;
  for (const phase of run.phases) {
    const isDark = !phase.is_beside && bands++ % 2 === 1;
    const from = Math.max(left, plot.valToPos(phase.from, "x", true));
    const to = Math.min(left + width, plot.valToPos(phase.to ?? run.end, "x", true));
    if (to <= left || from >= left + width) continue;
    // Those beside others are a strip at the bottom.
    const strip = 14 * ratio;
    const [y, tall] = phase.is_beside ? [top + height - strip, strip] : [top, height];
    context.fillStyle = faint(shade, phase.is_beside ? 0.3 : isDark ? 0.14 : 0.06);
    context.fillRect(from, y, to - from, tall);
    context.fillStyle = faint(shade, 0.6);
    if (to - from > 3 * ratio) context.fillRect(from, y, ratio, tall);
    // Fewer than three letters of a longer name say nothing.
    const fewest = Math.min(3, phase.name.length);
    const room = to - from - 6 * ratio;
    if (room < fewest * narrow) continue;
    const shown = fitting(context, phase.name.replace(STRANGE, " "), room);
    if (shown.length < fewest) continue;
    context.fillStyle = text;
    context.fillText(shown, from + 3 * ratio, phase.is_beside ? y + 2 * ratio : top - (NAMES - 1) * ratio);
  }
  context.restore();
};

// A chart of one run; `group` are those of other runs that have the same figures.
class Chart {
  constructor(run, chart, group) {
    this.run = run;
    this.chart = chart;
    this.group = group;
    this.format = formatOf(chart.unit);
    const peak = (is) => Math.max(0, ...chart.series.filter(is).map(highest));
    const job = peak((series) => series.role === "job");
    const isNear = (series) => series.role !== "machine" || !job || highest(series) <= FAR.machine * job;
    const top = peak((series) => series.role !== "limit" && isNear(series));
    this.shown = chart.series.map((series) => (series.role === "limit" ? highest(series) <= FAR.limit * top : isNear(series)));
    this.values = chart.series.map(() => element("span", { class: "value" }));
    this.buttons = chart.series.map((series, index) => this.button(series, index));
    this.place = element("div", { class: "plot" });
    this.phase = run.phases.length ? element("p", { class: "phase" }) : null;
    const more = chart.has_more ? element("span", { class: "hint" }, "More of them were left out.") : null;
    this.element = element("div", { class: "chart" }, this.phase, this.place, element("div", { class: "legend" }, this.buttons, more));
    group.push(this);
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  button(series, index) {
    const swatch = element("span", { class: `swatch ${series.role}` });
    const name = element("span", {}, series.label);
    const title = this.shown[index] ? null : "Far above the others, which would be a flat line beside it. Press to show it.";
    const made = button("", () => this.toggle(index), { "aria-pressed": String(this.shown[index]), title });
    made.append(swatch, name, this.values[index]);
    return made;
  }

  toggle(index) {
    this.shown[index] = !this.shown[index];
    this.buttons[index].setAttribute("aria-pressed", String(this.shown[index]));
    this.draw();
    for (const other of this.group) if (other !== this) other.plot?.redraw(true, true);
  }

  resize() {
    const width = this.place.clientWidth;
    if (width && this.plot && width !== this.plot.width) this.plot.setSize({ width, height: HEIGHT });
  }

  // The highest value that is shown of this figure, in any run.
  peak() {
    const peaks = this.group.flatMap((chart) => chart.chart.series.filter((_, index) => chart.shown[index]).map(highest));
    return Math.max(0, ...peaks.filter(Number.isFinite));
  }

  // The axis of values from nothing up; with several runs it is the same for all.
  reach(from, to) {
    const { top } = this.chart;
    const highest = this.group.length > 1 ? this.peak() : to ?? 0;
    return [Math.min(0, from ?? 0), top && highest <= top ? top : highest * 1.06 || 1];
  }

  draw() {
    const { chart, run } = this;
    const width = this.place.clientWidth;
    if (!width) return;
    this.plot?.destroy();
    const palette = COLOURS[theme()];
    const data = [run.drawing.ends];
    const series = [{}];
    const bands = [];
    // A line has the same colour in all runs that stand side by side.
    const ofAll = this.group.flatMap((other) => other.chart.series);
    const coloured = [...new Set(ofAll.filter((figure) => figure.role !== "limit").map((figure) => figure.label))];
    chart.series.forEach((figure, index) => {
      const number = figure.role === "limit" ? -1 : coloured.indexOf(figure.label);
      const stroke = number < 0 ? colour("--soft") : palette[number % palette.length];
      const broken = number < 0 ? { line: [8, 4], swatch: "dashed" } : DASHES[Math.floor(number / palette.length)];
      const swatch = this.buttons[index].querySelector(".swatch");
      swatch.style.borderColor = stroke;
      swatch.style.borderTopStyle = broken.swatch ?? "solid";
      const common = { show: this.shown[index], points: { show: false }, scale: "y" };
      const alone = run.drawing.ends.length === 1;
      if (figure.low && figure.role !== "limit") {
        bands.push({ series: [data.length, data.length + 1], fill: faint(stroke, 0.22) });
        for (const edge of [figure.high, figure.low]) {
          data.push(edge);
          series.push({ ...common, stroke: faint(stroke, 0.35), width: 0.5 });
        }
      }
      data.push(figure.mean);
      series.push({ ...common, stroke, width: figure.role === "machine" ? 1 : 1.75, dash: broken.line, points: { show: alone, size: 6 } });
    });
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options = {
      width,
      height: HEIGHT,
      legend: { show: false },
      padding: [run.phases.length ? NAMES : 8, 26, 0, 0],
      scales: {
        x: { time: false, range: () => board.range() },
        y: { range: (_, from, to) => this.reach(from, to) },
      },
      axes: [
        { ...axis, size: 28, space: 70, values: (_, splits) => splits.map((secs) => clock(secs, splits[1] - splits[0])),
          incrs: [0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000] },
        { ...axis, size: 78, space: 36, incrs: chart.unit === "MiB" ? BINARY : undefined, values: (_, splits) => splits.map((value) => this.format(value)) },
      ],
      series,
      bands,
      cursor: {
        // They share the place of the cursor; what is dragged over goes through the board.
        sync: { key: "time", scales: ["x", null], filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        bind: { dblclick: () => () => board.show(null) },
      },
      hooks: {
        drawClear: [(plot) => drawPhases(plot, run)],
        setCursor: [(plot) => this.tell(plot)],
        setSelect: [(plot) => this.select(plot)],
      },
    };
    this.plot = new uPlot(options, data, this.place);
  }

  // What was dragged over is what all charts show.
  select(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    board.show(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  // The values and the phases at the cursor.
  tell(plot) {
    const { idx: index, left } = plot.cursor;
    if (this.phase) {
      const [from, to] = [left - NEAR, left + NEAR].map((place) => plot.posToVal(place, "x"));
      const here = left < 0 ? [] : this.run.phases.filter((phase) => phase.from <= to && (phase.to ?? Infinity) >= from);
      this.phase.textContent = here.map((phase) => phase.name.replace(STRANGE, " ")).join(", ");
    }
    const told = (series) => {
      const mean = index === null || index === undefined ? null : series.mean[index];
      if (mean === null) return "";
      const [middle, low, high] = [mean, series.low?.[index] ?? mean, series.high?.[index] ?? mean].map(this.format);
      return low === high ? middle : `${middle} (${low} to ${high})`;
    };
    this.chart.series.forEach((series, place) => (this.values[place].textContent = told(series)));
  }
}

// What is not in the charts of these runs.
const leftOut = (runs) =>
  runs.flatMap((run) => {
    const { charts, figures, phases, unreadable } = run.left_out;
    const said = [
      charts && "Its charts are not here, because there are so many runs.",
      figures && `${figures === 1 ? "1 figure has" : `${figures} figures have`} no line, because there were too many.`,
      phases && `The last ${run.phases.length} phases are drawn; ${phases === 1 ? "1 other is not." : `${phases} others are not.`}`,
      ...unreadable.map((text) => `Section ${text}.`),
    ];
    return said.filter((text) => text).map((text) => element("p", { class: "hint" }, runs.length > 1 ? `Run ${run.name}: ${text}` : text));
  });

// Rows of charts, one for each figure; of several runs, theirs are side by side.
const drawCharts = (place, runs) => {
  board.charts.forEach((chart) => chart.plot?.destroy());
  board.charts = [];
  board.span = Math.max(1e-3, ...runs.map((run) => run.end));
  board.zoom = null;
  const name = (chart) => `${chart.title}\n${chart.unit}`;
  const charts = new Map(runs.flatMap((run) => run.drawing.charts).map((chart) => [name(chart), chart]));
  const rows = [...charts].map(([key, { title, unit }]) => {
    const group = [];
    const cells = runs.map((run) => {
      const chart = run.drawing.charts.find((chart) => name(chart) === key);
      const label = runs.length > 1 ? element("p", { class: "whose" }, run.name) : null;
      if (!chart) return element("div", { class: "chart" }, label, element("p", { class: "hint" }, run.left_out.charts ? "There is no room for it." : "Not known of this run."));
      const drawn = new Chart(run, chart, group);
      board.charts.push(drawn);
      if (label) drawn.element.prepend(label);
      return drawn.element;
    });
    return element("section", { class: "figure" }, element("h3", {}, title + inTitle(unit)), element("div", { class: "row" }, cells));
  });
  place.classList.toggle("several", runs.length > 1);
  const points = Math.max(...runs.map((run) => run.drawing.samples_per_point));
  const note = points > 1 ? `A point is of up to ${points} samples: the line is their mean, the area reaches from the lowest to the highest of them.` : "";
  place.replaceChildren(toolbar(), note ? element("p", { class: "hint" }, note) : "", ...leftOut(runs), ...rows);
  // What is seen is drawn at once, the rest one after the other.
  const isSeen = (chart) => chart.place.getBoundingClientRect().top < innerHeight;
  const waiting = board.charts.filter((chart) => !isSeen(chart));
  board.charts.filter(isSeen).forEach((chart) => chart.draw());
  const next = () => {
    const chart = waiting.shift();
    if (!board.charts.includes(chart)) return;
    if (!chart.plot) chart.draw();
    setTimeout(next);
  };
  setTimeout(next);
};

