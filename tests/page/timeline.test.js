// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import { itemAt, ruler } from "../../shardviz/page/static/lanes.js";

test("a ruler has round times, in the unit of its step", () => {
  for (
    const [least, step, at, said] of /** @type {[number, number, number, string][]} */ ([
      [0.9, 1, 2, "2 s"],
      [0.13, 0.2, 2.4, "2400 ms"],
      [1.4e-6, 2e-6, 4e-6, "4 µs"],
      [3e-10, 5e-10, 1e-9, "1.0 ns"],
    ])
  ) {
    const found = ruler(least);
    assert.ok(Math.abs(found.step / step - 1) < 1e-9, `${found.step}`);
    assert.equal(found.say(at), said);
  }
});

test("the item at a time, or the nearest within some room", () => {
  const items = [[0, 1], [2, 1], [5, 0]].map(([begin, long]) => ({ begin, long }));
  assert.deepEqual([0, 0.5, 2.5, 5].map((at) => itemAt(items, at, 0)), [0, 0, 1, 2]);
  assert.equal(itemAt(items, 1.5, 0.4), -1);
  assert.equal(itemAt(items, 1.7, 0.4), 1);
  assert.equal(itemAt(items, 4.2), 2);
  assert.equal(itemAt([], 1), -1);
});
