// Sends alterations and says what became of them, the unknown included.
import { Problem, call, get, newKey } from "./api.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { PastUse } from "./usage.js";
import { Entity, Outcome, Refusal, Time } from "./components.js";
import { changeOf } from "./quantities.js";
import { BeforeAndAfter, Changes, Table } from "./tables.js";
import { announce } from "./toasts.js";

const OPEN = ["unknown", "intent", "sent"];
const AGAIN_AFTER_MS = [500, 1000, 2000, 4000];
const GIVE_UP_AFTER_MS = 120_000;

/**
 * Return `{ send, busy, report, error, alterationId, clear }` for requests to a path that alters.
 *
 * The same body is sent again under the same key until it has an outcome, so that a repeat
 * changes nothing twice; `alterationId` is set where the outcome has to be waited for.
 */
export function useAlteration() {
  const [state, setState] = useState({});
  const repeat = useRef({});
  const send = async (path, body) => {
    const text = path + JSON.stringify(body);
    if (repeat.current.text !== text) repeat.current = { text, key: newKey() };
    const headers = body.validate_only ? {} : { "Idempotency-Key": repeat.current.key };
    setState({ busy: true });
    try {
      const { document } = await call(path, { method: "POST", body, headers });
      repeat.current = {};
      setState({ report: document });
      announce(document);
      return document;
    } catch (error) {
      if (error instanceof Problem && error.alterationId && error.document.sent_to_cluster !== "no") {
        setState({ error, alterationId: error.alterationId });
      } else {
        if (error.status) repeat.current = {};
        setState({ error });
      }
      return null;
    }
  };
  return { ...state, send, clear: () => setState({}) };
}

/** Everything that an alteration's answer says; `actions` stand beside a refusal. */
export function Answer({ alteration, isAtField, actions, settled }) {
  const { error, alterationId, report } = alteration;
  if (alterationId) return html`<${Follow} id=${alterationId} error=${error} settled=${settled} />`;
  if (error) return html`<${Refusal} error=${error} isAtField=${isAtField}>${actions?.(error)}<//>`;
  return report ? html`<${Report} report=${report} />` : null;
}

/** What an alteration did, or would do, to each entity. */
export function Report({ report }) {
  const kind = ["applied", "validated"].includes(report.outcome) ? "good" : "open";
  return html`<section class="report">
    <div class="notice ${kind}" role="status">
      <${Outcome} of=${report.outcome} /> ${sentence(report)}${" "}
      ${report.expires_at && html`It ends at <${Time} at=${report.expires_at} /> UTC. `}
      ${!report.validate_only && html`<a href="/ui/alteration/${report.alteration_id}">See its record</a>`}
    </div>
    <${Results} of=${report.results ?? []} />
    <${PastUse} impact=${report.impact} />
  </section>`;
}

/** A drastic change is marked where it stands; what is left to say of one is of a first value. */
const Warnings = ({ of }) => (of.warnings ?? []).filter((each) => !each.startsWith("drastic:") || !isLowered(of)).map((each) => html`<p class="notice ${each.startsWith("drastic:") ? "danger" : "open"}">${each}</p>`);
const Failure = ({ of }) => of.error && html`<p class="refusal">${of.error.message}</p>`;

/** How many entities are listed before somebody asks for all. */
const FEW = 50;

/** What became of each entity: before and after of a single one, a line each of several. */
function Results({ of }) {
  const [all, setAll] = useState(false);
  if (of.length === 1) {
    return html`<${Warnings} of=${of[0]} /><${Failure} of=${of[0]} /><${BeforeAndAfter} before=${of[0].before} after=${of[0].after} />`;
  }
  if (!of.length) return null;
  const shown = all ? of : of.slice(0, FEW);
  return html`<${Table} name="Results" columns=${["Entity", "Change", "Outcome"]} rows=${shown.map((result, i) => ({
    key: i,
    cells: [
      html`<${Entity} entity=${result.entity} />`,
      html`<${Changes} before=${result.before} after=${result.after} keys=${changedKeys(result)} />`,
      html`<${Outcome} of=${result.outcome} /><${Warnings} of=${result} /><${Failure} of=${result} />`,
    ],
  }))} />
  ${shown.length < of.length && html`<p><button type="button" onClick=${() => setAll(true)}>Show all ${of.length}</button></p>`}`;
}

const isLowered = (result) => changedKeys(result).some((key) => changeOf(key, result.before?.[key], result.after?.[key]).isDrastic);

const changedKeys = ({ before, after }) =>
  [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])].filter((key) => before?.[key] !== after?.[key]);

function sentence({ outcome, readable, results }) {
  const unchanged = outcome === "applied" && results?.length && results.every((each) => each.changed === false);
  if (unchanged) return "These values held already.";
  if (outcome === "validated") return "The broker would accept this. Nothing has changed yet.";
  if (outcome === "applied" && readable === false) return "Applied, and not readable through the broker yet.";
  return { applied: "The cluster has these values now.", unknown: "The outcome is not certain yet.",
    not_applied: "Nothing was applied.", not_sent: "Nothing was sent to the cluster.",
    superseded: "Another change came after this one." }[outcome] ?? "";
}

/** Ask for an alteration whose answer was lost until it has an outcome. */
function Follow({ id, error, settled }) {
  const [record, setRecord] = useState(null);
  const [timedOut, setTimedOut] = useState(false);
  useEffect(() => {
    let timer, tries = 0;
    const deadline = Date.now() + GIVE_UP_AFTER_MS;
    const ask = async () => {
      const found = await get(`/quotas/alterations/${id}`).catch(() => null);
      if (found) setRecord(found);
      if (found && !OPEN.includes(found.outcome)) {
        announce(found);
        return settled?.(found);
      }
      if (Date.now() > deadline) return setTimedOut(true);
      timer = setTimeout(ask, AGAIN_AFTER_MS[Math.min(tries++, AGAIN_AFTER_MS.length - 1)]);
    };
    ask();
    return () => clearTimeout(timer);
  }, [id]);
  if (record && !OPEN.includes(record.outcome)) {
    return html`<p class="notice">The answer was lost; the outcome was found out afterwards.</p>
      <${Report} report=${record} />`;
  }
  return html`<div class="notice open" role="alert">
    <strong>${error.document.title}</strong>
    <p>${error.document.detail}</p>
    <p>${timedOut
      ? html`Still unknown. <a href="/ui/alteration/${id}">Its record</a> will say what became of it.`
      : "Asking the service what became of it …"}</p>
    ${record && html`<${History} events=${record.history} />`}
  </div>`;
}

export const History = ({ events }) => html`<ol class="history">${(events ?? []).map((each) => html`<li>
  <${Time} at=${each.at} /> <strong>${each.event}</strong> ${typeof each.detail === "string" ? each.detail : ""}
</li>`)}</ol>`;
