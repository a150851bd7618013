// @ts-check
// A row of things that is scrolled sideways: where some are out of sight, a button at that edge says how many, and goes
// there.
import { find, h } from "./dom.js";

const SLACK = 12; // pixels of a thing that may be out of sight

/**
 * How many of things are not wholly seen, on the left and on the right.
 * @param {{ left: number, right: number }[]} things
 * @param {{ left: number, right: number }} seen
 */
export function beyond(things, seen) {
  const left = things.filter((each) => each.left < seen.left - SLACK).length;
  const right = things.filter((each) => each.right > seen.right + SLACK).length;
  return { left, right };
}

/**
 * The row in a box with its buttons; `look` is to be called when what is in it has changed, with what is to be seen, and
 * `stay` when it has been filled anew.
 * @param {HTMLElement} row
 * @param {string} what what is in it, such as "plans"
 */
export function scrolled(row, what) {
  const go = (/** @type {number} */ way) => row.scrollBy({ left: way * 0.8 * row.clientWidth, behavior: "smooth" });
  const button = (/** @type {string} */ id, /** @type {string} */ look, /** @type {number} */ way) =>
    h("button", { class: `sv-deckmore ${look}`, id, hidden: true, tabindex: "-1", onclick: () => go(way) });
  const back = button("deck-back", "sv-back", -1);
  const on = button("deck-on", "sv-on", 1);
  const box = h("div", { class: "sv-deckbox" }, row, back, on);
  let asked = false;
  let wanted = ""; // what is to be seen
  let at = 0; // how far it was scrolled in the last frame

  function measure() {
    asked = false;
    const found = find(row, wanted);
    if (found) {
      const [thing, seen] = [found, row].map((each) => each.getBoundingClientRect());
      row.scrollLeft += Math.min(0, thing.left - seen.left) + Math.max(0, thing.right - seen.right);
    }
    wanted = "";
    at = row.scrollLeft;
    const things = [...row.children].map((each) => each.getBoundingClientRect());
    const { left, right } = beyond(things, row.getBoundingClientRect());
    box.classList.toggle("sv-left-of", left > 0);
    box.classList.toggle("sv-right-of", right > 0);
    back.hidden = !left;
    on.hidden = !right;
    back.textContent = `‹ ${left}`;
    on.textContent = `${right} ›`;
    back.title = `${left} more ${what} on the left`;
    on.title = `${right} more ${what} on the right`;
  }

  /** @param {string} [id] of what is to be seen */
  function look(id = "") {
    wanted = id || wanted; // it may have another element by then
    if (!asked) requestAnimationFrame(measure); // once a frame, where the layout is made anyway
    asked = true;
  }

  const stay = () => {
    if (at) row.scrollLeft = at; // asked only then: it takes a layout
  };

  row.addEventListener("scroll", () => look(), { passive: true });
  new ResizeObserver(() => look()).observe(row);
  return { box, look, stay };
}
