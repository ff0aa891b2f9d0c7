// Several runs: a table, how their figures are spread, and some of them side by side.

const COLUMNS = [
  ["Wall time", (run) => [run.summary.outcome?.wall_secs != null ? "outcome.wall_secs" : "times.sampled_secs", run.wall]],
  ["Mean cores", (run) => ["job.cores.mean", at(run.summary, "job.cores.mean")]],
  ["CPU user", (run) => ["job.user_secs", at(run.summary, "job.user_secs")]],
  ["CPU system", (run) => ["job.system_secs", at(run.summary, "job.system_secs")]],
  ["Peak memory", (run) => ["job.peak_memory_mib", at(run.summary, "job.peak_memory_mib")]],
  ["Read", (run) => ["job.disk_read_bytes", at(run.summary, "job.disk_read_bytes")]],
  ["Written", (run) => ["job.disk_write_bytes", at(run.summary, "job.disk_write_bytes")]],
  ["GPUs", (run) => ["job.gpus.mean", at(run.summary, "job.gpus.mean")]],
];
// So many are beside each other at first.
const CHOSEN = 2;
const MOST_CHOSEN = 6;
// What is said of each of more runs is made when somebody looks at it.
const AT_ONCE = 20;

// The name of the job comes first, alone.
const labelled = (run) => labels(run).map(([name, value]) => (name === "job name" ? value : `${name}: ${value}`)).join(", ");

const svg = (name, options) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(options)) made.setAttribute(key, value);
  return made;
};

// A dot for each run, from the least to the highest, with a line where half of them are.
const strip = (runs, [name, of]) => {
  const values = runs.map((run) => [run, of(run)]).filter(([, [, value]]) => value !== null);
  if (values.length < 2) return null;
  const sorted = values.map(([, [, value]]) => value).sort((one, other) => one - other);
  const [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const middle = (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
  const place = (value) => (high > low ? 8 + (284 * (value - low)) / (high - low) : 150);
  const path = values[0][1][0];
  const drawn = svg("svg", { viewBox: "0 0 300 34", role: "img", "aria-label": `${name}: ${figure(path, low)} to ${figure(path, high)}` });
  drawn.append(svg("line", { x1: 8, x2: 292, y1: 17, y2: 17, class: "rail" }));
  drawn.append(svg("line", { x1: place(middle), x2: place(middle), y1: 5, y2: 29, class: "middle" }));
  const dots = new Map();
  values.forEach(([run, [path, value]]) => {
    // Those that would hide each other stay apart a little.
    const near = Math.round(place(value) / 9);
    const before = dots.get(near) ?? 0;
    dots.set(near, before + 1);
    const dot = svg("circle", { cx: place(value), cy: 17 + [0, -5, 5][before % 3], r: 4.5, class: run.words.has_failed ? "dot failed" : "dot" });
    const title = svg("title", {});
    title.textContent = `${run.name}: ${figure(path, value)}`;
    dot.append(title);
    drawn.append(dot);
  });
  return element("figure", { class: "strip" }, element("figcaption", {}, name), drawn,
    element("p", { class: "small" }, high > low ? `${figure(path, low)} to ${figure(path, high)}, median ${figure(path, middle)}` : `${figure(path, low)} in each`));
};

const details = (run, atOnce) => {
  const made = element("details", { class: "all" }, element("summary", {}, `${run.name}: ${run.words.title}`));
  const fill = () => made.append(...[facts(run), advice(run), phases(run), allFigures(run)].filter((part) => part));
  if (atOnce) fill();
  else made.addEventListener("toggle", fill, { once: true });
  return made;
};

const severalRuns = (runs) => {
  const chosen = new Set(runs.slice(0, CHOSEN));
  const charts = element("div", { class: "charts" });
  const said = element("div", { class: "beside" });
  const columns = COLUMNS.filter(([, of]) => runs.some((run) => of(run)[1] !== null));
  const isLabelled = runs.some(labelled);
  const heads = [
    ["Run", (run) => run.index],
    ...(isLabelled ? [["Labels", (run) => labelled(run) || null]] : []),
    ["Command", (run) => run.words.title],
    ["Ended", (run) => (run.words.has_failed ? 1 : 0) + run.words.ending],
    ...columns.map(([name, of]) => [name, (run) => of(run)[1]]),
  ];
  const sorting = { column: 0, down: false };
  const choose = () => {
    const shown = runs.filter((run) => chosen.has(run));
    const beside = shown.map((run) => element("section", { class: "chart" }, element("h3", {}, run.name), element("p", {}, badge(run.words)),
      remarks(run.words), pairs(run.words.rows.map((row) => [row.label, row.text]))));
    said.replaceChildren(...beside);
    if (shown.length) drawCharts(charts, shown);
    else charts.replaceChildren(element("p", { class: "hint" }, "Choose runs in the table."));
  };
  const rowOf = (run) => {
    const box = element("input", { type: "checkbox", "aria-label": `Show run ${run.name}` });
    box.checked = chosen.has(run);
    box.addEventListener("change", () => {
      if (box.checked) chosen.add(run);
      else chosen.delete(run);
      // The one that was chosen first makes room.
      if (chosen.size > MOST_CHOSEN) {
        chosen.delete(chosen.values().next().value);
        fill();
      }
      choose();
    });
    const cells = columns.map(([, of]) => {
      const [path, value] = of(run);
      return element("td", { class: "number" }, value === null ? "" : known(run, path, value));
    });
    return element("tr", {}, element("th", { scope: "row" }, element("label", {}, box, " ", run.name)),
      isLabelled ? element("td", { class: "title" }, labelled(run)) : null,
      element("td", { class: "title" }, run.words.title), element("td", { class: run.words.has_failed ? "failed" : "" }, run.words.ending), cells);
  };
  const body = element("tbody");
  const headers = heads.map(([name], column) => element("th", { scope: "col", class: column < heads.length - columns.length ? "" : "number" }, button(name, () => {
    sorting.down = sorting.column === column && !sorting.down;
    sorting.column = column;
    fill();
  })));
  const fill = () => {
    const key = heads[sorting.column][1];
    const compare = (one, other) => (typeof one === "string" ? one.localeCompare(other) : one - other);
    const order = [...runs].sort((one, other) => {
      const [left, right] = [key(one), key(other)];
      // What is not known comes last, either way.
      if (left === null || right === null) return (left === null) - (right === null);
      return (sorting.down ? -1 : 1) * compare(left, right);
    });
    headers.forEach((head, column) => head.setAttribute("aria-sort", column !== sorting.column ? "none" : sorting.down ? "descending" : "ascending"));
    body.replaceChildren(...order.map(rowOf));
  };
  fill();
  const failed = runs.filter((run) => run.words.has_failed).length;
  const undrawn = runs.filter((run) => run.left_out.charts).length;
  const shown = element("article", {},
    element("h1", {}, `${runs.length} runs`),
    element("p", {}, element("span", { class: failed ? "badge failed" : "badge" }, failed ? `${failed} failed` : "none failed")),
    element("div", { class: "wide tall" }, element("table", { class: "runs" }, element("thead", {}, element("tr", {}, headers)), body)),
    element("section", {}, element("h2", {}, "How they are spread"), element("div", { class: "strips" }, columns.map((column) => strip(runs, column)))),
    element("section", {}, element("h2", {}, "Side by side"),
      undrawn ? element("p", { class: "hint" }, `Of ${undrawn} of the runs there are no charts, because there are so many. A page of fewer has them.`) : null, said, charts),
    element("section", {}, element("h2", {}, "Each run"), runs.map((run) => details(run, runs.length <= AT_ONCE))));
  return [shown, choose];
};

