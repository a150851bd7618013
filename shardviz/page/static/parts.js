// @ts-check
// What every component of the page uses: the explorer that it stands in, fields and buttons, and messages to the user.
import { createContext, html, useContext, useLayoutEffect, useReducer, useRef, useState } from "./vendor/preact.js";

/** @import { Context } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

/** What a template gives: preact's `html`, by a name that a formatter does not take for a page's text. */
export const ui = html;

/** The explorer. @type {import("./vendor/preact.d.ts").Shared<Context>} */
export const Explorer = createContext(/** @type {any} */ (null));

/** The tab that a component is in; empty for none. */
export const Tab = createContext("");

/** The explorer that a component stands in. */
export function useContextOf() {
  return useContext(Explorer);
}

/**
 * The explorer, for a component that is drawn again when one of these traits has changed; in a tab that is not shown,
 * when it is next.
 * @param {...string} keys
 */
export function useTraits(...keys) {
  const ctx = useContext(Explorer);
  const tab = useContext(Tab);
  const again = useAgain();
  useLayoutEffect(() => {
    const draw = tab ? () => ctx.when(tab, again) : again;
    const ends = keys.map((key) => ctx.on(key, draw));
    return () => ends.forEach((end) => end());
  }, []);
  return ctx;
}

/** What draws a component again. */
export function useAgain() {
  const [, again] = useReducer((n) => n + 1, 0);
  return /** @type {() => void} */ (again);
}

/**
 * The latest content of a tab. It stays while another tab is shown, and until the kernel has answered.
 * @template {object} T
 * @param {T} value
 * @param {string} of what is there only while the kernel tells it
 * @returns {T}
 */
export function useLast(value, of = "document") {
  const last = useRef(value);
  if (of in value) last.current = value;
  return last.current;
}

/** The class that lights what an answer changed, once: nothing where it is not this drawing's. @param {unknown} value */
export function useFlash(value) {
  const last = useRef({ value, turn: 0 });
  const fresh = Boolean(last.current.value) && value !== last.current.value;
  last.current = { value, turn: last.current.turn + Number(fresh) };
  return fresh ? `sv-changed sv-turn${last.current.turn % 2}` : "";
}

/**
 * A button that copies a text; where the page may not (no secure context), it selects the element for the person.
 * @param {{ of: string, id: string, title: string }} props the test id of the element that has the text
 */
export function CopyButton({ of, id, title }) {
  const [words, say] = useState("copy");
  const copy = async (/** @type {any} */ { target }) => {
    const element = target.closest(".shardviz").querySelector(`[data-testid="${CSS.escape(of)}"]`);
    say(await write(element) ? "copied" : "press Ctrl+C");
    setTimeout(() => say("copy"), 1500);
  };
  return ui`<button class="sv-btn" data-testid=${id} title=${title} onclick=${copy}>${words}</button>`;
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

/** A place in the source, `model.py:20`, as a link to it. @param {{ at?: string | null }} props */
export function LineLink({ at }) {
  const ctx = useContext(Explorer);
  if (!at) return null;
  const show = (/** @type {Event} */ e) => {
    e.stopPropagation();
    ctx.showLine(at);
  };
  return ui`<button class="sv-link sv-soft" title="show this line" data-thing="line ${at}" onclick=${show}>
      ${at}</button>`;
}

/** A button that takes the filter by a source line away. @param {{ id: string, words?: string }} props */
export function LineFilter({ id, words = "" }) {
  const ctx = useContext(Explorer);
  const { line } = ctx.get("query");
  return line &&
    ui`<button class="sv-btn" data-testid=${id} onclick=${() =>
      ctx.query({ at: 0, line: "" })}>${words}${line} ×</button>`;
}

/**
 * A message to the user: a sentence, what can be done about it, and how to dismiss it.
 * @param {{ kind: "sv-error" | "sv-warning" | "sv-info", id: string, message: View, detail?: string, away?: (() => void) | null,
 *   children?: View }} props the detail is shown when it is asked for
 */
export function Notice({ kind, id, message, detail, away, children }) {
  return ui`<div class="sv-notice ${kind}" data-testid=${id} role=${kind === "sv-info" ? "status" : "alert"}>
      <span>${message}</span>${children}${
    away &&
    ui`<button class="sv-away" data-testid="${id}-away" title="dismiss" aria-label="dismiss" onclick=${away}>×</button>`
  }${detail && ui`<details><summary>details</summary><pre>${detail}</pre></details>`}</div>`;
}

/** What stands where the kernel has not said anything yet. */
export function Waiting() {
  const { gone } = useTraits("gone");
  const words = gone
    ? "No kernel answers here, and this was not on the screen when one did; run the cell again."
    : "The kernel is asked; it answers when it has ended what it is doing.";
  return ui`<p class="sv-empty">${words}</p>`;
}
