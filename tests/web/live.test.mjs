/** The page against a real server that wants a key: HEDDLE_SUBJECT is {"url", "key", "model", "prompt", "answer"}. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { open, until } from "./document.mjs";

const { url, key, model, prompt, answer } = JSON.parse(process.env.HEDDLE_SUBJECT);
const document = open(`${url}/ui/`);
// What the page waits for must not keep this program alive.
const real = globalThis.setTimeout;
globalThis.setTimeout = (...args) => real(...args).unref();
const alive = setInterval(() => {}, 1000);
await import("../../web/main.mjs");

const find = (selector) => document.querySelector(selector);
const submit = (form) => form.dispatchEvent(new Event("submit", { cancelable: true }));
const state = () => find("#models .state")?.textContent;

test("a key is asked for, and a wrong one again", async () => {
  const form = find("#key");
  await until(() => !form.hidden, "asking for a key");
  assert.equal(find("#models").children.length, 0);
  form.elements.key.value = "wrong";
  submit(form);
  assert.ok(form.hidden);
  await until(() => !form.hidden, "asking again");
  form.elements.key.value = key;
  submit(form);
  await until(() => find("#models tr"), "showing the model");
  assert.ok(form.hidden);
  assert.equal(find("#models th").textContent, model);
  assert.match(find("#version").textContent, /\d/);
  assert.match(find("#memory h3").textContent, /cpu0: .* of .* free/);
});

test("a question is answered as it comes, and its trace and decision show", async () => {
  const form = find("#ask");
  form.elements.prompt.value = prompt;
  assert.equal(form.elements.model.value, model);
  submit(form);
  await until(() => find("#figures").textContent.includes("first token after"), "answering");
  assert.equal(form.elements.answer.value, answer);
  await until(() => find("#requests b")?.textContent === model, "telling the request");
  assert.match(find("#requests .hint").textContent, /^\d+ \+ \d+ tokens$/);
  await until(() => find("#decisions b")?.textContent === `load ${model}`, "telling the decision");
  await until(() => find(`#memory .bar .weights`)?.title.startsWith(`${model}, weights: `), "showing its pages");
  assert.match(find("#memory path").getAttribute("d"), /^M/);
});

test("its button unloads and loads the model", async () => {
  const button = () => find("#models td button");
  await until(() => state() === "warm" && button().textContent === "unload", "resting");
  button().click();
  await until(() => state() === "host cached" && button().textContent === "load", "unloading");
  button().click();
  await until(() => state() === "warm", "loading");
});

test("a model's name shows what was decided about it alone", async () => {
  find("#models th button").click();
  assert.ok(!find("#about").hidden);
  assert.equal(find("#about b").textContent, model);
  await until(() => find("#decisions b")?.textContent.endsWith(model), "showing its decisions");
  find("#about button").click();
  assert.ok(find("#about").hidden);
  await until(() => find("#decisions b"), "showing all decisions");
});

test("colours are chosen, and kept", () => {
  const worn = () => document.documentElement.style.colorScheme; // As any property, where a document knows no styles.
  const button = find("#theme");
  assert.match(button.textContent, /system/);
  button.click();
  assert.equal(localStorage.getItem("heddle-colours"), "light");
  button.click();
  assert.match(button.textContent, /dark/);
  button.click();
  assert.match(button.textContent, /system/);
  assert.equal(worn(), "light dark");
});

test("what goes wrong is said", async () => {
  const form = find("#ask");
  form.elements.prompt.value = "x".repeat(100_000);
  submit(form);
  await until(() => !find("#trouble").hidden, "complaining");
  assert.match(find("#trouble").textContent, /token/);
  clearInterval(alive);
});
