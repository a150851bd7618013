// @ts-check
// Elements made from plain calls. Text from outside only ever becomes a text node, never HTML.

/** @import { Child, Context, Kept, Props } from "./types.d.ts" */

/**
 * An HTML element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props} [props]
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  apply(el, props || {});
  add(el, children);
  return el;
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Props} [props]
 * @param {Child[]} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, props, ...children) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(el, props || {});
  add(el, children);
  return el;
}

/**
 * @param {HTMLElement | SVGElement} el
 * @param {Props} props
 */
function apply(el, props) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else if (key === "style") { for (const [k, v] of Object.entries(value)) el.style.setProperty(k, String(v)); }
    else if (key === "id") el.setAttribute("data-testid", String(value));
    else if (key === "value") /** @type {HTMLInputElement} */ (el).value = String(value);
    else el.setAttribute(key, value === true ? "" : String(value));
  }
}

/**
 * @param {Element} el
 * @param {Child[]} children
 */
function add(el, children) {
  el.append(...nodes(children));
}

/**
 * @param {Child[]} children
 * @returns {Node[]}
 */
function nodes(children) {
  return /** @type {any[]} */ (children).flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => child instanceof Node ? child : document.createTextNode(String(child)));
}

let filling = false;

/** Whether elements are being replaced right now: a field that loses the focus by that was not left by the person. */
export function isFilling() {
  return filling;
}

/**
 * The element that has the focus, also inside a shadow root.
 * @param {Element} el any element of the page
 */
export function focused(el) {
  return /** @type {Document | ShadowRoot} */ (el.getRootNode()).activeElement;
}

/**
 * Puts children into an element, and the focus back to where it was, found by its test id. Those that are there already
 * stay as they are.
 * @param {HTMLElement} el
 * @param {Child[]} children
 */
export function fill(el, ...children) {
  const active = focused(el);
  const inside = active && el.contains(active) ? active : null;
  const id = inside?.getAttribute("data-testid");
  const typed = inside instanceof HTMLInputElement ? inside : null;
  const was = typed && { value: typed.value, start: typed.selectionStart, end: typed.selectionEnd };
  filling = true;
  try {
    replace(el, nodes(children));
  } finally {
    filling = false;
  }
  const again = id ? find(el, id) : null;
  again?.focus({ preventScroll: true });
  if (was && again instanceof HTMLInputElement) {
    again.value = was.value;
    if (again.type === "text" || again.type === "search") again.setSelectionRange(was.start, was.end);
  }
}

/**
 * Puts nodes in the place of an element's children. Those that are there already are not touched, so that the browser
 * need not lay them out again.
 * @param {HTMLElement} el
 * @param {Node[]} wanted
 */
function replace(el, wanted) {
  const stay = new Set(wanted);
  for (const child of [...el.childNodes]) if (!stay.has(child)) child.remove();
  let at = el.firstChild;
  for (const node of wanted) {
    if (node === at) at = at.nextSibling;
    else el.insertBefore(node, at);
  }
}

/**
 * Things that are made anew only where what they show has changed, each by its key.
 * @template T
 * @returns {(wanted: Kept<T>[]) => T[]}
 */
export function keeper() {
  /** @type {Map<string, { said: string, made: T }>} */
  let all = new Map();
  return (wanted) => {
    const before = all;
    all = new Map();
    return wanted.map(([key, said, make]) => {
      const old = before.get(key);
      const kept = old?.said === said ? old : { said, made: make() };
      all.set(key, kept);
      return kept.made;
    });
  };
}

/**
 * A field whose Enter does something; other keys are the field's own, and no shortcut of the page's.
 * @param {Props} attributes
 * @param {() => void} enter
 */
export function entry(attributes, enter) {
  const onkeydown = (/** @type {KeyboardEvent} */ e) => {
    e.stopPropagation();
    if (e.key === "Enter") enter();
  };
  return h("input", { type: "text", spellcheck: "false", autocomplete: "off", ...attributes, onkeydown });
}

const PAUSE = 120; // milliseconds without a key before it is said what was typed

/**
 * A field to search with, which says what was typed when no more has been for a moment.
 * @param {Props} attributes
 * @param {(text: string) => void} say
 */
export function searchField(attributes, say) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const field = entry({ type: "search", class: "sv-filter", ...attributes }, () => {});
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => say(field.value), PAUSE);
  });
  return field;
}

/**
 * A button that copies an element's text; where the page may not (no secure context), it selects it for the person.
 * @param {() => HTMLElement} element
 * @param {string} id
 * @param {string} title
 */
export function copyButton(element, id, title) {
  const button = h("button", { class: "sv-btn", id, title, onclick: copy }, "copy");
  async function copy() {
    button.textContent = await write(element()) ? "copied" : "press Ctrl+C";
    setTimeout(() => button.textContent = "copy", 1500);
  }
  return button;
}

/** @param {HTMLElement} element */
async function write(element) {
  try {
    await navigator.clipboard.writeText(element.textContent ?? "");
    return true;
  } catch {
    getSelection()?.selectAllChildren(element);
    return false;
  }
}

/**
 * A place in the source as a link to it.
 * @param {Context} ctx
 * @param {string | null} [at] `model.py:20`
 */
export function lineLink(ctx, at) {
  if (!at) return null;
  /** @param {Event} e */
  const show = (e) => {
    e.stopPropagation();
    ctx.showLine(at);
  };
  const thing = { "data-thing": `line ${at}` };
  return h("button", { class: "sv-link sv-soft", title: "show this line", ...thing, onclick: show }, at);
}

/**
 * The element under `el` with a test id.
 * @param {Element} el
 * @param {string} id
 * @returns {HTMLElement | null}
 */
export function find(el, id) {
  return el.querySelector(`[data-testid="${CSS.escape(id)}"]`);
}
