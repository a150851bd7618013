// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { moves } from "../../shardviz/page/static/rules.js";
import { gaps, heatOf } from "../../shardviz/page/static/source.js";

test("a gap is shown where more than two lines are left out", () => {
  assert.deepEqual(gaps([10, 13, 17]), [false, false, true]);
  assert.deepEqual(gaps([]), []);
});

test("a line is as hot as the parts of its bar together", () => {
  assert.equal(heatOf({ n: "1", bar: [{ share: 0.25, role: "work" }, { share: 0.5, role: "moved" }] }), 0.75);
  assert.equal(heatOf({ n: "1" }), 0);
});

test("a rule moves where there is a place, and can always be removed", () => {
  const edits = (/** @type {number} */ place, /** @type {number} */ count) => moves(place, count).map(([, , , e]) => e);
  const remove = (/** @type {number} */ place) => ({ op: "remove_rule", place });
  assert.deepEqual(edits(0, 1), [null, null, remove(0)]);
  assert.deepEqual(edits(1, 3), [
    { op: "move_rule", place: 1, to: 0 },
    { op: "move_rule", place: 1, to: 2 },
    remove(1),
  ]);
  assert.deepEqual(edits(2, 3)[1], null);
});
