// Values for a time: until when, how long that is from now, and the list of all of them.
import { call, get, newKey, withQuery } from "./api.js";
import { filterOfText } from "./entities.js";
import { html, useEffect, useState } from "./lib.js";
import { Curl, Entity, Field, Heading, Key, Loaded, Refusal, Text, Value } from "./components.js";
import { More, usePages } from "./pages.js";
import { timeInWords } from "./quantities.js";
import { Table } from "./tables.js";

const TICK_MS = 1000;
const SECONDS = { h: 3600, min: 60, s: 1 };

/** Return the time that it is, again every second. */
function useNow() {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** Return a time as short as it is clear: `14:00` today, else with its day; in UTC. */
function clock(at, now) {
  const today = new Date(now).toISOString().slice(0, 10);
  const words = timeInWords(at).slice(0, 16);
  return words.startsWith(today) ? words.slice(11) : words;
}

/** Return what is left in two units: `3 h 59 min`, `42 s`. */
function left(seconds) {
  if (seconds <= 0) return "ends now";
  if (seconds >= 48 * SECONDS.h) return `${Math.floor(seconds / (24 * SECONDS.h))} days left`;
  const [large, small] = seconds >= SECONDS.h ? ["h", "min"] : seconds >= SECONDS.min ? ["min", "s"] : ["s", null];
  const whole = Math.floor(seconds / SECONDS[large]);
  const rest = small && Math.floor((seconds % SECONDS[large]) / SECONDS[small]);
  return `${whole} ${large}${rest ? ` ${rest} ${small}` : ""} left`;
}

/** A badge that says until when a value holds; `countdown` says how long that is, and what comes then. */
export const Until = (props) => props.temporary ? html` <${Badge} ...${props} />` : null;

function Badge({ of: key, temporary, countdown = false }) {
  const now = useNow();
  const { expires_at: at, returns_to } = temporary;
  return html`<span class="until"><time class="badge" datetime=${at} title="${at} (UTC)">until ${clock(at, now)}</time>${" "}
    ${countdown && html`<span class="small">${left(Math.floor((Date.parse(at) - now) / 1000))}, then <${Value} of=${key} value=${returns_to} /></span>`}</span>`;
}

/** How many seconds a field of hours says; null for nothing, NaN where it cannot be read. */
export function readHours(typed) {
  const text = typed.trim();
  if (!text) return null;
  return /^\d+(\.\d+)?$/.test(text) ? Math.round(Number(text) * SECONDS.h) : NaN;
}

export function TemporaryScreen({ me, query }) {
  const { search = "" } = query;
  const [round, setRound] = useState(0);
  const [error, setError] = useState(null);
  const path = withQuery("/quotas/temporary", { filter: filterOfText(search), page_size: 200 });
  const rows = (before, next) => ({ rows: [...before.rows, ...next.rows] });
  const values = usePages(path, rows, (url, signal) => get(url, { signal }), round);
  const change = async (id, body) => {
    setError(null);
    try {
      await call(`/quotas/alterations/${id}/expiry`, { method: "PUT", body, headers: { "Idempotency-Key": newKey() } });
    } catch (problem) {
      setError(problem);
    }
    setRound((number) => number + 1);
  };
  return html`
    <${Heading} title="For a time" />
    <p class="muted">These values end by themselves, and return to what was there before.</p>
    ${error && html`<${Refusal} error=${error} />`}
    <${Loaded} of=${values}>${(page) => html`
      <${TemporaryTable} rows=${page.rows} me=${me} change=${change} />
      <${More} of=${values} />`}<//>
    <${Curl} path=${path} />`;
}

const COLUMNS = ["Entity", "Key", "Value", "Until", "By", "Reason"];

function TemporaryTable({ rows, me, change }) {
  const columns = me.mayAlter ? [...COLUMNS, html`<span class="hidden">Actions</span>`] : COLUMNS;
  return html`<${Table} name="For a time" columns=${columns} empty="No value is for a time."
    rows=${rows.map((row) => ({
      key: `${row.entity_key} ${row.key}`,
      cells: [
        html`<${Entity} entity=${row.entity} />`,
        html`<${Key} of=${row.key} />`,
        html`<${Value} of=${row.key} value=${row.value} />`,
        html`<${Until} of=${row.key} temporary=${row} countdown />`,
        html`<${Text} of=${row.principal} />`,
        row.reason && html`<${Text} of=${row.reason} whole />`,
        ...(me.mayAlter ? [html`<${Actions} row=${row} change=${change} />`] : []),
      ],
    }))} />`;
}

/** What an alteration has set ends together: both buttons say so. */
function Actions({ row, change }) {
  const [hours, setHours] = useState("");
  const seconds = readHours(hours);
  return html`<form class="inline" onSubmit=${(event) => { event.preventDefault(); change(row.alteration_id, { expires_in: `${seconds}s` }); }}>
    <${Field} label="Hours from now" value=${hours} inputmode="decimal" size="5" onInput=${({ target }) => setHours(target.value)} />
    <div class="buttons">
      <button disabled=${!seconds} title="Everything that this alteration has set">Change the end</button>
      <button type="button" title="Everything that this alteration has set" onClick=${() => change(row.alteration_id, { expires_at: null })}>Keep</button>
    </div>
  </form>`;
}
