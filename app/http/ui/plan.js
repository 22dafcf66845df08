// Plan: what would have to change for a document to hold, then exactly that.
import { get, call, quoted } from "./api.js";
import { Answer, useAlteration } from "./alter.js";
import { entityText, sameEntity } from "./entities.js";
import { draftText, emptyDraft } from "./draft.js";
import { go, useUnsaved } from "./go.js";
import { html, useEffect, useState } from "./lib.js";
import { Checkbox, Command, Curl, Entity, Field, Heading, ReadOnly, Refusal, Text, Time, Value } from "./components.js";
import { DocumentField } from "./document_field.js";
import { changeOf, factorInWords, inWords, number } from "./quantities.js";
import { visible } from "./text.js";
import { PastUse } from "./usage.js";
import { Changes, Table } from "./tables.js";

const SAMPLE = "apiVersion: quotas/v1\nquotas:\n  - entity: {user: alice}\n    values: {producer_byte_rate: 1048576}\n";

export function PlanScreen({ me, query }) {
  const [text, setText] = useState(() => (query.id ? "" : draftText()));
  const [owner, setOwner] = useState("");
  const [scope, setScope] = useState("");
  const [prune, setPrune] = useState(false);
  const [plan, setPlan] = useState(null);
  const [sent, setSent] = useState(null);
  const [error, setError] = useState(null);
  const [applied, setApplied] = useState(null);
  const typed = JSON.stringify([text, owner, scope, prune]);
  const isOther = sent !== null && sent.typed !== typed;
  useUnsaved(Boolean(text.trim()) && text !== draftText() && applied !== typed);
  useEffect(() => {
    if (query.id && query.id !== plan?.plan_id) get(`/quotas/plans/${query.id}`).then(setPlan, setError);
  }, [query.id]);
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    setPlan(null);
    try {
      const body = { document: text, format: formatOf(text), owner: owner.trim() || undefined, prune, scope: scopesOf(scope), impact: true };
      setSent({ typed, body });
      const { document: made } = await call("/quotas/plans", { body });
      setPlan(made);
      go(`/ui/plan?id=${made.plan_id}`, { replace: true });
    } catch (problem) {
      setError(problem);
    }
  };
  const settled = () => {
    setApplied(typed);
    if (text === draftText()) emptyDraft();
  };
  const drop = async (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (file) setText(await file.text());
  };
  return html`
    <${Heading} title="Plan" />
    <p class="muted">Write the quotas as they should be, see what would change, then apply exactly that.</p>
    <form onSubmit=${submit} onDrop=${drop} onDragOver=${(event) => event.preventDefault()}>
      <${DocumentField} value=${text} placeholder=${SAMPLE} onInput=${(event) => setText(event.target.value)}
        faults=${(error?.document?.errors ?? []).filter(({ line }) => line)}
        hint="YAML, JSON or CSV, as Quotas exports it, or cells pasted from a spreadsheet with a heading such as user, client-id, producer_byte_rate; values may have units (4MiB, 80%). A file can be dropped here." />
      <div class="fields">
        <${Field} label="Owner" value=${owner} placeholder=${me.principal} onInput=${(event) => setOwner(event.target.value)}
          hint="In whose name; every key has at most one owner." />
        <${Field} label="Scope" value=${scope} placeholder="user^=team-a-" onInput=${(event) => setScope(event.target.value)}
          hint="What may be touched; empty for every entity." />
        <div class="field"><${Checkbox} label="Prune" checked=${prune} onChange=${(event) => setPrune(event.target.checked)} />
          <p class="hint">Remove what the owner applied before and does not name any more.</p></div>
      </div>
      <div class="buttons"><button class="primary">Plan</button></div>
    </form>
    ${error && html`<${Refusal} error=${error} />`}
    ${plan && isOther && html`<p class="notice open" role="status">What you typed has changed since this plan: plan again to see what it would do now.</p>`}
    ${plan && html`<${Result} key=${plan.plan_id} plan=${plan} me=${me} isOther=${isOther} onApplied=${settled} />`}
    ${sent ? html`<${Curl} path="/quotas/plans" body=${sent.body} title="curl, to plan" />`
      : plan && html`<${Curl} path="/quotas/plans/${plan.plan_id}" title="curl, of this plan" />`}
    <${Command} title="In CI" text=${commandLine(owner, scope, prune)} />`;
}

const COLUMNS = /^(?=\s*"?[a-z_][\w -]*"?\s*[,;\t])(.*[,;\t])?\s*"?(user|client-id|ip|user_kind)"?\s*([,;\t]|$)/i;
const BEFORE_HEADING = /^\uFEFF?("?sep=[,;\t]"?\r?\n)?/i;

/** Tell which format a document has: CSV begins with a heading of words that names a type of entities. */
function formatOf(text) {
  return COLUMNS.test(text.replace(BEFORE_HEADING, "").split(/\r|\n/, 1)[0]) ? "csv" : "yaml";
}

const scopesOf = (typed) => typed.split("\n").map((line) => line.trim()).filter(Boolean);

function commandLine(owner, scope, prune) {
  const scopes = scopesOf(scope).map((each) => `--scope ${quoted(each)}`);
  const options = [owner.trim() && `--owner ${quoted(owner.trim())}`, ...scopes, prune && "--prune"].filter(Boolean).join(" ");
  const words = `--server ${location.origin} --token-file token`;
  return `kafka-client-quotas ${words} plan quotas.yaml ${options}\nkafka-client-quotas ${words} apply quotas.yaml ${options} --yes`;
}

/** Return for each key what its callers get, in words. */
function effects({ entity, impact }) {
  return Object.entries(impact.keys).map(([key, { change, factor, source, effective_before, effective_after, more_specific }]) => {
    const words = [factor ? `${change} ${factorInWords(factor)}` : change];
    const then = inWords(key, effective_after);
    if (change === "removed") words.push(source ? `then ${then} of ${entityText(source.entity)}` : "then unlimited");
    else if (source && !sameEntity(source.entity, entity)) words.push(`but ${then} of ${entityText(source.entity)} goes before it`);
    else if (change === "set" && effective_before !== null) words.push(`${inWords(key, effective_before)} applies now`);
    if (more_specific) words.push(`${more_specific} more specific ${more_specific === 1 ? "rule has" : "rules have"} a value`);
    return `${key}: ${words.join("; ")}.`;
  });
}

/** Return how many keys a plan sets, raises, lowers and removes, in words. */
function summary(changes) {
  const counts = new Map();
  for (const { impact } of changes) {
    for (const { change } of Object.values(impact.keys)) counts.set(change, (counts.get(change) ?? 0) + 1);
  }
  return ["set", "raised", "lowered", "removed"].filter((word) => counts.has(word)).map((word) => `${number(counts.get(word))} ${word}`).join(", ");
}

/** Of a planned change: what others hold of it, and what is not any more as its owner applied it. */
function Held({ conflicts, impact }) {
  const since = Object.entries(impact?.keys ?? {}).filter(([, { changed_since }]) => changed_since);
  return html`
    ${since.map(([key, { changed_since: { owner, value } }]) => html`<p class="notice open conflict">
      ${key} was changed outside since <${Text} of=${owner} /> applied <${Value} of=${key} value=${value} />.</p>`)}
    ${conflicts.map(({ key, owner }) => html`<p class="notice open conflict"><strong>Conflict:</strong> <${Text} of=${owner} /> owns ${key}.</p>`)}`;
}

function Result({ plan, me, isOther, onApplied }) {
  const [force, setForce] = useState(false);
  const [isSure, setSure] = useState(false);
  const [reason, setReason] = useState("");
  const alteration = useAlteration();
  const body = { reason: reason.trim() || undefined, ...(force ? { force } : {}) };
  const path = `/quotas/plans/${plan.plan_id}/apply`;
  useUnsaved(Boolean(reason.trim()) && alteration.report?.outcome !== "applied");
  const settle = (report) => report?.outcome === "applied" && onApplied();
  const apply = async () => settle(await alteration.send(path, body));
  const isDrastic = plan.changes.some(({ ops, before, after }) => ops.some(({ key }) => changeOf(key, before[key], after[key]).isDrastic));
  const isUnsettled = (plan.conflicts.length > 0 && !force) || (isDrastic && !isSure);
  const conflictsOf = (entity) => plan.conflicts.filter((each) => sameEntity(each.entity, entity));
  const unlisted = plan.conflicts.filter(({ entity }) => !plan.changes.some((change) => sameEntity(change.entity, entity)));
  const changes = plan.changes.map((change, i) => ({
    key: i,
    class: Object.keys(change.before).length ? (Object.keys(change.after).length ? "edit" : "delete") : "create",
    cells: [
      html`<span class="diff">${Object.keys(change.before).length ? (Object.keys(change.after).length ? "change" : "remove") : "add"}</span>`,
      html`<${Entity} entity=${change.entity} />`,
      html`<${Changes} before=${change.before} after=${change.after} keys=${change.ops.map((op) => op.key)} />
        <${Held} conflicts=${conflictsOf(change.entity)} impact=${change.impact} />`,
      html`<div class="small">${effects(change).map((text) => html`<div>${text}</div>`)}</div>`,
    ],
  }));
  return html`<section>
    <h2>${plan.changes.length === 0 ? "No changes" : plan.changes.length === 1 ? "1 change" : `${number(plan.changes.length)} changes`}</h2>
    <p class="muted">${plan.changes.length > 0 && `${summary(plan.changes)}. `}For <${Text} of=${plan.owner} whole />${plan.scope.length ? `, within ${visible(plan.scope.join(", "))}` : ""}; can be applied until <${Time} at=${plan.expires_at} /> UTC.</p>
    ${plan.warnings.map(({ entity, code, detail }) => html`<p class="notice ${code === "drastic" ? "danger" : "open"}"><${Entity} entity=${entity} />: ${visible(detail)}</p>`)}
    ${(plan.budgets ?? []).map(({ name, key, sum, limit, overbooking }) => html`<p class="notice open">Applied now it would exceed the budget${" "}
      <${Text} of=${name} />: ${key} would add up to ${inWords(key, sum)} of ${inWords(key, limit * overbooking)}.</p>`)}
    ${plan.changes.length > 0 && html`<${Table} name="Changes" columns=${[html`<span class="hidden">Kind</span>`, "Entity", "Change", "Effect"]} rows=${changes} />
      <${PastUse} impact=${plan.impact} />`}
    ${unlisted.map((each) => html`<div><${Entity} entity=${each.entity} /><${Held} conflicts=${[each]} /></div>`)}
    ${plan.kept.length > 0 && html`<p class="muted">Pruning leaves ${plan.kept.length} keys that others own or changed.</p>`}
    <${ReadOnly} me=${me} />
    ${me.mayAlter && html`
      ${plan.conflicts.length > 0 && html`<p><${Checkbox} label="Take over what others own (recorded)" checked=${force} onChange=${(event) => setForce(event.target.checked)} /></p>`}
      ${isDrastic && html`<p><${Checkbox} label="What is in red is meant" checked=${isSure} onChange=${(event) => setSure(event.target.checked)} /></p>`}
      <${Field} label="Reason" value=${reason} maxlength="1000" hint="Stored in the audit log." onInput=${(event) => setReason(event.target.value)} />
      <div class="buttons"><button class="primary" disabled=${alteration.busy || isOther || isUnsettled} onClick=${apply}>Apply</button>
        ${isUnsettled && html`<span class="muted">Settle what is marked above first.</span>`}</div>`}
    <${Answer} alteration=${alteration} settled=${settle} />
    ${me.mayAlter && html`<${Curl} path=${path} body=${body} title="curl, to apply" />`}
  </section>`;
}
