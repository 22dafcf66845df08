// Every quota of the cluster: search, one column for each key, new, export.
import { call, get, withQuery } from "./api.js";
import { TYPES, entityText, shadowedKeys } from "./entities.js";
import { go } from "./go.js";
import { html, useEffect, useState } from "./lib.js";
import { Curl, Field, Heading, Loaded, Name, Refusal, Select, Table, Value, More, useLoaded } from "./components.js";
import { KEYS, UNITS } from "./quantities.js";

const PAGE_SIZE = 200;
const SEARCH_AFTER_MS = 250;
const IS_FILTER = /^(user|client-id|ip)($|[\^~]?=|:)/;

export function QuotasScreen({ me, query }) {
  const { search = "", key = "" } = query;
  const quotas = useLoaded((signal) => list(search, key, signal), [search, key]);
  const defaults = useLoaded(
    (signal) => get(withQuery("/quotas", { filter: "user:default", page_size: 10_000, max_age_ms: 60_000 }), { signal }),
    [],
  );
  const [further, setFurther] = useState(null);
  useEffect(() => setFurther(null), [quotas.data]);
  const more = async () => {
    const { quotas: first, next_page_token } = further ?? quotas.data;
    const next = await get(withQuery("/quotas", { ...conditions(search, key), page_token: next_page_token }));
    setFurther({ ...next, quotas: [...first, ...next.quotas] });
  };
  const show = (changes) =>
    go(withQuery("/ui/quotas", { search, key, ...changes }), { replace: true });
  const path = withQuery("/quotas", conditions(search, key));
  return html`
    <${Heading} title="Quotas">
      ${me.permissions.alter && html`<button class="primary" onClick=${() => go("/ui/new")}>New quota</button>`}
    <//>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Search} text=${search} onSearch=${(text) => show({ search: text })} />
      <${Select} label="Key" value=${key} onChange=${(event) => show({ key: event.target.value })}
        options=${[["", "any key"], ...KEYS.map((name) => [name, name])]} />
      <div class="exports">
        <${Export} name="YAML" accept="application/yaml" file="quotas.yaml" search=${search} has=${key} />
        <${Export} name="CSV" accept="text/csv" file="quotas.csv" search=${search} has=${key} />
      </div>
    </form>
    <${Loaded} of=${quotas}>${(first) => {
      const listing = further ?? first;
      return html`
        <p class="muted count" role="status">${count(listing)}</p>
        <${QuotaTable} quotas=${listing.quotas} defaults=${defaults.data?.quotas ?? []} me=${me} />
        <${More} token=${listing.next_page_token} onMore=${more} />`;
    }}<//>
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

const conditions = (search, key) => ({
  filter: IS_FILTER.test(search) ? search : undefined,
  has_key: key,
  page_size: PAGE_SIZE,
});

/** List what matches; a text is looked for in the names of each type, for a filter has all its types. */
async function list(search, key, signal) {
  if (!search.trim() || IS_FILTER.test(search)) {
    return get(withQuery("/quotas", conditions(search, key)), { signal });
  }
  const answers = await Promise.all(
    Object.keys(TYPES).map((type) =>
      get(withQuery("/quotas", { ...conditions("", key), filter: `${type}~=${search.trim()}` }), { signal }),
    ),
  );
  const found = new Map(answers.flatMap(({ quotas }) => quotas.map((quota) => [quota.entity_key, quota])));
  const cut = answers.some((answer) => answer.next_page_token);
  return { ...answers[0], quotas: [...found.values()], total: found.size, cut, next_page_token: null };
}

function count({ quotas, total, cut }) {
  if (cut) return `The first ${quotas.length} entities; search for more of the name to see others.`;
  const all = total === 1 ? "1 entity" : `${total} entities`;
  return quotas.length < total ? `${quotas.length} of ${all}` : all;
}

function QuotaTable({ quotas, defaults, me }) {
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
          ${shadowed.includes(key) && html` <span class="mark" title="A rule of the default user wins, so this never applies.">shadowed</span>`}`
        : null,
    );
    const edit = html`<a href="/ui/edit/${quota.entity_key}" aria-label="Edit ${entityText(quota.entity)}">Edit</a>`;
    return { key: quota.entity_key, cells: [...names, ...values, ...(me.permissions.alter ? [edit] : [])] };
  });
  return html`<${Table} name="Quotas" rows=${rows} empty="No quota matches."
    columns=${me.permissions.alter ? [...columns, html`<span class="hidden">Actions</span>`] : columns} />`;
}

const KeyHeading = ({ of: key }) => html`<span class="key">${key.split("_").map((word, i) => (i ? html`_<wbr />${word}` : word))}</span>
  <span class="unit">${UNITS[key] ?? ""}</span>`;

/** Saves what is listed as a file; the token goes in a header, so a link would not do. */
function Export({ name, accept, file, search, has }) {
  const [error, setError] = useState(null);
  const save = async () => {
    try {
      const { filter, has_key } = conditions(search, has);
      const { document: text } = await call(withQuery("/quotas", { filter, has_key }), { accept });
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: accept }));
      link.download = file;
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<button type="button" onClick=${save}>Export ${name}</button>
    ${error && html`<${Refusal} error=${error} />`}`;
}
