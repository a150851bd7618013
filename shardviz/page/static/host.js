// @ts-check
// The page that the explorer stands in, of JupyterLab, VS Code, Colab, marimo or whomever: whether it is dark; and what
// can still be done where no kernel is behind it.
import { watchCopies } from "./copies.js";
import { h } from "./dom.js";

/** @import { Context, Message, Model } from "./types.d.ts" */

/**
 * How light a colour is, 0 to 1; null where it is not there, or hardly.
 * @param {string} colour as `getComputedStyle` has it
 */
export function lightness(colour) {
  const numbers = (colour.match(/-?[\d.]+(?:e-?\d+)?/g) || []).map(Number);
  if (numbers.length < 3 || (numbers.length > 3 && numbers[3] < 0.5)) return null;
  const [r, g, b] = colour.startsWith("color(") ? numbers : numbers.map((n) => n / 255);
  return /^oklab|^oklch|^lab|^lch/.test(colour)
    ? numbers[0] / (colour.startsWith("ok") ? 1 : 100)
    : 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * Dark or light: as JupyterLab or VS Code says; else as the ground is that the explorer stands on; else as the browser.
 * @param {HTMLElement} root
 */
export function isDark(root) {
  const lab = document.body.getAttribute("data-jp-theme-light");
  if (lab !== null) return lab === "false";
  const vscode = document.body.getAttribute("data-vscode-theme-kind");
  if (vscode) return vscode.includes("dark") || vscode === "vscode-high-contrast";
  /** @type {Node | null} */
  let at = root.parentNode;
  while (at) {
    if (at instanceof Element) {
      const found = lightness(getComputedStyle(at).backgroundColor);
      if (found !== null) return found < 0.5;
    }
    at = at instanceof ShadowRoot ? at.host : at.parentNode;
  }
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  if (scheme === "dark" || scheme === "light") return scheme === "dark";
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * Keeps the theme as that of the page around it; returns how to stop that.
 * @param {HTMLElement} root
 */
export function followTheme(root) {
  const draw = () => root.classList.toggle("sv-dark", isDark(root));
  const watch = new MutationObserver(draw);
  for (const element of [document.documentElement, document.body]) watch.observe(element, { attributes: true });
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", draw);
  draw();
  return () => {
    watch.disconnect();
    media.removeEventListener("change", draw);
  };
}

/**
 * Without a kernel nothing can be changed: what would ask it for something is greyed and takes no clicks and no focus;
 * what was answered can be read, scrolled, unfolded and copied.
 * @param {Context} ctx
 * @param {HTMLElement} root
 * @param {HTMLElement[]} asking what does nothing but ask the kernel
 */
export function withoutKernel(ctx, root, asking) {
  function draw() {
    root.classList.toggle("sv-gone", ctx.gone);
    for (const element of asking) element.inert = ctx.gone;
  }
  ctx.on("gone", draw);
  draw();
}

/** How many views each explorer has on this page, by its comm. @type {Map<string, number>} */
const views = new Map();

/**
 * Tells the kernel when the first view of the explorer comes and when the last one goes; returns what ends a view.
 * @param {Model} model
 */
export function seen(model) {
  const id = model.get("comm_id");
  const count = (/** @type {number} */ more) => {
    const now = (views.get(id) ?? 0) + more;
    views.set(id, now);
    if (!now) views.delete(id);
    return now;
  };
  if (count(1) === 1) model.send({ seen: true });
  return () => {
    if (!count(-1)) model.send({ seen: false });
  };
}

/** The numbers that the explorers of each name have on this page, each with modules of its own. */
const NUMBERS = Symbol.for("shardviz.numbers");

/**
 * The number of an explorer among those of its name on the page, from 1; and what gives it back.
 * @param {string} name
 * @returns {[number: number, end: () => void]}
 */
export function numbered(name) {
  /** @type {Record<symbol, Map<string, Set<number>>>} */
  const page = /** @type {any} */ (globalThis);
  const all = page[NUMBERS] ||= new Map();
  const used = all.get(name) || new Set();
  all.set(name, used);
  let number = 1;
  while (used.has(number)) number += 1;
  used.add(number);
  return [number, () => used.delete(number)];
}

/**
 * Buttons that have what the explorer knows downloaded as a file, which the kernel makes; returns how to stop that.
 * @param {Model} model
 * @param {HTMLElement} el
 */
export function keep(model, el) {
  const said = h("span", { class: "sv-soft", role: "status", id: "kept" });
  /** @type {["html" | "json", string, string][]} */
  const kinds = [
    ["html", "as a page", "all of this as one HTML file that needs no kernel and no network"],
    ["json", "as a session", "the cards, the machine and the selection: sv.open goes on with them another day"],
  ];
  const buttons = kinds.map(([kind, text, title]) => h("button", { class: "sv-btn", id: `keep-${kind}`, title }, text));
  let waits = false;
  /** @param {boolean} waiting */
  function wait(waiting) {
    waits = waiting;
    for (const button of buttons) button.disabled = waiting;
    said.textContent = waiting ? "being made …" : "";
  }
  kinds.forEach(([kind], i) => {
    buttons[i].onclick = () => {
      wait(true);
      model.send({ ask: kind });
    };
  });
  /** @param {Message} [message] */
  function hear(message) {
    if (!message?.file || !waits) return; // another view may have asked for it
    const { name, text, why } = message.file;
    wait(false);
    said.textContent = why || `${name}, ${Math.ceil(text.length / 1000)} kB`;
    if (why) return;
    const url = URL.createObjectURL(new Blob([text], { type: name.endsWith(".html") ? "text/html" : "text/json" }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
  model.on("msg:custom", hear);
  const copy = h("span", { class: "sv-soft", role: "status", id: "copy" });
  const endWatching = watchCopies(model, copy);
  el.append(h("div", { class: "sv-foot" }, h("span", { class: "sv-soft" }, "Save "), buttons, said, copy));
  return () => {
    model.off("msg:custom", hear);
    endWatching();
  };
}
