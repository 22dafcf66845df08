// One entity: its values, what they override, its use, its history.
import { get, withQuery } from "./api.js";
import { Answer, Report, useAlteration } from "./alter.js";
import { AuditTable, useAudit } from "./audit.js";
import { presentQuota } from "./edit.js";
import { entityText, filterOf, levelText, readEntityKey, sameEntity, sharing } from "./entities.js";
import { go } from "./go.js";
import { html, useState } from "./lib.js";
import { AskReason, Curl, ReadOnly, Entity, Heading, Loaded, More, Table, Value, useLoaded } from "./components.js";
import { withDigits } from "./quantities.js";
import { Until } from "./temporary.js";
import { Through, UseTable, usePublished } from "./usage.js";

export function EntityScreen({ me, parameter }) {
  const entity = readEntityKey(parameter);
  if (!entity) return html`<${Heading} title="No such entity" /><p>The address names no entity.</p>`;
  return html`<${EntityDetails} me=${me} entity=${entity} entityKey=${parameter} />`;
}

function EntityDetails({ me, entity, entityKey }) {
  const quota = useLoaded((signal) => presentQuota(entityKey, signal), [entityKey]);
  const audit = useAudit({ entity: filterOf(entity), page_size: 20 });
  const [deleting, setDeleting] = useState(false);
  const [deleted, setDeleted] = useState(null);
  const reload = () => {
    quota.reload();
    audit.reload();
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
      <${Values} entity=${entity} values=${held} temporary=${temporary ?? {}} />`}<//>
    <${Curl} path="/quotas/${entityKey}" />
    <h2>Use</h2>
    <${Use} me=${me} entity=${entity} />
    <h2>History</h2>
    ${!me.permissions.audit && html`<p class="muted">Only your own changes: seeing everybody's needs the audit permission.</p>`}
    <${Loaded} of=${audit}>${({ rows, next_page_token }) => html`
      <${AuditTable} name="History" rows=${rows} me=${me} onReverted=${reload}
        empty=${me.permissions.audit ? "No change of it is recorded." : "No change of yours is recorded."} />
      <${More} token=${next_page_token} onMore=${audit.more} />`}<//>
    <${Curl} path=${audit.path} title="curl, of its history" />
    ${deleting && html`<${Delete} entity=${entity} values=${held} close=${() => setDeleting(false)}
      onDone=${(report) => { setDeleted(report); reload(); }} />`}`;
}

const identityOf = (entity) =>
  Object.fromEntries(Object.entries(entity).filter(([, name]) => name !== null));

function Values({ entity, values, temporary }) {
  const isIdentity = Object.values(entity).every((name) => name !== null) && ("user" in entity || "ip" in entity);
  const resolved = useLoaded(
    (signal) => (isIdentity ? get(withQuery("/quotas/resolve", entity), { signal }) : Promise.resolve(null)),
    [values],
  );
  const keys = [...new Set([...Object.keys(values), ...Object.keys(temporary)])].sort();
  const rows = keys.map((key) => ({
    key,
    cells: [
      html`<code>${key}</code>`,
      html`<${Value} of=${key} value=${values[key]} /><${Until} of=${key} temporary=${temporary[key]} countdown />`,
      html`<span class="digits">${withDigits(key, values[key])}</span>`,
      html`<${Overrides} entity=${entity} quota=${resolved.data?.quotas[key]} of=${key} error=${resolved.error} />`,
    ],
  }));
  return html`
    <p class="muted">${sharing(entity)}</p>
    <${Table} name="Values" columns=${["Key", "Value", "Exactly", "Overrides"]} rows=${rows}
      empty="This entity has no values; the next less specific rule applies." />`;
}

function Overrides({ entity, quota, of, error }) {
  if (error) return html`<span class="muted">not known: ${error.message}</span>`;
  if (!quota?.source) return html`<span class="muted">–</span>`;
  if (!sameEntity(quota.source.entity, entity)) {
    return html`<span class="mark">overridden</span> by <${Entity} entity=${quota.source.entity} />`;
  }
  if (!quota.overridden.length) return html`<span class="muted">nothing</span>`;
  return html`<ul class="changes">${quota.overridden.map((each) => html`<li>
    ${levelText(each.name)}: <${Value} of=${of} value=${each.value} /></li>`)}</ul>`;
}

/** The last day's use of the buckets that this entity limits. */
function Use({ me, entity }) {
  const use = usePublished(withQuery("/analytics/utilization", { entity: filterOf(entity), page_size: 200 }));
  return html`<${Loaded} of=${use}>${(page) => html`
    <${Through} page=${page} />
    ${page && html`<${UseTable} name="Use of the last day" page=${page} me=${me} />
      <${More} token=${page.next_page_token} onMore=${use.more} />`}`}<//>
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
