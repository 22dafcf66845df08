// Which of several clusters the address is of: its paths stand below `/clusters/{name}`.

const BELOW = /^\/clusters\/([a-z0-9-]{1,63})(?=\/ui(\/|$))/;
const OF_A_CLUSTER = /^\/(quotas|audit|analytics|me|users|ui)(?=[/?]|$)/;
/** What the page asks of the service itself, whatever the cluster. */
const OF_THE_SERVICE = /^\/ui\/sign-in\.json$/;
const REMEMBERED = "cluster";

/** Return the name of the cluster that the address is of; null is the default one. */
export const clusterHere = () => location.pathname.match(BELOW)?.[1] ?? null;

/** Return a path of some cluster as one of this cluster. */
export function pathHere(path, name = clusterHere()) {
  return name !== null && OF_A_CLUSTER.test(path) && !OF_THE_SERVICE.test(path) ? `/clusters/${name}${path}` : path;
}

/** Return the path of the address without its cluster. */
export const screenPath = () => location.pathname.replace(BELOW, "");

/** Whether a path is one of a screen. */
export const isScreen = (path) => path.replace(BELOW, "").startsWith("/ui/");

/** Return the path that asks whether this cluster is ready. */
export function readyPath(query = "") {
  const parts = [query, clusterHere() && `cluster=${clusterHere()}`].filter(Boolean);
  return parts.length ? `/readyz?${parts.join("&")}` : "/readyz";
}

/** The cluster that was picked last, for who opens the page without naming one. */
export const remembered = {
  read: () => localStorage.getItem(REMEMBERED),
  keep: (name) => localStorage.setItem(REMEMBERED, name),
};
