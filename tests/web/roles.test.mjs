/** The page with a key for inference alone: HEDDLE_SUBJECT is {"url", "key", "admin", "model", "prompt", "answer"}. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, until } from "./document.mjs";

const { url, key, admin, model, prompt, answer } = JSON.parse(process.env.HEDDLE_SUBJECT);
const document = open(`${url}/ui/`);
// What the page waits for must not keep this program alive.
const real = globalThis.setTimeout;
globalThis.setTimeout = (...args) => real(...args).unref();
const alive = setInterval(() => {}, 1000);
const asked = new Map();
const fetched = globalThis.fetch;
globalThis.fetch = (target, options) => {
  const path = new URL(target).pathname;
  asked.set(path, (asked.get(path) ?? 0) + 1);
  return fetched(target, options);
};
await import("../../web/main.mjs");

const find = (selector) => document.querySelector(selector);
const submit = (form) => form.dispatchEvent(new Event("submit", { cancelable: true }));
const enter = (text) => {
  find("#key").elements.key.value = text;
  submit(find("#key"));
};
const closed = (path) => find(`[data-path="${path}"]`);

test("what the key does not open is said, and not asked for again", async () => {
  await until(() => !find("#key").hidden, "asking for a key");
  asked.clear();
  enter(key);
  await until(() => find("#models tr"), "showing the model");
  assert.match(closed("api/devices").textContent, /needs a key of the role metrics or admin/);
  assert.match(closed("api/decisions").textContent, /needs a key of the role admin/);
  assert.ok(closed("api/requests").hidden);
  assert.ok(!find("#another").hidden);
  assert.ok(find("#trouble").hidden);
  await until(() => asked.get("/v1/models") >= 3, "looking again");
  for (const path of ["/api/devices", "/api/forecasts", "/api/decisions"]) {
    assert.equal(asked.get(path), 1, path);
  }
});

test("what it opens works", async () => {
  find("#ask").elements.prompt.value = prompt;
  submit(find("#ask"));
  await until(() => find("#figures").textContent.includes("first token after"), "answering");
  assert.equal(find("#ask").elements.answer.value, answer);
  await until(() => find("#requests b")?.textContent === model, "telling its own request");
  find("#models td button").click();
  await until(() => !find("#trouble").hidden, "complaining");
  assert.match(find("#trouble").textContent, /needs a key of the role admin/);
});

test("another key opens the rest", async () => {
  find("#another").click();
  assert.ok(!find("#key").hidden);
  enter(admin);
  await until(() => find("#memory h3"), "showing memory");
  await until(() => find("#another").hidden, "showing all");
  clearInterval(alive);
});
