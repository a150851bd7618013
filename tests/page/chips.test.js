// @ts-check
import test from "node:test";
import assert from "node:assert/strict";
import { axisName, axisText, shapeText, shortened, specText } from "../../shardviz/widgets/static/chips.js";

test("an axis says its name, a part of one its place and size too", () => {
  assert.equal(axisText("data"), "data");
  assert.equal(axisText(["data", 2, 4]), "data:(2)4");
  assert.equal(axisName(["data", 2, 4]), "data");
});

test("a spec is said dimension by dimension", () => {
  assert.equal(specText([["data", "model"], [], [["x", 1, 2]]]), "data and model, not cut, x:(1)2");
  assert.equal(specText([]), "");
});

test("a shape stands in brackets", () => {
  assert.equal(shapeText([8, 16]), "[8, 16]");
  assert.equal(shapeText([]), "[]");
});

test("only long names are shortened", () => {
  assert.equal(shortened("a".repeat(24)), "a".repeat(24));
  assert.equal(shortened("a".repeat(25)), `${"a".repeat(23)}…`);
});
