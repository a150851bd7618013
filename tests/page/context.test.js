// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { context, queued } from "../../shardviz/widgets/static/context.js";

/**
 * A model that stands for the kernel's.
 * @param {Record<string, any>} traits
 */
function model(traits) {
  /** @type {Map<string, Set<() => void>>} */
  const listeners = new Map();
  return {
    get: (/** @type {string} */ key) => traits[key],
    set(/** @type {string} */ key, /** @type {any} */ value) {
      traits[key] = value;
      for (const listener of listeners.get(`change:${key}`) || []) listener();
    },
    save_changes() {},
    send() {},
    on: (/** @type {string} */ event, /** @type {() => void} */ listener) =>
      void listeners.set(event, (listeners.get(event) || new Set()).add(listener)),
    off: (/** @type {string} */ event, /** @type {() => void} */ listener) =>
      void listeners.get(event)?.delete(listener),
    listening: () => [...listeners.values()].reduce((n, all) => n + all.size, 0),
  };
}

test("an edit's number follows the last answered and the last sent", () => {
  assert.deepEqual(queued([], 0, { op: "undo" }), [{ op: "undo", seq: 1 }]);
  assert.deepEqual(queued([], 7, { op: "undo" }), [{ op: "undo", seq: 8 }]);
  assert.deepEqual(queued([{ seq: 8 }, { seq: 9 }], 7, { op: "undo" }).map((e) => e.seq), [8, 9, 10]);
});

test("what is answered is not sent again", () => {
  assert.deepEqual(queued([{ seq: 8 }, { seq: 9 }], 8, { op: "undo" }).map((e) => e.seq), [9, 10]);
  assert.deepEqual(queued([{ seq: 8 }, { seq: 9 }], 9, { op: "undo" }).map((e) => e.seq), [10]);
});

test("edits wait in order until the kernel answers", () => {
  const kernel = model({ edits: [], status: { seq: 0 } });
  const ctx = context(kernel);
  assert.equal(ctx.edit({ op: "undo" }), 1);
  assert.equal(ctx.edit({ op: "redo" }), 2);
  assert.deepEqual(kernel.get("edits"), [{ op: "undo", seq: 1 }, { op: "redo", seq: 2 }]);
  kernel.set("status", { seq: 2 });
  assert.equal(ctx.edit({ op: "stop" }), 3);
  assert.deepEqual(kernel.get("edits"), [{ op: "stop", seq: 3 }]);
});

test("a hidden tab is drawn once, when it is shown", () => {
  const kernel = model({ tab: "source" });
  const ctx = context(kernel);
  let drawn = 0;
  const draw = () => void (drawn += 1);
  ctx.when("values", draw);
  ctx.when("values", draw);
  assert.equal(drawn, 0);
  ctx.setTab("values");
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
  const kernel = { ...model({ comm_id: "1" }), widget_manager: { get_model: () => Promise.reject(new Error("gone")) } };
  const ctx = context(kernel);
  const told = new Promise((resolve) => ctx.on("gone", () => resolve(true)));
  ctx.watchKernel();
  assert.ok(await told);
  assert.ok(ctx.gone);
});
