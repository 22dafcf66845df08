// Moves to another screen from within one, and asks first where something would be lost.
import { pathHere } from "./cluster.js";
import { useLayoutEffect } from "./lib.js";

const QUESTION = "What you typed is not applied. Leave without it?";

/** One for each part of the screen that would lose something. */
const unsaved = new Set();
let steps = history.state?.steps ?? history.length;
history.replaceState({ steps }, "");

/** Ask before this screen is left, for as long as `isUnsaved`. */
export function useUnsaved(isUnsaved) {
  useLayoutEffect(() => {
    if (!isUnsaved) return undefined;
    const mark = {};
    unsaved.add(mark);
    return () => unsaved.delete(mark);
  }, [isUnsaved]);
}

/** Whether this screen may be left. */
export const mayLeave = () => unsaved.size === 0 || confirm(QUESTION);

/** Show the screen of an address; `replace` leaves no step back, and is of the same screen. */
export function go(path, { replace = false } = {}) {
  if (!replace && !mayLeave()) return;
  if (!replace) steps += 1;
  history[replace ? "replaceState" : "pushState"]({ steps }, "", pathHere(path));
  shown.dispatchEvent(new Event("moved"));
  if (!replace) window.scrollTo(0, 0);
}

/** Tells when another address is shown (`moved`). */
export const shown = new EventTarget();

// Back and forward have happened when they are heard of: they are undone where they are not wanted.
let undone = false;
window.addEventListener("popstate", ({ state }) => {
  if (undone) {
    undone = false;
    return;
  }
  const there = state?.steps ?? steps;
  if (there !== steps && !mayLeave()) {
    undone = true;
    history.go(steps - there);
    return;
  }
  steps = there;
  shown.dispatchEvent(new Event("moved"));
});

window.addEventListener("beforeunload", (event) => unsaved.size > 0 && event.preventDefault());
