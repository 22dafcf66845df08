// Texts of somebody else's, such as names: what cannot be seen in them is shown as escapes.

/** As Python's `str.isprintable` has it, and as the command prints names. */
const INVISIBLE = "(?! )[\\p{C}\\p{Z}]";
/** Blanks at an end, which nobody sees, and marks without a letter or with too many others. */
const LOST = "^ +| +$|(?<![^\\p{M}]\\p{M}{0,3})\\p{M}";
const ESCAPED = new RegExp(`${INVISIBLE}|${LOST}`, "gu");
const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}]/u;

function escapeOf(character) {
  const number = character.codePointAt(0);
  const digits = number.toString(16);
  if (number <= 0xff) return `\\x${digits.padStart(2, "0")}`;
  return number <= 0xffff ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
}

/** Return a text in runs, each `{ text, escaped }`. */
export function escapes(text) {
  const runs = [];
  let end = 0;
  for (const { 0: found, index } of text.matchAll(ESCAPED)) {
    if (index > end) runs.push({ text: text.slice(end, index), escaped: false });
    runs.push({ text: [...found].map(escapeOf).join(""), escaped: true });
    end = index + found.length;
  }
  if (end < text.length || !runs.length) runs.push({ text: text.slice(end), escaped: false });
  return runs;
}

/** Return a text for where there are no elements; one from right to left does not turn its sentence. */
export function visible(text) {
  const shown = escapes(text).map((run) => run.text).join("");
  return RIGHT_TO_LEFT.test(shown) ? `\u2068${shown}\u2069` : shown;
}
