// Every quota of the cluster: search, sort, one column for each key, several at once, new, export.
import { call, get, withQuery } from "./api.js";
import { Bulk } from "./bulk.js";
import { TYPES, entityText, filterOfText, shadowedKeys } from "./entities.js";
import { go } from "./go.js";
import { html, useEffect, useState } from "./lib.js";
import { Curl, Empty, Field, Heading, Loaded, Name, Refusal, Select, Text, Value, useLoaded } from "./components.js";
import { getAll, usePages } from "./pages.js";
import { Until } from "./temporary.js";
import { KEYS, TITLES, number } from "./quantities.js";
import { UseMark, useNearLimits } from "./near.js";
import { Table } from "./tables.js";

const PAGE_SIZE = 200;
const SEARCH_AFTER_MS = 250;

/** Load with owners, or without them where the audit log, which has them, does not answer. */
async function loadWithOwners(path, signal) {
  try {
    return await get(path, { signal });
  } catch (error) {
    if (error.status !== 503) throw error;
    return { ...(await get(path.replace("owners=true&", ""), { signal })), lacksOwners: true };
  }
}

const withNext = (before, next) => ({ quotas: [...before.quotas, ...next.quotas] });

export function QuotasScreen({ me, query }) {
  const { search = "", key = "" } = query;
  const [chosen, setChosen] = useState(new Set());
  const shown = { filter: filterOfText(search), has_key: key };
  const path = withQuery("/quotas", { ...shown, owners: true, page_size: PAGE_SIZE });
  const quotas = usePages(path, withNext, loadWithOwners);
  const defaults = useLoaded(
    (signal) => getAll(withQuery("/quotas", { filter: "user:default", page_size: 10_000, max_age_ms: 60_000 }), withNext, signal),
    [],
  );
  const near = useNearLimits();
  const show = (changes) => {
    setChosen(new Set());
    go(withQuery("/ui/quotas", { search, key, ...changes }), { replace: true });
  };
  const picked = (quotas.data?.quotas ?? []).filter(({ entity_key }) => chosen.has(entity_key));
  return html`
    <${Heading} title="Quotas">
      ${me.mayAlter && html`<button class="primary" onClick=${() => go("/ui/new")}>New quota</button>`}
      <button onClick=${() => go("/ui/temporary")}>For a time</button>
    <//>
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Search} text=${search} onSearch=${(text) => show({ search: text })} />
      <${Select} label="Key" value=${key} onChange=${(event) => show({ key: event.target.value })}
        options=${[["", "any key"], ...KEYS.map((name) => [name, `${TITLES[name]} (${name})`])]} />
      <${Exports} shown=${shown} total=${quotas.loading ? undefined : quotas.data?.total} />
    </form>
    <${Loaded} of=${quotas}>${(listing) => html`
      <p class="muted count" role="status">${count(listing, quotas.most)}</p>
      ${listing.lacksOwners && html`<p class="notice open">Who owns what is not known: the audit log does not answer.</p>`}
      ${defaults.error && html`<p class="notice open">Whether a rule of the default user hides values is not known: ${defaults.error.message}</p>`}
      ${me.mayAlter && picked.length > 0 && html`<${Bulk} quotas=${picked} onDone=${() => { setChosen(new Set()); quotas.reload(); }}
        clear=${() => setChosen(new Set())} />`}
      <${QuotaTable} quotas=${listing.quotas} defaults=${defaults.data?.quotas ?? []} me=${me} near=${near}
        chosen=${me.mayAlter ? chosen : undefined} onChoose=${setChosen} pages=${quotas}
        empty=${search || key ? html`<${Empty} title="No quota matches."><button type="button" onClick=${() => show({ search: "", key: "" })}>Show all</button><//>`
          : html`<${Empty} title="This cluster has no quotas.">Nothing limits its clients.
            ${me.mayAlter && html` <a href="/ui/new">Write the first quota</a>, or <a href="/ui/plan">paste a spreadsheet</a>.`}<//>`} />`}<//>
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
  return html`<${Field} label="Search" type="search" value=${typed} aria-keyshortcuts="/"
    placeholder="name, or user=alice" onInput=${(event) => setTyped(event.target.value)} />`;
}

function count({ quotas, total }, most) {
  const listed = Math.min(quotas.length, most);
  const all = total === 1 ? "1 entity" : `${number(total)} entities`;
  return listed < total ? `${number(listed)} of ${all}` : all;
}

function QuotaTable({ quotas, defaults, me, near, ...table }) {
  const others = new Set(quotas.flatMap((quota) => Object.keys(quota.values)));
  const keys = [...KEYS, ...[...others].filter((key) => !KEYS.includes(key)).sort()].filter((key) => others.has(key) || key in TITLES);
  const hasOwners = quotas.some(({ owners }) => owners);
  const columns = [
    { text: "Entity", label: "Entity" },
    ...keys.map((key) => ({ text: html`<${KeyHeading} of=${key} />`, label: TITLES[key] ?? key, numeric: true })),
    ...(hasOwners ? ["Owner"] : []),
    ...(me.mayAlter ? [html`<span class="hidden">Actions</span>`] : []),
  ];
  const rows = quotas.map((quota) => {
    const owners = [...new Set(Object.values(quota.owners ?? {}))];
    const name = entityText(quota.entity);
    return {
      key: quota.entity_key,
      name,
      opens: `/ui/entity/${quota.entity_key}`,
      sorts: [name, ...keys.map((key) => quota.values[key] ?? null), ...(hasOwners ? [owners.join(" ") || null] : [])],
      cells: () => cellsOf(quota, name, owners),
    };
  });
  const cellsOf = (quota, name, owners) => {
    const shadowed = shadowedKeys(quota, defaults);
    const values = keys.map((key) =>
      key in quota.values
        ? html`<${Value} of=${key} value=${quota.values[key]} />
          <${UseMark} share=${near(quota.entity, key)} />
          <${Until} of=${key} temporary=${quota.temporary?.[key]} />
          ${shadowed.includes(key) && html` <span class="mark" title="A rule of the default user wins, so this never applies.">shadowed</span>`}`
        : null,
    );
    return [
      html`<${EntityCell} quota=${quota} />`,
      ...values,
      ...(hasOwners ? [owners.length ? owners.map((owner) => html`<${Text} of=${owner} /> `) : null] : []),
      ...(me.mayAlter ? [html`<a class="quiet" href="/ui/edit/${quota.entity_key}" aria-label="Edit ${name}">Edit</a>`] : []),
    ];
  };
  return html`<${Table} name="Quotas" rows=${rows} columns=${columns} ...${table} />`;
}

const EntityCell = ({ quota }) => html`<span class="names">${Object.keys(TYPES).filter((type) => type in quota.entity).map((type) => html`<span class="name">
  <span class="type">${type}</span> <a href="/ui/entity/${quota.entity_key}"><${Name} name=${quota.entity[type]} /></a></span> `)}</span>`;

const KeyHeading = ({ of: key }) => html`<span class="key-heading"><span>${TITLES[key] ?? key}</span>
  ${TITLES[key] && html`<code>${key.split("_").map((word, i) => (i ? html`_<wbr />${word}` : word))}</code>`}</span>`;

const FORMATS = [["YAML", "application/yaml", "quotas.yaml"], ["CSV", "text/csv", "quotas.csv"]];

/** Saves what is listed as a file; the token goes in a header, so a link would not do. */
function Exports({ shown, total }) {
  const [error, setError] = useState(null);
  const save = async (accept, file) => {
    setError(null);
    try {
      const { document: text } = await call(withQuery("/quotas", shown), { accept });
      saveAs(file, text, accept);
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

function saveAs(file, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = file;
  link.click();
  URL.revokeObjectURL(link.href);
}
