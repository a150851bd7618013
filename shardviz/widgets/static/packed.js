// @ts-check
// What the kernel says with each thing said once, made whole again; see widgets/packed.py.

/** @typedef {{ keys: string[][], table: unknown[], value: unknown }} Packed */

/** What was made of what. @type {WeakMap<Packed, unknown>} */
const known = new WeakMap();

/**
 * A trait's value, of which equal parts are the same object; what is not packed stays.
 * @template T
 * @param {T} told
 * @returns {T}
 */
export function unpacked(told) {
  const packed = /** @type {Packed | null} */ (/** @type {unknown} */ (told));
  if (!packed || !packed.keys || !packed.table) return told;
  if (!known.has(packed)) known.set(packed, whole(packed));
  return /** @type {T} */ (known.get(packed));
}

/** @param {Packed} packed */
function whole({ keys, table, value }) {
  /** @type {unknown[]} */
  const made = [];

  /** @param {any} told @returns {unknown} */
  function read(told) {
    if (typeof told === "number") return made[told];
    if (!Array.isArray(told)) return told;
    const [kind, ...rest] = told;
    if (kind === -1) return rest[0];
    if (kind === -2) return rest;
    if (kind === 0) return rest.map(read);
    return Object.fromEntries(rest.map((each, i) => [keys[kind - 1][i], read(each)]));
  }

  for (const each of table) made.push(read(each));
  return read(value);
}
