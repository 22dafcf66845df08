// What would apply to an entity's clients where a key of it is not set.
import { get, withQuery } from "./api.js";
import { entityText, sameEntity } from "./entities.js";
import { useLoaded } from "./components.js";
import { inWords } from "./quantities.js";

/**
 * Load what is inherited, `{ quotas, of(key) }`: `of` returns `{ value, entity }`, where a null entity is that
 * nothing applies; undefined where one connection cannot tell, as for defaults and client-ids of any user.
 */
export function useInherited(entity, values) {
  const isIdentity = Object.values(entity).every((name) => name !== null) && ("user" in entity || "ip" in entity);
  const resolved = useLoaded(
    (signal) => (isIdentity ? get(withQuery("/quotas/resolve", { ...entity, explain: true }), { signal }) : Promise.resolve(null)),
    [JSON.stringify(entity), JSON.stringify(values)],
  );
  const of = (key) => {
    const levels = resolved.data?.quotas[key]?.levels;
    if (!levels) return undefined;
    const own = levels.findIndex((level) => sameEntity(level.entity, entity));
    const next = levels.slice(own + 1).find((level) => level.value !== null && level.applies !== false);
    return next ? { value: next.value, entity: next.entity } : { value: null, entity: null };
  };
  return { ...resolved, of };
}

/** Return the words for it, or nothing. */
export function inheritedText(key, found) {
  if (!found) return "";
  return found.entity ? `inherits ${inWords(key, found.value)} from ${entityText(found.entity)}` : "nothing else limits it";
}
