// Requests to the service that this page came from, with the credential of this tab.

import { pathHere } from "./cluster.js";

const TOKEN = "token";

/** The header of who signed in with a password: this script alone has it, so a new page asks again. */
let password = null;
/** Asks the identity provider for another token; null where it gave none to ask with. This script alone has it, too. */
let renew = null;
let renewing = null;

/**
 * Tells of every answer (`answer`, with its document), of a credential that is refused (`refused`), whether
 * the page waits for another one (`locked`), and that a change was taken back (`undone`).
 */
export const events = new EventTarget();

export const credential = {
  header: () => password ?? (sessionStorage.getItem(TOKEN) && `Bearer ${sessionStorage.getItem(TOKEN)}`),
  keepToken: (text, renewal = null) => {
    renew = renewal;
    sessionStorage.setItem(TOKEN, text);
  },
  keepPassword: (user, secret) => {
    const bytes = new TextEncoder().encode(`${user}:${secret}`);
    password = `Basic ${btoa(String.fromCharCode(...bytes))}`;
  },
  forget: () => {
    password = null;
    renew = null;
    sessionStorage.removeItem(TOKEN);
  },
};

/** A refusal, as the service's problem document; `code` is `unreachable` without an answer. */
export class Problem extends Error {
  constructor(document, status = 0, headers = new Headers()) {
    super(document.detail ?? document.title);
    Object.assign(this, { document, status, headers, code: document.code });
  }

  /** The alteration whose outcome is still to be found out, or null. */
  get alterationId() {
    return this.headers.get("Location")?.match(/\/quotas\/alterations\/([^/]+)$/)?.[1] ?? null;
  }
}

const UNREACHABLE = {
  code: "unreachable",
  title: "The service did not answer",
  detail: "The service did not answer. Check the network, then try again.",
};

/** Whether there is another credential than the one that was refused, by now or from the identity provider. */
async function isRenewed(refused) {
  if (renew && credential.header() === refused) {
    renewing ??= renew().finally(() => { renewing = null; });
    await renewing.catch(() => null);
  }
  return credential.header() !== null && credential.header() !== refused;
}

/**
 * Send a request and return `{ status, document, headers }`.
 *
 * It goes to the cluster that the address is of, or to `cluster`, where null is the default one. Where a token has
 * ended and the provider gives another one, the same request is sent once more: nothing was done with the first.
 * Throws a Problem for every answer that is not a success.
 */
export async function call(path, { method, body, headers, accept, signal, cluster, isRepeat = false } = {}) {
  const sent = { ...headers, Accept: accept ?? "application/json" };
  if (credential.header()) sent.Authorization = credential.header();
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response, text;
  try {
    response = await fetch(pathHere(path, cluster), {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      signal,
    });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(UNREACHABLE);
  }
  if (response.status === 401 && !isRepeat && (await isRenewed(sent.Authorization))) {
    return call(path, { method, body, headers, accept, signal, cluster, isRepeat: true });
  }
  const isJson = /^application\/(problem\+)?json/.test(response.headers.get("Content-Type") ?? "");
  const document = isJson ? JSON.parse(text) : text;
  if (!response.ok) {
    const problem = isJson ? document : { title: `Status ${response.status}`, detail: text };
    if (response.status === 401) events.dispatchEvent(new CustomEvent("refused"));
    throw new Problem(problem, response.status, response.headers);
  }
  events.dispatchEvent(new CustomEvent("answer", { detail: document }));
  return { status: response.status, document, headers: response.headers };
}

/** Return the document of a GET. */
export async function get(path, options) {
  return (await call(path, options)).document;
}

/** Return a path with a query; a list repeats its parameter, and what is empty is left out. */
export function withQuery(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters))
    for (const each of [value].flat())
      if (each !== undefined && each !== null && each !== "") query.append(name, each);
  return query.size ? `${path}?${query}` : path;
}

/** Return a new Idempotency-Key. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return a text as one word of a shell. */
export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Return the command that does the same in a shell, with the token in `$TOKEN`, or who types a password. */
export function curl(path, { method, body, headers, accept } = {}) {
  const words = ["curl -sS", password ? '-u "$KAFKA_USER"' : '-H "Authorization: Bearer $TOKEN"'];
  if (method) words.push(`-X ${method}`);
  if (accept) words.push(`-H ${quoted(`Accept: ${accept}`)}`);
  for (const [name, value] of Object.entries(headers ?? {}))
    words.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body !== undefined) {
    words.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  }
  return [...words, quoted(location.origin + pathHere(path))].join(" \\\n  ");
}
