/** Memory: a bar for each device and the host, whose pages are whose, and how that was in the last minutes. */

import { bytes, drawing, element, list, say } from "./dom.mjs";
import { hues, shares } from "./owners.mjs";

/** Seconds that are kept and shown. */
const SPAN = 300;

/** [{at, shares}] by name of the pool, oldest first. */
const past = new Map();

function remember(name, now, at) {
  const samples = past.get(name) ?? [];
  samples.push({ at, ...now });
  while (samples[0].at < at - SPAN - 2) {
    samples.shift();
  }
  past.set(name, samples);
}

/** All pools of an answer of /api/devices: devices, and the host where it has memory of its own. */
function pools_of({ devices, host }) {
  const page_bytes = host.page_bytes ?? devices[0]?.page_bytes ?? 0;
  return [...devices, ...(host.pages_total > 0 ? [{ ...host, name: "host", page_bytes }] : [])];
}

/** Takes what /api/devices/history tells of the time before this page was opened. */
export function recall({ samples }) {
  const now = performance.now() / 1000;
  for (const { age_ms, memory } of samples) {
    pools_of(memory).forEach((pool) => remember(pool.name, shares(pool), now - age_ms / 1000));
  }
}

const key = ({ owner, part }) => `${part} ${owner}`;

function dress(shown, { owner, part }, colours) {
  shown.setAttribute("class", part);
  shown.style.setProperty("--hue", colours.get(owner) ?? 0);
  shown.classList.toggle("nobody", !colours.has(owner));
}

function draw_bar(bar, { total, parts }, page_bytes, colours) {
  const make = () => element("span");
  list(bar, parts, key, make, (span, share) => {
    dress(span, share, colours);
    span.style.width = `${(100 * share.pages) / total}%`;
    const what = share.part === "common" ? share.owner : `${share.owner}, ${share.part}`;
    span.title = `${what}: ${bytes(share.pages * page_bytes)}, ${share.pages} pages`;
  });
}

/** Areas upon each other, from the bottom up in the order of the bar; now is on the right. A part that somebody gave up is
 * a step down in the second in which it was seen gone. */
export function areas(samples, at) {
  const order = new Map();
  samples.forEach(({ parts }) => parts.forEach((share) => order.set(key(share), share)));
  const edges = [...order.values()].map((share) => ({ share, upper: [], lower: [] }));
  edges.sort((a, b) => (a.share.part === "common") - (b.share.part === "common"));
  for (const [i, { at: begin, total, parts }] of samples.entries()) {
    const x = [begin, samples[i + 1]?.at ?? at].map((time) => SPAN + (time - at));
    const pages = new Map(parts.map((share) => [key(share), share.pages / total]));
    let level = 0;
    for (const { share, upper, lower } of edges) {
      lower.push(...x.map((time) => [time, 1 - level]));
      level += pages.get(key(share)) ?? 0;
      upper.push(...x.map((time) => [time, 1 - level]));
    }
  }
  const point = ([x, y]) => `${x.toFixed(1)},${y.toFixed(4)}`;
  return edges.map(({ share, upper, lower }) => ({
    share,
    path: `M${upper.map(point).join("L")}L${lower.reverse().map(point).join("L")}Z`,
  }));
}

function make_pool() {
  const picture = drawing("svg", { viewBox: `0 0 ${SPAN} 1`, preserveAspectRatio: "none", role: "img" });
  return element("article", {}, element("h3"), element("div", { class: "bar" }), picture);
}

/** Of models whose experts take turns in a device's memory: how many are there. */
const experts_of = (pool) =>
  (pool.experts ?? []).map(({ model, experts, resident }) => `, ${resident} of ${experts} experts of ${model}`).join("");

function used(pool, page_bytes) {
  const cached = pool.pages.kv_cached.held;
  const free = `${bytes((pool.pages_free + cached) * page_bytes)} of ${bytes(pool.pages_total * page_bytes)} free`;
  const others = pool.others_bytes ? `, ${bytes(pool.others_bytes)} held by other programs` : "";
  const stage = pool.stage ? `, stage ${pool.stage.stage + 1} of ${pool.stage.stages} of ${pool.stage.model}` : "";
  return pool.up === false ? "down, is being restarted" : free + experts_of(pool) + others + stage;
}

/** Shows devices and host as /api/devices tells them, coloured by the list of models. */
export function show(root, memory, models) {
  const colours = hues(models);
  const at = performance.now() / 1000;
  list(root, pools_of(memory), (pool) => pool.name, make_pool, (article, pool) => {
    const [title, bar, picture] = article.children;
    const now = shares(pool);
    remember(pool.name, now, at);
    say(title, `${pool.name}: ${used(pool, pool.page_bytes)}`);
    draw_bar(bar, now, pool.page_bytes, colours);
    picture.setAttribute("aria-label", `pages of ${pool.name} over the last minutes`);
    const make = () => drawing("path");
    list(picture, areas(past.get(pool.name), at), ({ share }) => key(share), make, (path, { share, path: outline }) => {
      dress(path, share, colours);
      path.setAttribute("d", outline);
    });
  });
}

/** Which colour is whose. */
export function show_owners(root, models) {
  const colours = hues(models);
  list(root, models, (model) => model.id, () => element("li"), (item, model) => {
    item.style.setProperty("--hue", colours.get(model.id));
    say(item, model.id);
  });
}
