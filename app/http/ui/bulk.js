// One change of several quotas: set a key or remove it, checked and then applied as one alteration.
import { Answer, useAlteration } from "./alter.js";
import { go, useUnsaved } from "./go.js";
import { html, useState } from "./lib.js";
import { Curl, Dialog, Field, Select } from "./components.js";
import { addToDraft } from "./draft.js";
import { keysOf, TITLES, UNITS, changeOf, howToWrite, inWords, number, readValue } from "./quantities.js";

/** What can be done with the rows that are chosen. */
export function Bulk({ quotas, clear, onDone }) {
  const [isOpen, setOpen] = useState(false);
  const plan = () => {
    addToDraft(quotas.map(({ entity, values }) => ({ entity, ops: Object.entries(values).map(([key, value]) => ({ key, value })) })));
    go("/ui/plan");
  };
  return html`<div class="bulk" role="group" aria-label="Selected quotas">
    <strong>${number(quotas.length)} selected</strong>
    <button type="button" class="primary" onClick=${() => setOpen(true)}>Change …</button>
    <button type="button" onClick=${plan}>Edit as a document</button>
    <button type="button" class="link" onClick=${clear}>Clear</button>
    ${isOpen && html`<${Change} quotas=${quotas} close=${() => setOpen(false)} onDone=${onDone} />`}
  </div>`;
}

function Change({ quotas, close, onDone }) {
  const keys = [...new Set(quotas.flatMap(({ entity, values }) => [...keysOf(entity), ...Object.keys(values)]))];
  const [key, setKey] = useState(keys[0]);
  const [typed, setTyped] = useState("");
  const [reason, setReason] = useState("");
  const alteration = useAlteration();
  const value = readValue(key, typed);
  const alterations = quotas.flatMap(({ entity, values }) => alterationOf(entity, key, value, values[key] ?? null));
  const body = { reason: reason.trim() || undefined, alterations };
  const lowered = quotas.filter(({ values }) => changeOf(key, values[key], value).isDrastic).length;
  const [isSure, setSure] = useState(false);
  useUnsaved(Boolean(typed || reason.trim()) && alteration.report?.outcome !== "applied");
  const change = (set) => {
    set();
    setSure(false);
    alteration.clear();
  };
  const isReady = !Number.isNaN(value) && alterations.length > 0;
  const check = (event) => {
    event.preventDefault();
    if (isReady) alteration.send("/quotas/alterations", { ...body, validate_only: true });
  };
  const settle = ({ outcome }) => {
    if (outcome !== "applied") return;
    close();
    onDone();
  };
  const apply = async () => {
    const report = await alteration.send("/quotas/alterations", body);
    if (report) settle(report);
  };
  return html`<${Dialog} title="Change ${number(quotas.length)} quotas" close=${close} wide>
    <form onSubmit=${check}>
      <div class="fields">
        <${Select} label="Key" value=${key} onChange=${({ target }) => change(() => setKey(target.value))}
          options=${keys.map((name) => [name, TITLES[name] ? `${TITLES[name]} (${name})` : name])} />
        <${Field} label="New value" value=${typed} unit=${UNITS[key]} placeholder="empty removes it" autofocus
          hint=${value === null ? "Empty: the key is removed, and the next less specific rule applies." : Number.isNaN(value) ? "" : inWords(key, value)}
          error=${Number.isNaN(value) ? howToWrite(key) : ""} onInput=${({ target }) => change(() => setTyped(target.value))} />
      </div>
      <${Field} label="Reason" value=${reason} maxlength="1000" hint="Stored in the audit log." onInput=${({ target }) => setReason(target.value)} />
      <p class="muted">${sentence(quotas.length, alterations.length)}</p>
      ${lowered > 0 && html`<div class="notice danger"><p>${lowered === 1 ? "1 value is" : `${number(lowered)} values are`} lowered by 100 times or more, or to next to nothing.</p>
        <label class="check"><input type="checkbox" checked=${isSure} onChange=${({ target }) => setSure(target.checked)} /> That is meant</label></div>`}
      <div class="buttons">
        <button disabled=${alteration.busy || !isReady}>Check</button>
        <button type="button" class="primary" disabled=${alteration.busy || !isReady || (lowered > 0 && !isSure)} onClick=${apply}>Apply</button>
        <button type="button" onClick=${close}>Cancel</button>
      </div>
    </form>
    <${Answer} alteration=${alteration} settled=${settle} />
    <${Curl} path="/quotas/alterations" body=${body} title="curl, to apply" />
  <//>`;
}

/** Return the alteration of an entity; none where it has that value, or may not carry the key. */
function alterationOf(entity, key, value, now) {
  const mayCarry = keysOf(entity).includes(key) || now !== null;
  if (!mayCarry || value === now || Number.isNaN(value)) return [];
  return [{ entity, ops: [value === null ? { key, remove: true } : { key, value }], expected: { [key]: now } }];
}

function sentence(all, changed) {
  const rest = all - changed;
  if (!changed) return "None of them would change.";
  return rest ? `${number(changed)} would change; ${number(rest)} would not: they have this value, or cannot carry the key.` : `All ${number(changed)} would change, or none.`;
}
