// Signing in: with a token, with a password of the brokers, or at the identity provider.
import { credential, get } from "./api.js";
import { Field, Refusal, useLoaded } from "./components.js";
import { html, useEffect, useRef, useState } from "./lib.js";

const METHODS = "/ui/sign-in.json";
const BACK = "/ui/signed-in";
/** What the way back from the identity provider is compared with, in the memory of this tab. */
const PENDING = "sign-in";

export function SignIn({ error, signIn }) {
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
  const shown = fault ?? error;
  return html`<main class="sign-in">
    <form onSubmit=${submit}>
      <h1>Kafka quotas</h1>
      <p class="muted">Client quotas of a Kafka cluster: who has which limit, why, and who changed it.</p>
      ${oidc && isSecureContext && html`
        <button type="button" class="primary wide" onClick=${() => leaveFor(oidc).catch(setFault)}>Sign in with ${new URL(oidc.issuer).host}</button>
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

/** Go to the identity provider, which comes back with a code. Source: RFC 7636, 4; OpenID Connect Core 1.0, 3.1.2. */
async function leaveFor(oidc) {
  const pending = { verifier: random(), state: random(), nonce: random(), to: location.pathname + location.search };
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(pending.verifier));
  sessionStorage.setItem(PENDING, JSON.stringify(pending));
  const url = new URL(oidc.authorization_endpoint);
  const parameters = {
    response_type: "code", client_id: oidc.client_id, redirect_uri: redirectUri(), scope: oidc.scope,
    state: pending.state, nonce: pending.nonce,
    code_challenge: base64url(new Uint8Array(digest)), code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  location.assign(url);
}

/** Whether this page is the way back from the identity provider. */
export const isBack = () => location.pathname === BACK;

/** Take the token for the code that came back, and show the address from which somebody left. */
export async function comeBack() {
  const answer = new URLSearchParams(location.search);
  const pending = JSON.parse(sessionStorage.getItem(PENDING) ?? "{}");
  sessionStorage.removeItem(PENDING);
  history.replaceState(history.state, "", pending.to ?? "/ui/quotas");
  if (!pending.state || answer.get("state") !== pending.state) throw new Error("This sign-in did not begin in this tab: try again.");
  if (!answer.get("code")) throw new Error(`The identity provider refused: ${answer.get("error_description") ?? answer.get("error") ?? "no reason"}.`);
  const { oidc } = await get(METHODS);
  if (!oidc) throw new Error("The identity provider does not answer: try again.");
  credential.keepToken(await exchange(oidc, answer.get("code"), pending));
}

async function exchange(oidc, code, { verifier, nonce }) {
  const body = new URLSearchParams({
    grant_type: "authorization_code", code, redirect_uri: redirectUri(), client_id: oidc.client_id, code_verifier: verifier,
  });
  const answer = await fetch(oidc.token_endpoint, { method: "POST", body, credentials: "omit", referrerPolicy: "no-referrer" })
    .catch(() => { throw new Error("The identity provider's token endpoint did not answer this page: it has to allow this origin."); });
  const tokens = await answer.json().catch(() => ({}));
  const token = tokens[oidc.token];
  if (!answer.ok || typeof token !== "string") {
    throw new Error(`The identity provider gave no token: ${tokens.error_description ?? tokens.error ?? `status ${answer.status}`}.`);
  }
  if (tokens.id_token && claims(tokens.id_token).nonce !== nonce) throw new Error("The identity provider's token is of another sign-in: try again.");
  return token;
}

/** What a token says; the service judges it. */
const claims = (token) => JSON.parse(atob(token.split(".")[1].replaceAll("-", "+").replaceAll("_", "/")));
