// Values of quotas in words: "1 MiB/s", "150 %", "unlimited"; and read from what people type.
// `app/domain/quantities.py` writes the same; tests/testkit/value_cases.json has the cases of both.

/** 2^63, the customary override that means no limit. */
export const UNLIMITED = 2 ** 63;

/** What can be limited, with its unit. */
export const UNITS = {
  producer_byte_rate: "bytes/s",
  consumer_byte_rate: "bytes/s",
  request_percentage: "percent",
  controller_mutation_rate: "partitions/s",
  connection_creation_rate: "connections/s",
};
export const KEYS = Object.keys(UNITS);

/** The keys that an entity may carry; all of them while it has no type. */
export const keysOf = (entity) =>
  Object.keys(entity).length ? KEYS.filter((key) => (key === "connection_creation_rate") === "ip" in entity) : KEYS;

/** What brokers take for no limit. */
const MOST = { producer_byte_rate: UNLIMITED, consumer_byte_rate: UNLIMITED, connection_creation_rate: 2 ** 31 - 1 };

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SMALLEST_PLAIN = 0.01;
const LARGEST_PLAIN = 1e15;
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 20 });
const isBytes = (key) => UNITS[key] === "bytes/s";

// toFixed and toExponential round what a number is, Intl.NumberFormat what it is written as.
const trimmed = (digits) => (digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits);
const grouped = (digits) => digits.replace(/^-?\d+/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, ","));
const isPlain = (value) => value === 0 || (Math.abs(value) >= SMALLEST_PLAIN && Math.abs(value) < LARGEST_PLAIN);

/**
 * Return a number with at most two decimals, and commas between thousands.
 *
 * Under 0.01 and from 10^15 it has three digits that count: `0.00123`, `1e-7`, `1.8e308`.
 */
export function number(value) {
  if (isPlain(value)) return grouped(trimmed(value.toFixed(2)));
  const [mantissa, power] = value.toExponential(2).split("e");
  if (power > -7 && power < 0) return trimmed(Number(`${mantissa}e${power}`).toFixed(2 - power));
  return `${trimmed(mantissa)}e${Number(power)}`;
}

/** Return a value in words; null is no limit. */
export function inWords(key, value) {
  if (typeof value === "string") return value;
  if (value === null || value === undefined || value >= MOST[key]) return "unlimited";
  return isBytes(key) ? `${bytes(value)}/s` : withUnit(key, number(value));
}

function withUnit(key, digits) {
  const unit = UNITS[key] === "percent" ? "%" : (UNITS[key] ?? "");
  return `${digits} ${digits === "1" ? unit.replace("s/s", "/s") : unit}`.trim();
}

/** Return a number of bytes in the largest unit of which it has one after rounding. */
export function bytes(value) {
  let power = 0;
  while (power < BINARY.length - 1 && Math.abs(value).toFixed(2) >= 1024) {
    value /= 1024;
    power += 1;
  }
  return `${number(value)} ${BINARY[power]}`;
}

/** Return a new value by an old one: `× 1.5`, or `÷ 1.5` where it is lower. */
export function factorInWords(factor) {
  const times = factor >= 1;
  const much = times ? factor : 1 / factor;
  const rounded = much < 100 ? Number(much.toPrecision(3)) : much < LARGEST_PLAIN ? Number(much.toFixed(0)) : much;
  return `${times ? "×" : "÷"} ${number(rounded)}`;
}

/** Return a value with every digit and its unit. */
export function withDigits(key, value) {
  if (typeof value !== "number") return inWords(key, value);
  return withUnit(key, value === UNLIMITED ? "9,223,372,036,854,775,807" : exact.format(value));
}

/** Return what a field shows of a stored value. */
export function asTyped(key, value) {
  if (value === null || value === undefined) return "";
  return value >= MOST[key] ? "unlimited" : String(value);
}

const FACTORS = new Map([
  ["", 1], ["b", 1], ["byte", 1], ["bytes", 1],
  ...["k", "m", "g", "t"].flatMap((letter, i) => [
    [`${letter}ib`, 1024 ** (i + 1)],
    [`${letter}b`, 1000 ** (i + 1)],
  ]),
]);

/**
 * Read what was typed: `1048576`, `1 MiB/s`, `unlimited`; nothing is null, and so is `unset`.
 *
 * Returns NaN where it is no number of that key's unit.
 */
export function readValue(key, typed) {
  const text = typed.trim().toLowerCase();
  if (!text || text === "unset") return null;
  if (text === "unlimited" && key in MOST) return MOST[key];
  const [, digits, unit] = text.match(/^(-?[\d.]+(?:e[+-]?\d+)?)\s*([a-z%/]*)$/) ?? [];
  if (digits === undefined) return NaN;
  if (!isBytes(key)) return ["", "%", "/s", UNITS[key]].includes(unit) ? Number(digits) : NaN;
  return Number(digits) * (FACTORS.get(unit.replace(/\/s$/, "")) ?? NaN);
}

/** Return a time as a person reads it, in UTC: `2026-11-23 01:58:33`. */
export const timeInWords = (text) => text.slice(0, 19).replace("T", " ");

const PERIODS = [["s", 120, 1], ["min", 7200, 60], ["h", 172_800, 3600], ["days", 5_184_000, 86_400], ["months", Infinity, 2_592_000]];

/** Return a duration in words. */
export function duration(seconds) {
  if (seconds < 1) return "under 1 s";
  const [unit, , length] = PERIODS.find(([, end]) => seconds < end);
  return `${Math.round(seconds / length)} ${unit}`;
}
