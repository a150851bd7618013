// @ts-check
// The keyboard: what the keys do anywhere on the page, the list of them, and parts that are one stop of Tab each.
import { keyed } from "./dom.js";
import { Over } from "./over.js";
import { ui } from "./parts.js";

/** @import { Context } from "./types.d.ts" */
/** @typedef {"" | "help" | "palette" | "tour"} Over */

/** @type {[keys: string, words: string][]} */
const KEYS = [
  ["Tab", "to the next part of the page: the mesh, the dimensions, the inputs, the outputs, the tabs, the plans"],
  ["/", "find an array, a line, an action or a setting, and go to it or do it"],
  ["← → ↑ ↓", "within a part: to the next axis, slot, row or button; on a branch → opens it and ← closes it"],
  ["Enter", "what can be done here: a slot's menu, an axis's name and size"],
  ["Delete", "empty a slot or a dimension; remove a mesh axis"],
  [
    "+ −",
    "on a mesh axis: twice, half as many devices; on the timeline: closer, farther (< >: earlier, later; Home: the whole step)",
  ],
  ["w", "why the selected value is sharded as it is; then ← → go along the chain, Escape closes the answer"],
  ["F2", "another name for a mesh axis or a card"],
  ["k c w", "on a card: keep it, compare with it, why it was found; Alt with ← → moves it"],
  ["1 2 3 …", "the tabs, by their number"],
  ["Ctrl+Z, Ctrl+Shift+Z", "undo, redo"],
  ["Escape", "leave a menu or a field; dismiss a refusal"],
  ["?", "this list"],
];

/**
 * Makes elements that belong together one stop of Tab: arrows go from one to the next.
 * @param {HTMLElement} el
 * @param {string} selector of those that can have the focus
 */
export function rove(el, selector) {
  const items = reachable(el, selector);
  const was = el.dataset.at;
  const now = items.find((item) => item.dataset.testid === was) ?? items.find((item) => !item.matches(".sv-term")) ??
    items[0];
  for (const item of items) {
    const index = item === now ? "0" : "-1";
    if (item.getAttribute("tabindex") !== index) item.setAttribute("tabindex", index);
  }
  if (el.dataset.roves) return;
  el.dataset.roves = selector;
  el.addEventListener("focusin", (e) => {
    const item = /** @type {HTMLElement} */ (e.target).closest(selector);
    if (!(item instanceof HTMLElement)) return;
    for (const other of el.querySelectorAll(selector)) /** @type {HTMLElement} */ (other).tabIndex = -1;
    item.tabIndex = 0;
    el.dataset.at = item.dataset.testid ?? "";
  });
  el.addEventListener("keydown", (e) => {
    const target = /** @type {HTMLElement} */ (e.target);
    if (e.defaultPrevented || !target.matches(selector) || isField(target)) return;
    const step = (/** @type {number} */ by) => () => {
      const all = reachable(el, selector);
      const to = all[all.indexOf(target) + by];
      if (to?.matches("[role=tab]") && target.matches("[role=tab]")) to.click(); // a tab shows what it is of at once
      to?.focus();
      return Boolean(to);
    };
    keyed(e, { ArrowRight: step(1), ArrowDown: step(1), ArrowLeft: step(-1), ArrowUp: step(-1) });
  });
}

/**
 * Makes each of these parts one stop of Tab, now and whenever something else is in it; returns how to stop that.
 * @param {[part: HTMLElement, selector: string][]} parts
 */
export function roveIn(parts) {
  const watches = parts.map(([part, selector]) => {
    rove(part, selector);
    const watch = new MutationObserver(() => rove(part, selector));
    watch.observe(part, { childList: true, subtree: true, attributes: true, attributeFilter: ["hidden", "disabled"] });
    return watch;
  });
  return () => watches.forEach((watch) => watch.disconnect());
}

/** Those that can have the focus when the part is shown. @param {HTMLElement} el @param {string} selector */
function reachable(el, selector) {
  /** @type {NodeListOf<HTMLElement>} */
  const all = el.querySelectorAll(selector);
  return [...all].filter((item) => {
    const hidden = item.closest("[hidden]");
    return !item.hasAttribute("disabled") && (!hidden || hidden.contains(el));
  });
}

/** Whether keys are this element's own. @param {EventTarget | null} el */
export function isField(el) {
  return (el instanceof HTMLInputElement && el.type !== "checkbox") || el instanceof HTMLTextAreaElement ||
    el instanceof HTMLSelectElement;
}

/** The list of the keys. @param {{ close: () => void, tour: () => void }} props */
export function Help({ close, tour }) {
  return ui`<${Over} class="sv-help" data-testid="help" aria-label="keys" close=${close} first=${["button"]}>
      <h2>Keys</h2>
      <table>${KEYS.map(([key, words]) => ui`<tr><th scope="row"><kbd>${key}</kbd></th><td>${words}</td></tr>`)}</table>
      <button class="sv-btn" data-testid="help-close" onclick=${close}>close</button>${" "}
      <button class="sv-btn" data-testid="help-tour" onclick=${tour}>tour</button><//>`;
}

/**
 * What the keys do wherever the focus is; and plain keys are kept from JupyterLab, whose command mode would take letters
 * and arrows as its own.
 * @param {Context} ctx
 * @param {KeyboardEvent} e
 * @param {Over} over what is open over the page
 * @param {(what: Over) => void} open
 */
export function pageKeys(ctx, e, over, open) {
  const command = e.ctrlKey || e.metaKey;
  const target = e.composedPath()[0] ?? null;
  if (command && !isField(target) && (e.key === "z" || e.key === "Z" || e.key === "y")) {
    ctx.edit({ op: e.key === "y" || e.shiftKey ? "redo" : "undo" });
    e.preventDefault();
  }
  if (!command && !e.altKey && !isField(target) && !e.defaultPrevented) plain();
  if (!command && !e.altKey && e.key !== "Tab") e.stopPropagation();
  if (e.ctrlKey && (e.key === "z" || e.key === "y")) e.stopPropagation();

  function plain() {
    if (e.key === "/") open("palette");
    else if (e.key === "?") open(over === "help" ? "" : "help");
    else if (e.key === "w" && ctx.get("selected")) ctx.askWhy(ctx.get("selected"));
    else if (e.key === "Escape" && over) open("");
    else if (e.key === "Escape" && ctx.get("status").error) ctx.edit({ op: "dismiss" });
    else if (/^[1-9]$/.test(e.key)) {
      const tab =
        /** @type {HTMLElement | undefined} */ (ctx.root.querySelectorAll(".sv-tabs [role=tab]")[Number(e.key) - 1]);
      tab?.click();
      tab?.focus();
    } else return;
    e.preventDefault();
  }
}
