// How full the policy's budgets are; nothing where it has none.
import { get } from "./api.js";
import { html } from "./lib.js";
import { Bar, Curl, Key, Loaded, Text, useLoaded } from "./components.js";
import { inWords, number } from "./quantities.js";
import { Table } from "./tables.js";

const PATH = "/quotas/budgets";

export function Budgets() {
  const found = useLoaded((signal) => get(PATH, { signal }), []);
  return html`<${Loaded} of=${found}>${({ rows }) => rows.length > 0 && html`
    <h2>Budgets</h2>
    <p class="muted">What the quotas of a group add up to, and to what the policy lets them.</p>
    <${Table} name="Budgets" columns=${["Budget", "Key", "Full", "Sum", "At most", "Entities", "Without a value"]}
      rows=${rows.map((row) => ({ key: `${row.name} ${row.key}`, cells: cells(row) }))} />
    <${Curl} path=${PATH} title="curl, of the budgets" />`}<//>`;
}

function cells({ name, key, limit, overbooking, sum, entities, unlimited }) {
  const most = limit * overbooking;
  return [
    html`<${Text} of=${name} />`,
    html`<${Key} of=${key} />`,
    html`<${Bar} share=${Number(sum) / most} />`,
    html`<span class="value">${inWords(key, sum)}</span>`,
    html`<span class="value">${inWords(key, most)}</span>`,
    number(entities),
    unlimited ? number(unlimited) : "none",
  ];
}
