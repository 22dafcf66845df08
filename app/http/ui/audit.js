// The audit log by alteration, one alteration with its history, and taking one back.
import { call, withQuery } from "./api.js";
import { Answer, History, Report, useAlteration } from "./alter.js";
import { go } from "./go.js";
import { filterOfText } from "./entities.js";
import { html, useEffect, useState } from "./lib.js";
import { Ago, AskReason, Curl, Empty, Entity, Field, Heading, Loaded, Outcome, Select, Text, Time, useLoaded } from "./components.js";
import { More, usePages } from "./pages.js";
import { number } from "./quantities.js";
import { Changes, Table } from "./tables.js";

const ACTIONS = ["alter", "validate", "denied", "revert", "apply_plan", "expire", "drift"];
const OUTCOMES = ["applied", "validated", "refused", "not_applied", "unknown", "not_sent", "observed_other", "superseded"];
const PAGE_SIZE = 500;
const PERIODS = [["24h", "24 h"], ["7d", "7 days"], ["", "All"]];

/** Load rows of the audit log, newest first. */
export const useAudit = (parameters) =>
  usePages(withQuery("/audit", { page_size: PAGE_SIZE, ...parameters }),
    (before, next) => ({ rows: [...before.rows, ...next.rows] }));

export function AuditScreen({ me, query }) {
  const { entity = "", actor = "", action = "", outcome = "", since = "", until = "" } = query;
  const [typed, setTyped] = useState({ entity, actor, since, until });
  useEffect(() => setTyped({ entity, actor, since, until }), [entity, actor, since, until]);
  const audit = useAudit({ entity: filterOfText(entity), actor, action, outcome, since, until });
  const show = (changes) => go(withQuery("/ui/audit", { ...query, ...typed, ...changes }));
  const type = (name) => (event) => setTyped({ ...typed, [name]: event.target.value });
  const submit = (event) => {
    event.preventDefault();
    show({});
  };
  const choices = (all) => [["", "any"], ...all.map((word) => [word, word.replaceAll("_", " ")])];
  return html`
    <${Heading} title="Audit" />
    ${!me.permissions.audit && html`<p class="muted">Only your own changes: seeing everybody's needs the audit permission.</p>`}
    <form class="filters" role="search" onSubmit=${submit}>
      <${Field} label="Entity" value=${typed.entity} placeholder="name, or user=alice" onInput=${type("entity")} />
      <${Field} label="Actor" value=${typed.actor} placeholder="User:alice" onInput=${type("actor")} />
      <${Field} label="Since" value=${typed.since} placeholder="2h, or 2026-11-23" onInput=${type("since")} />
      <${Field} label="Until" value=${typed.until} placeholder="now" onInput=${type("until")} />
      <${Select} label="Action" value=${action} options=${choices(ACTIONS)} onChange=${(event) => show({ action: event.target.value })} />
      <${Select} label="Outcome" value=${outcome} options=${choices(OUTCOMES)} onChange=${(event) => show({ outcome: event.target.value })} />
      <div class="buttons"><button>Filter</button>
        ${PERIODS.map(([period, text]) => html`<button type="button" class="plain" aria-pressed=${since === period && !until ? "true" : "false"}
          onClick=${() => show({ since: period, until: "" })}>${text}</button>`)}</div>
    </form>
    <${Loaded} of=${audit}>${({ rows, next_page_token }) => html`
      <${AuditTable} name="Audit" rows=${rows} me=${me} onReverted=${audit.reload} isCut=${Boolean(next_page_token)}
        empty=${html`<${Nothing} me=${me} isFiltered=${Boolean(entity || actor || action || outcome || since || until)} />`} />
      <${More} of=${audit} />`}<//>
    <${Curl} path=${audit.path} />`;
}

/** Return runs of rows of one alteration, in their order. */
function byAlteration(rows) {
  const groups = [];
  for (const row of rows) {
    const last = groups.at(-1);
    if (last && last[0].alteration_id === row.alteration_id && last[0].action === row.action) last.push(row);
    else groups.push([row]);
  }
  return groups;
}

/**
 * Alterations of the log, a row each; the entities of one that has several stand under it when it is unfolded.
 * `isCut`: more rows may follow, of the last alteration, too. `isOfOne`: all are of one entity.
 */
export function AuditTable({ name, rows, me, onReverted, empty, isCut = false, isOfOne = false }) {
  const [reverting, setReverting] = useState(null);
  const [reverted, setReverted] = useState(null);
  const [open, setOpen] = useState(new Set());
  const toggle = (id) => {
    const next = new Set(open);
    if (!next.delete(id)) next.add(id);
    setOpen(next);
  };
  const groups = byAlteration(rows);
  const cells = groups.map((group, i) => {
    const [row] = group;
    const id = `${row.alteration_id} ${row.action} ${i}`;
    const isOpen = open.has(id);
    const several = group.length > 1;
    const count = `${number(group.length)}${isCut && i === groups.length - 1 ? " or more" : ""} entities`;
    return {
      key: id,
      below: several && isOpen && html`<${Entities} rows=${group} />`,
      cells: [
        html`<a href="/ui/alteration/${row.alteration_id}"><${Ago} at=${row.at} /></a>`,
        actor(row),
        html`<${Action} row=${row} />`,
        ...(isOfOne ? [] : [several
          ? html`<button type="button" class="link" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => toggle(id)}>${count}</button>`
          : row.entity ? html`<${Entity} entity=${row.entity} />` : html`<span class="muted">${deniedText(row.denied)}</span>`]),
        several ? html`<span class="muted">${keysOfGroup(group)}</span>` : html`<${Change} row=${row} />`,
        [...new Set(group.map((each) => each.outcome))].map((outcome) => html`<${Outcome} of=${outcome} /> `),
        row.reason ? html`<${Text} of=${row.reason} whole />` : "",
        me.mayAlter && group.some(hasChanged)
          ? html`<button class="quiet" onClick=${() => setReverting(group)}>Revert</button>` : "",
      ],
    };
  });
  return html`
    ${reverted && html`<${Report} report=${reverted} />`}
    <${Table} name=${name} rows=${cells} empty=${empty}
      columns=${["Time", "Actor", "Action", ...(isOfOne ? [] : ["Entity"]), "Change", "Outcome", "Reason", html`<span class="hidden">Actions</span>`]} />
    ${reverting && html`<${Revert} rows=${reverting} id=${reverting[0].alteration_id} at=${reverting[0].at} close=${() => setReverting(null)}
      onDone=${(report) => { setReverted(report); onReverted(); }} />`}`;
}

const Entities = ({ rows }) => html`<${Table} name="Entities" columns=${["Entity", "Change", "Outcome"]} rows=${rows.map((row, i) => ({
  key: i,
  cells: [html`<${Entity} entity=${row.entity} />`, html`<${Change} row=${row} />`, html`<${Outcome} of=${row.outcome} />`],
}))} />`;

const keysOfGroup = (rows) => [...new Set(rows.flatMap(({ ops }) => (ops ?? []).map(({ key }) => key)))].join(", ");

function Nothing({ me, isFiltered }) {
  const whose = me.permissions.audit ? "change" : "change of yours";
  if (isFiltered) return html`<${Empty} title="No ${whose} matches."><a href="/ui/audit">Show all</a><//>`;
  return html`<${Empty} title="No ${whose} is recorded.">What is changed through this service stands here, with who did it and why.<//>`;
}

const Message = ({ of }) => of && html`<${Text} of=${of.message} whole />`;
const actor = (row) => row.principal ? html`<${Text} of=${row.principal} />` : html`<span class="muted">outside this service</span>`;
const Action = ({ row }) =>
  row.action === "drift" || row.action === "denied"
    ? html`<span class="mark">${row.action}</span>` : row.action.replaceAll("_", " ");
/** Whether a row is of an alteration that there is something to take back of: values from before are known. */
const hasChanged = (row) =>
  ["alter", "revert", "apply_plan"].includes(row.action) && row.outcome === "applied" && isAnother(row);
const isAnother = ({ before, after }) =>
  Boolean(before && after) && [...Object.keys(before), ...Object.keys(after)].some((key) => before[key] !== after[key]);

function Change({ row }) {
  const before = row.before ?? {}, after = row.after ?? row.before ?? {};
  const keys = (row.ops ?? []).map((op) => op.key);
  const drifted = Object.keys({ ...before, ...after }).filter((key) => before[key] !== after[key]);
  if (row.outcome === "refused" || !row.after) {
    const aimed = { ...before };
    for (const { key, value, remove } of row.ops ?? []) aimed[key] = remove ? undefined : value;
    return keys.length ? html`<${Changes} before=${before} after=${aimed} keys=${keys} />` : html`<${Message} of=${row.error} />`;
  }
  return html`<${Changes} before=${before} after=${after} keys=${keys.length ? keys : drifted} />`;
}

function deniedText(denied) {
  if (!denied) return "";
  const attempts = denied.attempts === 1 ? "1 attempt" : `${denied.attempts} attempts`;
  return denied.entities === null ? attempts : `${attempts}, ${denied.entities} entities`;
}

/** How many entities a dialog lists. */
const LISTED = 10;

/** Take an alteration back, after a reason; refused where its values have changed since. */
export function Revert({ id, at, rows, close, onDone }) {
  const alteration = useAlteration();
  const act = async (reason) => {
    const report = await alteration.send(`/quotas/alterations/${id}/revert`, { reason });
    if (report) onDone(report);
    return Boolean(report);
  };
  const changed = rows.filter((row) => row.outcome === "applied" && isAnother(row));
  return html`<${AskReason} title="Revert this change?" button="Revert" act=${act} close=${close}>
    <p class="muted">What was changed <${Ago} at=${at} /> gets its values from before again,
      unless they have changed since.</p>
    <${Table} name="What it puts back" columns=${["Entity", "Now and then"]} rows=${changed.slice(0, LISTED).map(({ entity, before, after }, i) => ({
      key: i,
      cells: [html`<${Entity} entity=${entity} link=${false} />`, html`<${Changes} before=${after} after=${before}
        keys=${[...new Set([...Object.keys(before), ...Object.keys(after)])].filter((key) => before[key] !== after[key])} />`],
    }))} />
    ${changed.length > LISTED && html`<p class="muted">And ${number(changed.length - LISTED)} more.</p>`}
    <${Answer} alteration=${alteration} settled=${onDone} />
    <${Curl} path="/quotas/alterations/${id}/revert" body=${{}} />
  <//>`;
}

/** One alteration: who, why, what, and each event until its outcome. */
export function AlterationScreen({ me, parameter }) {
  const record = useLoaded(async (signal) => (await call(`/quotas/alterations/${parameter}`, { signal })).document, [parameter]);
  const [reverting, setReverting] = useState(false);
  const [reverted, setReverted] = useState(null);
  return html`
    <${Heading} title="Alteration">
      ${me.mayAlter && record.data?.results?.some((each) => each.outcome === "applied" && isAnother(each)) && html`
        <button onClick=${() => setReverting(true)}>Revert</button>`}
    <//>
    ${reverted && html`<${Report} report=${reverted} />`}
    <${Loaded} of=${record}>${(found) => html`
      <dl class="facts">
        <dt>Alteration</dt><dd><code>${found.alteration_id}</code></dd>
        <dt>Outcome</dt><dd><${Outcome} of=${found.outcome} /></dd>
        <dt>Actor</dt><dd><${Text} of=${found.principal} whole /> <span class="muted">from ${found.client_address}</span></dd>
        <dt>Reason</dt><dd>${found.reason ? html`<${Text} of=${found.reason} whole />` : html`<span class="muted">none</span>`}</dd>
        ${found.history?.[0] && html`<dt>Time</dt><dd><${Time} at=${found.history[0].at} /> UTC, <${Ago} at=${found.history[0].at} /></dd>`}
        <dt>Request</dt><dd><code>${found.request_id}</code></dd>
      </dl>
      <h2>Changes</h2>
      <${Table} name="Changes" columns=${["Entity", "Change", "Outcome"]} rows=${(found.results ?? []).map((result, i) => ({
        key: i,
        cells: [
          html`<${Entity} entity=${result.entity} />`,
          html`<${Change} row=${result} />`,
          html`<${Outcome} of=${result.outcome} /> <${Message} of=${result.error} />`,
        ],
      }))} />
      <h2>History</h2>
      <${History} events=${found.history} />`}<//>
    <${Curl} path="/quotas/alterations/${parameter}" />
    ${reverting && html`<${Revert} id=${parameter} at=${record.data.history[0]?.at} rows=${record.data.results} close=${() => setReverting(false)}
      onDone=${(report) => { setReverted(report); record.reload(); }} />`}`;
}
