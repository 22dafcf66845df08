// Tables, which are lists of cards on a narrow screen: sorted by their headings, with rows that open and are chosen.
import { Key, Refusal, Value } from "./components.js";
import { go } from "./go.js";
import { html, useState } from "./lib.js";
import { SORTED_AT_MOST } from "./pages.js";
import { changeOf, factorInWords, number } from "./quantities.js";

/** From so many columns on there is less width for a name. */
const WIDE = 8;

/**
 * A table. A column is a text or `{ text, label, numeric }`; a row is `{ cells, key, below, opens, sorts, name,
 * ...attributes }`: `below` stands under the row, over all columns; `opens` is the address that a click shows;
 * `sorts` has what each column is sorted by; `name` says which row a checkbox chooses. `chosen` is the set of the
 * keys that are chosen, and `onChoose` takes another one.
 *
 * `pages` is what `usePages` has of the rows: whoever sorts them sorts all, so the rest is loaded first, and what does
 * not fit stands behind a button. `cells` may be a function, which is called for the rows that are in the page.
 *
 * The roles are those that its elements lose where they are no table's boxes any more.
 */
export function Table({ name, columns, rows, empty = "Nothing here.", caption = false, pairs = false, chosen, onChoose, pages = ALL_HERE }) {
  const [wanted, setOrder] = useState(null);
  const isSortable = (i) => pages.isSortable && rows.some(({ sorts }) => sorts?.[i] !== undefined);
  const isSorted = wanted && isSortable(wanted.by);
  const order = isSorted && !pages.isPartial ? wanted : null;
  const listed = sorted(rows, order).slice(0, pages.most);
  const heads = columns.map((column) => (typeof column === "string" ? { text: column, label: column } : column.text === undefined ? { text: column, label: "" } : column));
  const sort = (i) => {
    pages.all();
    setOrder(wanted?.by === i ? (wanted.down ? null : { by: i, down: true }) : { by: i, down: false });
  };
  const across = columns.length + (chosen ? 1 : 0);
  return html`<div class="table ${pairs ? "pairs" : ""} ${across >= WIDE ? "wide" : ""}">
    <table aria-label=${name} role="table">
      ${caption && html`<caption>${name}</caption>`}
      <thead role="rowgroup"><tr role="row">
        ${chosen && html`<th scope="col" role="columnheader" class="choose"><${Choose} label="Select all that are listed"
          checked=${listed.length > 0 && listed.every(({ key }) => chosen.has(key))}
          onChange=${({ target }) => onChoose(new Set(target.checked ? listed.map(({ key }) => key) : []))} /></th>`}
        ${heads.map((head, i) => html`<th scope="col" role="columnheader" class=${head.numeric ? "number" : ""}
          aria-sort=${order?.by === i ? (order.down ? "descending" : "ascending") : undefined}>
          ${isSortable(i) ? html`<button type="button" class="sort" onClick=${() => sort(i)}>${head.text}</button>`
            : head.text}</th>`)}
      </tr></thead>
      <tbody role="rowgroup">
        ${listed.flatMap((row) => rendered(row, heads, { chosen, onChoose, across }))}
        ${rows.length === 0 && html`<tr role="row"><td role="cell" colspan=${across} class="nothing">${empty}</td></tr>`}
      </tbody>
    </table>
  </div>
  <${Further} pages=${pages} left=${rows.length - listed.length} isSorting=${isSorted && pages.isPartial} />`;
}

/** Of a table whose rows are all there. */
const ALL_HERE = { most: Infinity, isPartial: false, isSortable: true, all: () => undefined };
/** So many rows a browser shows at once. */
const SHOWN_AT_MOST = 10_000;

/** What is not in the page: the next rows, or all of them. */
function Further({ pages, left, isSorting }) {
  const { isPartial, isSortable, failed, data } = pages;
  if (!isPartial && left === 0) return null;
  return html`
    ${failed && html`<${Refusal} error=${failed} />`}
    ${!isSortable && html`<p class="muted">More than ${number(SORTED_AT_MOST)} match: search for fewer to sort them.</p>`}
    ${isSorting && !failed && html`<p class="muted" role="status">Loading ${data.total ? `all ${number(data.total)}` : "the rest"}, to sort all of them …</p>`}
    <div class="buttons">
      <button type="button" onClick=${pages.more}>Show more</button>
      ${data.total <= SHOWN_AT_MOST && html`<button type="button" onClick=${pages.show}>Show all ${number(data.total)}</button>`}
    </div>`;
}

function rendered({ cells, key, below, opens, sorts: _, name, ...attributes }, heads, { chosen, onChoose, across }) {
  const toggle = () => {
    const next = new Set(chosen);
    if (!next.delete(key)) next.add(key);
    onChoose(next);
  };
  const open = (event) => {
    const isPlain = !event.target.closest("a, button, input, label, summary, select");
    if (isPlain && String(getSelection()) === "") go(opens);
  };
  return [html`<tr key=${key} role="row" ...${attributes} onClick=${opens ? open : undefined}
    class="${attributes.class ?? ""} ${opens ? "opens" : ""} ${chosen?.has(key) ? "picked" : ""}">
    ${chosen && html`<td role="cell" class="choose"><${Choose} label="Select ${name}" checked=${chosen.has(key)} onChange=${toggle} /></td>`}
    ${(typeof cells === "function" ? cells() : cells).map((cell, i) => html`<td role="cell" data-column=${heads[i].label ?? ""} class="${cell === null || cell === "" ? "none" : ""} ${heads[i].numeric ? "number" : ""}">
      ${cell ?? html`<span aria-hidden="true">–</span><span class="hidden">not set</span>`}
    </td>`)}
  </tr>`, below && html`<tr key="${key} below" class="below" role="row"><td role="cell" colspan=${across}>${below}</td></tr>`];
}

const Choose = ({ label, ...input }) => html`<input type="checkbox" aria-label=${label} ...${input} />`;

/** Rows in an order; what has no value stands last, whichever way. */
function sorted(rows, order) {
  if (!order) return rows;
  const of = (row) => row.sorts?.[order.by] ?? null;
  const compare = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other)));
  return [...rows].sort((row, next) => {
    const one = of(row), other = of(next);
    if (one === null || other === null) return (one === null) - (other === null);
    return order.down ? compare(other, one) : compare(one, other);
  });
}

/** Values of an entity as a table of that name. */
export function ValueTable({ name, values, compare }) {
  const keys = [...new Set([...Object.keys(values), ...Object.keys(compare ?? {})])].sort();
  return html`<${Table} name=${name} caption pairs columns=${["Key", { text: "Value", label: "Value", numeric: true }]} empty="No values."
    rows=${keys.map((key) => {
      const change = compare && changeOf(key, compare[key], values[key]);
      return {
        key,
        class: change && change.word !== "unchanged" ? `changed ${change.isDrastic ? "drastic" : ""}` : "",
        cells: [html`<${Key} of=${key} />`, html`<${Value} of=${key} value=${values[key]} />${change && html` <${Factor} of=${change} />`}`],
      };
    })} />`;
}

/** What was and what is, side by side, for one entity. */
export const BeforeAndAfter = ({ before, after }) => html`<div class="columns">
  <${ValueTable} name="Before" values=${before ?? {}} />
  <${ValueTable} name="After" values=${after ?? {}} compare=${before ?? {}} />
</div>`;

/** How much a value rose or fell. */
export const Factor = ({ of: { word, factor, isDrastic } }) =>
  factor === null || factor === undefined ? null : html`<span class="factor ${isDrastic ? "drastic" : word}">${factorInWords(factor)}</span>`;

/** What changed, one line for each key. */
export const Changes = ({ before, after, keys, title = Key }) =>
  html`<ul class="changes">${keys.map((key) => {
    const change = changeOf(key, before?.[key], after?.[key]);
    return html`<li class=${change.word}><${title} of=${key} />${" "}
      <span class="values"><${Value} of=${key} value=${before?.[key]} /> →${" "}<${Value} of=${key} value=${after?.[key]} /></span>${" "}<${Factor} of=${change} /></li>`;
  })}</ul>`;
