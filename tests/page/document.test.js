// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { fitted, pieces, plain, spaced, stacked, widths } from "../../shardviz/page/static/words.js";

test("words alone are sent as a string, a bar without any", () => {
  assert.deepEqual(pieces("w"), [{ t: "w" }]);
  assert.deepEqual(pieces(["over", { t: "data", k: "axes", v: ["data"] }]), [
    { t: "over" },
    { t: "data", k: "axes", v: ["data"] },
  ]);
  assert.deepEqual(pieces({ k: "bar", v: [] }), [{ t: "", k: "bar", v: [] }]);
});

test("pieces have a space between them, but before a comma or the like", () => {
  assert.equal(plain(["fits", { t: "v5p", k: "code" }, ": 2 GB", "of 3 GB"]), "fits v5p: 2 GB of 3 GB");
  assert.equal(plain({ t: "model.py:20", k: "line", v: "q = x @ w" }), "model.py:20 q = x @ w");
  assert.deepEqual(spaced([{ t: "a" }, { t: ";" }, { t: "b" }], [1, 2, 3]), [1, 2, " ", 3]);
});

test("only what is quieter goes below a row's name", () => {
  const kind = { t: "all-gather", b: true };
  const line = /** @type {const} */ ({ t: "model.py:20", k: "line", q: true });
  assert.deepEqual(stacked([kind, { t: "forward", q: true }, line]).below.map(({ t }) => t), [
    "forward",
    "model.py:20",
  ]);
  assert.deepEqual(stacked([{ t: "over", q: true }, { t: "data", k: "axes", v: ["data"] }]).below, []);
  assert.deepEqual(stacked("w").below, []);
});

test("a column is as wide as its longest cell, within reason", () => {
  const columns = [{ title: "name" }, { title: "bytes", right: true }, { title: "" }, { title: "how", wrap: true }];
  const bar = { k: /** @type {const} */ ("bar"), v: [{ share: 1 }] };
  const rows = [
    { cells: ["w", "1 GB", bar, "short"] },
    { cells: ["x".repeat(99), "1 GB", bar, "y".repeat(99)] },
  ];
  assert.deepEqual(widths({ columns, rows }), [46, 12, 18, 52]);
  assert.deepEqual(widths({ columns, rows: [] }), [6, 12, 6, 6]);
  const kinds = ["argument", "temporary"].map((kind) => ({ cells: ["w", kind] }));
  assert.deepEqual(widths({ columns: [{ title: "name" }, { title: "kind" }], rows: kinds }), [6, 16]);
});

test("no head runs into the next column, however little room its numbers want", () => {
  const columns = ["what", "collective", "runs", "difference", "line"].map((title) => ({ title }));
  const wanted = [9, 36, 12, 12, 92];
  const pixels = (/** @type {number[]} */ chars) => {
    const all = chars.reduce((sum, n) => sum + n, 0);
    return chars.map((n) => 780 * n / all);
  };
  const head = 7 * "difference".length + 12; // a character of 12 pixels is at most 7 wide
  assert.ok(pixels(wanted)[3] < head);
  const fits = pixels(fitted(wanted, columns, 780));
  assert.ok(fits[3] >= head && fits[4] > fits[1] && fits[1] > fits[0]);
  assert.deepEqual(fitted([20, 20], columns.slice(0, 2), 780), [20, 20]);
});
