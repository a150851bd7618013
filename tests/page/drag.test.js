// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { dragAxis, dropAxis } from "../../shardviz/page/static/drag.js";

/** An element as far as dragging needs one. */
class Element extends EventTarget {
  classes = new Set();
  /** @type {(string | null)[]} */
  heard = [];
  classList = {
    add: (/** @type {string} */ name) => this.classes.add(name),
    remove: (/** @type {string} */ name) => this.classes.delete(name),
  };
  setAttribute() {}
  /** @param {{ dispatchEvent: (e: CustomEvent) => void }} [root] */
  constructor(root) {
    super();
    this.root = root ?? { dispatchEvent: (/** @type {CustomEvent} */ e) => void this.heard.push(e.detail) };
  }
  closest() {
    return this.root;
  }
  /** @param {string} type */
  send(type) {
    const event = new Event(type, { cancelable: true });
    const dataTransfer = { setData() {}, setDragImage() {} };
    this.dispatchEvent(Object.assign(event, { dataTransfer }));
    return event.defaultPrevented; // whether a drop is taken
  }
}

/** @param {Element} element */
const html = (element) => /** @type {HTMLElement} */ (/** @type {unknown} */ (element));

test("a slot takes the axes that it may, while one is in the air", () => {
  const handle = new Element();
  const slot = new Element(handle.root);
  /** @type {string[]} */
  const taken = [];
  let legal = false;
  dragAxis(html(handle), "data");
  dropAxis(html(slot), () => legal, (axis) => taken.push(axis));

  assert.equal(slot.send("dragover"), false); // nothing is in the air
  handle.send("dragstart");
  assert.equal(slot.send("dragover"), false);
  slot.send("drop");
  assert.deepEqual(taken, []);

  legal = true;
  assert.equal(slot.send("dragover"), true);
  assert.ok(slot.classes.has("sv-over"));
  slot.send("drop");
  assert.deepEqual(taken, ["data"]);
  assert.ok(!slot.classes.has("sv-over"));

  handle.send("dragend");
  slot.send("drop");
  assert.deepEqual(taken, ["data"]);
  assert.deepEqual(handle.heard, ["data", null]);
});

test("what was taken up on one explorer is not dropped on another one", () => {
  const handle = new Element();
  const slot = new Element();
  /** @type {string[]} */
  const taken = [];
  dragAxis(html(handle), "data");
  dropAxis(html(slot), () => true, (axis) => taken.push(axis));
  handle.send("dragstart");
  assert.equal(slot.send("dragover"), false);
  slot.send("drop");
  assert.deepEqual(taken, []);
  handle.send("dragend");
});
