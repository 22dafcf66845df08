// Near a limit: buckets by how much of their limit they use, by hour, and open incidents.
import { withQuery } from "./api.js";
import { entityKey, entityText, filterOf } from "./entities.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { Budgets } from "./budgets.js";
import { Ago, Bar, Checkbox, Curl, Empty, Entity, Key, Heading, Loaded, Refusal, Select, Time, kindOf, orNull, useLoaded } from "./components.js";
import { More, usePages } from "./pages.js";
import { NEAR, limiting, withNext } from "./near.js";
import { KEYS, TITLES, bytes, duration, inWords, number } from "./quantities.js";
import { go } from "./go.js";
import { Table } from "./tables.js";

const HOUR_MS = 3_600_000;
const DAYS = 14;
const HOURS = 48;
const OLD_AFTER_MS = 2 * 24 * HOUR_MS;

/** Load results of the pipeline by pages; null where no run has published any. */
export const usePublished = (path) => usePages(path, withNext, (url, signal) => orNull(url, "no-run", { signal }));

export function UsageScreen({ me, query }) {
  const { key = "", bucket, all = "" } = query;
  const use = usePublished(withQuery("/analytics/utilization", { key, min_util_p99: all ? "" : NEAR, page_size: 500 }));
  const show = (changes) => go(withQuery("/ui/usage", { key, all, ...changes }));
  const incidents = usePublished(withQuery("/analytics/incidents", { key, page_size: 50 }));
  return html`
    <${Heading} title="Near a limit"><a class="button" href="#incidents">Incidents below</a><//>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <${Select} label="Key" value=${key} options=${[["", "any key"], ...KEYS.map((name) => [name, `${TITLES[name]} (${name})`])]}
        onChange=${(event) => show({ key: event.target.value })} />
      <${Checkbox} label="Below ${number(100 * NEAR)} %, too" checked=${Boolean(all)} onChange=${({ target }) => show({ all: target.checked ? "1" : "" })} />
    </form>
    <${Loaded} of=${use}>${(page) => html`
      <${Through} page=${page} />
      ${page && html`<${UseTable} key=${key + all} name="Near a limit" page=${page} pages=${use} me=${me} first=${bucket}
          empty=${html`<${Empty} title=${all ? "No use of any bucket was seen." : `Nobody used ${number(100 * NEAR)} % of a limit or more.`}>
            ${!all && html`<button type="button" onClick=${() => show({ all: "1" })}>Show the others, too</button>`}<//>`} />`}`}<//>
    <${Curl} path=${use.path} />
    <${Budgets} />
    <h2 id="incidents">Incidents</h2>
    <${Loaded} of=${incidents}>${(page) => page
      ? html`<${Incidents} page=${page} /> <${More} of=${incidents} />`
      : html`<p class="muted">Whether there were any is not known.</p>`}<//>
    <${Curl} path=${incidents.path} title="curl, of the incidents" />`;
}

const COMMAND = "quota-pipeline run … --pg";

/** Whether what is not fresh any more is old enough to say so. */
const isOld = (at) => Date.now() - Date.parse(at) > OLD_AFTER_MS;
const age = (at) => duration((Date.now() - Date.parse(at)) / 1000);

/** How much a page of results knows: nothing before a run, and nothing of the time since the newest. */
export function Through({ page }) {
  if (!page) {
    return html`<p class="notice open">No use is known: no run of the pipeline has published any.${" "}
      <code>${COMMAND}</code> does.</p>`;
  }
  const { data_through: at, coverage } = page;
  if (!at) return null;
  return html`<p class=${isOld(at) ? "notice open" : "muted"}>
    Data through <${Time} at=${at} /> UTC${coverage !== null && `, ${number(100 * coverage)} % of the minutes seen`}.
    ${isOld(at) && html` <strong>It is ${age(at)} old</strong>: what was used since is not known.${" "}
      <code>${COMMAND}</code> publishes it.`}</p>`;
}

/** Return each bucket's newest day, all brokers pooled where there is a sum, the fullest first. */
export function newestDays(rows) {
  const newest = new Map();
  for (const row of rows) {
    const id = `${row.bucket_id} ${row.key}`;
    const held = newest.get(id);
    const rank = (day) => `${day.dt} ${day.broker_id === null ? 1 : 0} ${String(day.util_p99 ?? 0).padStart(9, "0")}`;
    if (!held || rank(row) > rank(held)) newest.set(id, row);
  }
  return [...newest.values()].sort((one, other) => (other.util_p99 ?? -1) - (one.util_p99 ?? -1));
}

/** Return a figure in words; of what is null nothing is known. */
const known = (figure, words) => (figure === null ? html`<span class="muted">not known</span>` : words(figure));

/** Buckets with their use beside their limit; the use by hour of one of them stands under its row. */
export function UseTable({ name, page, pages, me, first, empty = "No use of any bucket was seen." }) {
  const days = newestDays(page.rows);
  const who = new Map(page.buckets.map((bucket) => [`${bucket.bucket_id} ${bucket.key}`, bucket]));
  const idOf = (day) => `${day.bucket_id} ${day.key}`;
  const [open, setOpen] = useState(() => days.find((day) => day.bucket_id === first) ?? days[0]);
  const [isAsked, setAsked] = useState(false);
  const toggle = (day) => {
    setAsked(true);
    setOpen(day === open ? undefined : day);
  };
  const rows = days.map((day) => {
    const bucket = who.get(idOf(day));
    const isOpen = open !== undefined && idOf(day) === idOf(open);
    return {
      key: idOf(day),
      class: isOpen ? "chosen" : "",
      sorts: [undefined, day.key, day.util_p99, day.p99, day.limit, day.peak, day.throttled_minutes],
      below: isOpen && html`<${UseByHour} day=${day} isAsked=${isAsked} />`,
      cells: [
        html`<${Bucket} bucket=${bucket} />`,
        html`<${Key} of=${day.key} />`,
        html`<${Bar} share=${day.util_p99} />`,
        known(day.p99, (rate) => html`<span class="value">${inWords(day.key, rate)}</span>`),
        html`<span class="value">${inWords(day.key, day.limit)}</span>`,
        known(day.peak, (rate) => html`<span class="value">${inWords(day.key, rate)}</span>`),
        known(day.throttled_minutes, (minutes) => (minutes ? `${number(minutes)} min` : "none")),
        html`<span class="actions">
          <button type="button" aria-expanded=${isOpen ? "true" : "false"} onClick=${() => toggle(day)}>By hour</button>
          ${me.mayAlter && limiting(bucket) && html`<a class="button" href="/ui/edit/${entityKey(limiting(bucket))}">Raise</a>`}</span>`,
      ],
    };
  });
  return html`<${Table} name=${name} rows=${rows} empty=${empty} pages=${pages}
    columns=${["Bucket", "Key", "p99 of limit", numeric("p99"), numeric("Limit"), numeric("Peak"), numeric("Throttled"), html`<span class="hidden">Actions</span>`]} />`;
}

const numeric = (text) => ({ text, label: text, numeric: true });

/** Who spends from a bucket, as the brokers' metrics name them. */
function Bucket({ bucket }) {
  if (!bucket) return html`<span class="muted">unknown</span>`;
  const entity = {};
  if (bucket.bucket_user) entity.user = bucket.bucket_user;
  if (bucket.bucket_client) entity["client-id"] = bucket.bucket_client;
  return Object.keys(entity).length ? html`<${Entity} entity=${entity} link=${false} />` : "everybody";
}

/** The highest rate of each hour: of two days as bars beside the limit, of two weeks as a map. */
function UseByHour({ day, isAsked }) {
  const figure = useRef(null);
  const until = new Date(Date.parse(day.dt) + 24 * HOUR_MS);
  const since = new Date(until - DAYS * 24 * HOUR_MS);
  const path = withQuery(`/analytics/buckets/${day.bucket_id}`, {
    since: since.toISOString(), until: until.toISOString(), page_size: 10_000,
  });
  const found = useLoaded((signal) => orNull(path, "no-run", { signal }), [path]);
  useEffect(() => {
    if (!isAsked) return;
    figure.current.focus({ preventScroll: true });
    figure.current.scrollIntoView({ block: "nearest" });
  }, [found.data]);
  return html`<figure tabindex="-1" ref=${figure} aria-label="Use by hour of ${day.key}">
    ${found.error && html`<${Refusal} error=${found.error} />`}
    ${found.loading && html`<p class="muted" role="status">Loading …</p>`}
    ${found.data && html`<${Hours} page=${found.data} day=${day} since=${since} until=${until} />`}
    <${Curl} path=${path} title="curl, of these hours" />
  </figure>`;
}

function Hours({ page, day, since, until }) {
  const hours = byHour(page.rows.filter((row) => row.key === day.key), since);
  return html`
    <figcaption><strong>Use by hour</strong> <span class="muted">of <code>${day.key}</code>, the busiest broker, until ${until.toISOString().slice(0, 10)}; dashed: its limit, ${inWords(day.key, day.limit)}</span></figcaption>
    ${hours.every((rate) => rate === null) && html`<p class="notice open">No hour of these ${DAYS} days was published for it.</p>`}
    <${Chart} hours=${hours.slice(-HOURS)} of=${day.key} limit=${day.limit} since=${new Date(until - HOURS * HOUR_MS)} />
    <p class="small muted">The same for ${DAYS} days, by hour of the day (UTC): the stronger the colour, the nearer to its limit.</p>
    <${HeatMap} hours=${hours} of=${day.key} limit=${day.limit} since=${since} />
    ${page.next_page_token && html`<p class="notice open">Only the first ${page.rows.length} hours and brokers are shown.</p>`}`;
}

/** Return the highest rate of each hour; null where nothing was seen. */
function byHour(rows, since) {
  const hours = new Array(DAYS * 24).fill(null);
  for (const row of rows) {
    const i = Math.floor((Date.parse(row.hour) - since) / HOUR_MS);
    if (row.rate_max !== null && i >= 0 && i < hours.length) hours[i] = Math.max(hours[i] ?? 0, row.rate_max);
  }
  return hours;
}

const HEIGHT = 200, LEFT = 92, BOTTOM = 24, TOP = 10;

/** Return the width to draw for, so that text has its size on a narrow screen as well. */
const widthOf = () => Math.max(320, Math.min(960, innerWidth - 70));
const isLimit = (limit) => limit !== null && limit < 1e18;

function Chart({ hours, of, limit, since }) {
  const isLimited = isLimit(limit);
  const peak = Math.max(...hours.map((rate) => rate ?? 0), 1e-9);
  const most = Math.max(peak, isLimited ? limit : 0) * 1.08;
  const WIDTH = widthOf();
  const width = (WIDTH - LEFT) / hours.length;
  const every = width < 12 ? 12 : 6;
  const y = (rate) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - rate / most);
  const top = isLimited && limit > peak / 4 ? limit : peak;
  const ticks = [0, top / 2, top];
  const text = isLimited ? `Limit ${inWords(of, limit)}` : "No limit";
  return html`<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="Use by hour">
    ${ticks.map((tick) => html`<line class="axis" x1=${LEFT} x2=${WIDTH} y1=${y(tick)} y2=${y(tick)} />
      <text x=${LEFT - 8} y=${y(tick) + 4} text-anchor="end">${inWords(of, tick)}</text>`)}
    ${hours.map((rate, i) => rate !== null && html`<rect class="use ${isLimited ? kindOf(rate / limit) : ""}"
      x=${LEFT + i * width + 1} y=${y(rate)} width=${width - 2} height=${Math.max(0.5, HEIGHT - BOTTOM - y(rate))}>
      <title>${hourText(since, i)}: ${inWords(of, rate)}</title></rect>`)}
    ${hours.map((_, i) => i % every === 0 && html`<text x=${LEFT + i * width} y=${HEIGHT - 6}>${hourText(since, i)}</text>`)}
    ${isLimited && html`<line class="limit" x1=${LEFT} x2=${WIDTH} y1=${y(limit)} y2=${y(limit)} />`}
    <title>${text}</title>
  </svg>`;
}

const ROW = 13;

/** A row for each day, a column for each hour. */
function HeatMap({ hours, of, limit, since }) {
  const WIDTH = widthOf();
  const full = isLimit(limit) ? limit : Math.max(...hours.map((rate) => rate ?? 0), 1e-9);
  const width = (WIDTH - LEFT) / 24;
  const days = Array.from({ length: DAYS }, (_, i) => new Date(+since + i * 24 * HOUR_MS).toISOString().slice(0, 10));
  return html`<svg viewBox="0 0 ${WIDTH} ${DAYS * ROW + 18}" role="img" aria-label="Use by day and hour">
    ${days.map((date, i) => html`<text x=${LEFT - 8} y=${i * ROW + 10} text-anchor="end">${date}</text>`)}
    ${hours.map((rate, i) => html`<rect class="use ${rate === null ? "none" : isLimit(limit) ? kindOf(rate / full) : ""}"
      x=${LEFT + (i % 24) * width} y=${Math.floor(i / 24) * ROW} width=${width - 1} height=${ROW - 1}
      fill-opacity=${rate === null ? 1 : 0.12 + 0.88 * Math.min(1, rate / full)}>
      <title>${days[Math.floor(i / 24)]} ${hourText(since, i)}: ${rate === null ? "nothing was seen" : inWords(of, rate)}</title></rect>`)}
    ${[0, 6, 12, 18].map((hour) => html`<text x=${LEFT + hour * width} y=${DAYS * ROW + 14}>${String(hour).padStart(2, "0")}:00</text>`)}
  </svg>`;
}

const hourText = (since, i) => new Date(+since + i * HOUR_MS).toISOString().slice(11, 16);

function Incidents({ page }) {
  const who = new Map(page.buckets.map((bucket) => [`${bucket.bucket_id} ${bucket.key}`, bucket]));
  return html`<${Table} name="Incidents" empty="No incident was seen."
    columns=${["Bucket", "Key", "Broker", "Start", "Lasted", "Peak of limit", "Had to wait", "State"]}
    rows=${page.rows.map((each) => ({
      key: each.incident_id,
      cells: [
        html`<${Bucket} bucket=${who.get(`${each.bucket_id} ${each.key}`)} />`,
        html`<${Key} of=${each.key} />`,
        each.broker_id ?? "all",
        html`<${Ago} at=${each.start} />`,
        duration((Date.parse(each.end) - Date.parse(each.start)) / 1000),
        known(each.peak_ratio, (ratio) => `${number(100 * ratio)} %`),
        known(each.est_deferred_bytes, bytes),
        known(each.status, (status) => status),
      ],
    }))} />`;
}

/** What a checked change would have meant for the traffic of the last days. */
export function PastUse({ impact }) {
  if (!impact) return null;
  if (impact.reason) return html`<p class="muted">${NO_PAST[impact.reason] ?? impact.reason}</p>`;
  if (!impact.length) return html`<p class="muted">No use of those whose limit would change is published.</p>`;
  return impact.map((each) => html`<p key=${each.bucket_id} class="notice ${each.share_of_minutes_over === 0 ? "" : "open"}">
    ${each.key} of ${bucketText(each.shared_by)}, ${period(each)}: ${pastUse(each)}</p>`);
}

function period({ days, data_through: at }) {
  const length = days === 1 ? "day" : `${days} days`;
  return isOld(at) ? `the ${length} until ${at.slice(0, 10)}, ${age(at)} ago` : `last ${length}`;
}

const NO_PAST = {
  "no-run": "No past use to compare with: no run of the pipeline has published it.",
  unavailable: "Past use cannot be read now.",
};

const bucketText = ({ user, "client-id": clientId }) => entityText({ ...(user && { user }), ...(clientId && { "client-id": clientId }) });

function pastUse({ key, share_of_minutes_over: share, peak, censored }) {
  const words = [share === null ? "some of them would get a limit of their own, so past use cannot tell"
    : `would have been over in ${share && share < 0.0001 ? "under 0.01" : number(100 * share)} % of minutes`];
  words.push(`peak ${inWords(key, peak)}`);
  if (censored) words.push("throttled or over the limit at times, so more may be wanted than was used");
  return `${words.join("; ")}.`;
}
