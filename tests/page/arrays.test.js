// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { Arrays, moved, nodesOf, withDim } from "../../shardviz/page/static/arrays.js";
import { twinsWords } from "../../shardviz/page/static/choices.js";
import { itemsOf } from "../../shardviz/page/static/tree.js";
import { secondsText } from "../../shardviz/page/static/waits.js";

/** @import { Shardings, Dims, Kind, Tree, View } from "../../shardviz/page/static/types.d.ts" */

/** Two trees of two alike layers with a weight each, and an input. @type {Tree} */
const TREE = {
  leaves: 6,
  rows: [
    [0, "p", "p"],
    [1, "['layers']", "layers"],
    [2, "[0]", "[0]", 0],
    [3, "['w']", "w", [8, 8], "f32", true],
    [3, "['b']", "b", [8], "f32", true],
    [2, "[1]", "[1]", 0],
    [3, "['w']", "w", [8, 8], "f32", true],
    [3, "['b']", "b", [8], "f32", true],
    [0, "mu", "mu"],
    [1, "['w']", "w", [8, 8], "f32", false],
    [0, "x", "x", [16, 8], "f32", false],
  ],
};

/** @param {Dims} dims @param {number} [size] */
const kind = (dims, size = 1) => /** @type {Kind} */ ({
  dims,
  size,
  text: "",
  bytes: "",
  memory: "device",
  choices: [],
});

function arrays() {
  /** @type {Shardings} */
  const shardings = {
    kinds: [kind([["data"], ["model"]], 4), kind([[]]), kind([[], []], 9)],
    at: [0, 1, 0, 1, 0, 2],
    sums: ["", "", "", "", ""],
  };
  const groups = {
    twins: [0, 1, 0, 1, 0, -1],
    dimensions: [["d", "k"], ["k"], ["d", "k"], ["k"], ["d", "k"], ["b", "d"]],
  };
  return new Arrays(nodesOf(TREE), shardings, groups);
}

/** @param {Partial<View> & { open?: string[], shut?: string[] }} [view] */
function keys({ open = [], shut = [], ...view } = {}) {
  const isClosed = (/** @type {string} */ key) => shut.includes(key);
  const isOpen = (/** @type {string} */ key) => open.includes(key);
  return itemsOf(arrays(), { text: "", filter: "", isClosed, isOpen, ...view }).map(({ key }) => key);
}

test("a tree that was sent has paths, and says where each branch ends", () => {
  const nodes = nodesOf(TREE);
  assert.equal(nodes[6].path, "p['layers'][1]['w']");
  assert.equal(nodes[6].own, "p['layers'][*]['w']");
  assert.deepEqual(nodes.slice(0, 3).map(({ end, count }) => [end, count]), [[8, 4], [8, 4], [5, 2]]);
  assert.deepEqual(nodes.filter(({ place }) => place !== undefined).map(({ place }) => place), [0, 1, 2, 3, 4, 5]);
});

test("layers that are alike are one row, which unfolds", () => {
  const stack = "p['layers'][*]";
  const all = ["p", "p['layers']", `${stack}*false`, `${stack}['w']`, `${stack}['b']`, `${stack}*falseeach`];
  const rest = ["mu", "mu['w']", "x"];
  assert.deepEqual(keys(), [...all, ...rest]);
  assert.deepEqual(keys({ open: [`${stack}*falseeach`, "p['layers'][1]"] }), [
    ...all,
    "p['layers'][0]",
    "p['layers'][1]",
    "p['layers'][1]['w']",
    "p['layers'][1]['b']",
    ...rest,
  ]);
  assert.deepEqual(keys({ shut: ["p['layers']"] }), ["p", "p['layers']", ...rest]);
});

test("a row of all layers is as most of them are, and counts the others", () => {
  const odd = arrays();
  odd.ask({ op: "set_dim", name: "p['layers'][1]['b']", dimension: 0, axes: ["data"] }, "inputs");
  const rows = itemsOf(odd, { text: "b", filter: "", isClosed: () => false, isOpen: () => false });
  assert.deepEqual(rows.map(({ count, odd, shown }) => [count, odd, shown]), [[2, 1, 1]]);
});

test("what is searched for or filtered is a flat list, each array of the layers once", () => {
  const stack = "p['layers'][*]";
  assert.deepEqual(keys({ text: "W" }), [`${stack}['w']`, "mu['w']"]);
  assert.deepEqual(keys({ text: "p [1] w" }), ["p['layers'][1]['w']"]);
  assert.deepEqual(keys({ filter: "replicated" }), [`${stack}['b']`, "x"]);
  assert.deepEqual(keys({ filter: "largest" })[0], "x");
  assert.deepEqual(keys({ filter: "=b" }), ["x"]);
  assert.deepEqual(keys({ text: "nothing" }), []);
});

test("an edit that is not answered shows at once, on twins too, where they are sharded alike", () => {
  const shardings = (/** @type {Arrays} */ all) => all.leaves.map((_, place) => JSON.stringify(all.dims(place)));
  const before = shardings(arrays());
  const ask = (/** @type {object} */ edit) => {
    const now = arrays();
    now.ask(/** @type {any} */ (edit), "inputs");
    return shardings(now).map((each, place) => (each === before[place] ? "" : each));
  };
  const name = "p['layers'][0]['w']";
  const move = { op: "move_axis", name, axis: "data", dimension: 1 };
  const after = '[[],["model","data"]]';
  assert.deepEqual(ask(move), [after, "", "", "", "", ""]);
  assert.deepEqual(ask({ ...move, twins: true }), [after, "", after, "", after, ""]);
  assert.deepEqual(ask({ ...move, layers: true }), [after, "", after, "", "", ""]);
  const dimension = { op: "shard_dimension", name: "k", axes: ["data"] };
  assert.deepEqual(ask(dimension), ['[[],["data"]]', '[["data"]]', '[[],["data"]]', '[["data"]]', '[[],["data"]]', ""]);
  for (const op of ["undo", "set_dim"]) assert.deepEqual(ask({ op, name: "nowhere" }), ["", "", "", "", "", ""]);
});

test("an axis moves within a spec, or a dimension gets others", () => {
  assert.deepEqual(moved([["a"], ["b"]], "a", 1), [[], ["b", "a"]]);
  assert.deepEqual(moved([["a"], ["b"]], "a", 1, 0), [[], ["a", "b"]]);
  assert.deepEqual(moved([[["a", 1, 2]], []], "a", 1), [[], ["a"]]);
  assert.deepEqual(withDim([["a"], ["b"]], 0, ["c"]), [["c"], ["b"]]);
});

test("the time since an edit is said in tenths of a second", () => {
  assert.equal(secondsText(40), "0.0 s");
  assert.equal(secondsText(1260), "1.3 s");
});

test("an edit reaches other layers, or optimizer state, only where there are some", () => {
  const [all, layers, none] = [[0, 1, 0, 1, 0, -1], [0, 1, 0, 1, 2, -1], [0, -1, -1, -1, -1, 3]].map((twins) =>
    twinsWords(new Arrays(nodesOf(TREE), arrays().shardings, { twins }))
  );
  assert.deepEqual([all, layers, none], ["optimizer state too", "other layers too", ""]);
});
