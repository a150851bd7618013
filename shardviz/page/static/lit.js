// @ts-check
// One thing is one thing in the whole page: what is pointed at, or has the focus, is lit wherever it stands. An element
// says what it is of by `data-thing`: an axis, a value, a dimension, a source line, a device or several, what moves on a
// line.

import { pointedAt } from "./dom.js";

const DEVICE = "device ";

/**
 * What tells whether something is, or has a part of, one thing: a cell of several devices is each of them.
 * @param {string} thing
 * @returns {(other: string) => boolean}
 */
export function sameAs(thing) {
  if (!thing.startsWith(DEVICE)) return (other) => other === thing;
  const devices = new Set(thing.slice(DEVICE.length).split(","));
  return (other) =>
    other.startsWith(DEVICE) && other.slice(DEVICE.length).split(",").some((device) => devices.has(device));
}

/**
 * Returns what is to be called when the page goes.
 * @param {HTMLElement} root
 */
export function lighting(root) {
  let now = "";
  return pointedAt(root, "[data-thing]", (found) => {
    const thing = found?.getAttribute("data-thing") || "";
    if (thing === now) return;
    now = thing;
    for (const old of root.querySelectorAll(".sv-lit-up")) old.classList.remove("sv-lit-up");
    if (!thing) return;
    const same = sameAs(thing);
    for (const each of root.querySelectorAll("[data-thing]")) {
      if (same(each.getAttribute("data-thing") || "")) each.classList.add("sv-lit-up");
    }
  });
}
