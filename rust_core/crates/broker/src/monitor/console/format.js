// Numbers with the units that people read.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY_CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const NOTHING = "–";

/** Three significant digits and a prefix: 1234567 is "1.23 M"; `brief` leaves out zeros at the end. */
function scaled(value, base, prefixes, brief) {
  let magnitude = Math.abs(value);
  let prefix = 0;
  // What would be rounded up to the base belongs to the next prefix.
  while (magnitude >= base - 0.5 && prefix < prefixes.length - 1) {
    magnitude /= base;
    prefix += 1;
  }
  const digits = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  const whole = Number.isInteger(magnitude) && (brief || prefix === 0);
  const number = whole ? magnitude : brief ? Number(magnitude.toFixed(digits)) : magnitude.toFixed(digits);
  return `${value < 0 ? "−" : ""}${number}${prefixes[prefix] ? " " + prefixes[prefix] : ""}`;
}

const DECIMAL = ["", "k", "M", "G", "T", "P"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const known = (value) => typeof value === "number" && Number.isFinite(value);
const unit = (base, text, more = {}) => ({
  base,
  text: (value) => (known(value) ? text(value, false) : NOTHING),
  label: (value) => text(value, true),
  ...more,
});
const percent = (value, brief) => `${brief ? Number(value.toFixed(1)) : value.toFixed(value >= 99.95 ? 0 : 1)} %`;

/** Each formats a number, or says that there is none, and labels an axis, whose steps follow `base`. */
const UNITS = {
  exact: unit(1000, (value) => WHOLE.format(value)),
  // What tells one thing from others is written as it is looked up elsewhere: not in groups of digits.
  id: unit(1000, String),
  count: unit(1000, (value, brief) => scaled(value, 1000, DECIMAL, brief), { whole: true }),
  rate: unit(1000, (value, brief) => `${scaled(value, 1000, DECIMAL, brief)}/s`),
  bytes: unit(1024, (value, brief) => scaled(value, 1024, BINARY, brief), { whole: true }),
  byteRate: unit(1024, (value, brief) => `${scaled(value, 1024, BINARY, brief)}/s`),
  microseconds: unit(1000, (value, brief) => scaled(value, 1000, ["µs", "ms", "s"], brief)),
  percent: unit(1000, percent, { least: 10 }),
};

/** "1 subject", "1,234 subjects". */
const counted = (count, noun, { text } = UNITS.exact) => `${text(count)} ${noun}${count === 1 ? "" : "s"}`;

/** The distance of an axis's about four lines up to `most`: 1, 2 or 5 times a power of ten, times the prefix. */
function axisStep(most, { base, whole }) {
  const prefix = base ** Math.max(0, Math.floor(Math.log(most) / Math.log(base)));
  const raw = most / 4 / prefix;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999) * power * prefix;
  return whole ? Math.max(1, Math.round(step)) : step;
}

const clock = (unixSeconds) => CLOCK.format(unixSeconds * 1000);
const dayClock = (unixSeconds) => DAY_CLOCK.format(unixSeconds * 1000);
/** "slow_consumer" is "slow consumer". */
const words = (name) => name.replaceAll("_", " ");
