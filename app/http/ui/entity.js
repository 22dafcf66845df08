// One entity: its values, what they override, its use, its history.
import { get, withQuery } from "./api.js";
import { Answer, Report, useAlteration } from "./alter.js";
import { AuditTable, useAudit } from "./audit.js";
import { presentQuota } from "./edit.js";
import { entityText, filterOf, levelText, readEntityKey, sameEntity, sharing } from "./entities.js";
import { go } from "./go.js";
import { useInherited } from "./inherited.js";
import { html, useState } from "./lib.js";
import { Ago, AskReason, Curl, Empty, ReadOnly, Entity, Heading, Key, Loaded, Text, Value, orNull, useLoaded } from "./components.js";
import { More } from "./pages.js";
import { UseMark, useNearLimits } from "./near.js";
import { inWords, keysOf, withDigits } from "./quantities.js";
import { Until } from "./temporary.js";
import { Through, UseTable, usePublished } from "./usage.js";
import { Table } from "./tables.js";

export function EntityScreen({ me, parameter }) {
  const entity = readEntityKey(parameter);
  if (!entity) return html`<${Heading} title="No such entity" /><p>The address names no entity.</p>`;
  return html`<${EntityDetails} me=${me} entity=${entity} entityKey=${parameter} />`;
}

function EntityDetails({ me, entity, entityKey }) {
  const quota = useLoaded((signal) => presentQuota(entityKey, signal), [entityKey]);
  const audit = useAudit({ entity: filterOf(entity), page_size: 20 });
  const owners = useOwners(entityKey);
  const [deleting, setDeleting] = useState(false);
  const [deleted, setDeleted] = useState(null);
  const reload = () => {
    quota.reload();
    audit.reload();
    owners.reload();
  };
  const held = quota.data?.values ?? {};
  const none = Object.keys(held).length === 0;
  return html`
    <${Heading} title=${entityText(entity)}>
      <button onClick=${() => go(withQuery("/ui/resolve", identityOf(entity)))}>Who gets what</button>
      ${me.mayAlter && html`
        <button class="primary" onClick=${() => go(`/ui/edit/${entityKey}`)}>Edit</button>
        <button class="danger" disabled=${none} onClick=${() => setDeleting(true)}>Delete</button>`}
    <//>
    <${ReadOnly} me=${me} />
    ${deleted && html`<${Report} report=${deleted} />`}
    <${Loaded} of=${quota}>${({ temporary }) => html`
      <${Values} entity=${entity} values=${held} temporary=${temporary ?? {}} owners=${owners}
        outside=${me.permissions.audit ? outsideChanges(audit.data?.rows ?? [], held) : {}} />`}<//>
    <${Curl} path="/quotas/${entityKey}" />
    <h2>Use</h2>
    <${Use} me=${me} entity=${entity} />
    <h2>History</h2>
    ${!me.permissions.audit && html`<p class="muted">Only your own changes: seeing everybody's needs the audit permission.</p>`}
    <${Loaded} of=${audit}>${({ rows }) => html`
      <${AuditTable} name="History" rows=${rows} me=${me} onReverted=${reload} isOfOne
        empty=${html`<${Empty} title=${me.permissions.audit ? "No change of it is recorded." : "No change of yours is recorded."} />`} />
      <${More} of=${audit} />`}<//>
    <${Curl} path=${audit.path} title="curl, of its history" />
    ${deleting && html`<${Delete} entity=${entity} values=${held} close=${() => setDeleting(false)}
      onDone=${(report) => { setDeleted(report); reload(); }} />`}`;
}

const identityOf = (entity) =>
  Object.fromEntries(Object.entries(entity).filter(([, name]) => name !== null));

/** Load who owns which key; the audit log has that, which may not answer. */
function useOwners(entityKey) {
  const path = `/quotas/${entityKey}?owners=true`;
  return useLoaded(async (signal) => (await orNull(path, "no-such-entity", { signal }))?.owners ?? {}, [path]);
}

const SETS = ["alter", "revert", "apply_plan", "expire", "drift"];

/**
 * Return for each key that was changed outside since the log's newest word about it, when that was: the time at
 * which the change was found, or null where it has not been found yet. `rows` are newest first.
 */
function outsideChanges(rows, values) {
  const changed = {}, judged = new Set();
  for (const { action, outcome, before, after, at } of rows) {
    if (!SETS.includes(action) || outcome !== "applied" || !before || !after) continue;
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)])) {
      if (judged.has(key) || (before[key] === after[key] && action !== "drift")) continue;
      judged.add(key);
      if ((after[key] ?? null) !== (values[key] ?? null)) changed[key] = null;
      else if (action === "drift" && before[key] !== after[key]) changed[key] = at;
    }
  }
  return changed;
}

function Values({ entity, values, temporary, owners, outside }) {
  const inherited = useInherited(entity, values);
  const near = useNearLimits();
  const others = [...Object.keys(values), ...Object.keys(temporary)].filter((key) => !keysOf(entity).includes(key));
  const keys = [...keysOf(entity), ...new Set(others)];
  const hasOwners = Object.keys(owners.data ?? {}).length > 0;
  const isEmpty = Object.keys(values).length === 0;
  const rows = keys.map((key) => ({
    key,
    class: key in values ? "" : "lost",
    cells: [
      html`<${Key} of=${key} />`,
      html`<${Value} of=${key} value=${values[key]} /><${UseMark} share=${near(entity, key)} /><${Until} of=${key} temporary=${temporary[key]} countdown />
        ${key in outside && html`<div><span class="mark">changed outside</span> <span class="small">${outside[key] ? html`found <${Ago} at=${outside[key]} />` : "since the log last set it"}</span></div>`}`,
      key in values ? html`<span class="digits">${withDigits(key, values[key])}</span>` : "",
      html`<${Overrides} entity=${entity} quota=${inherited.data?.quotas[key]} of=${key} error=${inherited.error}
        isSet=${key in values} next=${inherited.of(key)} />`,
      ...(hasOwners ? [owners.data[key] ? html`<${Text} of=${owners.data[key]} />` : null] : []),
    ],
  }));
  return html`
    <p class="muted">${sharing(entity)}</p>
    ${isEmpty && html`<p class="notice">This entity has no values; the next less specific rule applies.</p>`}
    ${owners.error && html`<p class="notice open">Who owns it is not known: ${owners.error.message}</p>`}
    <${Table} name="Values" rows=${rows}
      columns=${["Key", { text: "Value", label: "Value", numeric: true }, { text: "Exactly", label: "Exactly", numeric: true }, "Other levels", ...(hasOwners ? ["Owner"] : [])]} />`;
}

/** What a value overrides, or what goes before it; of a key that is not set what applies instead. */
function Overrides({ entity, quota, of, error, isSet, next }) {
  if (error) return html`<span class="muted">not known: ${error.message}</span>`;
  if (!isSet && next) {
    return next.entity ? html`<span>inherits ${inWords(of, next.value)} from <${Entity} entity=${next.entity} /></span>` : "nothing limits it";
  }
  if (!quota?.source) return html`<span class="muted">–</span>`;
  if (!sameEntity(quota.source.entity, entity)) {
    return html`<span><span class="mark">overridden</span> by <${Entity} entity=${quota.source.entity} /></span>`;
  }
  if (!quota.overridden.length) return html`<span class="muted">overrides nothing</span>`;
  return html`<ul class="changes">${quota.overridden.map((each) => html`<li>overrides
    ${" "}${levelText(each.name)}: <${Value} of=${of} value=${each.value} /></li>`)}</ul>`;
}

/** The last day's use of the buckets that this entity limits. */
function Use({ me, entity }) {
  const use = usePublished(withQuery("/analytics/utilization", { entity: filterOf(entity), page_size: 200 }));
  return html`<${Loaded} of=${use}>${(page) => html`
    <${Through} page=${page} />
    ${page && html`<${UseTable} name="Use of the last day" page=${page} pages=${use} me=${me} />`}`}<//>
    <${Curl} path=${use.path} title="curl, of its use" />`;
}

function Delete({ entity, values, close, onDone }) {
  const alteration = useAlteration();
  const ops = Object.keys(values).map((key) => ({ key, remove: true }));
  const alterations = [{ entity, ops, expected: values }];
  const act = async (reason) => {
    const report = await alteration.send("/quotas/alterations", { reason, alterations });
    if (report) onDone(report);
    return Boolean(report);
  };
  return html`<${AskReason} title="Delete every value of ${entityText(entity)}?" button="Delete"
    act=${act} close=${close}>
    <p class="muted">The next less specific rule applies then.</p>
    <${Answer} alteration=${alteration} settled=${onDone} />
    <${Curl} path="/quotas/alterations" body=${{ alterations }} />
  <//>`;
}
