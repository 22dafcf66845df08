// What several screens are made of.
import { Problem, curl, events, get } from "./api.js";
import { TYPES, entityKey } from "./entities.js";
import { html, useEffect, useId, useRef, useState } from "./lib.js";
import { useUnsaved } from "./go.js";
import { escapes, visible } from "./text.js";
import { TITLES, ago, inWords, number, timeInWords, withDigits } from "./quantities.js";

/** Load something when `keys` change; `reload` does so again and keeps what was there meanwhile. */
export function useLoaded(load, keys) {
  const [state, setState] = useState({ loading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    load(controller.signal).then(
      (data) => controller.signal.aborted || setState({ data }),
      (error) => controller.signal.aborted || setState({ error }),
    );
    return () => controller.abort();
  }, [...keys, round]);
  const reload = () => setRound((number) => number + 1);
  useEffect(() => {
    events.addEventListener("undone", reload);
    return () => events.removeEventListener("undone", reload);
  }, []);
  return { ...state, reload };
}

/** Load a document; null where its code says that there is none. */
export const orNull = (path, code, options) =>
  get(path, options).catch((error) => {
    if (error.code === code) return null;
    throw error;
  });

/** The heading of a screen, which has the focus after a navigation. */
export function Heading({ title, children }) {
  const heading = useRef(null);
  useEffect(() => {
    document.title = `${title} · Kafka quotas`;
    heading.current.focus({ preventScroll: true });
  }, [title]);
  return html`<div class="heading">
    <h1 tabindex="-1" ref=${heading}>${title}</h1>
    <div class="actions">${children}</div>
  </div>`;
}

/** A refusal: what it says, each violation that is at no field, and what may be done. */
export function Refusal({ error, isAtField = () => false, children }) {
  const alert = useRef(null);
  useEffect(() => alert.current.scrollIntoView({ block: "nearest" }), [error]);
  if (!(error instanceof Problem)) {
    return html`<div class="refusal" role="alert" ref=${alert}>${String(error.message ?? error)}</div>`;
  }
  const { title, detail, code, type, errors, kafka_error, request_id } = error.document;
  const others = (errors ?? []).filter((violation) => !isAtField(violation) && violation.detail !== detail);
  return html`<div class="refusal" role="alert" ref=${alert}>
    <strong>${title}</strong>
    <p>${detail}</p>
    ${others.length > 0 && html`<ul>${others.map((each) => html`<li>${each.line && `Line ${each.line}: `}${each.detail}</li>`)}</ul>`}
    ${children}
    <p class="small">
      ${type ? html`<a href=${type} target="_blank" rel="noopener">${code}</a>` : code}
      ${kafka_error && ` · ${kafka_error}`}${request_id && html` · request <code>${request_id}</code>`}
    </p>
  </div>`;
}

/** What stands where a screen cannot be read: the right that is missing. */
export function Missing({ me, title, needs, ask }) {
  return html`<${Heading} title=${title} />
    <div class="refusal" role="alert">
      <strong><${Text} of=${me.principal} whole /> may not read this</strong>
      <p>It needs DESCRIBE_CONFIGS on the Cluster, which an administrator grants with an ACL${needs.includes("audit") ? ", or the audit permission of this service" : ""}.</p>
      <p><button type="button" onClick=${ask}>Look again</button></p>
    </div>`;
}

/** Why a caller may only read; nothing for who may alter. */
export function ReadOnly({ me }) {
  if (me.mayAlter) return null;
  return html`<p class="notice">Read only: ${me.permissions.alter
    ? "the policy of this service lets you change nothing."
    : html`a change needs ALTER_CONFIGS on the Cluster, which <${Text} of=${me.principal} whole /> does not have.`}</p>`;
}

/** What a screen shows of something that is loaded: its error, that it loads, or the thing. */
export function Loaded({ of, children }) {
  if (of.error) return html`<${Refusal} error=${of.error} />`;
  if (of.data === undefined) return html`<${Loading} />`;
  return children(of.data);
}

/** Grey lines in place of what is not there yet; they appear when it takes longer than people notice. */
export const Loading = () => html`<div class="skeleton" role="status">
  <span class="hidden">Loading …</span><i></i><i></i><i></i><i></i></div>`;

/** An empty list: why it is, and what to do next. */
export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong>${children && html`<div>${children}</div>`}</div>`;

/** A quota key: a name for people, and Kafka's. */
export const Key = ({ of }) => html`<span class="key-name">${TITLES[of] && html`<span>${TITLES[of]}</span>`}${" "}<code>${
  of.split("_").map((word, i) => (i ? html`_<wbr />${word}` : word))}</code></span>`;

/** An entity's names, each with its type; a default one is a badge. */
export function Entity({ entity, link = true }) {
  if (!entity) return null;
  const names = Object.keys(TYPES).filter((type) => type in entity).map(
    (type) => html`<span class="name"><span class="type">${type}</span> <${Name} name=${entity[type]} /></span> `,
  );
  return link
    ? html`<a class="entity" href=${`/ui/entity/${entityKey(entity)}`}>${names}</a>`
    : html`<span class="entity">${names}</span>`;
}

/** A name, cut where there is no width for it; the whole of it is its title. */
export const Name = ({ name }) =>
  name === null ? html`<span class="badge">default</span>` : html`<${Text} of=${name} />`;

/** A text of somebody else's, with what cannot be seen as escapes; `whole` shows all of it. */
export const Text = ({ of, whole = false }) => html`<bdi class="text ${whole ? "whole" : ""}" title=${visible(of)}>${
  escapes(of).map(({ text, escaped }) => (escaped ? html`<span class="escape">${text}</span>` : text))}</bdi>`;

/** A value in words; every digit is its title. */
export const Value = ({ of, value }) =>
  value === undefined || value === null
    ? html`<span class="muted">not set</span>`
    : html`<span class="value" title=${withDigits(of, value)}>${inWords(of, value)}</span>`;

/** The command that does the same, to copy. */
export function Curl({ path, title = "curl", ...request }) {
  return html`<${Command} title=${title} text=${curl(path, request)} />`;
}

export function Command({ title, text }) {
  const [copied, setCopied] = useState(false);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return html`<details class="command" onToggle=${() => setCopied(false)}>
    <summary>${title}</summary>
    <pre tabindex="0">${text}</pre>
    ${navigator.clipboard && html`<button type="button" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}
  </details>`;
}

const IS_BARE = /^[\d.,\s]*\d[\d.,\s]*$/;

/** A field with its label, a hint and the violation that it has; `unit` stands beside a bare number. */
export function Field({ label, hint, error, unit, multiline, inputRef, ...input }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ");
  const attributes = {
    id,
    ref: inputRef,
    "aria-describedby": described || undefined,
    "aria-invalid": error ? "true" : undefined,
    autocomplete: "off",
    spellcheck: false,
    ...input,
  };
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${multiline ? html`<textarea ...${attributes} />` : html`<span class="input"><input ...${attributes} />
      ${unit && IS_BARE.test(input.value) && html`<span class="unit" aria-hidden="true">${unit}</span>`}</span>`}
    ${error && html`<p class="error" id="${id}-error">${error}</p>`}
    ${hint && html`<p class="hint" id="${id}-hint">${hint}</p>`}
  </div>`;
}

export function Select({ label, options, ...select }) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <select id=${id} ...${select}>
      ${options.map(([value, text]) => html`<option value=${value}>${text}</option>`)}
    </select>
  </div>`;
}

export const Checkbox = ({ label, ...input }) => html`<label class="check">
  <input type="checkbox" ...${input} /> ${label}
</label>`;

/** A modal dialog; it hides while the page waits for somebody to sign in again, and keeps what is in it. */
export function Dialog({ title, close, wide = false, children }) {
  const dialog = useRef(null);
  const isLocked = useRef(false);
  const id = useId();
  useEffect(() => {
    // A modal dialog keeps everybody from the sign-in above it, even while it cannot be seen.
    const lock = ({ detail }) => {
      if (detail === isLocked.current) return;
      isLocked.current = detail;
      dialog.current[detail ? "close" : "showModal"]();
    };
    dialog.current.showModal();
    events.addEventListener("locked", lock);
    return () => events.removeEventListener("locked", lock);
  }, []);
  return html`<dialog class=${wide ? "wide" : ""} ref=${dialog} aria-labelledby=${id} onClose=${() => isLocked.current || close()}>
    <h2 id=${id}>${title}</h2>
    ${children}
  </dialog>`;
}

/** A dialog that asks for a reason before `act(reason)`; it stays open where that is false. */
export function AskReason({ title, button, act, close, children }) {
  const [reason, setReason] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  useUnsaved(Boolean(reason.trim()));
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      if ((await act(reason.trim() || undefined)) !== false) close();
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return html`<${Dialog} title=${title} close=${close}>
    <form onSubmit=${submit}>
      ${children}
      <${Field} label="Reason" value=${reason} maxlength="1000" hint="Stored in the audit log." autofocus
        onInput=${(event) => setReason(event.target.value)} />
      ${error && html`<${Refusal} error=${error} />`}
      <div class="buttons">
        <button class="danger" disabled=${busy}>${button}</button>
        <button type="button" onClick=${close}>Cancel</button>
      </div>
    </form>
  <//>`;
}

/** How a share of a limit is marked: from 80 %, and over it. */
export const kindOf = (share) => (share > 1 ? "bad" : share > 0.8 ? "warn" : "");

/** Where a bar has its limit: what is over it is longer still, up to 150 %. */
const FULL = 1.5;

/** A share of a limit as a bar and in words; null is no limit. */
export function Bar({ share }) {
  if (share === null) return html`<span class="muted">no limit</span>`;
  const width = `${Math.min(100, (100 * share) / FULL)}%`;
  return html`<span class="value"><span class="bar ${kindOf(share)}" aria-hidden="true"><i style=${{ width }}></i></span> ${number(100 * share)} %</span>`;
}

export const Time = ({ at }) =>
  at ? html`<time datetime=${at} title="${at} (UTC)">${timeInWords(at)}</time>` : null;

const TICK_MS = 20_000;

/** How long ago, or how far ahead, a time is; the time in UTC is its title. */
export function Ago({ at }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return html`<time class="ago" datetime=${at} title="${timeInWords(at)} UTC">${ago(at, Math.max(now, Date.now()))}</time>`;
}

const GOOD = ["applied", "validated", "succeeded"];
const OPEN = ["unknown", "running"];

export function Outcome({ of }) {
  const kind = GOOD.includes(of) ? "good" : OPEN.includes(of) ? "open" : "bad";
  return html`<span class="outcome ${kind}">${of.replaceAll("_", " ")}</span>`;
}
