// The page: who is signed in, the bar that is always there, and which screen an address has.
import { credential, events, get } from "./api.js";
import { clusterHere, isScreen, readyPath, screenPath } from "./cluster.js";
import { ClusterPicker, showRemembered } from "./cluster_picker.js";
import { html, render, useEffect, useState } from "./lib.js";
import { Ago, Heading, Loading, Missing, Refusal, Text } from "./components.js";
import { go, mayLeave, shown } from "./go.js";
import { Palette } from "./palette.js";
import { SignIn, comeBack, isBack } from "./sign_in.js";
import { Toasts } from "./toasts.js";
import { AdviceScreen } from "./advice.js";
import { AuditScreen, AlterationScreen } from "./audit.js";
import { EditScreen, NewScreen } from "./edit.js";
import { EntityScreen } from "./entity.js";
import { HealthScreen } from "./health.js";
import { PlanScreen } from "./plan.js";
import { QuotasScreen } from "./quotas.js";
import { ResolveScreen } from "./resolve.js";
import { TemporaryScreen } from "./temporary.js";
import { UsageScreen } from "./usage.js";

const NAVIGATION = [
  ["quotas", "Quotas"],
  ["resolve", "Who gets what"],
  ["plan", "Plan"],
  ["audit", "Audit"],
  ["usage", "Near a limit"],
  ["advice", "Advice"],
  ["health", "Health"],
];

const SCREENS = {
  quotas: QuotasScreen,
  entity: EntityScreen,
  edit: EditScreen,
  new: NewScreen,
  temporary: TemporaryScreen,
  resolve: ResolveScreen,
  plan: PlanScreen,
  audit: AuditScreen,
  alteration: AlterationScreen,
  usage: UsageScreen,
  advice: AdviceScreen,
  health: HealthScreen,
};
/** The rights that a screen needs one of. */
const NEEDS = { audit: ["describe", "audit"], alteration: ["describe", "audit"], health: null };
const SECTIONS = { entity: "quotas", edit: "quotas", new: "quotas", temporary: "quotas", alteration: "audit" };

const READY_EVERY_MS = 15_000;

function App() {
  const [me, setMe] = useState(null);
  const [locked, setLocked] = useState(false);
  const [error, setError] = useState(null);
  const [starting, setStarting] = useState(Boolean(credential.header()) || isBack());
  const signIn = async () => {
    try {
      if (isBack()) await comeBack();
      await showRemembered();
      setMe(await askWho().catch(askElsewhere));
      setLocked(false);
      setError(null);
    } catch (problem) {
      credential.forget();
      setError(problem);
    }
    setStarting(false);
  };
  /** Ask again in another cluster, which may not answer: then the page says so, and others can be picked. */
  const enter = async () => {
    try {
      setMe(await askWho());
    } catch (problem) {
      if (problem.status !== 401) setMe((before) => ({ ...before, ...NO_ANSWER, cluster: clusterHere(), problem }));
    }
  };
  const signOut = () => {
    if (!mayLeave()) return;
    credential.forget();
    setMe(null);
    setError(null);
  };
  useEffect(() => {
    if (starting) signIn();
    let cluster = clusterHere();
    const moved = () => {
      if (cluster === clusterHere()) return;
      cluster = clusterHere();
      if (credential.header()) enter();
    };
    shown.addEventListener("moved", moved);
    const refused = () => {
      setError((before) => before ?? new Error("Your sign-in has ended: sign in again. What you typed is still there."));
      setLocked(true);
      credential.forget();
    };
    events.addEventListener("refused", refused);
    return () => {
      shown.removeEventListener("moved", moved);
      events.removeEventListener("refused", refused);
    };
  }, []);
  useEffect(() => {
    events.dispatchEvent(new CustomEvent("locked", { detail: locked }));
  }, [locked]);
  if (starting) return html`<div class="starting"><${Loading} /></div>`;
  const isIn = me && !locked;
  return html`
    ${me && html`<div hidden=${locked}><${SignedIn} key=${`${me.principal} ${me.cluster}`} me=${me} signOut=${signOut} ask=${() => enter()} /></div>`}
    ${isIn ? html`<${Toasts} />` : html`<${SignIn} error=${error} signIn=${signIn} isAbove=${me !== null} />`}`;
}

const NO_ANSWER = { cluster_id: null, permissions: {}, mayAlter: false };

/** Return who calls, in the cluster that the address is of. */
async function askWho() {
  const cluster = clusterHere();
  return { ...callerOf(await get("/me")), cluster };
}

/** Return who calls where the cluster of the address does not answer, as another one says it; so that one can be picked. */
async function askElsewhere(problem) {
  if (problem.status !== 503) throw problem;
  try {
    const { clusters, default: usual } = await get("/clusters");
    const { name } = clusters.find(({ ready }) => ready) ?? clusters.find((each) => each.name !== (clusterHere() ?? usual));
    const { principal } = await get("/me", { cluster: name });
    return { ...NO_ANSWER, principal, cluster: clusterHere(), problem };
  } catch {
    throw problem;
  }
}

/** Add to what the service says of a caller whether a change can be applied: a right, and a rule that allows some. */
const callerOf = (me) => ({ ...me, mayAlter: me.permissions.alter && me.policy?.length !== 0 });

function SignedIn({ me, signOut, ask }) {
  const [current, setCurrent] = useState(address());
  useEffect(() => {
    const moved = () => setCurrent(address());
    shown.addEventListener("moved", moved);
    document.addEventListener("click", followLink);
    return () => {
      shown.removeEventListener("moved", moved);
      document.removeEventListener("click", followLink);
    };
  }, []);
  const { screen, parameter, query } = current;
  const Screen = SCREENS[screen] ?? NoScreen;
  const section = SECTIONS[screen] ?? screen;
  const needs = screen in NEEDS ? NEEDS[screen] : ["describe"];
  const isMissing = needs && !needs.some((right) => me.permissions[right]);
  return html`
    <a class="skip" href="#main">Skip to the content</a>
    <${Bar} me=${me} section=${section} signOut=${signOut} />
    <main id="main" tabindex="-1">
      ${me.problem ? html`<${Away} me=${me} ask=${ask} />` : isMissing ? html`<${Missing} me=${me} needs=${needs} title=${NAVIGATION.find(([name]) => name === section)?.[1] ?? "Nothing here"} ask=${ask} />`
        : html`<${Screen} key=${screen + parameter} me=${me} parameter=${parameter} query=${query} />`}
    </main>
    <footer>
      <a href="/docs">API</a> <a href="/problems/">Problems</a>
      <a href="/openapi.json">OpenAPI</a>
      <span class="keys"><kbd>/</kbd> search <kbd>Ctrl K</kbd> go to</span>
    </footer>
    <${Palette} me=${me} screens=${SCREENS_BY_NAME} />`;
}

const SCREENS_BY_NAME = [...NAVIGATION, ["temporary", "For a time"]].map(([name, text]) => [`/ui/${name}`, text]);

/** The bar: the screens, the cluster and its state, and who asks; on a narrow screen behind a button. */
function Bar({ me, section, signOut }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const close = () => setOpen(false);
    shown.addEventListener("moved", close);
    return () => shown.removeEventListener("moved", close);
  }, []);
  const title = NAVIGATION.find(([name]) => name === section)?.[1];
  return html`<header class=${isOpen ? "open" : ""} onKeyDown=${(event) => event.key === "Escape" && setOpen(false)}>
    <a class="brand" href="/ui/quotas">Kafka quotas</a>
    <span class="where" aria-hidden="true">${title}</span>
    <button type="button" class="menu" aria-expanded=${isOpen ? "true" : "false"} aria-controls="menu" onClick=${() => setOpen(!isOpen)}>Menu</button>
    <div class="folds" id="menu">
      <nav aria-label="Screens">
        ${NAVIGATION.map(([name, text]) => html`<a href="/ui/${name}"
          aria-current=${name === section ? "page" : undefined}>${text}</a>`)}
      </nav>
      <${State} me=${me} />
      <button type="button" onClick=${signOut}>Sign out</button>
    </div>
  </header>`;
}

/** The cluster, whether it takes changes, how fresh the newest answer is, and who asks with which rights. */
function State({ me }) {
  const [asOf, setAsOf] = useState(null);
  const [ready, setReady] = useState(null);
  useEffect(() => {
    const answered = ({ detail }) => detail.as_of && setAsOf(detail.as_of);
    const look = () =>
      document.hidden ||
      get(readyPath("for=write")).then(
        () => setReady({ word: "ready", kind: "good" }),
        (problem) => setReady(readiness(problem)),
      );
    look();
    const timer = setInterval(look, READY_EVERY_MS);
    events.addEventListener("answer", answered);
    return () => {
      clearInterval(timer);
      events.removeEventListener("answer", answered);
    };
  }, []);
  return html`<dl class="state">
    <${ClusterPicker} me=${me} />
    ${ready && html`<div><dt class="hidden">State</dt><dd><span class="outcome ${ready.kind}" title=${ready.why}>${ready.word}</span></dd></div>`}
    ${asOf && html`<div class="fresh"><dt>As of</dt><dd><${Ago} at=${asOf} /></dd></div>`}
    <div title="May ${rights(me.permissions)}"><dt class="hidden">Signed in as</dt><dd class="who"><${Text} of=${me.principal} /><span class="rights">${rights(me.permissions)}</span></dd></div>
  </dl>`;
}

function readiness(problem) {
  if (problem.status === 404) return null;
  const why = Object.values(problem.document.problems ?? {}).join(" ") || problem.message;
  return { word: problem.code === "unreachable" ? "unreachable" : "not ready", kind: "bad", why };
}

function rights(permissions) {
  const held = ["describe", "alter", "audit"].filter((name) => permissions[name]);
  return held.join(", ") || "nothing";
}

function Away({ me, ask }) {
  return html`<${Heading} title=${me.cluster ?? "The default cluster"} />
    <${Refusal} error=${me.problem}><p><button type="button" onClick=${ask}>Look again</button></p><//>`;
}

function NoScreen() {
  return html`<${Heading} title="Nothing here" />
    <p>This address has no screen. <a href="/ui/quotas">See all quotas</a>.</p>`;
}

function address() {
  const [, , screen = "", ...rest] = screenPath().split("/");
  const query = Object.fromEntries(new URLSearchParams(location.search));
  return { screen: screen || "quotas", parameter: decoded(rest.join("/")), query };
}

/** Return a part of an address; as it is where it is not UTF-8. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Follow a link to a screen without a new page; everything else is left to the browser. */
function followLink(event) {
  const link = event.target.closest?.("a[href]");
  const isPlain = !(event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || link.target || link.origin !== location.origin) return;
  if (link.hasAttribute("download") || !isScreen(link.pathname)) return;
  if (link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(link.href);
}

render(html`<${App} />`, document.getElementById("page"));
