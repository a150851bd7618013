// @ts-check
// A long list of which only what can be seen is there: each row stands at its height, and keeps its element as long as
// it shows the same. The row that has the focus stays, wherever the list is scrolled to.
import { fill, focused, h } from "./dom.js";

/** @import { Item } from "./types.d.ts" */

const STUCK = 40; // pixels of the search, which stays at the top below the mesh
const FEW = 120; // rows that are all there, so that a browser's own search and a screen reader find them
const MORE = 300; // pixels above and below what can be seen that are drawn too

/**
 * The first and the last of rows that lie between two heights; `tops` has one entry more than there are rows.
 * @param {ArrayLike<number>} tops
 * @param {number} from
 * @param {number} to
 */
export function between(tops, from, to) {
  const count = tops.length - 1;
  let low = 0;
  let high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tops[middle + 1] <= from) low = middle + 1;
    else high = middle;
  }
  let last = low;
  while (last < count && tops[last] < to) last += 1;
  return [low, last];
}

/**
 * How rows are made.
 * @typedef {object} How
 * @property {(item: Item) => number} height in pixels, until the row is measured
 * @property {(item: Item) => HTMLElement} row
 * @property {(item: Item) => string} says all that the row shows; empty where it is to be made anew each time
 * @property {() => HTMLElement | null} [head]
 */

/**
 * @param {HTMLElement} list where the rows are put
 * @param {HTMLElement} scroller what scrolls
 * @param {How} how
 */
export function virtual(list, scroller, { height, row, says, head }) {
  /** @type {Item[]} */
  let items = [];
  let tops = new Float64Array(1);
  /** @type {Map<string, number>} */
  const measured = new Map();
  /** By key: the elements, and where their rows are. @type {Map<string, { element: HTMLElement, at: number, said: string }>} */
  let made = new Map();
  let range = [0, 0];
  let settling = false;
  const above = h("div", {});
  const body = h("div", { class: "sv-virtual", role: "presentation" });
  list.append(above, body);

  const sort = (/** @type {Item} */ item) => `${height(item)} ${item.key}`;
  const tall = (/** @type {Item} */ item) => measured.get(sort(item)) ?? height(item);

  function measure() {
    tops = new Float64Array(items.length + 1);
    items.forEach((item, i) => tops[i + 1] = tops[i] + tall(item));
    body.style.height = `${tops[items.length]}px`;
  }

  function window() {
    if (items.length <= FEW) return [0, items.length];
    const top = body.getBoundingClientRect().top - scroller.getBoundingClientRect().top;
    const from = -top - MORE;
    return between(tops, from, from + (scroller.clientHeight || 600) + 2 * MORE);
  }

  /** @param {boolean} [anew] whether rows that are there may show something else now */
  function draw(anew) {
    const [from, to] = window();
    if (!anew && from === range[0] && to === range[1]) return;
    range = [from, to];
    const active = focused(body)?.closest("[data-key]")?.getAttribute("data-key");
    const before = made;
    made = new Map();
    const shown = [];
    for (let i = 0; i < items.length; i++) {
      if (i < from && items[i].key !== active) continue;
      if (i >= to && !(active && items[i].key === active)) {
        if (!active) break;
        continue;
      }
      const { key } = items[i];
      const old = before.get(key);
      const said = old && !anew ? old.said : says(items[i]);
      const element = old && (!anew || (said && said === old.said)) ? old.element : row(items[i]);
      element.dataset.key = key;
      element.style.top = `${tops[i]}px`;
      made.set(key, { element, at: i, said });
      shown.push(element);
    }
    fill(body, shown);
    if (!settling) requestAnimationFrame(settle);
    settling = true;
  }

  /** Rows that are higher than was thought move the rest; before a frame, for to measure them costs a layout. */
  function settle() {
    settling = false;
    let moved = false;
    for (const { element, at } of made.values()) {
      const real = element.offsetHeight;
      if (!real || Math.abs(tall(items[at]) - real) < 0.5) continue;
      measured.set(sort(items[at]), real);
      moved = true;
    }
    if (!moved) return;
    measure();
    for (const { element, at } of made.values()) element.style.top = `${tops[at]}px`;
  }

  /** Rows of another width have other heights. */
  let wide = 0;
  new ResizeObserver(() => {
    const now = body.clientWidth;
    if (now === wide || !now) return;
    wide = now;
    measured.clear();
    measure();
    for (const { element, at } of made.values()) element.style.top = `${tops[at]}px`;
    settle();
  }).observe(body);

  let waits = false;
  scroller.addEventListener("scroll", () => {
    if (waits) return;
    waits = true;
    requestAnimationFrame(() => {
      waits = false;
      draw();
    });
  }, { passive: true });

  return {
    /** @param {Item[]} next */
    set(next) {
      items = next;
      const first = head?.();
      fill(above, first);
      measure();
      draw(true);
    },
    /** Brings a row into view; says whether it is among the rows. @param {string} key */
    reveal(key) {
      const at = items.findIndex((item) => item.key === key);
      if (at < 0) return false;
      const top = body.getBoundingClientRect().top - scroller.getBoundingClientRect().top + tops[at];
      const room = scroller.clientHeight;
      const stuck = (parseFloat(scroller.style.getPropertyValue("--sv-stuck")) || 0) + STUCK;
      if (top < stuck) scroller.scrollTop += top - stuck;
      else if (top + 42 > room) scroller.scrollTop += top + 42 - room;
      draw();
      return true;
    },
    get items() {
      return items;
    },
  };
}
