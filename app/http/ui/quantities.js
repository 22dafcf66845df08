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

/** How people call them. */
export const TITLES = {
  producer_byte_rate: "Produce rate",
  consumer_byte_rate: "Fetch rate",
  request_percentage: "Request time",
  controller_mutation_rate: "Partition changes",
  connection_creation_rate: "New connections",
};

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

const DRASTIC_FACTOR = 1 / 100;
const DRASTIC_BYTES = 1024;

/**
 * Return what a change of a value is: `{ word, factor, isDrastic }`; not set is null or undefined.
 *
 * Drastic is lowering by 100 times or more, or a byte rate to under 1 KiB/s, as the service has it.
 */
export function changeOf(key, before, after) {
  const had = before ?? null, has = after ?? null;
  if (had === has) return { word: "unchanged", factor: null, isDrastic: false };
  if (has === null) return { word: "removed", factor: null, isDrastic: false };
  if (typeof had !== "number" || typeof has !== "number") return { word: "set", factor: null, isDrastic: false };
  const factor = has / had;
  const isDrastic = factor <= DRASTIC_FACTOR || (factor < 1 && isBytes(key) && has < DRASTIC_BYTES);
  return { word: factor > 1 ? "raised" : "lowered", factor, isDrastic };
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

/** The largest value of each key, which stands for none. */
const LARGEST = { ...MOST, request_percentage: 1e9, controller_mutation_rate: 1e9 };

const PLAIN = { "": 1 };
const FACTORS = {
  "bytes/s": {
    "": 1, B: 1, kB: 1e3, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12,
    KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, TiB: 1024 ** 4,
  },
  percent: { "": 1, "%": 1 },
};
const AMOUNT = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-z]*|%)(\/s)?$/;

/**
 * Read what was typed: `1048576`, `1 MiB/s`, `80 %`, `unlimited`; nothing is null, and so is `unset`.
 *
 * Returns NaN where it is no number of that key's unit. `read_value` of `app/domain/values.py` reads
 * documents and the command line alike.
 */
export function readValue(key, typed) {
  const text = typed.trim();
  if (!text || text === "unset") return null;
  if (text === "unlimited") return LARGEST[key] ?? NaN;
  const [, digits, unit, perSecond] = text.match(AMOUNT) ?? [];
  const factor = (FACTORS[UNITS[key]] ?? PLAIN)[unit];
  if (factor === undefined || (perSecond && unit === "%")) return NaN;
  const value = Number(digits) * factor;
  return Number.isFinite(value) ? value : NaN;
}

/** Return what to write where a value cannot be read. */
export function howToWrite(key) {
  const units = Object.keys(FACTORS[UNITS[key]] ?? PLAIN).filter(Boolean);
  return units.length ? `Write a number, alone or with a unit: ${units.join(", ")}; or unlimited.` : "Write a number alone, or unlimited.";
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

const SOON_S = 45;
const DATED_AFTER_S = 14 * 86_400;

/** Return how long before or after a time another one is: `3 min ago`, `in 4 h`; a date where it is long. */
export function ago(text, now) {
  const seconds = (now - Date.parse(text)) / 1000;
  if (Math.abs(seconds) < SOON_S) return "just now";
  if (Math.abs(seconds) > DATED_AFTER_S) return timeInWords(text).slice(0, 16);
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}
