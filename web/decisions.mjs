/** What was decided lately, and why. */

import { duration, element, list, say } from "./dom.mjs";

const SHOWN = 16;

function make_row() {
  return element("li", {}, element("b"), element("span"), element("span", { class: "hint" }));
}

/** Only of one model, or undefined: of all. */
let about;

/** Where decisions are asked for. */
export function path() {
  return about === undefined ? "api/decisions" : `api/decisions?model=${encodeURIComponent(about)}`;
}

/** From now on what is shown is about this model alone, or undefined: about all. */
export function look_into(shown, model) {
  about = model;
  shown.hidden = model === undefined;
  say(shown.querySelector("b"), model ?? "");
}

/** `decisions` as /api/decisions tells them, oldest first; shown latest first. `now_ms` is the page's clock. */
export function show(root, decisions, now_ms) {
  const latest = decisions.slice(-SHOWN).reverse();
  // They have no names: moment and content tell them apart. Ages are rounded, as asking takes time.
  const key = ({ age_ms: age, decision, model, device }) => `${Math.round((now_ms - age) / 50)} ${decision} ${model} ${device}`;
  const named = new Map();
  for (const each of latest) {
    const name = key(each);
    const count = named.get(name) ?? [];
    named.set(name, [...count, each]);
    each.key = `${name} ${count.length}`;
  }
  list(root, latest, (each) => each.key, make_row, (row, each) => {
    const [what, where, why] = row.children;
    say(what, `${each.decision} ${each.model}`);
    row.dataset.decision = each.decision;
    const target = each.for ? ` for ${each.for}` : "";
    say(where, `${each.device ? ` on ${each.device}` : ""}${target}`);
    say(why, `${duration(each.age_ms)} ago: ${each.why}`);
  });
}
