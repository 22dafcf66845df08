// The audit log by alteration, one alteration with its history, and taking one back.
import { call, withQuery } from "./api.js";
import { Answer, History, Report, useAlteration } from "./alter.js";
import { go } from "./go.js";
import { filterOfText } from "./entities.js";
import { html, useEffect, useState } from "./lib.js";
import {
  AskReason, Changes, Curl, Entity, Field, Heading, Loaded, More, Outcome, Select, Table, Text, Time, useLoaded, usePages,
} from "./components.js";

const ACTIONS = ["alter", "validate", "denied", "revert", "apply_plan", "expire", "drift"];
const OUTCOMES = ["applied", "validated", "refused", "not_applied", "unknown", "not_sent", "observed_other", "superseded"];
const PAGE_SIZE = 50;

/** Load rows of the audit log, newest first. */
export const useAudit = (parameters) =>
  usePages(withQuery("/audit", { page_size: PAGE_SIZE, ...parameters }),
    (before, next) => ({ rows: [...before.rows, ...next.rows] }));

export function AuditScreen({ me, query }) {
  const { entity = "", actor = "", action = "", outcome = "", since = "" } = query;
  const [typed, setTyped] = useState({ entity, actor, since });
  useEffect(() => setTyped({ entity, actor, since }), [entity, actor, since]);
  const audit = useAudit({ entity: filterOfText(entity), actor, action, outcome, since });
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
      <${Field} label="Entity" value=${typed.entity} placeholder="text in a name, or user=alice" onInput=${type("entity")} />
      <${Field} label="Actor" value=${typed.actor} placeholder="User:alice" onInput=${type("actor")} />
      <${Field} label="Since" value=${typed.since} placeholder="2026-11-23T00:00:00Z" onInput=${type("since")} />
      <${Select} label="Action" value=${action} options=${choices(ACTIONS)} onChange=${(event) => show({ action: event.target.value })} />
      <${Select} label="Outcome" value=${outcome} options=${choices(OUTCOMES)} onChange=${(event) => show({ outcome: event.target.value })} />
      <button>Filter</button>
    </form>
    <${Loaded} of=${audit}>${({ rows, next_page_token }) => html`
      <${AuditTable} name="Audit" rows=${rows} me=${me} onReverted=${audit.reload}
        empty=${nothing(me, Boolean(entity || actor || action || outcome || since))} />
      <${More} token=${next_page_token} onMore=${audit.more} />`}<//>
    <${Curl} path=${audit.path} />`;
}

/** Rows of the log; what belongs to one alteration stands together, under one time and actor. */
export function AuditTable({ name, rows, me, onReverted, empty }) {
  const [reverting, setReverting] = useState(null);
  const [reverted, setReverted] = useState(null);
  const revertible = new Set(rows.filter(hasChanged).map((row) => row.alteration_id));
  const cells = rows.map((row, i) => {
    const isFirst = row.alteration_id !== rows[i - 1]?.alteration_id;
    return {
      key: `${row.alteration_id} ${i}`,
      class: isFirst ? "" : "same",
      cells: [
        isFirst ? html`<a href="/ui/alteration/${row.alteration_id}"><${Time} at=${row.at} /></a>` : "",
        isFirst ? actor(row) : "",
        html`<${Action} row=${row} />`,
        row.entity ? html`<${Entity} entity=${row.entity} />` : html`<span class="muted">${deniedText(row.denied)}</span>`,
        html`<${Change} row=${row} />`,
        html`<${Outcome} of=${row.outcome} />`,
        isFirst && row.reason ? html`<${Text} of=${row.reason} whole />` : "",
        isFirst && me.mayAlter && revertible.has(row.alteration_id)
          ? html`<button onClick=${() => setReverting(row)}>Revert</button>` : "",
      ],
    };
  });
  return html`
    ${reverted && html`<${Report} report=${reverted} />`}
    <${Table} name=${name} rows=${cells} empty=${empty}
      columns=${["Time (UTC)", "Actor", "Action", "Entity", "Change", "Outcome", "Reason", html`<span class="hidden">Actions</span>`]} />
    ${reverting && html`<${Revert} id=${reverting.alteration_id} at=${reverting.at} close=${() => setReverting(null)}
      onDone=${(report) => { setReverted(report); onReverted(); }} />`}`;
}

function nothing(me, isFiltered) {
  const whose = me.permissions.audit ? "change" : "change of yours";
  return isFiltered ? `No ${whose} matches.` : `No ${whose} is recorded.`;
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

/** Take an alteration back, after a reason; refused where its values have changed since. */
export function Revert({ id, at, close, onDone }) {
  const alteration = useAlteration();
  const act = async (reason) => {
    const report = await alteration.send(`/quotas/alterations/${id}/revert`, { reason });
    if (report) onDone(report);
    return Boolean(report);
  };
  return html`<${AskReason} title="Revert this change?" button="Revert" act=${act} close=${close}>
    <p class="muted">What was changed at <${Time} at=${at} /> UTC gets its values from before again,
      unless they have changed since.</p>
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
    ${reverting && html`<${Revert} id=${parameter} at=${record.data.history[0]?.at} close=${() => setReverting(false)}
      onDone=${(report) => { setReverted(report); record.reload(); }} />`}`;
}
