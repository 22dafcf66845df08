// One entity: its values, what they override, its use, its history.
import { get, withQuery } from "./api.js";
import { Answer, Report, useAlteration } from "./alter.js";
import { AuditTable, useAudit } from "./audit.js";
import { present } from "./edit.js";
import { entityText, filterOf, levelText, readEntityKey, sameEntity, sharing } from "./entities.js";
import { go } from "./go.js";
import { html, useState } from "./lib.js";
import { AskReason, Curl, Entity, Heading, Loaded, More, Table, Value, orNull, useLoaded } from "./components.js";
import { withDigits } from "./quantities.js";
import { UseByHour, UseTable, newestDays } from "./usage.js";

export function EntityScreen({ me, parameter }) {
  const entity = readEntityKey(parameter);
  if (!entity) return html`<${Heading} title="No such entity" /><p>The address names no entity.</p>`;
  return html`<${EntityDetails} me=${me} entity=${entity} entityKey=${parameter} />`;
}

function EntityDetails({ me, entity, entityKey }) {
  const values = useLoaded((signal) => present(entityKey, signal), [entityKey]);
  const audit = useAudit({ entity: filterOf(entity), page_size: 20 });
  const [deleting, setDeleting] = useState(false);
  const [deleted, setDeleted] = useState(null);
  const reload = () => {
    values.reload();
    audit.reload();
  };
  const held = values.data ?? {};
  const none = Object.keys(held).length === 0;
  return html`
    <${Heading} title=${entityText(entity)}>
      <button onClick=${() => go(withQuery("/ui/resolve", identityOf(entity)))}>Who gets what</button>
      ${me.permissions.alter && html`
        <button class="primary" onClick=${() => go(`/ui/edit/${entityKey}`)}>Edit</button>
        <button class="danger" disabled=${none} onClick=${() => setDeleting(true)}>Delete</button>`}
    <//>
    ${deleted && html`<${Report} report=${deleted} />`}
    <${Loaded} of=${values}>${() => html`<${Values} entity=${entity} values=${held} />`}<//>
    <${Curl} path="/quotas/${entityKey}" />
    <h2>Use</h2>
    <${Use} entity=${entity} />
    <h2>History</h2>
    <${Loaded} of=${audit}>${(rows) => html`
      <${AuditTable} name="History" rows=${rows} me=${me} onReverted=${reload} />
      <${More} token=${audit.token} onMore=${audit.more} />`}<//>
    ${deleting && html`<${Delete} entity=${entity} values=${held} close=${() => setDeleting(false)}
      onDone=${(report) => { setDeleted(report); reload(); }} />`}`;
}

const identityOf = (entity) =>
  Object.fromEntries(Object.entries(entity).filter(([, name]) => name !== null));

function Values({ entity, values }) {
  const isIdentity = Object.values(entity).every((name) => name !== null) && ("user" in entity || "ip" in entity);
  const resolved = useLoaded(
    (signal) => (isIdentity ? get(withQuery("/quotas/resolve", entity), { signal }) : Promise.resolve(null)),
    [values],
  );
  const rows = Object.keys(values).map((key) => ({
    key,
    cells: [
      html`<code>${key}</code>`,
      html`<${Value} of=${key} value=${values[key]} />`,
      html`<span class="digits">${withDigits(key, values[key])}</span>`,
      html`<${Overrides} entity=${entity} quota=${resolved.data?.quotas[key]} of=${key} />`,
    ],
  }));
  return html`
    <p class="muted">${sharing(entity)}</p>
    <${Table} name="Values" columns=${["Key", "Value", "Exactly", "Overrides"]} rows=${rows}
      empty="This entity has no values; the next less specific rule applies." />`;
}

function Overrides({ entity, quota, of }) {
  if (!quota?.source) return html`<span class="muted">–</span>`;
  if (!sameEntity(quota.source.entity, entity)) {
    return html`<span class="mark">overridden</span> by <${Entity} entity=${quota.source.entity} />`;
  }
  if (!quota.overridden.length) return html`<span class="muted">nothing</span>`;
  return html`<ul class="changes">${quota.overridden.map((each) => html`<li>
    ${levelText(each.name)}: <${Value} of=${of} value=${each.value} /></li>`)}</ul>`;
}

/** The last day's use of the buckets that this entity limits. */
function Use({ entity }) {
  const use = useLoaded(
    (signal) => orNull(withQuery("/analytics/utilization", { entity: filterOf(entity), page_size: 200 }), "no-run", { signal }),
    [],
  );
  return html`<${Loaded} of=${use}>${(page) => {
    if (!page) return html`<p class="muted">No run of the pipeline has published use yet.</p>`;
    const days = newestDays(page.rows);
    if (!days.length) return html`<p class="muted">Nothing was seen of it.</p>`;
    return html`<${UseTable} name="Use of the last day" days=${days} buckets=${page.buckets} />
      <${UseByHour} day=${days[0]} />`;
  }}<//>`;
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
