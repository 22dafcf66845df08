// The draft of a plan: values that screens have put together, in the memory of this tab.
import { clusterHere } from "./cluster.js";
import { sameEntity } from "./entities.js";
import { useEffect, useState } from "./lib.js";

const stored = () => (clusterHere() === null ? "draft" : `draft ${clusterHere()}`);
const drafts = new EventTarget();

const read = () => JSON.parse(sessionStorage.getItem(stored()) ?? "[]");

function keep(quotas) {
  sessionStorage.setItem(stored(), JSON.stringify(quotas));
  drafts.dispatchEvent(new Event("changed"));
}

export const emptyDraft = () => keep([]);

/** Put what alterations set and remove into the draft; the last word about a key counts. */
export function addToDraft(alterations) {
  const quotas = read();
  for (const { entity, ops } of alterations) {
    const values = Object.fromEntries(ops.map(({ key, value, remove }) => [key, remove ? "unset" : value]));
    const there = quotas.find((quota) => sameEntity(quota.entity, entity));
    if (there) Object.assign(there.values, values);
    else quotas.push({ entity, values });
  }
  keep(quotas);
}

/** Whether the draft says of each key what alterations do. */
export const isInDraft = (quotas, alterations) => alterations.every(({ entity, ops }) => {
  const values = quotas.find((quota) => sameEntity(quota.entity, entity))?.values ?? {};
  return ops.every(({ key, value, remove }) => values[key] === (remove ? "unset" : value));
});

/** Return what is in the draft, by entity; again when it changes. */
export function useDraft() {
  const [quotas, setQuotas] = useState(read);
  useEffect(() => {
    const changed = () => setQuotas(read());
    drafts.addEventListener("changed", changed);
    return () => drafts.removeEventListener("changed", changed);
  }, []);
  return quotas;
}

/** Return the draft as a document; empty without one. JSON in a line is YAML, too. */
export function draftText() {
  const quotas = read();
  if (!quotas.length) return "";
  const items = quotas.map(({ entity, values }) => `  - entity: ${JSON.stringify(entity)}\n    values: ${JSON.stringify(values)}\n`);
  return `apiVersion: quotas/v1\nquotas:\n${items.join("")}`;
}
