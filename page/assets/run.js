// What is said of one run.

const pairs = (list) =>
  element("dl", { class: "facts" }, list.filter(([, value]) => value !== null && value !== undefined && value !== "").map(
    ([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)),
  ));

const joined = (...parts) => parts.filter((part) => part).join(", ");

const began = (run) => moment(run.summary.run?.started_ms ?? run.summary.times.first_ms);

const machine = (run) => {
  const { machine } = run.summary;
  const cpus = machine.host.host_vcpus ?? machine.cpus;
  const memory = machine.host.host_memory_mib ?? machine.memory_total_mib;
  return joined(machine.host.host_name, cpus && `${cpus} CPUs`, memory && UNITS.MiB(memory));
};

const cloud = ({ cloud }) => joined(cloud.cloud_vendor_id, cloud.cloud_instance_type, cloud.cloud_zone_id ?? cloud.cloud_region_id);

// Whether others used the machine as well.
const USES = { dedicated: "used by the job alone", shared: "shared with other programs" };
const use = (run) => USES[run.summary.machine.host.host_allocation];

// What it was called, each with the name of the label.
const labels = ({ summary }) =>
  Object.entries({ ...summary.run?.labels, ...summary.run?.tags }).map(([name, value]) => [name.replaceAll("_", " "), value]);

const facts = (run) => {
  const { summary } = run;
  const { host } = summary.machine;
  const limits = [
    at(summary, "job.core_limit") === null ? "" : `${plain(summary.job.core_limit)} cores`,
    at(summary, "job.memory_limit_mib") === null ? "" : UNITS.MiB(summary.job.memory_limit_mib),
  ];
  return pairs([
    ["Began", began(run)],
    ["Took", known(run, summary.outcome?.wall_secs != null ? "outcome.wall_secs" : "times.sampled_secs", run.wall)],
    ["Samples", known(run, "times.samples", summary.times.samples)],
    ["Machine", machine(run)],
    ["CPU", host.host_cpu_model],
    ["GPUs", [...new Set(summary.gpus.map((gpu) => gpu.name))].join(", ")],
    ["Cloud", cloud(run)],
    ["Job could use", joined(...limits)],
    ["The machine was", use(run)],
    ["Recorded in", run.file],
    ["Tracker", summary.run?.version],
    ...labels(run),
  ]);
};

// The most important figure of a text comes first, and is written large.
const card = (row) => {
  const [, large, small] = /^(.*?)(?:[,;] | (?=\())(.*)$/.exec(row.text) ?? [null, row.text, ""];
  const bar = row.share === null ? null : element("div", { class: "meter" }, element("div", { class: "full" }));
  bar?.firstChild.style.setProperty("width", `${100 * Math.min(1, Math.max(0, row.share))}%`);
  return element("div", { class: "card" }, element("h3", {}, row.label), element("p", { class: "large" }, large), bar,
    small ? element("p", { class: "small" }, small) : null);
};

const remarks = (words) =>
  element("ul", { class: "remarks" }, words.remarks.filter(([about]) => about !== "Ask for").map(
    ([about, text]) => element("li", { class: about.toLowerCase().replace(" ", "-") }, element("strong", {}, about), " ", text),
  ));

const copy = (text, made) => {
  const selection = getSelection();
  selection.selectAllChildren(text);
  // The newer way is not there in a page that was opened from a file.
  made.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
  setTimeout(() => (made.textContent = "Copy"), 2000);
};

const advice = (run) => {
  const { advice } = run.summary;
  if (!advice) return null;
  const line = ([name, key]) => {
    const text = element("code", {}, advice[key]);
    return element("div", {}, element("dt", {}, name), element("dd", {}, text, button("Copy", (event) => copy(text, event.target))));
  };
  const lines = [["Slurm", "slurm"], ["Docker", "docker"], ["Kubernetes", "kubernetes"]].map(line);
  return element("section", { class: "advice" }, element("h2", {}, "Ask for, the next time"), element("p", {}, run.ask_for), element("dl", {}, lines));
};

const table = (heads, rows) =>
  element("div", { class: "wide" }, element("table", {},
    element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell, index) => element(index ? "td" : "th", index ? {} : { scope: "row" }, cell)))))));

const phases = (run) => {
  const list = run.summary.phases;
  if (!list.length) return null;
  const shown = (phase, index, key) => (phase[key] === null ? "" : known(run, `phases.${index}.${key}`, phase[key]));
  const keys = ["times", "secs", "cpu_secs", "peak_memory_mib", "disk_read_bytes", "disk_write_bytes"];
  const heads = ["Phase", "Times", "Took", "CPU time", "Resident at most", "Read", "Written"];
  return element("section", {}, element("h2", {}, "Phases"),
    table(heads, list.map((phase, index) => [phase.name, ...keys.map((key) => shown(phase, index, key))])));
};

// Each number of the summary with its path.
const numbers = (value, path = "") => {
  if (typeof value === "number") return [[path, value]];
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([name, member]) => numbers(member, path ? `${path}.${name}` : name));
};

const allFigures = (run) => {
  const rows = numbers(run.summary).filter(([path]) => !path.startsWith("phases."));
  return element("details", { class: "all" }, element("summary", {}, "All figures"),
    table(["Figure", "Value", "Exactly"], rows.map(([path, value]) => [path, known(run, path, value), String(value)])));
};

const badge = (words) => element("span", { class: words.has_failed ? "badge failed" : "badge" }, words.ending);

const oneRun = (run) => {
  const command = run.summary.run?.command ?? [];
  const whole = command.join(" ");
  const charts = element("div", { class: "charts" });
  const shown = element("article", {},
    element("h1", {}, run.words.title),
    element("p", {}, badge(run.words), element("span", { class: "where" }, joined(began(run), machine(run), cloud(run), use(run)))),
    whole.length > run.words.title.length ? element("details", {}, element("summary", {}, "The whole command"), element("code", { class: "command" }, whole)) : null,
    remarks(run.words),
    element("div", { class: "cards" }, run.words.rows.filter((row) => !row.label.startsWith("Phase")).map(card)),
    advice(run),
    phases(run),
    element("section", {}, element("h2", {}, "Over the time"), charts),
    element("section", {}, element("h2", {}, "The run"), facts(run)),
    allFigures(run));
  return [shown, () => drawCharts(charts, [run])];
};

