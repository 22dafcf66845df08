// Which values are nearly used up, by the newest day that the pipeline has published.
import { withQuery } from "./api.js";
import { entityKey } from "./entities.js";
import { kindOf, useLoaded } from "./components.js";
import { html } from "./lib.js";
import { getAll } from "./pages.js";
import { number } from "./quantities.js";

/** From this share of a limit on a value is near it. */
export const NEAR = 0.7;
const PATH = withQuery("/analytics/utilization", { min_util_p99: NEAR, page_size: 10_000 });

/** Join a page of results to those before. */
export const withNext = (before, next) => ({ rows: [...before.rows, ...next.rows], buckets: [...before.buckets, ...next.buckets] });

/** Return the entity whose stored value a row of the pipeline is about, or null. */
export function storedEntity(row) {
  const entity = {};
  if (row.quota_user_default) entity.user = null;
  else if (row.quota_user) entity.user = row.quota_user;
  if (row.quota_client_default) entity["client-id"] = null;
  else if (row.quota_client_id) entity["client-id"] = row.quota_client_id;
  return Object.keys(entity).length ? entity : null;
}

/** Return the entity whose quota limits a bucket, or null. */
export const limiting = (bucket) => (bucket?.level ? storedEntity(bucket) : null);

/** Return a function that says which share of an entity's value was used, as `{ share, dt }`; null where that is not known or low. */
export function useNearLimits() {
  const found = useLoaded((signal) => getAll(PATH, withNext, signal).catch(() => null), []);
  const buckets = new Map((found.data?.buckets ?? []).map((bucket) => [`${bucket.bucket_id} ${bucket.key}`, limiting(bucket)]));
  const shares = new Map();
  for (const { bucket_id, key, dt, util_p99: share } of found.data?.rows ?? []) {
    const entity = buckets.get(`${bucket_id} ${key}`);
    const id = entity && `${entityKey(entity)} ${key}`;
    const there = shares.get(id);
    if (id && (!there || dt > there.dt || (dt === there.dt && share > there.share))) shares.set(id, { share, dt });
  }
  return (entity, key) => shares.get(`${entityKey(entity)} ${key}`) ?? null;
}

/** A thin bar below a value of which much is used. */
export function UseMark({ share: found }) {
  if (!found) return null;
  const text = `${number(100 * found.share)} % used (p99 of ${found.dt})`;
  return html`<span class="use-mark ${kindOf(found.share)}" role="img" aria-label=${text} title=${text}>
    <i style=${{ width: `${Math.min(100, 100 * found.share)}%` }}></i></span>`;
}
