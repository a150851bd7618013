// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { context } from "../../shardviz/page/static/context.js";

/**
 * A model that stands for the kernel's.
 * @param {Record<string, any>} traits
 */
function model(traits) {
  /** @type {Map<string, Set<() => void>>} */
  const listeners = new Map();
  /** @type {any[]} */
  const sent = [];
  return {
    sent,
    get: (/** @type {string} */ key) => traits[key],
    set(/** @type {string} */ key, /** @type {any} */ value) {
      traits[key] = value;
      for (const listener of listeners.get(`change:${key}`) || []) listener();
    },
    save_changes() {},
    send: (/** @type {any} */ message) => void sent.push(message),
    on: (/** @type {string} */ event, /** @type {() => void} */ listener) =>
      void listeners.set(event, (listeners.get(event) || new Set()).add(listener)),
    off: (/** @type {string} */ event, /** @type {() => void} */ listener) =>
      void listeners.get(event)?.delete(listener),
    listening: () => [...listeners.values()].reduce((n, all) => n + all.size, 0),
  };
}

test("every edit is sent once, and waits until the kernel answers with its number", () => {
  const kernel = model({ status: { seq: 7 } });
  const ctx = context(kernel);
  ctx.edit({ op: "undo" });
  ctx.edit({ op: "rename_axis", name: "a" });
  assert.deepEqual(kernel.sent, [{ edit: { op: "undo" }, seq: 8 }, { edit: { op: "rename_axis", name: "a" }, seq: 9 }]);
  assert.deepEqual(ctx.asked().map(({ seq }) => seq), [8, 9]);
  assert.equal(ctx.asked(), ctx.asked());
  kernel.set("status", { seq: 8 });
  assert.deepEqual(ctx.asked().map(({ seq }) => seq), [9]);
  assert.equal(ctx.lastAsked("undo"), undefined);
  assert.equal(ctx.lastAsked("rename_axis", "a")?.seq, 9);
  assert.equal(ctx.lastAsked("rename_axis", "b"), undefined);
  ctx.edit({ op: "stop" });
  assert.equal(kernel.sent[2].seq, 10);
  kernel.set("status", { seq: 10 });
  assert.deepEqual(ctx.asked(), []);
});

test("where a lost edit is followed by one that is answered, nothing waits", () => {
  const kernel = model({ status: { seq: 0 } });
  const ctx = context(kernel);
  ctx.edit({ op: "undo" });
  ctx.edit({ op: "redo" });
  kernel.set("status", { seq: 2 });
  assert.deepEqual(ctx.asked(), []);
});

test("a hidden tab is drawn once, when it is shown", () => {
  const kernel = model({ tab: "source" });
  const ctx = context(kernel);
  let drawn = 0;
  const draw = () => void (drawn += 1);
  ctx.when("values", draw);
  ctx.when("values", draw);
  assert.equal(drawn, 0);
  ctx.set("tab", "values");
  ctx.shown("values");
  ctx.shown("values");
  assert.equal(drawn, 1);
  ctx.when("values", draw);
  assert.equal(drawn, 2);
});

test("a selection says the level at which its name is meant", () => {
  const kernel = model({ selected: "", selected_at: "", status: { level: "compiled" } });
  context(kernel).select("w1");
  assert.equal(kernel.get("selected"), "w1");
  assert.equal(kernel.get("selected_at"), "compiled");
});

test("a page that is closed listens to nothing", () => {
  const kernel = model({});
  const ctx = context(kernel);
  ctx.on("mesh", () => {});
  ctx.on("status", () => {});
  assert.equal(kernel.listening(), 2);
  ctx.close();
  assert.equal(kernel.listening(), 0);
});

test("a kernel whose comm has gone is noticed", async () => {
  const kernel = {
    ...model({ comm_id: "1", status: { seq: 0 } }),
    widget_manager: { get_model: () => Promise.reject(new Error("gone")) },
  };
  const ctx = context(kernel);
  const emitted = new Promise((resolve) => ctx.on("gone", () => resolve(true)));
  ctx.edit({ op: "undo" });
  ctx.watchKernel();
  assert.ok(await emitted);
  assert.ok(ctx.gone && !ctx.asked().length);
  ctx.edit({ op: "undo" });
  assert.equal(kernel.sent.length, 1);
});
