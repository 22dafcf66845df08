// What every screen is made with: elements as tagged templates, and state.
import { h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";
import { pathHere } from "./cluster.js";

export * from "./vendor/hooks.js";
export { render };

/** Links between screens stay in the cluster that the address is of. */
export const html = htm.bind((type, properties, ...children) =>
  h(type, type === "a" && properties?.href?.startsWith("/ui/") ? { ...properties, href: pathHere(properties.href) } : properties, ...children));
