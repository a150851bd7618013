// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { lightness } from "../../shardviz/page/static/host.js";

test("the lightness of the colours that browsers compute", () => {
  assert.equal(lightness("rgb(255, 255, 255)"), 1);
  assert.equal(lightness("rgb(0, 0, 0)"), 0);
  assert.ok(/** @type {number} */ (lightness("rgb(24, 26, 27)")) < 0.15);
  assert.ok(/** @type {number} */ (lightness("color(srgb 0.9 0.9 0.9)")) > 0.85);
  assert.ok(/** @type {number} */ (lightness("oklch(0.2 0.02 250)")) < 0.5);
  assert.ok(/** @type {number} */ (lightness("lab(90 1 2)")) > 0.5);
});

test("what hardly covers says nothing", () => {
  assert.equal(lightness("rgba(0, 0, 0, 0)"), null);
  assert.equal(lightness("rgba(0, 0, 0, 0.2)"), null);
  assert.equal(lightness("transparent"), null);
  assert.equal(lightness("rgba(0, 0, 0, 0.9)"), 0);
});
