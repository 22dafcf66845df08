// Short messages of what was done, with Undo: an alteration that puts back what was there before.
import { Problem, call, events, newKey } from "./api.js";
import { clusterHere } from "./cluster.js";
import { entityText } from "./entities.js";
import { html, useEffect, useState } from "./lib.js";

const STAYS_MS = 12_000;
const toasts = new EventTarget();
let number = 0;
/** The newest change of this tab that can be taken back. */
let newest = null;

/** Show a message; `undo` is the report of an alteration that can be taken back. */
export function toast(text, { kind = "", undo = null } = {}) {
  number += 1;
  toasts.dispatchEvent(new CustomEvent("new", { detail: { id: number, text, kind, undo } }));
}

/** Tell of an alteration's report, with Undo where it changed something. */
export function announce(report) {
  const changed = inverse(report);
  if (report.validate_only || report.outcome !== "applied" || !changed.length) return;
  newest = { ...report, cluster: clusterHere() };
  const [first] = changed;
  toast(changed.length === 1 ? `Changed ${entityText(first.entity)}.` : `Changed ${changed.length} entities.`, { undo: newest });
}

/** Return the alterations that put back what was there before, where it still is as it was left. */
export function inverse(report) {
  return (report.results ?? []).filter((each) => each.outcome === "applied" && each.changed && each.before && each.after)
    .map(({ entity, before, after }) => {
      const keys = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((key) => before[key] !== after[key]);
      return {
        entity,
        ops: keys.map((key) => (key in before ? { key, value: before[key] } : { key, remove: true })),
        expected: Object.fromEntries(keys.map((key) => [key, after[key] ?? null])),
      };
    });
}

export const canUndo = () => newest !== null;

/** Take back an alteration, by default the newest of this tab. */
export async function undo(report = newest) {
  if (report === newest) newest = null;
  const body = { reason: `Undo of ${report.alteration_id}`, alterations: inverse(report) };
  try {
    await call("/quotas/alterations", { body, headers: { "Idempotency-Key": newKey() }, cluster: report.cluster });
    toast("Undone: the values from before are back.");
  } catch (error) {
    const isChanged = error instanceof Problem && error.status === 412;
    toast(isChanged ? "Not undone: it was changed again since." : `Not undone: ${error.message}`, { kind: "bad" });
  }
  events.dispatchEvent(new Event("undone"));
}

/** The messages, the newest last; one under the pointer or with the focus stays. */
export function Toasts() {
  const [shown, setShown] = useState([]);
  const drop = (id) => setShown((all) => all.filter((each) => each.id !== id));
  useEffect(() => {
    const add = ({ detail }) => setShown((all) => [...all.slice(-2), detail]);
    toasts.addEventListener("new", add);
    return () => toasts.removeEventListener("new", add);
  }, []);
  return html`<div class="toasts" role="log" aria-label="Messages" aria-live="polite">
    ${shown.map((each) => html`<${Toast} key=${each.id} of=${each} drop=${() => drop(each.id)} />`)}
  </div>`;
}

function Toast({ of, drop }) {
  const [isHeld, setHeld] = useState(false);
  useEffect(() => {
    if (isHeld) return undefined;
    const timer = setTimeout(drop, STAYS_MS);
    return () => clearTimeout(timer);
  }, [isHeld]);
  const take = () => {
    drop();
    undo(of.undo);
  };
  return html`<div class="toast ${of.kind}" onMouseEnter=${() => setHeld(true)} onMouseLeave=${() => setHeld(false)}
    onFocusIn=${() => setHeld(true)} onFocusOut=${() => setHeld(false)}>
    <span>${of.text}</span>
    ${of.undo && html`<button type="button" onClick=${take}>Undo</button>`}
    <button type="button" class="plain" aria-label="Dismiss" onClick=${drop}>×</button>
  </div>`;
}
