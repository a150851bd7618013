// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { axisOf, marked } from "../../shardviz/page/static/marked.js";
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

test("a piece is an axis where it names one and nothing else", () => {
  const names = ["data", "I_x", "m"];
  for (const piece of ["data", "'data'", '"data"', "data:(2)4"]) assert.equal(axisOf(piece, "sdy", names), "data");
  assert.equal(axisOf("J_data", "book", names), "data");
  assert.equal(axisOf("J_data", "sdy", names), null);
  assert.equal(axisOf("devices=[2]", "hlo-v2", names), null);
});

test("nothing of a text is lost by marking it, and only whole words are marked", () => {
  const parts = (/** @type {string} */ text, /** @type {string[]} */ ...letters) => marked(text, letters);
  for (const text of ["", "P('data', None)", "data data_2 data", "[a,a]"]) {
    for (const letters of [[], ["data"], ["data", "None"], ["a", "a"], ["…"], ["", "P"]]) {
      assert.equal(marked(text, letters).map(({ part }) => part).join(""), text);
    }
  }
  assert.deepEqual(parts("data_2 data", "data").map(({ letter }) => letter), [-1, 0]);
  assert.deepEqual(parts("[a, b]", "a", "b"), [
    { part: "[", letter: -1 },
    { part: "a", letter: 0 },
    { part: ", ", letter: -1 },
    { part: "b", letter: 1 },
    { part: "]", letter: -1 },
  ]);
});

test("the same piece twice has its meanings in order; where their numbers differ none is known", () => {
  assert.deepEqual(marked("{}, {}", ["{}", "{}"]).map(({ letter }) => letter), [0, -1, 1]);
  assert.deepEqual(marked("{}, {}, {}", ["{}", "{}"]).map(({ letter }) => letter), [null, -1, null, -1, null]);
});
