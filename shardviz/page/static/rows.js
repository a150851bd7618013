// @ts-check
// A long list of which only what can be seen is there: each row stands at its height. The row that has the focus stays,
// wherever the list is scrolled to.
import { ui, useAgain } from "./parts.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";

/** @import { Item } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

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
 * What shows rows in an element that scrolls.
 * @param {Item[]} items
 * @param {{ height: (item: Item) => number, row: (item: Item, top: number) => View, stays: string }} how the height in
 *   pixels until a row is measured; the row, with `data-key` and the style `top`; the key of the one that stays
 * @returns {{ body: View, reveal: (key: string) => void }} the second brings a row into view
 */
export function useRows(items, { height, row, stays }) {
  const again = useAgain();
  const body = useRef(/** @type {any} */ (null));
  const measured = useRef(/** @type {Map<string, number>} */ (new Map())).current;
  const range = useRef([0, 0]);
  const tall = (/** @type {Item} */ item) => measured.get(`${height(item)} ${item.key}`) ?? height(item);
  const tops = new Float64Array(items.length + 1);
  items.forEach((item, i) => tops[i + 1] = tops[i] + tall(item));
  const now = useRef({ items, tops, height });
  now.current = { items, tops, height };
  const scroller = () => body.current.closest(".sv-left");
  const above = () => body.current.getBoundingClientRect().top - scroller().getBoundingClientRect().top;

  function seen() {
    const { items: all, tops: heights } = now.current;
    if (all.length <= FEW) return [0, all.length];
    if (!body.current) return between(heights, 0, 2 * MORE);
    const from = -above() - MORE;
    return between(heights, from, from + (scroller().clientHeight || 600) + 2 * MORE);
  }

  useLayoutEffect(() => {
    let frame = 0;
    const scroll = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        if (body.current && String(seen()) !== String(range.current)) again();
      });
    };
    let wide = 0;
    const watch = new ResizeObserver(() => { // rows of another width have other heights
      const width = body.current?.clientWidth;
      if (!width || width === wide) return;
      if (wide) measured.clear();
      wide = width;
      again();
    });
    const left = scroller();
    left.addEventListener("scroll", scroll, { passive: true });
    watch.observe(body.current);
    return () => {
      cancelAnimationFrame(frame);
      left.removeEventListener("scroll", scroll);
      watch.disconnect();
    };
  }, []);
  useLayoutEffect(() => { // rows that are higher than was thought move the rest; before a frame, for it costs a layout
    const frame = requestAnimationFrame(() => {
      const byKey = new Map(now.current.items.map((item) => [item.key, item]));
      let moved = false;
      for (const element of body.current?.children || []) {
        const item = byKey.get(element.dataset.key);
        if (!item || !element.offsetHeight || Math.abs(tall(item) - element.offsetHeight) < 0.5) continue;
        measured.set(`${height(item)} ${item.key}`, element.offsetHeight);
        moved = true;
      }
      if (moved) again();
    });
    return () => cancelAnimationFrame(frame);
  });

  const [from, to] = range.current = seen();
  const shown = items.slice(from, to).map((item, i) => row(item, tops[from + i]));
  const kept = items.findIndex(({ key }) => key === stays);
  if (kept >= 0 && (kept < from || kept >= to)) shown[kept < from ? "unshift" : "push"](row(items[kept], tops[kept]));
  return {
    body: ui`<div class="sv-virtual" role="presentation" style=${{
      height: `${tops[items.length]}px`,
    }} ref=${body}>${shown}</div>`,
    reveal(key) {
      const at = items.findIndex((item) => item.key === key);
      const left = scroller();
      const top = above() + tops[at];
      const stuck = (parseFloat(left.style.getPropertyValue("--sv-stuck")) || 0) + STUCK;
      if (top < stuck) left.scrollTop += top - stuck;
      else if (top + 42 > left.clientHeight) left.scrollTop += top + 42 - left.clientHeight;
      again();
    },
  };
}

/** The class that lights what an answer changed, once: nothing where it is not this drawing's. @param {unknown} told */
export function useFlash(told) {
  const last = useRef({ told, turn: 0 });
  const fresh = told !== last.current.told;
  last.current = { told, turn: last.current.turn + Number(fresh) };
  return fresh ? `sv-changed sv-turn${last.current.turn % 2}` : "";
}
