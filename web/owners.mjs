/** Who owns the pages of a pool, and in what colour. */

/** Kinds of lease that belong to no model alone, by what they are called here. */
const COMMON = { kv_cached: "cached prefixes", overhead: "workspace", image: "images of models" };

/** The hue of each model by its place in the list of models: neighbours are far apart, whatever their number. */
export function hues(models) {
  return new Map(models.map((model, i) => [model.id, (i * 137.508 + 200) % 360]));
}

/** The pages of a device, or of the host: {total, parts: [{owner, part, pages}]}, in a fixed order; `part` is "weights",
 * "kv", "guests" (KV of a model on another device) or "common", and what is left of the total is free. Pages that are lent to an engine count with the device. */
export function shares(pool) {
  const parts = [];
  let engines = 0;
  for (const { model, external, weights_pages: weights, kv_pages: kv } of pool.models ?? []) {
    parts.push({ owner: model, part: "weights", pages: weights }, { owner: model, part: "kv", pages: kv });
    engines += external ? weights : 0;
  }
  for (const { model, pages } of pool.guests ?? []) {
    parts.push({ owner: model, part: "guests", pages });
  }
  const held = (kind) => pool.pages[kind].held;
  parts.push({ owner: "engines", part: "common", pages: held("foreign") - engines }); // Old name.
  for (const [kind, name] of Object.entries(COMMON)) {
    parts.push({ owner: name, part: "common", pages: held(kind) });
  }
  const all = Object.keys(pool.pages).reduce((sum, kind) => sum + held(kind), 0);
  parts.push({ owner: "promised", part: "common", pages: pool.pages_total - pool.pages_free - all });
  const found = parts.filter(({ pages }) => pages > 0);
  // What the manager knows of a load may be ahead of the device's own account.
  const told = found.reduce((sum, { pages }) => sum + pages, 0);
  const lent = Math.max(engines - held("foreign"), 0); // Old name.
  return { total: Math.max(pool.pages_total + lent, told), parts: found };
}
