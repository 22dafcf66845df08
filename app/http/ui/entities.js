// Entities: their key in paths, their filter, and what is theirs in words.
import { visible } from "./text.js";

/** The types, with the names of their fields. */
export const TYPES = { user: "User", "client-id": "Client ID", ip: "IP address" };

/** Return the entity of a key, or null where it is none. */
export function readEntityKey(key) {
  try {
    const bytes = atob(key.replaceAll("-", "+").replaceAll("_", "/"));
    const text = new TextDecoder().decode(Uint8Array.from(bytes, (char) => char.charCodeAt(0)));
    const entity = JSON.parse(text);
    const isEntity = Object.entries(entity).every(([type, name]) =>
      type in TYPES && (name === null || typeof name === "string"));
    return isEntity && Object.keys(entity).length > 0 ? entity : null;
  } catch {
    return null;
  }
}

/** Return an entity's key: its canonical JSON in URL-safe base64. */
export function entityKey(entity) {
  const sorted = Object.fromEntries(Object.keys(entity).sort().map((type) => [type, entity[type]]));
  const bytes = new TextEncoder().encode(JSON.stringify(sorted));
  const text = btoa(String.fromCharCode(...bytes));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export const sameEntity = (one, other) => entityKey(one) === entityKey(other);

/** Return the components that exactly this entity meets. */
export function filterOf(entity) {
  if ("ip" in entity) return [component("ip", entity.ip)];
  return ["user", "client-id"].map((type) =>
    type in entity ? component(type, entity[type]) : `${type}:absent`,
  );
}

const IS_FILTER = /^((user|client-id|ip)([\^~]?=|:(default|any|absent)$)|any~=)/;

/** A comma before another component; the others belong to a name. */
const BETWEEN = /(?<!\\),(?=\s*(?:(?:user|client-id|ip)(?:[\^~]?=|:(?:default|any|absent)\s*(?:,|$))|any~=))/;

/**
 * Return the filter that somebody types: components as the command takes and prints them
 * (`user=alice,client-id:default`, `{user=alice, client-id=etl}`), or else a text that some name contains.
 */
export function filterOfText(typed) {
  const text = typed.trim();
  if (!text) return undefined;
  const components = text.replace(/^\{(.*)\}$/, "$1").split(BETWEEN).map(componentOfText);
  return components.every((each) => IS_FILTER.test(each)) ? components : `any~=${text}`;
}

const componentOfText = (text) => text.trim().replaceAll("\\,", ",").replace(/^(user|client-id|ip)=<default>$/, "$1:default");

const component = (type, name) => (name === null ? `${type}:default` : `${type}=${name}`);

/** Return an entity as plain text: `user alice, default client-id`. */
export function entityText(entity) {
  return Object.keys(TYPES)
    .filter((type) => type in entity)
    .map((type) => (entity[type] === null ? `default ${type}` : `${type} ${visible(entity[type])}`))
    .join(", ");
}

/** How a level is called on the page, and who spends from its limit together. */
const LEVELS = {
  "user-client-id": ["user and client-id", "This user with this client-id."],
  "user-default-client-id": ["user, default client-id", "Each client-id of the user has a limit of its own."],
  user: ["user", "All clients of the user spend from one limit."],
  "default-user-client-id": ["default user, client-id", "Each user with this client-id has a limit of its own."],
  "default-user-default-client-id": ["default user, default client-id", "Each pair of user and client-id has a limit of its own."],
  "default-user": ["default user", "Each user has a limit of its own; all clients of a user spend from it."],
  "client-id": ["client-id", "All users with this client-id spend from one limit."],
  "default-client-id": ["default client-id", "Each client-id has a limit of its own; its users spend from it."],
  ip: ["address", "All connections from this address."],
  "default-ip": ["default address", "Each address has a limit of its own."],
};

export const levelText = (name) => LEVELS[name]?.[0] ?? name;
export const sharing = (entity) => LEVELS[levelOf(entity)][1];

/** Return the name of an entity's level, as `resolve` spells it. */
export function levelOf(entity) {
  return Object.keys(TYPES)
    .filter((type) => type in entity)
    .map((type) => (entity[type] === null ? `default-${type}` : type))
    .join("-");
}

/**
 * Return the keys of a client-id's entity that never apply, as a rule of the default user wins.
 *
 * `defaults` are the quotas whose user is the default.
 */
export function shadowedKeys(quota, defaults) {
  const { entity, values } = quota;
  if ("user" in entity || "ip" in entity) return [];
  const client = entity["client-id"];
  const stronger = defaults.filter(({ entity: other }) =>
    !("client-id" in other) || other["client-id"] === null || other["client-id"] === client);
  return Object.keys(values).filter((key) => stronger.some((other) => key in other.values));
}
