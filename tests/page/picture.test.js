// @ts-check
import test from "node:test";
import assert from "node:assert/strict";
import { nearest, tips } from "../../shardviz/page/static/items.js";

test("a tip's words are put into its template", () => {
  const shape = { tip: "{} sends {} nothing", words: ["a", "b"], tip_parts: [0, 1, 1, 0] };
  assert.deepEqual(tips(shape), ["a sends b nothing", "b sends a nothing"]);
  assert.deepEqual(tips({}), []);
});

test("an arrow leads to the nearest box in its direction, straight ahead before aslant", () => {
  const at = (/** @type {number[][]} */ places) => places.map(([x, y]) => ({ x, y, w: 8, h: 8 }));
  const boxes = at([[0, 0], [30, 0], [10, 10], [0, 10]]);
  assert.equal(nearest(boxes, 0, [1, 0]), 1);
  assert.equal(nearest(boxes, 0, [0, 1]), 3);
  assert.equal(nearest(boxes, 0, [-1, 0]), -1);
});
