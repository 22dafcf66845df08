// Health: readiness, what is held, unknown outcomes, and the age of what decisions rest on.
import { Problem, call, get, withQuery } from "./api.js";
import { clusterHere, readyPath } from "./cluster.js";
import { shadowedKeys } from "./entities.js";
import { html, useState } from "./lib.js";
import { Ago, Curl, Entity, Heading, Key, Loaded, Outcome, Text, Value, orNull, useLoaded } from "./components.js";
import { More, usePages } from "./pages.js";
import { duration, number } from "./quantities.js";
import { Through } from "./usage.js";
import { Table } from "./tables.js";

const ENTITIES = 10_000;

export function HealthScreen({ me }) {
  const ready = useLoaded(async (signal) => {
    const [reads, writes] = await Promise.all(["", "for=write"].map((query) => probe(readyPath(query), signal)));
    return { reads, writes };
  }, []);
  const metrics = useLoaded(async (signal) => {
    const [metrics, { default: usual }] = await Promise.all([call("/metrics", { signal, accept: "text/plain" }), get("/clusters", { signal })]);
    return readMetrics(metrics.document, clusterHere() ?? usual);
  }, []);
  const version = useLoaded((signal) => get("/version", { signal }), []);
  const [round, setRound] = useState(0);
  const reload = () => {
    ready.reload();
    metrics.reload();
    setRound(round + 1);
  };
  return html`
    <${Heading} title="Health"><button onClick=${reload}>Refresh</button><//>
    <${Loaded} of=${ready}>${({ reads, writes }) => html`
      <${Verdict} reads=${reads} writes=${writes} metrics=${metrics.data} />
      <dl class="tiles">
        <${Tile} name="Reads"><${Ready} of=${reads} /><//>
        <${Tile} name="Changes"><${Ready} of=${writes} /><//>
        <${Figures} of=${metrics} />
      </dl>
      <${Problems} of=${{ ...reads.problems, ...writes.problems }} />`}<//>
    ${metrics.error && html`<p class="notice open">${metrics.error.status === 404 ? "The metrics are on another port, so their figures are not known here."
      : `The figures of the metrics are not known: ${metrics.error.message}`}</p>`}
    <p><a href="/ui/audit?outcome=unknown">Changes with an unknown outcome</a> · <a href="/ui/audit?action=drift">Changes made outside this service</a></p>
    ${me.permissions.describe ? html`<${Runs} round=${round} /><${Stored} round=${round} />`
      : html`<p class="notice">What is stored is for those who may describe: DESCRIBE_CONFIGS on the Cluster.</p>`}
    <p class="muted">Version ${version.data?.version ?? "not known"}</p>
    <${Curl} path=${readyPath("for=write")} />`;
}

/** What is stored, and which of it has no effect. */
function Stored({ round }) {
  const held = useLoaded((signal) => get("/quotas?page_size=1&max_age_ms=60000", { signal }), [round]);
  const idle = useLoaded(loadShadowed, [round]);
  return html`
    <h2>Entities with quotas</h2>
    <${Loaded} of=${held}>${({ total }) => html`<p><a href="/ui/quotas">${number(total)}</a></p>`}<//>
    <h2>Values that never apply</h2>
    <p class="muted">A client-id's rule has no effect where the default user has one for the same key.</p>
    <${Loaded} of=${idle}>${({ found, isCut }) => html`
      ${isCut && html`<p class="notice open">Only the first ${number(ENTITIES)} entities were looked at.</p>`}
      <${Table} name="Values that never apply" empty=${isCut ? "None among these." : "None."}
        columns=${["Entity", "Key", "Value"]} rows=${found.map(({ entity, key, value }, i) => ({
          key: i,
          cells: [html`<${Entity} entity=${entity} />`, html`<${Key} of=${key} />`, html`<${Value} of=${key} value=${value} />`],
        }))} />`}<//>
    ${SHADOWING.map((filter) => html`<${Curl} path=${shadowing(filter)} title="curl, of ${filter}" />`)}`;
}

/** What the pipeline has published, newest first. */
function Runs({ round }) {
  const runs = usePages("/analytics/runs?page_size=10", (before, next) => ({ rows: [...before.rows, ...next.rows] }),
    (path, signal) => orNull(path, "no-run", { signal }), round);
  return html`
    <h2>Runs of the pipeline</h2>
    <${Loaded} of=${runs}>${(page) => html`
      <${Through} page=${page?.rows.length ? { data_through: page.rows[0].data_through, coverage: null } : null} />
      ${page?.rows.length > 0 && html`<${Table} name="Runs" columns=${["Job", "State", "Began", "Ended", "Note"]} rows=${page.rows.map((run) => ({
        key: run.run_id,
        cells: [run.job, html`<${Outcome} of=${run.state} />`, html`<${Ago} at=${run.started_at} />`,
          run.ended_at && html`<${Ago} at=${run.ended_at} />`, run.error && html`<${Text} of=${run.error} whole />`],
      }))} /><${More} of=${runs} />`}`}<//>
    <${Curl} path=${runs.path} title="curl, of the runs" />`;
}

/** The filters of those that may be hidden, and of those that hide them. */
const SHADOWING = [["client-id", "user:absent"], ["user:default"]];
const shadowing = (filter) => withQuery("/quotas", { filter, page_size: ENTITIES, max_age_ms: 60_000 });

/** Return the values of client-ids that a rule of the default user hides. */
async function loadShadowed(signal) {
  const [clients, defaults] = await Promise.all(SHADOWING.map((filter) => get(shadowing(filter), { signal })));
  const found = clients.quotas.flatMap((quota) =>
    shadowedKeys(quota, defaults.quotas).map((key) => ({ entity: quota.entity, key, value: quota.values[key] })));
  return { found, isCut: Boolean(clients.next_page_token ?? defaults.next_page_token) };
}

/** A probe's document, whether it is ready or not. */
async function probe(path, signal) {
  try {
    return await get(path, { signal });
  } catch (error) {
    if (error instanceof Problem && error.document.problems) return error.document;
    throw error;
  }
}

/** The state in a sentence. */
function Verdict({ reads, writes, metrics }) {
  const open = metrics?.get("quotas_open_intents") ?? 0;
  if (reads.status !== "ok") return html`<p class="verdict bad" role="status">Nothing can be read or changed now.</p>`;
  if (writes.status !== "ok") return html`<p class="verdict bad" role="status">Quotas can be read; changes are not accepted now.</p>`;
  if (open > 0) return html`<p class="verdict warn" role="status">${open === 1 ? "1 change has" : `${number(open)} changes have`} no certain outcome yet; the rest is well.</p>`;
  return html`<p class="verdict" role="status">All is well.</p>`;
}

const Tile = ({ name, children }) => html`<div class="tile"><dt>${name}</dt><dd>${children}</dd></div>`;
const Ready = ({ of }) => (of.status === "ok" ? "ready" : html`<span class="outcome bad">not ready</span>`);

function Problems({ of }) {
  const names = Object.entries(of);
  return names.length > 0 && html`<div class="refusal" role="alert">
    <ul>${names.map(([name, text]) => html`<li><strong>${name}</strong>: ${text}</li>`)}</ul>
  </div>`;
}

const FIGURES = [
  ["quotas_open_intents", "Changes with an unknown outcome", number],
  ["quotas_oldest_open_intent_seconds", "The oldest of them", (seconds) => (seconds ? duration(seconds) : "–")],
  ["quotas_audit_outcomes_waiting", "Outcomes not yet recorded", number],
  ["quotas_authz_acl_age_seconds", "Age of the ACLs", duration],
  ["quotas_drift_scan_age_seconds", "Since the last look for outside changes, or the start", duration],
];

const Figures = ({ of }) => FIGURES.filter(([name]) => of.data?.has(name)).map(
  ([name, text, words]) => html`<${Tile} name=${text}>${words(of.data.get(name))}<//>`,
);

/** Return the metrics without a label but that of the cluster, by name: of one cluster, and of the service. */
function readMetrics(text, cluster) {
  const found = new Map();
  for (const [, name, of, value] of text.matchAll(/^([a-z_]+)(?:\{cluster="([a-z0-9-]+)"\})? (\S+)$/gm)) {
    if (of === undefined || of === cluster) found.set(name, Number(value));
  }
  return found;
}
