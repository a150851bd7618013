// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { unpacked } from "../../shardviz/widgets/static/packed.js";

test("what is said once stands everywhere it belongs", () => {
  const told = { keys: [["t"], ["n", "on"]], table: ["model", [1, 0]], value: [0, 1, 1, [-1, 3], [2, "4", [0, 1]]] };
  const model = { t: "model" };
  assert.deepEqual(unpacked(told), [model, model, 3, { n: "4", on: [model] }]);
});

test("numbers, truths and nothing stay what they are", () => {
  const told = { keys: [], table: [], value: [0, [-1, 0], [-2, 1, 2], true, null, "", [0]] };
  assert.deepEqual(unpacked(told), [0, [1, 2], true, null, "", []]);
});

test("what is packed is read once, and what is not packed stays", () => {
  const told = { keys: [], table: [], value: [0, "a"] };
  assert.equal(unpacked(told), unpacked(told));
  const plain = { document: { blocks: [] } };
  assert.equal(unpacked(plain), plain);
  assert.equal(unpacked(undefined), undefined);
  assert.equal(unpacked(""), "");
});
