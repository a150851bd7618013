// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { dragged, dropped } from "../../shardviz/page/static/drag.js";

/** An explorer as far as dragging needs one: what it heard is in the air. */
function explorer() {
  /** @type {unknown[]} */
  const heard = [];
  return { heard, put: (/** @type {string} */ _, /** @type {unknown} */ axis) => void heard.push(axis) };
}

/** An element with these listeners. @param {Record<string, any>} listeners */
function element(listeners) {
  const classes = new Set();
  const classList = {
    toggle: (/** @type {string} */ name, /** @type {boolean} */ on) => on ? classes.add(name) : classes.delete(name),
  };
  const currentTarget = { classList, ownerDocument: { addEventListener() {} } };
  /** Whether an event is taken. @param {string} type */
  function send(type) {
    let taken = false;
    const preventDefault = () => void (taken = true);
    const dataTransfer = { setData() {} };
    listeners[`on${type}`]({ currentTarget, dataTransfer, preventDefault, stopPropagation() {} });
    return taken;
  }
  return { classes, send };
}

test("a slot takes the axes that it may, while one is in the air", () => {
  const ctx = explorer();
  /** @type {string[]} */
  const taken = [];
  let legal = false;
  const handle = element(dragged(ctx, "data"));
  const slot = element(dropped(ctx, () => legal, (axis) => taken.push(axis)));

  assert.equal(slot.send("dragover"), false); // nothing is in the air
  handle.send("dragstart");
  assert.equal(slot.send("dragover"), false);
  slot.send("drop");
  assert.deepEqual(taken, []);

  legal = true;
  assert.equal(slot.send("dragover"), true);
  assert.ok(slot.classes.has("sv-aimed"));
  slot.send("drop");
  assert.deepEqual(taken, ["data"]);
  assert.ok(!slot.classes.has("sv-aimed"));

  handle.send("dragend");
  slot.send("drop");
  assert.deepEqual(taken, ["data"]);
  assert.deepEqual(ctx.heard, ["data", ""]);
});

test("what was taken up on one explorer is not dropped on another one", () => {
  /** @type {string[]} */
  const taken = [];
  const handle = element(dragged(explorer(), "data"));
  const slot = element(dropped(explorer(), () => true, (axis) => taken.push(axis)));
  handle.send("dragstart");
  assert.equal(slot.send("dragover"), false);
  slot.send("drop");
  assert.deepEqual(taken, []);
  handle.send("dragend");
});
