// Values of quotas in words: "1 MiB/s", "150 %", "unlimited"; and read from what people type.

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

const BINARY = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const plain = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 20 });
const isBytes = (key) => UNITS[key] === "bytes/s";

/** Return a number with at most two decimals; smaller than that as it is. */
export const number = (value) => (Math.abs(value) < 0.01 ? exact : plain).format(value);

/** Return a value in words; null is no limit. */
export function inWords(key, value) {
  if (value === null || value === undefined) return "unlimited";
  if (typeof value === "string") return value;
  if (isBytes(key)) return value >= UNLIMITED ? "unlimited" : `${bytes(value)}/s`;
  if (UNITS[key] === "percent") return `${number(value)} %`;
  return UNITS[key] ? `${number(value)} ${UNITS[key]}` : exact.format(value);
}

/** Return a number of bytes in the largest unit that it has one of. */
export function bytes(value) {
  const power = value < 1 ? 0 : Math.min(Math.floor(Math.log2(value) / 10), BINARY.length - 1);
  return `${number(value / 1024 ** power)} ${BINARY[power]}`;
}

/** Return a value with every digit and its unit. */
export function withDigits(key, value) {
  if (typeof value !== "number") return inWords(key, value);
  const digits = value >= UNLIMITED ? "9,223,372,036,854,775,807" : exact.format(value);
  return UNITS[key] ? `${digits} ${UNITS[key]}` : digits;
}

/** Return what a field shows of a stored value. */
export function asTyped(key, value) {
  if (value === null || value === undefined) return "";
  return isBytes(key) && value >= UNLIMITED ? "unlimited" : String(value);
}

const FACTORS = new Map([
  ["", 1], ["b", 1], ["byte", 1], ["bytes", 1],
  ...["k", "m", "g", "t"].flatMap((letter, i) => [
    [`${letter}ib`, 1024 ** (i + 1)],
    [`${letter}b`, 1000 ** (i + 1)],
  ]),
]);

/**
 * Read what was typed: `1048576`, `1 MiB/s`, `unlimited`; nothing is null.
 *
 * Returns NaN where it is no number of that key's unit.
 */
export function readValue(key, typed) {
  const text = typed.trim().toLowerCase();
  if (!text) return null;
  if (text === "unlimited" && isBytes(key)) return UNLIMITED;
  const [, digits, unit] = text.match(/^(-?[\d.]+(?:e[+-]?\d+)?)\s*([a-z%/]*)$/) ?? [];
  if (digits === undefined) return NaN;
  if (!isBytes(key)) return ["", "%", "/s", UNITS[key]].includes(unit) ? Number(digits) : NaN;
  return Number(digits) * (FACTORS.get(unit.replace(/\/s$/, "")) ?? NaN);
}

/** Return a time as a person reads it, in UTC: `2026-11-23 01:58:33`. */
export const timeInWords = (text) => text.slice(0, 19).replace("T", " ");

/** Return a duration in words. */
export function duration(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}
