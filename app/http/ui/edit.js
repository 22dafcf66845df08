// New quotas and changed ones: check what would happen, then apply exactly that.
import { events, get } from "./api.js";
import { Answer, useAlteration } from "./alter.js";
import { TYPES, entityKey, entityText, readEntityKey } from "./entities.js";
import { go, useUnsaved } from "./go.js";
import { inheritedText, useInherited } from "./inherited.js";
import { html, useEffect, useState } from "./lib.js";
import { Checkbox, Curl, Entity, Field, Heading, Loaded, ReadOnly, Text, orNull, useLoaded } from "./components.js";
import { readHours } from "./temporary.js";
import { visible } from "./text.js";
import { TITLES, UNITS, asTyped, changeOf, factorInWords, howToWrite, inWords, keysOf, number, readValue, withDigits } from "./quantities.js";
import { Factor, ValueTable } from "./tables.js";

const LOOK_AFTER_MS = 300;
const CHECK = { validate_only: true, impact: true };

/** What an entity has now; no values where it has no quota. */
export const presentQuota = async (key, signal) =>
  (await orNull(`/quotas/${key}`, "no-such-entity", { signal })) ?? { values: {} };

/** The values alone. */
export const present = async (key, signal) => (await presentQuota(key, signal)).values;

export function EditScreen({ me, parameter, query }) {
  const entity = readEntityKey(parameter);
  const values = useLoaded((signal) => present(parameter, signal), [parameter]);
  if (!entity) return html`<${Heading} title="No such entity" />`;
  return html`
    <${Heading} title="Edit ${entityText(entity)}" />
    <${Loaded} of=${values}>${(held) => html`
      <${Form} me=${me} entity=${entity} held=${held} typedFirst=${query} reload=${values.reload} />`}<//>`;
}

export function NewScreen({ me, query }) {
  const initial = Object.fromEntries(Object.keys(TYPES).filter((type) => type in query).map((type) => [type, query[type]]));
  const [entity, setEntity] = useState(initial);
  if (!me.mayAlter) return html`<${Heading} title="New quota" /><${ReadOnly} me=${me} />`;
  return html`
    <${Heading} title="New quota" />
    <${Form} me=${me} entity=${entity} setEntity=${setEntity} held=${{}} />`;
}

/**
 * The form. `held` are the values that the change rests on; what was typed over them stays when
 * they are loaded again.
 */
function Form({ me, entity, setEntity, held, typedFirst = {}, reload }) {
  const capabilities = useLoaded((signal) => get("/quotas/capabilities", { signal }), []);
  const keys = [...new Set([...keysOf(entity), ...Object.keys(held)])];
  const [typed, setTyped] = useState(() => Object.fromEntries(keys.filter((key) => key in typedFirst).map((key) => [key, typedFirst[key]])));
  const [reason, setReason] = useState("");
  const [hours, setHours] = useState("");
  const [base, setBase] = useState(null);
  const [fault, setFault] = useState("");
  const [touched, setTouched] = useState(false);
  const [isSure, setSure] = useState(false);
  const alteration = useAlteration();
  const inherited = useInherited(entity, held);
  const existing = useExisting(setEntity && !base ? entity : null);
  const now = base ?? held;
  const textOf = (key) => typed[key] ?? asTyped(key, now[key]);
  const valueOf = (key) => (key in typed ? readValue(key, typed[key]) : (now[key] ?? null));
  const values = Object.fromEntries(keys.map((key) => [key, valueOf(key)]));
  const ops = keys
    .filter((key) => key in typed && values[key] !== (now[key] ?? null))
    .map((key) => (values[key] === null ? { key, remove: true } : { key, value: values[key] }));
  const expected = Object.fromEntries(ops.map(({ key }) => [key, now[key] ?? null]));
  const seconds = readHours(hours);
  const body = { reason: reason.trim() || undefined, expires_in: seconds === null ? undefined : `${seconds}s`, alterations: [{ entity, ops, expected }] };
  const faults = faultsOf(alteration.error, ops);
  const unreadable = Number.isNaN(seconds) || keys.some((key) => Number.isNaN(values[key]));
  const isNamed = setEntity && !base && Object.keys(entity).length > 0;
  const drastic = ops.map(({ key, value }) => ({ key, value, change: changeOf(key, now[key], value) })).filter((each) => each.change.isDrastic);
  const mustConfirm = drastic.length > 0 && !isSure;
  useEffect(() => {
    const undone = () => {
      setBase(null);
      alteration.clear();
    };
    events.addEventListener("undone", undone);
    return () => events.removeEventListener("undone", undone);
  }, []);
  useUnsaved(Boolean(touched && (ops.length || unreadable || body.reason || hours || isNamed)));
  const change = (set) => {
    set();
    setTouched(true);
    setSure(false);
    if (alteration.report?.validate_only) alteration.clear();
  };
  const send = async (validate_only) => {
    setFault(unreadable ? "Some values cannot be read; see the fields." : ops.length ? "" : "Nothing is changed: write a value first.");
    if (unreadable || !ops.length) return alteration.clear();
    const report = await alteration.send("/quotas/alterations", validate_only ? { ...CHECK, ...body } : body);
    if (report && !validate_only) settle(report);
  };
  const settle = ({ outcome, results }) => {
    if (outcome !== "applied") return;
    setBase(results[0].after);
    setTyped({});
    setReason("");
    setHours("");
    setTouched(false);
  };
  const again = (current) => html`
    ${current && html`<${ValueTable} name="Present values" values=${current} />`}
    <p><button type="button" onClick=${() => loadAgain(current)}>Load again</button>${" "}
      <span class="small">What you typed stays.</span></p>`;
  const loadAgain = async (current) => {
    setBase(current ?? (await present(entityKey(entity))));
    alteration.clear();
  };
  const refused = (error) => {
    if (error.status === 412) return again(error.document.errors[0]?.values?.current);
    return error.status === 409 ? again(null) : null;
  };
  const submit = (event) => {
    event.preventDefault();
    if (me.mayAlter) send(true);
  };
  return html`<form onSubmit=${submit} novalidate>
    <${ReadOnly} me=${me} />
    <fieldset>
      <legend>Entity</legend>
      ${setEntity ? html`<${EntityFields} entity=${entity} onEntity=${(next) => change(() => { setEntity(next); alteration.clear(); })} errors=${faults} />`
        : html`<${Entity} entity=${entity} />`}
      ${existing && html`<p class="notice open" role="status">${entityText(entity)} already has quotas. <a href="/ui/edit/${entityKey(entity)}">Edit them</a>.</p>`}
    </fieldset>
    <fieldset>
      <legend>Limits</legend>
      <div class="limits">${keys.map((key) => html`<${Limit} key=${key} of=${key} text=${textOf(key)} value=${values[key]} was=${now[key]}
        readonly=${!me.mayAlter} placeholder=${inheritedText(key, inherited.of(key)) || "not set"}
        error=${Number.isNaN(values[key]) ? howToWrite(key) : faults[key]} rule=${capabilities.data?.keys[key]}
        onInput=${(event) => change(() => setTyped({ ...typed, [key]: event.target.value }))} />`)}</div>
      <p class="hint">Empty means not set: the next less specific rule applies.</p>
      ${me.policy && html`<${Policy} rules=${me.policy} />`}
    </fieldset>
    ${me.mayAlter && html`<${Field} label="For" value=${hours} unit="hours" inputmode="decimal" placeholder="for good"
      hint="Hours, such as 4 or 0.5; then the values return to what they are now. Empty: for good."
      error=${Number.isNaN(seconds) ? "Write a number of hours." : faults.expires_in}
      onInput=${(event) => change(() => setHours(event.target.value))} />`}
    ${me.mayAlter && html`<${Field} label="Reason" value=${reason} maxlength="1000" hint="Stored in the audit log, for example a ticket."
      error=${faults.reason} onInput=${(event) => change(() => setReason(event.target.value))} />`}
    ${drastic.length > 0 && html`<div class="notice danger">
      ${drastic.map(({ key, value, change: { factor } }) => html`<p>${key} is lowered from ${inWords(key, now[key])} to ${inWords(key, value)}, ${factorInWords(factor)}.</p>`)}
      <${Checkbox} label="That is meant" checked=${isSure} onChange=${({ target }) => setSure(target.checked)} /></div>`}
    <div class="buttons">
      ${me.mayAlter && html`<button disabled=${alteration.busy}>Check</button>
        <button type="button" class="primary" disabled=${alteration.busy || mustConfirm} onClick=${() => send(false)}>Apply</button>`}
      <button type="button" onClick=${() => (reload ? go(`/ui/entity/${entityKey(entity)}`) : go("/ui/quotas"))}>Back</button>
    </div>
    ${fault && html`<div class="refusal" role="alert">${fault}</div>`}
    <${Answer} alteration=${alteration} settled=${settle} actions=${refused}
      isAtField=${(violation) => fieldOf(violation, ops) in faults} />
    ${me.mayAlter ? html`<${Curl} path="/quotas/alterations" body=${{ ...CHECK, ...body }} title="curl, to check" />
      <${Curl} path="/quotas/alterations" body=${body} title="curl, to apply" />`
      : html`<${Curl} path="/quotas/${entityKey(entity)}" />`}
  </form>`;
}

/** One key: its name, a field for its value, and what that value is. */
function Limit({ of: key, text, value, was, rule, ...field }) {
  const change = Number.isNaN(value) ? { word: "unchanged" } : changeOf(key, was, value);
  return html`<div class="limit ${change.word} ${change.isDrastic ? "drastic" : ""}">
    <span class="title" aria-hidden="true">${TITLES[key] ?? ""}</span>
    <${Field} label=${key} value=${text} unit=${UNITS[key]} inputmode="text" class="digits" hint=${hint(key, value, rule)} ...${field} />
    <${Factor} of=${change} />
  </div>`;
}

/** Whether an entity has quotas already, once nobody types any more. */
function useExisting(entity) {
  const [found, setFound] = useState(false);
  const key = entity && Object.keys(entity).length ? entityKey(entity) : null;
  useEffect(() => {
    setFound(false);
    if (!key) return undefined;
    const controller = new AbortController();
    const ask = () => presentQuota(key, controller.signal).then(({ values }) => setFound(Object.keys(values).length > 0), () => undefined);
    const timer = setTimeout(ask, LOOK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [key]);
  return found;
}

/** Return the field that a violation belongs to: a key, a type or the reason. */
function fieldOf({ pointer = "" }, ops) {
  const [, op] = pointer.match(/\/ops\/(\d+)/) ?? [];
  const [, type] = pointer.match(/\/entity\/([^/]+)$/) ?? [];
  return op === undefined ? (type ?? pointer.slice(1)) : ops[op]?.key;
}

/** Return what is wrong with each field. */
function faultsOf(error, ops) {
  const faults = {};
  for (const violation of error?.document?.errors ?? []) {
    const field = fieldOf(violation, ops);
    if (/^[a-z_-]+$/.test(field)) faults[field] = `${faults[field] ?? ""} ${violation.detail}`.trim();
  }
  return faults;
}

function hint(key, value, rule) {
  const words = value === null || Number.isNaN(value) ? [UNITS[key]] : [inWords(key, value)];
  if (UNITS[key] === "bytes/s" && value >= 1024) words.push(withDigits(key, value));
  if (rule) {
    words.push(rule.scope === "cluster" ? "for the cluster" : "on each broker");
    words.push(`from ${number(rule.minimum)}${rule.integral ? ", whole numbers" : ""}`);
  }
  return words.filter(Boolean).join(" · ");
}

/** The rules that bound what the caller may change. */
const Policy = ({ rules }) => html`<details class="command">
  <summary>${rules.length ? "The policy bounds what you may change" : "The policy lets you change nothing"}</summary>
  <ul>${rules.map((rule) => html`<li>
    <strong><${Text} of=${rule.name} whole /></strong> for ${visible(rule.entities.map((each) => each.join(" and ")).join(", or "))}:${" "}
    ${Object.entries(rule.keys).map(([key, { min, max }]) => `${key} ${bounds(key, min, max)}`).join("; ")}
  </li>`)}</ul>
</details>`;

const bounds = (key, min, max) =>
  [min !== null && `from ${inWords(key, min)}`, max !== null && `up to ${inWords(key, max)}`].filter(Boolean).join(" ") || "any value";

const DEFAULTS = { user: "default user", "client-id": "default client ID", ip: "default IP address" };

/** One field for each type; the entity lacks the type of an empty field. */
export function EntityFields({ entity, onEntity, errors = {}, defaults = true }) {
  const set = (type, name) => {
    const { [type]: _, ...others } = entity;
    onEntity(name === undefined ? others : { ...others, [type]: name });
  };
  return html`<div class="fields">${Object.entries(TYPES).map(([type, label]) => html`<div key=${type}>
    <${Field} label=${label} value=${entity[type] ?? ""} error=${errors[type]} disabled=${entity[type] === null}
      onInput=${({ target }) => set(type, target.value === "" ? undefined : target.value)} />
    ${defaults && html`<${Checkbox} label=${DEFAULTS[type]} checked=${entity[type] === null}
      onChange=${({ target }) => set(type, target.checked ? null : undefined)} />`}
  </div>`)}</div>`;
}
