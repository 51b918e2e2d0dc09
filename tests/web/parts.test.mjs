/** What the parts of the page make of what a server tells. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { open } from "./document.mjs";

const document = open("http://127.0.0.1:1/ui/");
const { bytes, duration, element, list, say } = await import("../../web/dom.mjs");
const { hues, shares } = await import("../../web/owners.mjs");
const { areas, recall, show: show_memory } = await import("../../web/memory.mjs");
const { phases_of, summary } = await import("../../web/requests.mjs");
const { matches, show: show_models, state_text } = await import("../../web/models.mjs");
const { events } = await import("../../web/ask.mjs");
const decisions = await import("../../web/decisions.mjs");

const KINDS = ["weights_active", "weights_idle", "kv_own", "kv_guest", "kv_cached", "overhead", "foreign", "image"]; // Old name.

function pool(total, free, held, models = []) {
  const pages = Object.fromEntries(KINDS.map((kind) => [kind, { reserved: held[kind] ?? 0, held: held[kind] ?? 0 }]));
  return { pages_total: total, pages_free: free, pages, models };
}

test("figures are given in the unit that reads best", () => {
  assert.equal(bytes(0), "0 B");
  assert.equal(bytes(1536), "1.50 KiB");
  assert.equal(bytes(80 * 2 ** 30), "80.0 GiB");
  assert.equal(duration(0.0605), "61 µs");
  assert.equal(duration(4.4617), "4.5 ms");
  assert.equal(duration(123.4), "123 ms");
  assert.equal(duration(12_345), "12.3 s");
  assert.equal(duration(3_725_000), "1 h 2 min");
});

test("a list keeps its elements, in the new order", () => {
  const parent = element("ul");
  const show = (items) => list(parent, items, (item) => item, () => element("li"), (child, item) => say(child, item));
  show(["a", "b", "c"]);
  const [a, , c] = parent.children;
  show(["c", "d", "a"]);
  assert.deepEqual([...parent.children].map((child) => child.textContent), ["c", "d", "a"]);
  assert.equal(parent.children[0], c);
  assert.equal(parent.children[2], a);
});

test("a model that is fetched says how far it is", () => {
  const fetch = { from: "s3://models/a", bytes: 2 ** 20, total_bytes: 3 * 2 ** 20, bytes_per_second: 2.2 * 2 ** 20 };
  assert.equal(state_text({ status: { residency: "serving", failed: false, fetch } }),
    "fetching: 1.00 MiB of 3.00 MiB, 2.20 MiB a second");
  assert.equal(state_text({ status: { residency: "loading", failed: false, progress: 0.5 } }), "loading 50 %");
});

test("a model is found by parts of its name, state and device", () => {
  const model = { id: "Org/Qwen3-8B", status: { residency: "host_cached", device: "gpu1", failed: false } };
  for (const wanted of ["", "qwen", "8b gpu1", "host cached"]) {
    assert.ok(matches(model, wanted), wanted);
  }
  assert.ok(!matches(model, "qwen gpu0"));
});

test("with many models there is a field to find one", () => {
  const models = Array.from({ length: 20 }, (_, i) => ({ id: `m${i}`, status: { residency: "absent", failed: false } }));
  const field = element("label", {}, element("input"));
  const root = element("tbody");
  const heard = { complain: assert.fail, look_into: assert.fail };
  show_models(root, models, [], [], field, heard);
  assert.equal(root.children.length, 20);
  assert.ok(!field.hidden);
  field.firstChild.value = "m1";
  show_models(root, models, [], [], field, heard);
  assert.equal(root.children.length, 11);
  show_models(root, models.slice(0, 3), [], [], field, heard);
  assert.equal(root.children.length, 3);
  assert.ok(field.hidden);
});

test("the pages of a device are told apart by owner, and add up", () => {
  const models = [
    { model: "a", external: false, weights_pages: 20, kv_pages: 5 },
    { model: "b", external: false, weights_pages: 10, kv_pages: 0 },
  ];
  const { total, parts } = shares(pool(80, 40, { weights_active: 20, weights_idle: 10, kv_own: 5, kv_cached: 2, overhead: 1 }, models));
  assert.equal(total, 80);
  assert.deepEqual(parts, [
    { owner: "a", part: "weights", pages: 20 },
    { owner: "a", part: "kv", pages: 5 },
    { owner: "b", part: "weights", pages: 10 },
    { owner: "cached prefixes", part: "common", pages: 2 },
    { owner: "workspace", part: "common", pages: 1 },
    { owner: "promised", part: "common", pages: 2 },
  ]);
});

test("KV of a model on another device has its colour there", () => {
  const device = { ...pool(80, 58, { kv_guest: 22 }, []), guests: [{ model: "a", device: "b", pages: 22, in_use: 4 }] };
  assert.deepEqual(shares(device), { total: 80, parts: [{ owner: "a", part: "guests", pages: 22 }] });
});

test("an engine's pages count with its device, lent or counted", () => {
  const engine = { model: "v", external: true, weights_pages: 30, kv_pages: 0 };
  const lent = shares(pool(50, 50, {}, [engine]));
  assert.deepEqual(lent, { total: 80, parts: [{ owner: "v", part: "weights", pages: 30 }] });
  const counted = shares(pool(80, 50, { foreign: 30 }, [engine])); // Old name.
  assert.deepEqual(counted, { total: 80, parts: [{ owner: "v", part: "weights", pages: 30 }] });
});

test("neighbours have hues that are far apart", () => {
  const angles = [...hues(["a", "b", "c"].map((id) => ({ id }))).values()];
  const apart = (x, y) => Math.min(Math.abs(x - y), 360 - Math.abs(x - y));
  assert.ok(apart(angles[0], angles[1]) > 60 && apart(angles[1], angles[2]) > 60 && apart(angles[0], angles[2]) > 60);
});

test("what was given up is a step in the picture of the past", () => {
  const of = (pages) => ({ total: 10, parts: pages > 0 ? [{ owner: "a", part: "weights", pages }] : [] });
  const [area] = areas([{ at: 0, ...of(5) }, { at: 10, ...of(0) }], 20);
  assert.equal(
    area.path,
    "M280.0,0.5000L290.0,0.5000L290.0,1.0000L300.0,1.0000L300.0,1.0000L290.0,1.0000L290.0,1.0000L280.0,1.0000Z",
  );
});

test("what was before the page was opened is recalled", () => {
  const device = { ...pool(80, 60, { weights_active: 20 }, [{ model: "a", weights_pages: 20, kv_pages: 0 }]), name: "d", page_bytes: 1 };
  const memory = { devices: [device], host: { pages_total: 0 } };
  recall({ samples: [{ age_ms: 100_000, memory }] });
  const root = element("div");
  show_memory(root, memory, [{ id: "a" }]);
  assert.match(root.querySelector("path").getAttribute("d"), /^M(199|200)\./);
});

test("times to first tokens come from the requests that have one", () => {
  const trace = (prefill_ms, more) => ({
    arrived_ms: 0, running: false, status: 200, parts: [{ phases: { queue_ms: 1, load_ms: 2, prefill_ms, decode_ms: 9, total_ms: 12 + prefill_ms } }], ...more,
  });
  const told = [trace(3), trace(7), trace(100, { status: 503, parts: [] }), trace(50, { running: true, arrived_ms: 99_000 })];
  assert.deepEqual(summary(told, 100_000), { minute: 1, running: 1, p50: 10, p95: 10 });
  assert.equal(phases_of(trace(3)).total_ms, 15);
  assert.equal(phases_of({ parts: [] }).total_ms, 0);
});

test("a stream of events is read whatever its pieces, and its error thrown", async () => {
  const of = (text) => new Response(new Blob([text]).stream().pipeThrough(new TransformStream({
    transform: (chunk, out) => chunk.forEach((byte) => out.enqueue(Uint8Array.of(byte))),
  })));
  const found = [];
  for await (const { text } of events(of(': loading\n\ndata: {"choices":[{"delta":{"content":"á"}}]}\n\ndata: [DONE]\n\n'))) {
    found.push(text);
  }
  assert.deepEqual(found, ["á"]);
  await assert.rejects(async () => {
    for await (const _ of events(of('data: {"error":{"message":"no pages"}}\n\n'))) {
    }
  }, /no pages/);
});

test("a decision keeps its element while it ages", () => {
  const root = element("ol");
  const one = (age_ms) => ({ age_ms, decision: "load", model: "a", device: "cpu0", for: null, why: "a request waits" });
  decisions.show(root, [one(1000)], 10_000);
  const first = root.firstChild;
  decisions.show(root, [one(2001), one(5)], 11_000);
  assert.equal(root.children.length, 2);
  assert.equal(root.children[1], first);
  assert.match(first.textContent, /load a on cpu02.00 s ago: a request waits/);
  assert.equal(document.querySelectorAll("#decisions").length, 1);
});
