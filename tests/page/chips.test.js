// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import {
  axisName,
  axisStyle,
  axisText,
  shapeText,
  shardingText,
  shortened,
  specText,
} from "../../shardviz/page/static/chips.js";

test("an axis says its name, a part of one its place and size too", () => {
  assert.equal(axisText("data"), "data");
  assert.equal(axisText(["data", 2, 4]), "data:(2)4");
  assert.equal(axisName(["data", 2, 4]), "data");
});

test("a part of an axis has the axis's colour, an unknown axis is grey", () => {
  const data = { name: "data", size: 8, type: "auto", light: "#111", dark: "#222", ink: "#333", dark_ink: "#444" };
  const ctx = { get: () => /** @type {any} */ ({ axes: [data] }) };
  assert.deepEqual(axisStyle(ctx, ["data", 2, 4]), { "--c": "#111", "--cd": "#222", "--i": "#333", "--id": "#444" });
  assert.deepEqual(axisStyle(ctx, "model"), axisStyle(ctx, null));
});

test("a spec is said dimension by dimension", () => {
  assert.equal(specText([["data", "model"], [], [["x", 1, 2]]]), "data and model, not sharded, x:(1)2");
  assert.equal(specText([]), "");
  assert.equal(shardingText([]), "not sharded");
});

test("a shape stands in brackets", () => {
  assert.equal(shapeText([8, 16]), "[8, 16]");
  assert.equal(shapeText([]), "[]");
});

test("only long names are shortened", () => {
  assert.equal(shortened("a".repeat(24)), "a".repeat(24));
  assert.equal(shortened("a".repeat(25)), `${"a".repeat(23)}…`);
});
