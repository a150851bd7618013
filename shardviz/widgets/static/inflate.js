// @ts-check
// What zlib deflated, as it was (RFC 1950 and 1951): at once, where a browser's `DecompressionStream` has to be awaited.

const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]; // of the lengths of lengths
const END = 256; // the symbol that ends a block
const HEADER = 2; // bytes that say nothing more than that it is deflated

/**
 * The codes of a block: by the next `bits` bits of the stream, a symbol times 16 and how long its code is.
 * @typedef {{ table: Uint16Array, bits: number }} Codes
 */
/** What a symbol stands for: the least, and the bits that follow and add to it. @typedef {[least: number, bits: number]} Step */

/** How much is copied. @type {Step[]} */
const LENGTHS = [...steps(28, 3, (i) => (i < 8 ? 0 : (i - 4) >> 2)), [258, 0]];
/** From how far back. */
const DISTANCES = steps(30, 1, (i) => (i < 4 ? 0 : (i - 2) >> 1));
const FIXED = { symbols: codes(lengths([[144, 8], [112, 9], [24, 7], [8, 8]])), distances: codes(lengths([[30, 5]])) };

/** @param {number} count @param {number} least @param {(i: number) => number} extra @returns {Step[]} */
function steps(count, least, extra) {
  /** @type {Step[]} */
  const found = [];
  for (let i = 0; i < count; i++) {
    found.push([least, extra(i)]);
    least += 1 << extra(i);
  }
  return found;
}

/** So many codes of each length. @param {[number, number][]} runs */
function lengths(runs) {
  return runs.flatMap(([count, length]) => Array(count).fill(length));
}

/**
 * The codes that follow from how long each is: the shorter ones first, those of one length in order.
 * @param {number[]} lengths
 * @returns {Codes}
 */
function codes(lengths) {
  const bits = Math.max(1, ...lengths);
  const table = new Uint16Array(1 << bits);
  let code = 0;
  for (let length = 1; length <= bits; length++, code <<= 1) {
    lengths.forEach((own, symbol) => {
      if (own !== length) return;
      let at = 0; // the stream has a code's first bit lowest
      for (let i = 0; i < length; i++) at |= ((code >> i) & 1) << (length - 1 - i);
      for (; at < table.length; at += 1 << length) table[at] = symbol << 4 | length;
      code += 1;
    });
  }
  return { table, bits };
}

/**
 * @param {Uint8Array} data zlib's bytes
 * @returns {Uint8Array}
 */
export function inflated(data) {
  let out = new Uint8Array(data.length * 8);
  let size = 0;
  let next = HEADER;
  let held = 0; // bits that were read and not taken
  let count = 0;

  /** @param {number} wanted */
  function need(wanted) {
    for (; count < wanted; count += 8) held |= (data[next++] ?? 0) << count;
  }

  /** @param {number} wanted at most 16 */
  function take(wanted) {
    need(wanted);
    const taken = held & ((1 << wanted) - 1);
    held >>>= wanted;
    count -= wanted;
    return taken;
  }

  /** @param {Codes} codes */
  function symbol({ table, bits }) {
    need(bits);
    const found = table[held & ((1 << bits) - 1)];
    if (!found || next > data.length + 4) throw new Error("what is packed is damaged");
    held >>>= found & 15;
    count -= found & 15;
    return found >> 4;
  }

  /** @param {number} more */
  function room(more) {
    if (size + more <= out.length) return;
    const larger = new Uint8Array(2 * (size + more));
    larger.set(out);
    out = larger;
  }

  /** A block's own codes: those of its lengths come first. */
  function own() {
    const [symbols, distances, given] = [take(5) + 257, take(5) + 1, take(4) + 4];
    const first = Array(19).fill(0);
    for (const place of ORDER.slice(0, given)) first[place] = take(3);
    const told = codes(first);
    /** @type {number[]} */
    const all = [];
    while (all.length < symbols + distances) {
      const said = symbol(told);
      if (said < 16) all.push(said);
      else {
        const again = said === 16 ? all[all.length - 1] : 0;
        const times = said === 16 ? 3 + take(2) : said === 17 ? 3 + take(3) : 11 + take(7);
        for (let i = 0; i < times; i++) all.push(again);
      }
    }
    return { symbols: codes(all.slice(0, symbols)), distances: codes(all.slice(symbols)) };
  }

  function stored() {
    next -= count >> 3; // whole bytes that were held
    held = count = 0;
    const length = data[next] | data[next + 1] << 8;
    next += 4;
    room(length);
    out.set(data.subarray(next, next + length), size);
    size += length;
    next += length;
  }

  /** @param {{ symbols: Codes, distances: Codes }} block */
  function block({ symbols, distances }) {
    for (let said = symbol(symbols); said !== END; said = symbol(symbols)) {
      if (said < END) {
        room(1);
        out[size++] = said;
        continue;
      }
      const [least, extra] = LENGTHS[said - END - 1];
      const length = least + take(extra);
      const [near, more] = DISTANCES[symbol(distances)];
      const from = size - near - take(more);
      room(length);
      for (let i = 0; i < length; i++) out[size++] = out[from + i]; // it may go on with what it writes
    }
  }

  for (let last = 0; !last;) {
    last = take(1);
    const kind = take(2);
    if (kind === 0) stored();
    else block(kind === 1 ? FIXED : own());
  }
  return out.subarray(0, size);
}
