// The document of a plan: a text with the numbers of its lines, where those with a fault are marked.
import { html, useId, useRef } from "./lib.js";

export function DocumentField({ value, hint, faults, ...textarea }) {
  const id = useId();
  const numbers = useRef(null);
  const follow = ({ target }) => {
    numbers.current.scrollTop = target.scrollTop;
  };
  const bad = new Map(faults.map(({ line, detail }) => [line, detail]));
  const count = Math.max(12, value.split("\n").length);
  return html`<div class="field document">
    <label for=${id}>Document</label>
    <div class="lines">
      <div class="numbers" aria-hidden="true" ref=${numbers}>${Array.from({ length: count }, (_, i) => html`<span
        class=${bad.has(i + 1) ? "bad" : ""} title=${bad.get(i + 1)}>${i + 1}</span>`)}</div>
      <textarea id=${id} wrap="off" autocomplete="off" spellcheck=${false} value=${value} onScroll=${follow}
        aria-describedby="${id}-hint" aria-invalid=${faults.length ? "true" : undefined} ...${textarea}></textarea>
    </div>
    <p class="hint" id="${id}-hint">${hint}</p>
  </div>`;
}
