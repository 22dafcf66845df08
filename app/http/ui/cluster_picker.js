// The clusters of this service: which one the page shows, with the state of each, and another one to pick.
import { get } from "./api.js";
import { pathHere, remembered } from "./cluster.js";
import { go } from "./go.js";
import { html, useEffect, useId, useState } from "./lib.js";

const EVERY_MS = 30_000;

/** Show the cluster that was picked last to who opens the page without naming one. */
export async function showRemembered() {
  const name = remembered.read();
  if (!name || location.pathname !== "/") return;
  const found = await get("/clusters").catch(() => null);
  if (found?.clusters.some((each) => each.name === name)) history.replaceState(history.state, "", pathHere("/ui/quotas", name));
}

/** The id of the only cluster, or a field that picks one of several. */
export function ClusterPicker({ me }) {
  const [found, setFound] = useState(null);
  const id = useId();
  useEffect(() => {
    const look = () => document.hidden || get("/clusters").then(setFound, () => undefined);
    look();
    const timer = setInterval(look, EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  if (!found || found.clusters.length < 2) {
    return html`<div title="The id of the cluster"><dt>Cluster</dt><dd><code>${me.cluster_id}</code></dd></div>`;
  }
  const pick = ({ target }) => {
    remembered.keep(target.value);
    go(pathHere("/ui/quotas", target.value));
  };
  return html`<div title=${me.cluster_id}><dt><label for=${id}>Cluster</label></dt><dd>
    <select id=${id} value=${me.cluster ?? found.default} onChange=${pick}>${found.clusters.map(({ name, ready, reason }) => html`
      <option value=${name} title=${reason}>${name}${ready ? "" : " (not ready)"}</option>`)}</select></dd></div>`;
}
