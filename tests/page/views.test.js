// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { counts, plural, restTexts } from "../../shardviz/widgets/static/head.js";
import { cellNumber, cellOf, coordinates, indexText } from "../../shardviz/widgets/static/shards.js";
import { heatText, shownLines } from "../../shardviz/widgets/static/source.js";

/** @import { Head, MeshAxis, Side } from "../../shardviz/widgets/static/types.d.ts" */

test("one is not plural", () => {
  assert.equal(plural(1, "note"), "1 note");
  assert.equal(plural(0, "note"), "0 notes");
  assert.equal(counts(3, 0), "3 problems");
  assert.equal(counts(1, 2), "1 problem · 2 notes");
});

test("what had no room in the headline is said first, then what is too little", () => {
  const data = /** @type {Head} */ ({
    moved: [
      { axes: ["data"], text: "4 GB", title: "" },
      { axes: null, text: "2 GB", title: "" },
      { axes: ["model", ["data", 1, 2]], text: "1 GB", title: "" },
    ],
    moved_rest: ["pod: 1 kB"],
  });
  assert.deepEqual(restTexts(data, 0), ["pod: 1 kB"]);
  assert.deepEqual(restTexts(data, 2), ["no product of axes: 2 GB", "model, data:(1)2: 1 GB", "pod: 1 kB"]);
});

// Two panels of 2 rows and 3 columns.
const labels = [[["0", "1", "2"], ["3", "4", "5"]], [["6", "7", "8"], ["9", "10", "11"]]];

test("a cell and its number are each other's", () => {
  for (let number = 0; number < 12; number += 1) {
    const cell = cellOf({ labels, cells: [number] }, 0);
    assert.ok(cell);
    assert.equal(labels[cell.panel][cell.row][cell.column], String(number));
    assert.equal(cellNumber({ labels }, cell), number);
  }
});

test("a device that holds nothing, or is none, has no cell", () => {
  assert.equal(cellOf({ labels, cells: [-1] }, 0), null);
  assert.equal(cellOf({ labels, cells: [0] }, -1), null);
  assert.equal(cellOf({ labels, cells: [0] }, 1), null);
});

test("a cell's index has the slices of its row and column where these are cut", () => {
  const side = (/** @type {Partial<Side>} */ some) => /** @type {Side} */ ({ dimension: null, cut: false, ...some });
  const panels = [{ text: "", index: ["2", ":", ":"] }];
  const rows = side({ dimension: 1, cut: true, slices: ["0:4", "4:8"] });
  const columns = side({ dimension: 2, cut: false, slices: [":"] });
  assert.equal(indexText({ panels, rows, columns }, { panel: 0, row: 1, column: 0 }), "2, 4:8, :");
  assert.equal(indexText({ panels, rows: side({}), columns }, { panel: 0, row: 0, column: 0 }), "2, :, :");
});

test("the last mesh axis is the fastest, also where devices are in another order", () => {
  const axes = /** @type {MeshAxis[]} */ ([{ name: "data", size: 2 }, { name: "model", size: 4 }]);
  assert.deepEqual(coordinates({ axes, ids: [] }, 6), [{ name: "data", at: 1 }, { name: "model", at: 2 }]);
  const ids = [7, 6, 5, 4, 3, 2, 1, 0];
  assert.deepEqual(coordinates({ axes, ids }, 6), [{ name: "data", at: 0 }, { name: "model", at: 1 }]);
});

test("source is shown without its common indent and empty lines; a gap where more than two lines are left out", () => {
  const lines = [
    { n: 10, text: "    def f():" },
    { n: 11, text: "" },
    { n: 13, text: "        return x" },
    { n: 17, text: "    y" },
  ];
  assert.deepEqual(shownLines(lines).map(({ code, gap }) => [code, gap]), [
    ["def f():", false],
    ["    return x", false],
    ["y", true],
  ]);
  assert.deepEqual(shownLines([]), []);
});

test("a line says what it costs", () => {
  assert.equal(heatText({ n: 1, text: "" }, "communication"), "nothing moves here");
  const line = { n: 1, text: "", compute: "2 ms", seconds: "1 ms", moved: "4 MB" };
  assert.equal(
    heatText(line, "communication"),
    "2 ms of compute, 1 ms of communication, 4 MB moved per device in a step",
  );
});
