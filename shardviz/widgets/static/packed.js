// @ts-check
// What the kernel says deflated, made whole again; see widgets/packed.py.
import { inflated } from "./inflate.js";

/** @typedef {{ z: string }} Packed */

/** What was made of what. @type {WeakMap<Packed, unknown>} */
const known = new WeakMap();

/**
 * A trait's value; what is not packed stays.
 * @template T
 * @param {T} told
 * @returns {T}
 */
export function unpacked(told) {
  const packed = /** @type {Packed | null} */ (/** @type {unknown} */ (told));
  if (typeof packed?.z !== "string") return told;
  if (!known.has(packed)) known.set(packed, whole(packed.z));
  return /** @type {T} */ (known.get(packed));
}

/** @param {string} text */
function whole(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return JSON.parse(new TextDecoder().decode(inflated(bytes)));
}
