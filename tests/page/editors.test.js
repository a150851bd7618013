// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { choiceText, isLegal, leavesOf, swapped, twinsText, withTwins } from "../../shardviz/widgets/static/menu.js";
import { halved, parseSize } from "../../shardviz/widgets/static/mesh.js";
import { visibleRows } from "../../shardviz/widgets/static/specs.js";
import { neighbour } from "../../shardviz/widgets/static/target.js";

/** @import { Branch, Leaf, MeshAxis } from "../../shardviz/widgets/static/types.d.ts" */

const DATA = /** @type {MeshAxis} */ ({ name: "data", size: 4 });

test("the menu says what an axis would do, or why it may not", () => {
  assert.equal(choiceText(1, DATA), "cut 4 ways");
  assert.equal(choiceText(["cuts dimension 1 now"], DATA), "move it here: it cuts dimension 1 now");
  assert.equal(choiceText("6 does not divide by 4", DATA), "6 does not divide by 4");
});

test("only a reason is illegal", () => {
  assert.ok(isLegal(1));
  assert.ok(isLegal(["cuts dimension 1 now"]));
  assert.ok(!isLegal("6 does not divide by 4"));
  assert.ok(!isLegal(undefined)); // an axis that the kernel has not answered for
});

test("axes change places", () => {
  const axes = ["a", "b", "c"];
  assert.deepEqual(swapped(axes, 1, 0), ["b", "a", "c"]);
  assert.deepEqual(swapped(axes, 1, 2), ["a", "c", "b"]);
  assert.deepEqual(axes, ["a", "b", "c"]);
});

test("an edit speaks of twins where there are some", () => {
  const row = (/** @type {string[] | undefined} */ twins) => /** @type {Leaf} */ ({ twins });
  assert.deepEqual(withTwins(row(undefined), true), {});
  assert.deepEqual(withTwins(row([]), true), {});
  assert.deepEqual(withTwins(row(["w2"]), false), { twins: false });
  assert.equal(twinsText(["w2"]), "w2");
  assert.equal(twinsText(["w2", "w3"]), "its 2 twins, such as w2");
});

test("digits are a number, anything else goes to the kernel as it is", () => {
  assert.equal(parseSize("16"), 16);
  assert.equal(parseSize("1e3"), "1e3");
  assert.equal(parseSize("-2"), "-2");
  assert.equal(parseSize(""), "");
});

test("half of an odd number is one less, and never none", () => {
  assert.deepEqual([8, 7, 3, 2, 1].map(halved), [4, 6, 2, 1, 1]);
});

test("what lies under a closed branch is not seen", () => {
  const branch = (/** @type {string} */ path, /** @type {number} */ depth) => /** @type {Branch} */ ({
    path,
    depth,
    leaves: 2,
  });
  const leaf = (/** @type {string} */ path, /** @type {number} */ depth) => /** @type {Leaf} */ ({ path, depth });
  const rows = [branch("a", 0), branch("a.b", 1), leaf("a.b.x", 2), leaf("a.y", 1), branch("c", 0), leaf("c.z", 1)];
  const seen = (/** @type {string[]} */ ...closed) =>
    visibleRows(rows, ({ path }) => closed.includes(path)).map(({ path }) => path);
  assert.deepEqual(seen(), ["a", "a.b", "a.b.x", "a.y", "c", "c.z"]);
  assert.deepEqual(seen("a"), ["a", "c", "c.z"]);
  assert.deepEqual(seen("a.b"), ["a", "a.b", "a.y", "c", "c.z"]);
  assert.deepEqual(seen("a", "a.b", "c"), ["a", "c"]);
  assert.deepEqual(leavesOf({ rows, hidden: 0, leaves: 3 }).map(({ path }) => path), ["a.b.x", "a.y", "c.z"]);
});

test("arrows go through rows of different lengths", () => {
  const rows = [["field"], ["1", "2", "3"], ["4"]];
  assert.equal(neighbour(rows, "field", "ArrowDown"), "1");
  assert.equal(neighbour(rows, "3", "ArrowDown"), "4");
  assert.equal(neighbour(rows, "3", "ArrowUp"), "field");
  assert.equal(neighbour(rows, "1", "ArrowRight"), "2");
  assert.equal(neighbour(rows, "2", "ArrowLeft"), "1");
  for (const [from, key] of [["1", "ArrowLeft"], ["3", "ArrowRight"], ["4", "ArrowDown"], ["1", "Enter"]]) {
    assert.equal(neighbour(rows, from, key), null);
  }
  assert.equal(neighbour(rows, null, "ArrowDown"), "field");
  assert.equal(neighbour(rows, null, "ArrowLeft"), null);
});
