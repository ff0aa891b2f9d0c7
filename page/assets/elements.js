// Elements of the page. What they say is text, never markup, whoever wrote it.

// Control characters, and those that turn the order of others about.
const STRANGE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

const element = (name, options = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  const text = (child) => document.createTextNode(String(child).replace(STRANGE, " "));
  const shown = children.flat().filter((child) => child !== null && child !== undefined && child !== "");
  made.append(...shown.map((child) => (child instanceof Node ? child : text(child))));
  return made;
};

const button = (label, act, options = {}) => element("button", { type: "button", onclick: act, ...options }, label);

// A figure of the summary, as a person reads it, with its exact value and its path for programs.
const known = (run, path, value) =>
  element("data", { value: String(value), "data-figure": path, "data-run": run.index }, figure(path, value));

// The value at a path such as job.cores.mean.
const at = (summary, path) => path.split(".").reduce((value, name) => value?.[name] ?? null, summary);

