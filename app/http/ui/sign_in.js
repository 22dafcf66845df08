// Signing in: with a token, with a password of the brokers, or at the identity provider.
import { credential, get } from "./api.js";
import { Field, Refusal, useLoaded } from "./components.js";
import { html, useEffect, useRef, useState } from "./lib.js";

const METHODS = "/ui/sign-in.json";
const BACK = "/ui/signed-in";
/** What the way back from the identity provider is compared with, in the memory of this tab. */
const PENDING = "sign-in";

/** The sign-in; `isAbove` a screen that waits for it, and keeps what was typed there. */
export function SignIn({ error, signIn, isAbove }) {
  const found = useLoaded((signal) => get(METHODS, { signal }), []);
  const [typed, setTyped] = useState({ user: "", password: "", token: "" });
  const [fault, setFault] = useState(null);
  const first = useRef(null);
  const { methods = ["bearer-token"], oidc = null } = found.data ?? {};
  // Only over https, and on this machine: what is typed elsewhere everybody on the way can read.
  const takesPassword = methods.includes("basic") && isSecureContext;
  useEffect(() => {
    if (!Object.values(typed).some(Boolean)) first.current?.focus();
  }, [found.loading]);
  const type = (name) => ({ value: typed[name], onInput: ({ target }) => setTyped({ ...typed, [name]: target.value }) });
  const submit = (event) => {
    event.preventDefault();
    if (typed.token.trim()) credential.keepToken(typed.token.trim());
    else if (typed.user && typed.password) credential.keepPassword(typed.user, typed.password);
    else return setFault(new Error(takesPassword ? "Write your user and password, or a token." : "Write a token."));
    setFault(null);
    signIn();
  };
  const goTo = async () => {
    setFault(null);
    try {
      if (isAbove && (await comeBackHere(oidc))) return signIn();
      await leaveFor(oidc);
    } catch (problem) {
      setFault(problem);
    }
  };
  const shown = fault ?? error;
  return html`<main class="sign-in">
    <form onSubmit=${submit}>
      <h1>Kafka quotas</h1>
      <p class="muted">Client quotas of a Kafka cluster: who has which limit, why, and who changed it.</p>
      ${oidc && isSecureContext && html`
        <button type="button" class="primary wide" onClick=${goTo}>Sign in with ${new URL(oidc.issuer).host}</button>
        <p class="or">or</p>`}
      ${takesPassword && html`
        <${Field} label="User" name="username" autocomplete="username" inputRef=${first} ...${type("user")} />
        <${Field} label="Password" type="password" name="password" autocomplete="current-password"
          hint="As at the brokers. This page forgets it when it is loaded again." ...${type("password")} />
        <p class="or">or</p>`}
      <${Field} label="Token" type="password" name="token" inputRef=${takesPassword ? undefined : first} ...${type("token")}
        hint="A bearer token of this service, from those who run it; after make run it is in .local/tokens/alice. It stays in this tab." />
      ${methods.includes("basic") && !isSecureContext && html`<p class="notice open">A password is taken over https only.</p>`}
      ${shown && html`<${Refusal} error=${shown} />`}
      <div class="buttons"><button class=${oidc ? "" : "primary"}>Sign in</button></div>
    </form>
  </main>`;
}

const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

const base64url = (bytes) =>
  btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

const redirectUri = () => location.origin + BACK;

/** Return what a sign-in is recognized by, and its address at the identity provider. Source: RFC 7636, 4; OpenID Connect Core 1.0, 3.1.2. */
async function begin(oidc) {
  const pending = { verifier: random(), state: random(), nonce: random(), to: location.pathname + location.search };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(pending.verifier));
  const url = new URL(oidc.authorization_endpoint);
  const parameters = {
    response_type: "code", client_id: oidc.client_id, redirect_uri: redirectUri(), scope: oidc.scope,
    state: pending.state, nonce: pending.nonce,
    code_challenge: base64url(new Uint8Array(digest)), code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  return { pending, url };
}

/** Leave for the identity provider, which comes back to this page with a code. */
async function leaveFor(oidc) {
  const { pending, url } = await begin(oidc);
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  location.assign(url);
}

/**
 * Go to the identity provider in a window of its own, and take the code that it comes back with; this page stays as it is.
 *
 * Returns false where the browser opens no window.
 */
async function comeBackHere(oidc) {
  // The window begins with a copy of this tab's memory: so it knows what it was opened for.
  sessionStorage.setItem(PENDING, JSON.stringify({ isWindow: true }));
  const opened = window.open("", "_blank", "popup,width=520,height=640");
  sessionStorage.removeItem(PENDING);
  if (!opened) return false;
  const { pending, url } = await begin(oidc);
  const channel = new BroadcastChannel(pending.state);
  const answer = new Promise((resolve) => channel.addEventListener("message", ({ data }) => resolve(data), { once: true }));
  opened.location.replace(url);
  const code = codeOf(new URLSearchParams(await answer), pending);
  channel.close();
  await take(oidc, code, pending);
  return true;
}

/** Whether this page is the way back from the identity provider. */
export const isBack = () => location.pathname === BACK;

/**
 * Take the token for the code that came back, and show the address from which somebody left.
 *
 * A window that was opened for it gives the answer to the page that opened it, and closes.
 */
export async function comeBack() {
  const answer = new URLSearchParams(location.search);
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "{}");
  sessionStorage.removeItem(PENDING);
  if (pending.isWindow) giveBack(answer);
  history.replaceState(history.state, "", pending.to ?? "/ui/quotas");
  const code = codeOf(answer, pending);
  const { oidc } = await get(METHODS);
  if (!oidc) throw new Error("The identity provider does not answer: try again.");
  await take(oidc, code, pending);
}

/** Give an answer to the page that opened this window. */
function giveBack(answer) {
  new BroadcastChannel(answer.get("state") ?? "").postMessage(answer.toString());
  window.close();
  throw new Error("Go on in the window where you began: this one can be closed.");
}

/** Return the code of an answer of the identity provider. */
function codeOf(answer, pending) {
  if (!pending.state || answer.get("state") !== pending.state) throw new Error("This sign-in did not begin in this tab: try again.");
  if (!answer.get("code")) throw new Error(`The identity provider refused: ${answer.get("error_description") ?? answer.get("error") ?? "no reason"}.`);
  return answer.get("code");
}

/** Keep the token for a code; where there is a refresh token, too, this script alone has it. */
async function take(oidc, code, { verifier, nonce }) {
  const tokens = await ask(oidc, { grant_type: "authorization_code", code, redirect_uri: redirectUri(), code_verifier: verifier });
  if (tokens.id_token && claims(tokens.id_token).nonce !== nonce) throw new Error("The identity provider's token is of another sign-in: try again.");
  keep(oidc, tokens);
}

/** Source: RFC 6749, 6: another refresh token takes the place of the first. */
function keep(oidc, tokens, before = null) {
  const refresh = tokens.refresh_token ?? before;
  const renew = async () => keep(oidc, await ask(oidc, { grant_type: "refresh_token", refresh_token: refresh }), refresh);
  credential.keepToken(tokens[oidc.token], refresh ? renew : null);
}

async function ask(oidc, parameters) {
  const body = new URLSearchParams({ ...parameters, client_id: oidc.client_id });
  const answer = await fetch(oidc.token_endpoint, { method: "POST", body, credentials: "omit", referrerPolicy: "no-referrer" })
    .catch(() => { throw new Error("The identity provider's token endpoint did not answer this page: it has to allow this origin."); });
  const tokens = await answer.json().catch(() => ({}));
  if (!answer.ok || typeof tokens[oidc.token] !== "string") {
    throw new Error(`The identity provider gave no token: ${tokens.error_description ?? tokens.error ?? `status ${answer.status}`}.`);
  }
  return tokens;
}

/** What a token says; the service judges it. */
const claims = (token) => JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));
