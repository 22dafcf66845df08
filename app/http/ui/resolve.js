// Who gets what: the limit of an identity for each key, the ladder that led to it, and what if.
import { call, get, withQuery } from "./api.js";
import { EntityFields } from "./edit.js";
import { entityText, sameEntity } from "./entities.js";
import { go } from "./go.js";
import { html, useEffect, useState } from "./lib.js";
import { Curl, Entity, Field, Heading, Loaded, Refusal, Select, Table, useLoaded } from "./components.js";
import { visible } from "./text.js";
import { howToWrite, inWords, readValue, withDigits } from "./quantities.js";

export function ResolveScreen({ query }) {
  const [identity, setIdentity] = useState(query);
  const text = JSON.stringify(query);
  useEffect(() => setIdentity(query), [text]);
  const asked = Object.keys(query).length > 0;
  const path = withQuery("/quotas/resolve", { ...query, explain: true });
  const found = useLoaded((signal) => (asked ? get(path, { signal }) : Promise.resolve(null)), [path]);
  const submit = (event) => {
    event.preventDefault();
    const next = withQuery("/ui/resolve", identity);
    if (next === withQuery("/ui/resolve", query)) found.reload();
    else go(next);
  };
  return html`
    <${Heading} title="Who gets what" />
    <form onSubmit=${submit}>
      <fieldset>
        <legend>A connection</legend>
        <${EntityFields} entity=${identity} onEntity=${setIdentity} defaults=${false} />
        <p class="hint">A user, with or without a client ID; or an IP address. Without authentication the user is ANONYMOUS.</p>
        <div class="buttons"><button class="primary">Resolve</button></div>
      </fieldset>
    </form>
    ${asked && html`<${Loaded} of=${found}>${(answer) => answer && html`<${Ladders} answer=${answer} identity=${query} />`}<//>
      <${Curl} path=${path} />`}`;
}

function Ladders({ answer, identity }) {
  const [proposed, setProposed] = useState(null);
  const keys = Object.keys(answer.quotas);
  return html`
    ${!answer.authoritative && html`<p class="notice open">A broker decides by rules of its own, so this answer may be wrong.</p>`}
    ${answer.callback.model !== "kafka" && html`<p class="notice">The brokers decide by a quota callback of their own, <code>${visible(answer.callback.class)}</code>; here it is the model <code>${visible(answer.callback.model)}</code>.</p>`}
    ${answer.notes.map((note) => html`<p class="notice">${note}</p>`)}
    <dl class="tiles">${keys.map((key) => html`<div class="tile">
      <dt>${key}</dt><dd>${inWords(key, answer.quotas[key].value)}
        ${proposed && differs(answer.quotas[key], proposed.quotas[key]) && html`
          <span class="mark">then ${inWords(key, proposed.quotas[key].value)}</span>`}</dd>
    </div>`)}</dl>
    <${WhatIf} answer=${answer} identity=${identity} onAnswer=${setProposed} />
    <div class="ladders">
      ${keys.map((key) => html`<${Ladder} key=${key} of=${key} quota=${answer.quotas[key]} then=${proposed?.quotas[key]} />`)}
    </div>`;
}

const differs = (now, then) => now.value !== then.value;

/** Every level, most specific first; the first with a value wins. */
function Ladder({ of, quota, then }) {
  const rows = (quota.levels ?? []).map((level) => {
    const wins = level.level === quota.source?.level && sameEntity(level.entity, quota.source.entity);
    const winsThen = then?.source && sameEntity(then.source.entity, level.entity);
    return {
      key: level.level,
      "aria-current": wins ? "true" : undefined,
      class: level.value === null ? "lost" : "",
      cells: [
        level.level,
        html`<${Entity} entity=${level.entity} />`,
        level.value === null ? html`<span class="muted">not set</span>`
          : html`<span class="value" title=${withDigits(of, level.value)}>${inWords(of, level.value)}</span>`,
        html`${verdict(level, wins)} ${then && winsThen && (!wins || differs(quota, then)) && html`
          <span class="mark">then ${inWords(of, then.value)}</span>`}`,
      ],
    };
  });
  return html`<section>
    <h2><code>${of}</code>: ${inWords(of, quota.value)}</h2>
    <p class="muted">${scopeText(quota)}</p>
    ${quota.by_broker && html`<p class="muted">${Object.entries(quota.by_broker).map(([broker, limit]) => `Broker ${broker}: ${inWords(of, limit)}`).join("; ")}.</p>`}
    <${Table} name=${of} columns=${["Level", "Rule", "Value", "Result"]} rows=${rows} />
  </section>`;
}

function verdict(level, wins) {
  if (wins) return "applies";
  if (level.applies === false) return level.reason ?? "cannot apply";
  return level.value === null ? "" : "overridden";
}

function scopeText({ scope, shared_by, value }) {
  const where = scope === "cluster" ? "In the cluster" : "On each broker";
  const sharers = Object.entries(shared_by ?? {}).filter(([, name]) => name !== "");
  const who = sharers.length ? sharers.map(([type, name]) => `${type} ${visible(name)}`).join(" with ") : "everybody";
  return value === null ? "Nothing limits it." : `${where}, spent together by ${who}.`;
}

/** Try a value at one level; nothing is sent to the cluster. */
function WhatIf({ answer, identity, onAnswer }) {
  const keys = Object.keys(answer.quotas);
  const [key, setKey] = useState(keys[0]);
  const [level, setLevel] = useState(0);
  const [typed, setTyped] = useState("");
  const [error, setError] = useState(null);
  const levels = answer.quotas[key].levels ?? [];
  const value = readValue(key, typed);
  const op = value === null ? { key, remove: true } : { key, value };
  const body = { identities: [identity], alterations: [{ entity: levels[level]?.entity, ops: [op] }] };
  const change = (set) => {
    set();
    onAnswer(null);
  };
  const submit = async (event) => {
    event.preventDefault();
    onAnswer(null);
    setError(null);
    if (Number.isNaN(value)) return;
    try {
      onAnswer((await call("/quotas/resolve", { body })).document.results[0].proposed);
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<details class="what-if"><summary>What if?</summary><form class="filters" onSubmit=${submit}>
    <${Select} label="Key" value=${key} onChange=${(event) => change(() => setKey(event.target.value))} options=${keys.map((name) => [name, name])} />
    <${Select} label="Rule" value=${level} onChange=${(event) => change(() => setLevel(Number(event.target.value)))}
      options=${levels.map((each, i) => [i, `${each.level} ${entityText(each.entity)}`])} />
    <${Field} label="New value" value=${typed} placeholder="empty removes it" onInput=${(event) => change(() => setTyped(event.target.value))}
      error=${Number.isNaN(value) ? howToWrite(key) : ""} />
    <button>Try</button>
  </form>
  ${error && html`<${Refusal} error=${error} />`}
  <p class="hint">Nothing is sent to the cluster.</p>
  <${Curl} path="/quotas/resolve" body=${body} title="curl, to try" /></details>`;
}
