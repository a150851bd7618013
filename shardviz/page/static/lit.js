// @ts-check
// One thing is one thing in the whole page: what is pointed at, or has the focus, is lit wherever it stands. An element
// says what it is of by `data-thing`: an axis, a value, a dimension, a source line, a device or several, what moves on a
// line.

const DEVICE = "device ";

/** What an element is of; empty for nothing. @param {EventTarget | null} target */
export function thingOf(target) {
  const found = target instanceof Element ? target.closest("[data-thing]") : null;
  return found?.getAttribute("data-thing") || "";
}

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

  /** @param {string} thing */
  function light(thing) {
    if (thing === now) return;
    now = thing;
    for (const old of root.querySelectorAll(".sv-lit-up")) old.classList.remove("sv-lit-up");
    if (!thing) return;
    const same = sameAs(thing);
    for (const each of root.querySelectorAll("[data-thing]")) {
      if (same(each.getAttribute("data-thing") || "")) each.classList.add("sv-lit-up");
    }
  }

  /** @param {Event} e */
  const over = (e) => light(thingOf(e.composedPath()[0] ?? null));
  const out = () => light("");
  const events = { mouseover: over, focusin: over, mouseleave: out, focusout: out };
  for (const [name, listener] of Object.entries(events)) root.addEventListener(name, listener);
  return () => {
    for (const [name, listener] of Object.entries(events)) root.removeEventListener(name, listener);
  };
}
