/** The page: asks the server each second how things are, and shows it. Nothing is asked while nobody looks. */

import * as ask from "./ask.mjs";
import * as decisions from "./decisions.mjs";
import { duration, element, list, say } from "./dom.mjs";
import * as logs from "./logs.mjs";
import * as memory from "./memory.mjs";
import * as models from "./models.mjs";
import * as requests from "./requests.mjs";
import { get, KeyWanted, peek, refusal, setKey } from "./server.mjs";
import * as theme from "./theme.mjs";

const PERIOD_MS = 1000;

const by_id = (id) => document.getElementById(id);

let trouble_until = 0;

/** Says what went wrong, for a while: what a look finds right does not wipe away what a button could not do. */
function complain(error) {
  const shown = by_id("trouble");
  say(shown, error instanceof TypeError ? "the server does not answer" : error.message);
  shown.hidden = false;
  trouble_until = performance.now() + 8000;
}

function show_summary(traces, forecasts) {
  const { minute, running, p50, p95 } = requests.summary(traces, Date.now());
  const sum = (kind) => forecasts.reduce((all, { starts }) => all + starts[kind], 0);
  const facts = [["running", running], ["in the last minute", traces.length === minute ? `${minute}+` : minute]];
  if (p50 !== undefined) {
    facts.push(["first token, median", duration(p50)], ["95th percentile", duration(p95)]);
  }
  if (forecasts.length > 0) {
    facts.push(["prewarmed in time", sum("hit")], ["loaded on demand", sum("miss")]);
  }
  list(by_id("summary"), facts, ([name]) => name, () => element("li", {}, element("b"), element("span")), (item, [name, value]) => {
    say(item.firstChild, String(value));
    say(item.lastChild, name);
  });
}

/** Says in each part of the page whether the key opens what it shows. */
function show_refusals() {
  const parts = [...document.querySelectorAll("[data-path]")];
  parts.forEach((part) => {
    const why = refusal(part.dataset.path);
    part.hidden = why === undefined;
    say(part, why ?? "");
  });
  by_id("another").hidden = parts.every((part) => part.hidden);
}

/** Shows what was decided about a model, or undefined: about all, at once. */
function look_into(model) {
  decisions.look_into(by_id("about"), model);
  by_id("decisions-title").scrollIntoView?.({ block: "nearest" });
  watch();
}

/** One look at the server, as far as the key goes. */
export async function look() {
  const paths = ["api/devices", "v1/models", "running", "api/forecasts", "api/requests", decisions.path()];
  const [devices, listed, running, forecasts, traces, decided] = await Promise.all(paths.map(peek));
  if (devices !== undefined) {
    memory.show(by_id("memory"), devices, listed.data);
    memory.show_owners(by_id("owners"), listed.data);
  }
  models.show(by_id("models"), listed.data, running.running, forecasts?.models ?? [], by_id("find"), { complain, look_into });
  requests.show(by_id("requests"), traces?.requests ?? [], Date.now());
  decisions.show(by_id("decisions"), decided?.decisions ?? [], Date.now());
  show_summary(traces?.requests ?? [], forecasts?.models ?? []);
  ask.offer(by_id("ask"), listed.data);
  show_refusals();
}

async function greet() {
  const past = await peek("api/devices/history");
  if (past !== undefined) {
    memory.recall(past);
  }
  const { version } = await get("version");
  say(by_id("version"), version);
}

/** Counts the calls of watch(): only the last of them goes on. */
let watches = 0;

/** Looks, and again a second later, until a key is wanted. */
async function watch() {
  const mine = ++watches;
  try {
    if (!document.hidden) {
      if (by_id("version").textContent === "") {
        await greet();
      }
      await look();
      if (performance.now() > trouble_until) {
        by_id("trouble").hidden = true;
      }
    }
  } catch (error) {
    if (error instanceof KeyWanted) {
      by_id("key").hidden = false;
      return;
    }
    complain(error);
  }
  if (mine === watches) {
    setTimeout(() => mine === watches && watch(), PERIOD_MS);
  }
}

by_id("key").addEventListener("submit", (submitted) => {
  submitted.preventDefault();
  setKey(by_id("key").elements.key.value);
  by_id("key").hidden = true;
  watch();
});
by_id("another").addEventListener("click", () => {
  by_id("key").hidden = false;
});
by_id("about").querySelector("button").addEventListener("click", () => look_into(undefined));
by_id("find").addEventListener("input", () => watch());
theme.serve(by_id("theme"));
ask.serve(by_id("ask"), complain);
logs.serve(by_id("logs"), complain);
watch();
