// Lists that the service answers by pages: the first one, further ones, or all of them, as for a table that is sorted.
import { get } from "./api.js";
import { Refusal, useLoaded } from "./components.js";
import { html, useEffect, useState } from "./lib.js";

/** The most rows that a page has. */
const LARGEST = 10_000;
/** The most rows that a browser is to sort. */
export const SORTED_AT_MOST = 200_000;

/**
 * Load the first page of a list, and further ones with `more`; `merge` joins a page to those before.
 *
 * `path` is the request of the first page; `data` is the page with all the rows so far, of which a table shows the first
 * `most`. `all` loads the rest, and does so again whenever the list is loaded anew; `failed` is why a page is missing.
 */
export function usePages(path, merge, load = (url, signal) => get(url, { signal }), round = 0) {
  const size = sizeOf(path);
  const first = useLoaded((signal) => load(path, signal), [path, round]);
  const [further, setFurther] = useState({});
  const [wanted, setWanted] = useState(0);
  const [most, setMost] = useState(size);
  useEffect(() => setMost(size), [path]);
  const { page = first.data, failed } = further.after === first.data ? further : {};
  const isPartial = Boolean(page?.next_page_token);
  const isSortable = !isPartial || !(page.total > SORTED_AT_MOST);
  const add = (loading) => {
    const after = first.data;
    loading.then((joint) => setFurther({ after, page: joint }), (error) => setFurther({ after, page, failed: error }));
  };
  useEffect(() => {
    if (!wanted || first.loading || !isPartial || !isSortable) return undefined;
    const controller = new AbortController();
    add(follow(path, page, merge, (url) => load(url, controller.signal)));
    return () => controller.abort();
  }, [wanted, first.data, first.loading]);
  const more = () => {
    setMost(most + size);
    if (isPartial && !first.loading) add(load(nextOf(path, page, size)).then((next) => joined(page, next, merge)));
  };
  const all = () => isPartial && setWanted((number) => number + 1);
  const show = () => {
    setMost(Infinity);
    all();
  };
  return { ...first, data: page, path, more, all, show, most, failed, isPartial, isSortable };
}

/** Load every page of a list, from its first one. */
export async function getAll(path, merge, signal) {
  const load = (url) => get(url, { signal });
  return follow(path, await load(path), merge, load);
}

async function follow(path, page, merge, load) {
  let found = page;
  while (found.next_page_token) found = joined(found, await load(nextOf(path, found, LARGEST)), merge);
  return found;
}

const joined = (before, next, merge) => ({ ...next, ...merge(before, next) });
const sizeOf = (path) => Number(path.match(/[?&]page_size=(\d+)/)[1]);
const nextOf = (path, page, size) => `${path.replace(/page_size=\d+/, `page_size=${size}`)}&page_token=${page.next_page_token}`;

/** The button that asks for the next rows of a list, and why they did not come. */
export const More = ({ of: { isPartial, more, failed } }) => html`
  ${failed && html`<${Refusal} error=${failed} />`}
  ${isPartial && html`<p><button type="button" onClick=${more}>Show more</button></p>`}`;
