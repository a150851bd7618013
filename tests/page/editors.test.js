// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { ordering } from "../../shardviz/page/static/machine.js";
import { choiceText, isLegal, swapped, twinsText } from "../../shardviz/page/static/choices.js";
import { halved, parseSize } from "../../shardviz/page/static/mesh.js";
import { neighbour } from "../../shardviz/page/static/over.js";

/** @import { MeshAxis } from "../../shardviz/page/static/types.d.ts" */

const DATA = /** @type {MeshAxis} */ ({ name: "data", size: 4 });

test("the menu says what an axis would do, or why it may not", () => {
  assert.equal(choiceText(1, DATA), "sharded 4 ways");
  assert.equal(choiceText(1, { ...DATA, size: 1 }), "of size 1: changes nothing");
  assert.equal(choiceText(["shards dimension 1 now"], DATA), "move it here: it shards dimension 1 now");
  assert.equal(choiceText("6 is not divisible by 4", DATA), "6 is not divisible by 4");
});

test("only a reason is illegal", () => {
  assert.ok(isLegal(1));
  assert.ok(isLegal(["shards dimension 1 now"]));
  assert.ok(!isLegal("6 is not divisible by 4"));
  assert.ok(!isLegal(undefined)); // an axis that the kernel has not answered for
});

test("axes change places", () => {
  const axes = ["a", "b", "c"];
  assert.deepEqual(swapped(axes, 1, 0), ["b", "a", "c"]);
  assert.deepEqual(swapped(axes, 1, 2), ["a", "c", "b"]);
  assert.deepEqual(axes, ["a", "b", "c"]);
});

test("twins are named, or counted", () => {
  assert.equal(twinsText(["w2"]), "its twin w2");
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
  assert.equal(neighbour(rows, "elsewhere", "ArrowDown"), "field");
  assert.equal(neighbour(rows, "elsewhere", "ArrowLeft"), null);
});

test("an order of the devices is chosen by its key, or by the axes that stand in each other's place", () => {
  assert.deepEqual(ordering("row-major"), { op: "set_order", order: "row-major" });
  assert.deepEqual(ordering(["data", "model"]), { op: "exchange_axes", one: "data", other: "model" });
  assert.equal(ordering("own"), null); // only its text says which it is
});
