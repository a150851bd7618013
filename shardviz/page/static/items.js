// @ts-check
// What of a Picture can be pointed at: its rectangles, each with its words.

/** @import { Picture, Selects, Shape } from "./types.d.ts" */

/**
 * A rectangle that can be pointed at; it has an element of its own where it selects something.
 * @typedef {{ x: number, y: number, w: number, h: number }} Box
 * @typedef {Box & { tip: string, keys: number[], sel?: Selects, button: boolean }} Item
 */

/**
 * What is said of each rectangle: the template with its words put in.
 * @param {Shape} shape
 * @returns {string[]}
 */
export function tips({ tip = "", words = [], tip_parts: parts = [] }) {
  const [first, ...rest] = tip.split("{}");
  const found = [];
  for (let i = 0; rest.length && i < parts.length; i += rest.length) {
    found.push(
      first + rest.map((/** @type {string} */ part, /** @type {number} */ n) => words[parts[i + n]] + part).join(""),
    );
  }
  return found;
}

/**
 * The number of the box that is nearest in a direction; -1 where none is.
 * @param {Box[]} boxes
 * @param {number} from
 * @param {[number, number]} direction
 */
export function nearest(boxes, from, [right, down]) {
  const { x, y, w, h: high } = boxes[from];
  let best = -1;
  let least = Infinity;
  boxes.forEach((box, n) => {
    const dx = box.x + box.w / 2 - x - w / 2;
    const dy = box.y + box.h / 2 - y - high / 2;
    const ahead = dx * right + dy * down;
    const far = ahead + 2.5 * Math.abs(dx * down + dy * right);
    if (ahead > 0.5 && far < least) [best, least] = [n, far];
  });
  return best;
}

/**
 * What can be pointed at in a picture, in the order of its shapes.
 * @param {Picture} picture
 * @returns {Item[]}
 */
export function itemsOf({ shapes }) {
  return shapes.filter(({ kind, tip_parts, select }) => kind === "rects" && (tip_parts || select)).flatMap((shape) => {
    const found = tips(shape);
    const boxes = shape.select ? boxesOf(shape) : boxesOf(shape).slice(0, found.length);
    return boxes.map((box, n) => ({
      ...box,
      tip: found[n],
      keys: shape.select ? shape.keys[n] : [],
      sel: shape.selects?.[n],
      button: !!shape.select,
    }));
  });
}

/** x, y, width and height of each rectangle. @param {Shape} shape @returns {Box[]} */
export function boxesOf({ x, y, wide, high }) {
  const one = (/** @type {any} */ size, /** @type {number} */ n) => (Array.isArray(size) ? size[n] : size);
  return x.map((/** @type {number} */ left, /** @type {number} */ n) => ({
    x: left,
    y: y[n],
    w: one(wide, n),
    h: one(high, n),
  }));
}
