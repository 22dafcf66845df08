// Every quota of the cluster: search, one column for each key, new, export.
import { call, get, withQuery } from "./api.js";
import { TYPES, entityText, filterOfText, shadowedKeys } from "./entities.js";
import { go } from "./go.js";
import { html, useEffect, useState } from "./lib.js";
import { Curl, Field, Heading, Loaded, Name, Refusal, Select, Table, Value, More, useLoaded, usePages } from "./components.js";
import { Until } from "./temporary.js";
import { KEYS, UNITS, number } from "./quantities.js";

const PAGE_SIZE = 200;
const SEARCH_AFTER_MS = 250;

export function QuotasScreen({ me, query }) {
  const { search = "", key = "" } = query;
  const shown = { filter: filterOfText(search), has_key: key };
  const path = withQuery("/quotas", { ...shown, page_size: PAGE_SIZE });
  const quotas = usePages(path, (before, next) => ({ quotas: [...before.quotas, ...next.quotas] }));
  const defaults = useLoaded(
    (signal) => get(withQuery("/quotas", { filter: "user:default", page_size: 10_000, max_age_ms: 60_000 }), { signal }),
    [],
  );
  const show = (changes) =>
    go(withQuery("/ui/quotas", { search, key, ...changes }), { replace: true });
  return html`
    <${Heading} title="Quotas">
      ${me.mayAlter && html`<button class="primary" onClick=${() => go("/ui/new")}>New quota</button>`}
      <button onClick=${() => go("/ui/temporary")}>For a time</button>
    <//>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Search} text=${search} onSearch=${(text) => show({ search: text })} />
      <${Select} label="Key" value=${key} onChange=${(event) => show({ key: event.target.value })}
        options=${[["", "any key"], ...KEYS.map((name) => [name, name])]} />
      <${Exports} shown=${shown} total=${quotas.loading ? undefined : quotas.data?.total} />
    </form>
    <${Loaded} of=${quotas}>${(listing) => html`
      <p class="muted count" role="status">${count(listing)}</p>
      ${defaults.error && html`<p class="notice open">Whether a rule of the default user hides values is not known: ${defaults.error.message}</p>`}
      <${QuotaTable} quotas=${listing.quotas} defaults=${defaults.data?.quotas ?? []} me=${me}
        empty=${search || key ? "No quota matches." : "This cluster has no quotas."} />
      <${More} token=${listing.next_page_token} onMore=${quotas.more} />`}<//>
    <${Curl} path=${path} />`;
}

function Search({ text, onSearch }) {
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return undefined;
    const timer = setTimeout(() => onSearch(typed), SEARCH_AFTER_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<${Field} label="Search" type="search" value=${typed}
    placeholder="text in a name, or user=alice" onInput=${(event) => setTyped(event.target.value)} />`;
}

function count({ quotas, total }) {
  const all = total === 1 ? "1 entity" : `${number(total)} entities`;
  return quotas.length < total ? `${number(quotas.length)} of ${all}` : all;
}

function QuotaTable({ quotas, defaults, me, empty }) {
  const others = new Set(quotas.flatMap((quota) => Object.keys(quota.values)));
  const keys = [...new Set([...KEYS, ...others])];
  const columns = [...Object.values(TYPES), ...keys.map((key) => html`<${KeyHeading} of=${key} data-label=${key} />`)];
  const rows = quotas.map((quota) => {
    const shadowed = shadowedKeys(quota, defaults);
    const names = Object.keys(TYPES).map((type) =>
      type in quota.entity
        ? html`<a href="/ui/entity/${quota.entity_key}"><${Name} name=${quota.entity[type]} /></a>`
        : null,
    );
    const values = keys.map((key) =>
      key in quota.values
        ? html`<${Value} of=${key} value=${quota.values[key]} />
          <${Until} of=${key} temporary=${quota.temporary?.[key]} />
          ${shadowed.includes(key) && html` <span class="mark" title="A rule of the default user wins, so this never applies.">shadowed</span>`}`
        : null,
    );
    const edit = html`<a href="/ui/edit/${quota.entity_key}" aria-label="Edit ${entityText(quota.entity)}">Edit</a>`;
    return { key: quota.entity_key, cells: [...names, ...values, ...(me.mayAlter ? [edit] : [])] };
  });
  return html`<${Table} name="Quotas" rows=${rows} empty=${empty}
    columns=${me.mayAlter ? [...columns, html`<span class="hidden">Actions</span>`] : columns} />`;
}

const KeyHeading = ({ of: key }) => html`<span class="key">${key.split("_").map((word, i) => (i ? html`_<wbr />${word}` : word))}</span>
  <span class="unit">${UNITS[key] ?? ""}</span>`;

const FORMATS = [["YAML", "application/yaml", "quotas.yaml"], ["CSV", "text/csv", "quotas.csv"]];

/** Saves what is listed as a file; the token goes in a header, so a link would not do. */
function Exports({ shown, total }) {
  const [error, setError] = useState(null);
  const save = async (accept, file) => {
    setError(null);
    try {
      const { document: text } = await call(withQuery("/quotas", shown), { accept });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: accept }));
      link.download = file;
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<div class="exports">
    ${FORMATS.map(([name, accept, file]) => html`<button type="button" disabled=${!total} onClick=${() => save(accept, file)}>
      Export ${total === undefined ? "" : number(total)} as ${name}</button>`)}
    ${error && html`<${Refusal} error=${error} />`}
  </div>`;
}
