// Health: readiness, what is held, unknown outcomes, and the age of what decisions rest on.
import { Problem, call, get, withQuery } from "./api.js";
import { shadowedKeys } from "./entities.js";
import { html } from "./lib.js";
import { Curl, Entity, Heading, Loaded, Outcome, Refusal, Table, Time, Value, orNull, useLoaded } from "./components.js";
import { duration, number } from "./quantities.js";

export function HealthScreen() {
  const ready = useLoaded(async (signal) => {
    const [reads, writes] = await Promise.all(["/readyz", "/readyz?for=write"].map((path) => probe(path, signal)));
    return { reads, writes };
  }, []);
  const metrics = useLoaded(async (signal) => {
    const text = (await call("/metrics", { signal, accept: "text/plain" })).document;
    return readMetrics(text);
  }, []);
  const held = useLoaded((signal) => get("/quotas?page_size=1&max_age_ms=60000", { signal }), []);
  const idle = useLoaded(loadShadowed, []);
  const runs = useLoaded((signal) => orNull("/analytics/runs?page_size=10", "no-run", { signal }), []);
  const version = useLoaded((signal) => get("/version", { signal }), []);
  const reload = () => [ready, metrics, held, idle, runs].forEach((each) => each.reload());
  return html`
    <${Heading} title="Health"><button onClick=${reload}>Refresh</button><//>
    <${Loaded} of=${ready}>${({ reads, writes }) => html`
      <dl class="tiles">
        <${Tile} name="Reads"><${Ready} of=${reads} /><//>
        <${Tile} name="Changes"><${Ready} of=${writes} /><//>
        <${Tile} name="Entities with quotas">${held.data?.total ?? "–"}<//>
        <${Figures} of=${metrics} />
      </dl>
      <${Problems} of=${{ ...reads.problems, ...writes.problems }} />`}<//>
    ${held.error && html`<${Refusal} error=${held.error} />`}
    ${metrics.error && html`<p class="muted">The metrics are not on this port.</p>`}
    <p><a href="/ui/audit?outcome=unknown">Changes with an unknown outcome</a> · <a href="/ui/audit?action=drift">Changes made outside this service</a></p>
    <h2>Values that never apply</h2>
    <p class="muted">A client-id's rule has no effect where the default user has one for the same key.</p>
    <${Loaded} of=${idle}>${(found) => html`<${Table} name="Values that never apply" empty="None."
      columns=${["Entity", "Key", "Value"]} rows=${found.map(({ entity, key, value }, i) => ({
        key: i,
        cells: [html`<${Entity} entity=${entity} />`, html`<code>${key}</code>`, html`<${Value} of=${key} value=${value} />`],
      }))} />`}<//>
    <h2>Runs of the pipeline</h2>
    <${Loaded} of=${runs}>${(page) => html`<${Table} name="Runs" empty="None yet."
      columns=${["Job", "State", "Began", "Ended", "Note"]} rows=${(page?.rows ?? []).map((run) => ({
        key: run.run_id,
        cells: [run.job, html`<${Outcome} of=${run.state} />`, html`<${Time} at=${run.started_at} />`,
          run.ended_at && html`<${Time} at=${run.ended_at} />`, run.error ?? ""],
      }))} />`}<//>
    <p class="muted">Version ${version.data?.version ?? ""}</p>
    <${Curl} path="/readyz?for=write" />`;
}

/** Return the values of client-ids that a rule of the default user hides. */
async function loadShadowed(signal) {
  const [clients, defaults] = await Promise.all(
    [["client-id", "user:absent"], ["user:default"]].map((filter) =>
      get(withQuery("/quotas", { filter, page_size: 10_000, max_age_ms: 60_000 }), { signal })),
  );
  return clients.quotas.flatMap((quota) =>
    shadowedKeys(quota, defaults.quotas).map((key) => ({ entity: quota.entity, key, value: quota.values[key] })));
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

const Tile = ({ name, children }) => html`<div class="tile"><dt>${name}</dt><dd>${children}</dd></div>`;
const Ready = ({ of }) => html`<span class="outcome ${of.status === "ok" ? "good" : "bad"}">${of.status === "ok" ? "ready" : "not ready"}</span>`;

function Problems({ of }) {
  const names = Object.entries(of);
  return names.length > 0 && html`<div class="refusal" role="alert">
    <ul>${names.map(([name, text]) => html`<li><strong>${name}</strong>: ${text}</li>`)}</ul>
  </div>`;
}

const FIGURES = [
  ["quota_open_intents", "Changes with an unknown outcome", number],
  ["quota_oldest_open_intent_seconds", "The oldest of them", (seconds) => (seconds ? duration(seconds) : "–")],
  ["audit_outcomes_waiting", "Outcomes not yet recorded", number],
  ["authz_acl_age_seconds", "Age of the ACLs", duration],
  ["quota_drift_scan_age_seconds", "Last look for outside changes", (seconds) => `${duration(seconds)} ago`],
];

const Figures = ({ of }) => FIGURES.filter(([name]) => of.data?.has(name)).map(
  ([name, text, words]) => html`<${Tile} name=${text}>${words(of.data.get(name))}<//>`,
);

/** Return the metrics without labels, by name. */
function readMetrics(text) {
  const lines = text.split("\n").filter((line) => /^[a-z_]+ /.test(line));
  return new Map(lines.map((line) => [line.split(" ")[0], Number(line.split(" ")[1])]));
}
