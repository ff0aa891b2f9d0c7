// Figures as people read them, in the words of the summary.

const scaled = (value, step, units) => {
  const sign = value < 0 ? "-" : "";
  value = Math.abs(value);
  let unit = 0;
  while (value >= Math.min(step, 999.5) && unit < units.length - 1) {
    value /= step;
    unit += 1;
  }
  return `${sign}${digits(value)} ${units[unit]}`.trim();
};

// Three of them.
const digits = (value) => {
  if (value === Math.round(value) || value >= 99.95) return String(Math.round(value));
  if (value < 0.0005) return value.toExponential(1);
  return value.toFixed(value >= 9.995 ? 1 : value >= 0.0995 ? 2 : 3);
};

const plain = (value) => value >= 1e5 ? scaled(value, 1000, ["", "k", "M", "G", "T", "P"]) : digits(value);

const time = (secs) => {
  const whole = Math.round(secs);
  if (secs < 0.0995) return `${Math.round(secs * 1000)} ms`;
  if (secs < 9.995) return `${secs.toFixed(2)} s`;
  if (secs < 59.95) return `${secs.toFixed(1)} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
};

const SIZES = ["B", "kB", "MB", "GB", "TB", "PB"];

// By the unit that a chart has.
const UNITS = {
  "MiB": (value) => scaled(value, 1024, ["MiB", "GiB", "TiB", "PiB"]),
  "bytes": (value) => scaled(value, 1000, SIZES),
  "bytes/second": (value) => scaled(value, 1000, SIZES.map((size) => `${size}/s`)),
  "percent": (value) => `${digits(value)} %`,
  "watts": (value) => `${plain(value)} W`,
  "celsius": (value) => `${digits(value)} °C`,
  "seconds": time,
  "milliseconds": (value) => time(value / 1000),
  "cores": (value) => `${digits(value)} cores`,
  "GPUs": (value) => `${digits(value)} GPUs`,
  "": plain,
};

// Other units have no room beside an axis: they are in the title.
const formatOf = (unit) => (Object.hasOwn(UNITS, unit) ? UNITS[unit] : plain);
const inTitle = (unit) => (Object.hasOwn(UNITS, unit) ? "" : `, ${unit.replace("/second", " per second")}`);

// By what the name of a figure ends in.
const ENDINGS = [
  ["_mib", "MiB"],
  ["_bytes", "bytes"],
  ["_secs", "seconds"],
  ["_pct", "percent"],
  ["_watts", "watts"],
  ["_celsius", "celsius"],
];

// A moment where the reader is, with the name of that time zone: a page is mailed around the world.
const moment = (ms) => new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });

const figure = (path, value) => {
  const names = path.split(".").reverse();
  const ending = ENDINGS.find(([end]) => names.some((name) => `_${name}`.endsWith(end)));
  if (names[0].endsWith("_ms")) return moment(value);
  return ending ? UNITS[ending[1]](value) : plain(value);
};

// Along the axis of time: 0.2 s, 0:30, 1:05:00.
const clock = (secs, step) => {
  if (step < 1 && secs < 60) return `${secs.toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : 1)} s`;
  const whole = Math.floor(secs + 1e-9);
  const two = (number) => String(number).padStart(2, "0");
  const fraction = step < 1 ? (secs - whole).toFixed(step < 0.01 ? 3 : step < 0.1 ? 2 : 1).slice(1) : "";
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}${fraction}` : `${minutes}:${two(whole % 60)}${fraction}`;
};

