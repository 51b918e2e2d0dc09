/** The latest requests, and what each of them waited for. */

import { duration, element, list, say } from "./dom.mjs";

const SHOWN = 24;
const PHASES = ["queue", "load", "prefill", "decode"];

/** Phases of a request in milliseconds: of several choices, those of the one that took longest. */
export function phases_of({ parts }) {
  const none = { total_ms: 0 };
  return parts.map(({ phases }) => phases).reduce((a, b) => (b.total_ms > a.total_ms ? b : a), none);
}

function make_row() {
  const bar = element("span", { class: "bar" }, ...PHASES.map((phase) => element("span", { class: phase })));
  return element("li", {}, element("b"), bar, element("span", { class: "n" }), element("span", { class: "hint" }));
}

function tokens(request) {
  const sum = (name) => request.parts.reduce((all, part) => all + part[name], 0);
  const cached = sum("cached_tokens") > 0 ? ` (${sum("cached_tokens")} cached)` : "";
  const restarts = sum("restarts") > 0 ? `, ${sum("restarts")} restarts` : "";
  return `${sum("prompt_tokens")}${cached} + ${sum("completion_tokens")} tokens${restarts}`;
}

function update_row(row, request, longest, now_ms) {
  const [name, bar, time, rest] = row.children;
  const phases = phases_of(request);
  say(name, request.model);
  PHASES.forEach((phase, i) => {
    const ms = phases[`${phase}_ms`] ?? 0;
    bar.children[i].style.width = `${(100 * ms) / longest}%`;
    bar.children[i].title = `${phase} ${duration(ms)}`;
  });
  say(time, duration(request.running ? Math.max(0, now_ms - request.arrived_ms) : phases.total_ms));
  const bad = !request.running && request.status >= 400;
  say(rest, bad ? `${request.status}: ${request.error ?? ""}` : tokens(request));
  row.title = `${request.id} ${request.endpoint}`;
  row.className = `${request.running ? "running" : ""} ${bad ? "bad" : ""}`;
}

/** Bars share one scale: that of the longest of those that are shown. What runs has a time, but no phases yet. */
export function show(root, requests, now_ms) {
  const shown = requests.slice(0, SHOWN);
  const longest = Math.max(1e-3, ...shown.map((request) => phases_of(request).total_ms));
  list(root, shown, ({ id }) => id, make_row, (row, request) => update_row(row, request, longest, now_ms));
}

/** What the latest requests say: how many in the last minute, and times to their first tokens [ms]. */
export function summary(requests, now_ms) {
  const ended = requests.filter((request) => !request.running && request.status < 400 && request.parts.length > 0);
  const first = ended.map((request) => {
    const phases = phases_of(request);
    return (phases.queue_ms ?? 0) + (phases.load_ms ?? 0) + (phases.prefill_ms ?? 0);
  });
  first.sort((a, b) => a - b);
  const at = (part) => first[Math.min(first.length - 1, Math.floor(part * first.length))];
  return {
    minute: requests.filter(({ arrived_ms: at_ms }) => now_ms - at_ms < 60_000).length,
    running: requests.filter(({ running }) => running).length,
    p50: at(0.5),
    p95: at(0.95),
  };
}
