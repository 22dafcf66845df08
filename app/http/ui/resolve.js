// Who gets what: the limit of an identity for each key, the ladder that led to it, and what if.
import { call, get, withQuery } from "./api.js";
import { EntityFields } from "./edit.js";
import { entityText, sameEntity } from "./entities.js";
import { go } from "./go.js";
import { html, useEffect, useState } from "./lib.js";
import { Curl, Empty, Entity, Field, Heading, Key, Loaded, Loading, Refusal, Select, useLoaded } from "./components.js";
import { visible } from "./text.js";
import { UNITS, howToWrite, inWords, readValue, withDigits } from "./quantities.js";
import { Table } from "./tables.js";

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
    <${Heading} title="Why this limit?" />
    <form onSubmit=${submit}>
      <fieldset>
        <legend>A connection</legend>
        <${EntityFields} entity=${identity} onEntity=${setIdentity} defaults=${false} />
        <p class="hint">A user, with or without a client ID; or an IP address. Without authentication the user is ANONYMOUS.</p>
        <div class="buttons"><button class="primary">Resolve</button></div>
      </fieldset>
    </form>
    ${!asked && html`<${Suggestions} />`}
    ${asked && html`<${Loaded} of=${found}>${(answer) => answer && html`<${Ladders} answer=${answer} identity=${query} />`}<//>
      <${Curl} path=${path} />`}`;
}

const SUGGESTED = 8;

/** Connections to begin with: of those who have quotas, and one that anybody may try. */
function Suggestions() {
  const found = useLoaded((signal) => get(withQuery("/quotas", { page_size: 200, max_age_ms: 60_000 }), { signal }), []);
  if (found.loading && !found.data) return html`<${Loading} />`;
  const quotas = (found.data?.quotas ?? []).map(({ entity }) => entity)
    .filter((entity) => Object.values(entity).every((name) => name !== null) && ("user" in entity || "ip" in entity));
  const named = [...quotas.filter((entity) => "client-id" in entity), ...quotas.filter((entity) => !("client-id" in entity))];
  const shown = named.length ? named.slice(0, SUGGESTED) : [{ user: "alice", "client-id": "etl" }];
  return html`<${Empty} title="Which limit does a connection get, and from which rule?">
    Write a user above, or begin with${" "}
    <span class="suggestions">${shown.map((entity) => html`<a class="button" href=${withQuery("/ui/resolve", entity)}><${Entity} entity=${entity} link=${false} /></a>`)}</span>
  <//>`;
}

function Ladders({ answer, identity }) {
  const [proposed, setProposed] = useState(null);
  const keys = Object.keys(answer.quotas);
  return html`
    ${!answer.authoritative && html`<p class="notice open">A broker decides by rules of its own, so this answer may be wrong.</p>`}
    ${answer.callback.model !== "kafka" && html`<p class="notice">The brokers decide by a quota callback of their own, <code>${visible(answer.callback.class)}</code>; here it is the model <code>${visible(answer.callback.model)}</code>.</p>`}
    ${answer.notes.map((note) => html`<p class="notice">${note}</p>`)}
    <${WhatIf} answer=${answer} identity=${identity} onAnswer=${setProposed} />
    <div class="ladders">
      ${keys.map((key) => html`<${Ladder} key=${key} of=${key} quota=${answer.quotas[key]} then=${proposed?.quotas[key]} />`)}
    </div>`;
}

const differs = (now, then) => now.value !== then.value;

/** The levels with a value, most specific first: the first wins. The others are folded. */
function Ladder({ of, quota, then }) {
  const [all, setAll] = useState(false);
  const levels = (quota.levels ?? []).map((level) => ({
    level,
    wins: level.level === quota.source?.level && sameEntity(level.entity, quota.source.entity),
    winsThen: Boolean(then?.source) && sameEntity(then.source.entity, level.entity),
  }));
  const shown = levels.filter(({ level, wins, winsThen }) => all || level.value !== null || wins || winsThen);
  const rows = shown.map(({ level, wins, winsThen }) => ({
    key: level.level,
    "aria-current": wins ? "true" : undefined,
    class: level.value === null ? "lost" : "",
    cells: [
      level.level,
      html`<${Entity} entity=${level.entity} />`,
      level.value === null ? html`<span class="muted">not set</span>`
        : html`<span class="value" title=${withDigits(of, level.value)}>${inWords(of, level.value)}</span>`,
      html`${verdict(level, wins)} ${winsThen && (!wins || differs(quota, then)) && html`
        <span class="mark">then ${inWords(of, then.value)}</span>`}`,
    ],
  }));
  const folded = levels.filter(({ level }) => level.value === null).length;
  return html`<section class="ladder">
    <h2><${Key} of=${of} /> <span class="result" title=${withDigits(of, quota.value)}>${inWords(of, quota.value)}</span></h2>
    <p class="muted">${scopeText(quota)}</p>
    ${quota.by_broker && html`<p class="muted">${Object.entries(quota.by_broker).map(([broker, limit]) => `Broker ${broker}: ${inWords(of, limit)}`).join("; ")}.</p>`}
    <${Table} name=${of} columns=${["Level", "Rule", { text: "Value", label: "Value", numeric: true }, "Result"]} rows=${rows} empty="No level has a value." />
    ${folded > 0 && html`<button type="button" class="link" aria-expanded=${all ? "true" : "false"} onClick=${() => setAll(!all)}>
      ${all ? "Hide what is not set" : `${folded} ${folded === 1 ? "level is" : "levels are"} not set`}</button>`}
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
    <${Field} label="New value" value=${typed} unit=${UNITS[key]} placeholder="empty removes it" onInput=${(event) => change(() => setTyped(event.target.value))}
      error=${Number.isNaN(value) ? howToWrite(key) : ""} />
    <button>Try</button>
  </form>
  ${error && html`<${Refusal} error=${error} />`}
  <p class="hint">Nothing is sent to the cluster.</p>
  <${Curl} path="/quotas/resolve" body=${body} title="curl, to try" /></details>`;
}
