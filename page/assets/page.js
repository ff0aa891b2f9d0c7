// Puts the page together.

const root = document.documentElement;
const prefersDark = matchMedia("(prefers-color-scheme: dark)");

// What somebody chose; nothing as long as it is left to the browser.
let chosen;
const theme = () => root.dataset.theme;

const setTheme = (name) => {
  chosen = name;
  root.dataset.theme = name ?? (prefersDark.matches ? "dark" : "light");
  document.getElementById("theme").textContent = theme() === "dark" ? "Light" : "Dark";
  board.redraw();
};

const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs.map((run, index) => ({
  ...run,
  index,
  end: run.drawing.ends[run.drawing.ends.length - 1] ?? 0,
  wall: run.summary.outcome?.wall_secs ?? run.summary.times.sampled_secs,
  name: `${index + 1}${run.file ? ` ${run.file}` : ""}`,
}));

const [shown, draw] = runs.length === 1 ? oneRun(runs[0]) : severalRuns(runs);
document.getElementById("page").replaceChildren(shown);
document.getElementById("foot").append(
  element("p", {}, `Made by resource-tracker ${data.version}. Charts are drawn by uPlot 1.6.32, © 2022 Leon Sorokin, MIT licence. Nothing was loaded from a network.`),
);

// A page can be asked for as dark or as light: report.html#dark
const asked = location.hash.slice(1);
setTheme(["dark", "light"].includes(asked) ? asked : undefined);
document.getElementById("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
prefersDark.addEventListener("change", () => setTheme(chosen));

draw();

// On paper it is light, and as wide as the paper.
let before;
addEventListener("beforeprint", () => {
  before = chosen;
  root.classList.add("printed");
  setTheme("light");
});
addEventListener("afterprint", () => {
  root.classList.remove("printed");
  setTheme(before);
});
