// @ts-check
import assert from "node:assert/strict";
import test from "node:test";
import zlib from "node:zlib";
import { Buffer } from "node:buffer";
import { inflated } from "../../shardviz/widgets/static/inflate.js";
import { unpacked } from "../../shardviz/widgets/static/packed.js";

const { constants, deflateSync } = zlib;

/** Bytes that say the same again, more or less often. @param {number} length @param {number} kinds */
function bytes(length, kinds) {
  let seed = length * 31 + kinds;
  return Uint8Array.from({ length }, () => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return (seed >> 8) % kinds;
  });
}

/** @param {unknown} value */
const packed = (value) => ({ z: deflateSync(JSON.stringify(value)).toString("base64") });

test("what zlib deflated is as it was, whatever kinds of blocks it made", () => {
  for (const length of [0, 1, 2, 7, 64, 500, 5000, 70000]) {
    for (const kinds of [1, 2, 5, 40, 256]) {
      const data = bytes(length, kinds);
      for (const level of [0, 1, 6, 9]) {
        for (const strategy of [constants.Z_DEFAULT_STRATEGY, constants.Z_FIXED, constants.Z_HUFFMAN_ONLY]) {
          const made = inflated(new Uint8Array(deflateSync(data, { level, strategy })));
          assert.deepEqual(Buffer.compare(made, data), 0, `${length} bytes of ${kinds} kinds, ${level}, ${strategy}`);
        }
      }
    }
  }
});

test("what is damaged is no endless loop", () => {
  const whole = new Uint8Array(deflateSync(bytes(5000, 40)));
  assert.throws(() => inflated(whole.subarray(0, whole.length / 2)), /damaged/);
});

test("any JSON comes back, in any letters", () => {
  const value = [{ t: "Größe ∂ 模 🙂" }, [0, -1.5, 1e300], true, false, null, "", [], {}];
  assert.deepEqual(unpacked(packed(value)), value);
});

test("what is packed is read once, and what is not packed stays", () => {
  const told = packed({ t: "model" });
  assert.equal(unpacked(told), unpacked(told));
  const plain = { document: { blocks: [] } };
  assert.equal(unpacked(plain), plain);
  assert.equal(unpacked(undefined), undefined);
  assert.equal(unpacked(""), "");
});
