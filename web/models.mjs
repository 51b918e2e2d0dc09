/** The models: their states, what is expected of them, why each is where it is, and buttons to load and unload them. */

import { bytes, element, list, say } from "./dom.mjs";
import { post } from "./server.mjs";

const FIGURES = ["Running", "Waiting", "Expected", "Warm / hit / attach / miss"];

/** With more models than this there is a field to find one. */
const MANY = 8;

function make_row(model, complain, look_into) {
  const button = element("button", { type: "button" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await post(`models/${button.dataset.verb}`, { model: model.id });
    } catch (error) {
      complain(error);
    } finally {
      button.disabled = false;
    }
  });
  // Where the page is narrow there is no head above them.
  const numbers = FIGURES.map((label) => element("td", { class: "n", "data-label": label }));
  const state = element("td", {}, element("span", { class: "state" }));
  const name = element("button", { type: "button" });
  name.addEventListener("click", () => look_into(name.textContent));
  return element("tr", {}, element("th", { scope: "row" }, name), state, element("td"), ...numbers, element("td", {}, button));
}

/** "fetching: 1.0 MiB of 1.4 MiB, 2.0 MiB a second"; else the state, with how much of a load is done. */
export function state_text({ status }) {
  if (status.failed) {
    return "failed";
  }
  if (status.fetch !== undefined) {
    const { bytes: there, total_bytes: total, bytes_per_second: rate } = status.fetch;
    return `fetching: ${bytes(there)} of ${bytes(total)}, ${bytes(Math.round(rate))} a second`;
  }
  const share = status.progress === undefined ? "" : ` ${Math.floor(100 * status.progress)} %`;
  return status.residency.replace("_", " ") + share;
}

function update_row(row, model, running, forecast) {
  const [name, state, device, runs, waits, expected, starts, last] = row.children;
  say(name.firstChild, model.id);
  name.title = `${model.description ?? ""} What was decided about it?`.trim();
  say(state.firstChild, state_text(model));
  state.firstChild.dataset.state = model.status.failed ? "failed" : model.status.residency;
  state.title = model.status.error ?? model.status.fetch?.from ?? "";
  say(device, model.status.device ?? "");
  say(runs, String(running?.requests_running ?? 0));
  say(waits, String(running?.requests_waiting ?? 0));
  if (forecast !== undefined) {
    say(expected, `${forecast.expected_mean.toFixed(1)} / ${forecast.expected_peak.toFixed(0)}`);
    const { warm, hit, attach, miss } = forecast.starts;
    say(starts, `${warm} / ${hit} / ${attach} / ${miss}`);
  }
  const button = last.firstChild;
  button.dataset.verb = model.status.value === "unloaded" || model.status.value === "sleeping" ? "load" : "unload";
  say(button, button.dataset.verb);
}

/** Whether a model is what somebody looks for: part of its name, its state or its device. */
export function matches(model, wanted) {
  const text = `${model.id} ${state_text(model)} ${model.status.device ?? ""}`.toLowerCase();
  return wanted.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** `running` and `forecasts` are what /running and /api/forecasts tell; `find` is the field to find one in;
 * `complain(error)` hears what a button could not do, `look_into(id)` of which model somebody wants to know more. */
export function show(root, models, running, forecasts, find, { complain, look_into }) {
  const runs = new Map(running.map((each) => [each.model, each]));
  const expected = new Map(forecasts.map((each) => [each.model, each]));
  find.hidden = models.length <= MANY;
  const wanted = find.hidden ? "" : find.querySelector("input").value;
  const shown = models.filter((model) => matches(model, wanted));
  list(root, shown, ({ id }) => id, (model) => make_row(model, complain, look_into), (row, model) =>
    update_row(row, model, runs.get(model.id), expected.get(model.id)));
}
