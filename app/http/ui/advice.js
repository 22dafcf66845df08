// Advice: which values to raise, to lower and to remove, each with its evidence, and a plan to put them into.
import { withQuery } from "./api.js";
import { entityText } from "./entities.js";
import { html } from "./lib.js";
import { Curl, Entity, Heading, Key, Loaded, Text, Time, Value, orNull } from "./components.js";
import { More, usePages } from "./pages.js";
import { storedEntity } from "./near.js";
import { addToDraft, emptyDraft, isInDraft, useDraft } from "./draft.js";
import { duration, factorInWords, inWords, number } from "./quantities.js";
import { Table } from "./tables.js";

const COMMANDS = { rightsize: "quota-pipeline rightsize … --pg", stale: "quota-pipeline stale … --pg" };

/** Load a list of advice; null where no run has published any. */
const useAdvice = (path, query) => usePages(withQuery(path, { ...query, page_size: 100 }),
  (before, next) => ({ rows: [...before.rows, ...next.rows] }), (url, signal) => orNull(url, "no-run", { signal }));

export function AdviceScreen({ me }) {
  const draft = useDraft();
  const raise = useAdvice("/analytics/recommendations", { action: "raise" });
  const lower = useAdvice("/analytics/recommendations", { action: "lower" });
  const unjudged = useAdvice("/analytics/recommendations", { action: "insufficient" });
  const remove = useAdvice("/analytics/stale", {});
  const none = (text) => (unjudged.data?.rows.length ? "None yet: of some values the data do not suffice." : text);
  return html`
    <${Heading} title="Advice"><a class="button" href="/ui/plan">Plan</a><//>
    <p class="muted">What was used beside what is stored. Nothing changes here: put what convinces you into a plan, and look at it there.</p>
    <${Draft} quotas=${draft} me=${me} />
    <${Section} name="Raise" of=${raise} job="rightsize" empty=${none("No value is too low.")} columns=${VALUES} cells=${resized} draft=${draft} />
    <${Section} name="Lower" of=${lower} job="rightsize" empty=${none("No value is higher than its use asks for.")} columns=${VALUES} cells=${resized} draft=${draft} />
    <${Section} name="Remove" of=${remove} job="stale" empty="Every value has an effect." columns=${STALE} cells=${removed} draft=${draft} />`;
}

/** How many changes are in the plan so far. */
function Draft({ quotas, me }) {
  const keys = quotas.flatMap(({ values }) => Object.keys(values)).length;
  if (!keys) return null;
  return html`<p class="notice" role="status">${keys === 1 ? "1 change is" : `${number(keys)} changes are`} in the plan:${" "}
    <a href="/ui/plan">see what it would do</a>${me.mayAlter ? ", and apply it there" : ""}.${" "}
    <button type="button" class="link" onClick=${emptyDraft}>Empty it</button></p>`;
}

const VALUES = ["Entity", "Key", "Now", "Advised", "Evidence", html`<span class="hidden">Actions</span>`];
const STALE = ["Entity", "Key", "Now", "Why", "Evidence", html`<span class="hidden">Actions</span>`];

function Section({ name, of, job, empty, columns, cells, draft }) {
  return html`
    <h2>${name}</h2>
    <${Loaded} of=${of}>${(page) => (page
      ? html`${page.data_through && html`<p class="muted">Rests on data until <${Time} at=${page.data_through} /> UTC.</p>`}
        <${Table} name=${name} columns=${columns} empty=${empty}
          rows=${page.rows.map((row, i) => ({ key: i, cells: [...cells(row), html`<${Add} row=${row} draft=${draft} />`] }))} />
        <${More} of=${of} />`
      : html`<p class="notice open">Nothing is known: no run of the pipeline has published any. <code>${COMMANDS[job]}</code> does.</p>`)}<//>
    <${Curl} path=${of.path} title="curl, of ${name}" />`;
}

function Add({ row, draft }) {
  if (!row.body) return null;
  const { alterations } = row.body;
  const isThere = isInDraft(draft, alterations);
  return html`<button type="button" disabled=${isThere} onClick=${() => addToDraft(alterations)}>${isThere ? "In the plan" : "Add to plan"}</button>`;
}

const about = (row) => [html`<${Entity} entity=${storedEntity(row)} />`, html`<${Key} of=${row.key} />`];

const resized = (row) => [
  ...about(row),
  html`<${Value} of=${row.key} value=${row.limit} />`,
  html`<${Value} of=${row.key} value=${row.value} /> ${row.factor !== null && html`<span class="value muted">${factorInWords(row.action === "lower" ? 1 / row.factor : row.factor)}</span>`}`,
  html`<${Evidence} row=${row} figures=${figures(row)} />`,
];

const KINDS = {
  shadowed: "others go before it for everybody",
  redundant: "the next rule gives the same",
  orphan: "its user is in no inventory",
  idle: "nobody of these names was seen",
  default_unused: "nobody fell back on this default",
};

const removed = (row) => [
  ...about(row),
  html`<${Value} of=${row.key} value=${row.value} />`,
  KINDS[row.kind] ?? row.kind,
  html`<${Evidence} row=${row} figures=${lastSeen(row)} />`,
];

/** Why, in the pipeline's sentence, and the figures that it rests on. */
function Evidence({ row, figures: words }) {
  return html`<div class="small">
    ${row.reason && html`<div><${Text} of=${row.reason} whole /></div>`}
    <div class="muted">${words.join("; ")}.</div>
    ${row.censored && html`<div>It was throttled, so it may want more than it had: measure again after the change.</div>`}
  </div>`;
}

function figures(row) {
  const words = [];
  if (row.percentile !== null) words.push(`needs ${inWords(row.key, row.percentile)}${row.broker_id === null ? "" : ` on broker ${row.broker_id}`}`);
  if (row.peak !== null) words.push(`peak ${inWords(row.key, row.peak)}`);
  if (row.throttled_minutes) words.push(`throttled in ${number(row.throttled_minutes)} of ${number(row.minutes)} minutes`);
  if (row.throttled_s_mid !== null) words.push(`throttled for ${duration(row.throttled_s_now)} now, then ${row.throttled_s_mid < 1 ? "hardly at all" : duration(row.throttled_s_mid)}`);
  return [...words, ...period(row)];
}

const period = ({ days, coverage = null }) => (days === null ? []
  : [`${days === 1 ? "1 day" : `${days} days`}${coverage === null ? "" : `, ${number(100 * coverage)} % of the minutes seen`}`]);

function lastSeen(row) {
  const words = [row.last_seen ? `last seen ${row.last_seen.slice(0, 10)}` : "not seen"];
  if (row.winners?.length) words.push(`before it: ${row.winners.map(entityText).join(", ")}`);
  return [...words, ...period(row)];
}
