// @ts-check
// The lanes of a timeline and its axis: where each thing lies.

/** @import { TimedCard, TimedEvent, Timelines } from "./types.d.ts" */

/**
 * What can be pointed at, an event, a loop's trips or memory that is held, with its share of the height: its begin and
 * length in seconds, and what is said of it.
 * @typedef {{ begin: number, long: number, said: string, label: string[], event?: TimedEvent, share?: number }} Item
 * @typedef {{ y: number, high: number, card: TimedCard, name: string, axis: string, busy: string, title: string, items: Item[] }} Lane
 */

export const RULER = 22; // pixels of the times above
const HEAD = 26; // and of a card's head
const [BAND, HIGH, HELD] = [14, 20, 56]; // loops, a lane, memory

/**
 * The place of the item at a time, of items that are in order; else of the nearest within some room, or -1.
 * @param {{ begin: number, long: number }[]} items
 * @param {number} at
 * @param {number} [room]
 */
export function itemAt(items, at, room = Infinity) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].begin <= at) low = middle + 1;
    else high = middle;
  }
  const far = (/** @type {number} */ n) =>
    items[n] ? Math.max(items[n].begin - at, at - items[n].begin - items[n].long, 0) : Infinity;
  const best = far(low) < far(low - 1) ? low : low - 1;
  return items[best] && far(best) <= room ? best : -1;
}

/**
 * The rows of all cards, one below the other: loops, lanes, and what is held.
 * @param {Timelines} told
 * @returns {{ lanes: Lane[], heads: { y: number, card: TimedCard }[], high: number }}
 */
export function lanesOf({ cards, kinds, top }) {
  /** @type {Lane[]} */
  const lanes = [];
  const heads = [];
  let y = RULER;
  /** @param {number} high @param {Pick<Lane, "card" | "items"> & Partial<Lane>} lane */
  function add(high, lane) {
    lanes.push({ name: "", axis: "", busy: "", title: "", ...lane, y, high });
    y += high;
  }
  for (const card of cards) {
    heads.push({ y, card });
    y += HEAD;
    const deepest = Math.max(-1, ...card.loops.map(([, , depth]) => depth));
    for (let depth = 0; depth <= deepest; depth += 1) {
      const items = card.loops.filter((loop) => loop[2] === depth)
        .map(([begin, long, , trips, said]) => ({ begin, long, said, label: [trips] }));
      add(BAND, { card, items: items.sort((a, b) => a.begin - b.begin) });
    }
    card.lanes.forEach(([name, axis, busy], n) => {
      const items = card.events.filter((event) => event[0] === n).map((event) => {
        const [, begin, long, kind, time, own] = event;
        const [, line, about] = kinds[kind];
        const what = about.split(",")[0];
        const label = line && name === "compute" ? [`${line} ${what}`, line] : [what, what.split(" over ")[0]];
        return { begin, long, said: `${time}: ${about} (${own})`, label, event };
      });
      add(HIGH, { card, name, axis, busy, title: busy && `${name}: busy ${busy} of ${card.said}`, items });
    });
    if (card.memory) {
      const { steps, peak, said } = card.memory;
      const end = (/** @type {number} */ n) => steps[n + 1]?.[0] ?? card.seconds;
      const items = steps.map(([begin, bytes, words], n) => ({
        begin,
        long: end(n) - begin,
        said: words,
        label: [],
        share: bytes / top,
      }));
      add(HELD, { card, name: "memory", busy: peak, title: said, items });
    }
    y += 6;
  }
  return { lanes, heads, high: y };
}

const UNITS = /** @type {const} */ ([[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);

/** Round times for a ruler: the step between them, and how each is said. @param {number} least seconds of a step */
export function ruler(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find((times) => times * power >= least) ?? 10);
  const [unit, name] = UNITS.find(([size]) => step > size * 0.999) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-6));
  return { step, say: (/** @type {number} */ at) => `${(at / unit).toFixed(digits)} ${name}` };
}
