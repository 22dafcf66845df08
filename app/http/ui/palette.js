// The keyboard: `/` to search, Ctrl-K for a screen, an entity or an action by some letters of its name.
import { get, withQuery } from "./api.js";
import { clusterHere, pathHere } from "./cluster.js";
import { entityKey, entityText, filterOfText } from "./entities.js";
import { go } from "./go.js";
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "./lib.js";
import { canUndo, undo } from "./toasts.js";

const ASK_AFTER_MS = 150;
const FOUND = 8;

/** Whether a key is for what has the focus. */
const isTyping = ({ target }) => target.closest("input, textarea, select, dialog, [contenteditable]");

/** Listen for the keys; `screens` are the links, `[path, text]`. */
export function Palette({ me, screens }) {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const pressed = (event) => {
      if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setOpen(!document.querySelector("dialog[open]:not(.palette)"));
      } else if (event.key === "/" && !event.ctrlKey && !event.metaKey && !isTyping(event)) {
        event.preventDefault();
        const field = document.querySelector("main [type=search]");
        if (field) field.focus();
        else go("/ui/quotas");
      }
    };
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
  return isOpen && html`<${Open} me=${me} screens=${screens} close=${() => setOpen(false)} />`;
}

function Open({ me, screens, close }) {
  const dialog = useRef(null);
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const id = useId();
  const entities = useEntities(typed, me.permissions.describe);
  // Before the next key, which belongs to it.
  useLayoutEffect(() => dialog.current.showModal(), []);
  const choices = [...actionsOf(me, screens).filter(({ text }) => matches(text, typed)), ...entities];
  const chosen = Math.min(at, choices.length - 1);
  const take = (choice) => {
    dialog.current.close();
    choice?.act();
  };
  const keys = {
    ArrowDown: () => setAt((chosen + 1) % choices.length),
    ArrowUp: () => setAt((chosen - 1 + choices.length) % choices.length),
    Enter: () => take(choices[chosen]),
  };
  const press = (event) => {
    if (!keys[event.key] || event.isComposing) return;
    event.preventDefault();
    if (choices.length) keys[event.key]();
  };
  return html`<dialog class="palette" ref=${dialog} aria-label="Go to" onClose=${close}
    onClick=${(event) => event.target === dialog.current && dialog.current.close()}>
    <input role="combobox" aria-label="Go to" aria-expanded="true" aria-controls=${id} autocomplete="off" spellcheck=${false}
      aria-activedescendant=${choices.length ? `${id}-${chosen}` : undefined} placeholder="A screen, a user, an action" autofocus
      value=${typed} onInput=${({ target }) => { setTyped(target.value); setAt(0); }} onKeyDown=${press} />
    <ul role="listbox" id=${id} aria-label="Found">
      ${choices.map((choice, i) => html`<li role="option" id="${id}-${i}" key=${choice.kind + choice.text} aria-selected=${i === chosen ? "true" : "false"}
        onClick=${() => take(choice)}><span class="label">${choice.text}</span> <span class="kind">${choice.kind}</span></li>`)}
    </ul>
    ${!choices.length && html`<p class="muted">Nothing of that name.</p>`}
  </dialog>`;
}

/** Whether each word that was typed is in a text. */
const matches = (text, typed) => typed.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

function actionsOf(me, screens) {
  const actions = screens.map(([path, text]) => ({ text, kind: "screen", act: () => go(path) }));
  if (me.mayAlter) actions.push({ text: "New quota", kind: "action", act: () => go("/ui/new") });
  if (me.mayAlter && canUndo()) actions.push({ text: "Undo the last change", kind: "action", act: () => undo() });
  return actions;
}

/** Return the entities whose name contains what was typed: of this cluster first, and then of the others. */
function useEntities(typed, mayDescribe) {
  const [found, setFound] = useState([]);
  const text = typed.trim();
  useEffect(() => {
    setFound([]);
    if (!text || !mayDescribe) return undefined;
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      for (const name of [clusterHere(), ...(await otherClusters(controller.signal))]) {
        const more = await entitiesOf(name, text, controller.signal).catch(() => []);
        if (!controller.signal.aborted) setFound((before) => [...before, ...more]);
      }
    }, ASK_AFTER_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [text]);
  return found;
}

async function entitiesOf(cluster, text, signal) {
  const filter = { filter: filterOfText(text), page_size: FOUND, max_age_ms: 60_000 };
  const { quotas } = await get(pathHere(withQuery("/quotas", filter), cluster), { signal });
  return quotas.map(({ entity }) => ({
    text: entityText(entity),
    kind: cluster === clusterHere() ? "quota" : `quota in ${cluster}`,
    act: () => go(pathHere(`/ui/entity/${entityKey(entity)}`, cluster)),
  }));
}

/** Return the names of the other clusters that answer. */
async function otherClusters(signal) {
  const found = await get("/clusters", { signal }).catch(() => null);
  const here = clusterHere() ?? found?.default;
  return (found?.clusters ?? []).filter(({ name, ready }) => ready && name !== here).map(({ name }) => name);
}
