// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { matching } from "../../shardviz/page/static/palette.js";

const found = (/** @type {string} */ kind, /** @type {string} */ words, more = "") => ({ kind, words, more });

test("what has all the words is found, a name that begins with the first before others", () => {
  const all = [
    found("input", "params['wq']", "P('data')"),
    found("input", "wq"),
    found("line", "model.py:3", "q = x @ wq"),
  ];
  assert.deepEqual(matching(all, "WQ").map(({ words }) => words), ["wq", "params['wq']", "model.py:3"]);
  assert.deepEqual(matching(all, "wq data").map(({ words }) => words), ["params['wq']"]);
  assert.deepEqual(matching(all, "nothing"), []);
});

test("no kind hides the others", () => {
  const many = Array.from({ length: 500 }, (_, n) => found("input", `w${n}`));
  const kinds = matching([...many, found("line", "model.py:3", "w")], "w").map(({ kind }) => kind);
  assert.ok(kinds.length < 20 && kinds.includes("line"));
});
