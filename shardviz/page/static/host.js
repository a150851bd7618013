// @ts-check
// The page that the explorer stands in, of JupyterLab, VS Code, Colab, marimo or whomever: whether it is dark, how many
// views and explorers are on it; and what the explorer knows, kept as a file.
import { watchCopies } from "./copies.js";
import { ui, useContextOf, useTraits } from "./parts.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { Message, Model } from "./types.d.ts" */

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

/** Whether the page around is dark, now and when that changes; what is printed is not. */
export function useDark() {
  const ctx = useContextOf();
  const [dark, set] = useState(false);
  useLayoutEffect(() => {
    const print = matchMedia("print");
    const draw = () => {
      set(!print.matches && isDark(ctx.root));
      if (ctx.printing !== print.matches) ctx.put("printing", print.matches);
    };
    const watch = new MutationObserver(draw);
    for (const element of [document.documentElement, document.body]) watch.observe(element, { attributes: true });
    const media = matchMedia("(prefers-color-scheme: dark)");
    const all = [media, print];
    for (const each of all) each.addEventListener("change", draw);
    draw();
    return () => {
      watch.disconnect();
      for (const each of all) each.removeEventListener("change", draw);
    };
  }, []);
  return dark;
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

/** @type {["html" | "json", string, string][]} */
const KINDS = [
  ["html", "as a page", "all of this as one HTML file that needs no kernel and no network"],
  ["json", "as a session", "the cards, the machine and the selection: sv.open goes on with them another day"],
];

/** Buttons that have what the explorer knows downloaded as a file, which the kernel makes. @param {{ model: Model }} props */
export function Keep({ model }) {
  const ctx = useTraits("gone");
  const [waits, wait] = useState(false);
  const say = (/** @type {string} */ words) => ctx.put("kept", words);
  const [copy, sayCopy] = useState("");
  const asked = useRef(false); // another view may ask for a file too
  useLayoutEffect(() => {
    /** @param {Message} [message] */
    function hear(message) {
      if (!message?.file || !asked.current) return;
      const { name, text, why } = message.file;
      wait(asked.current = false);
      say(why || `Saved ${name}, ${Math.ceil(text.length / 1000)} kB, where the browser puts downloads.`);
      if (why) return;
      const href = URL.createObjectURL(new Blob([text], { type: name.endsWith(".html") ? "text/html" : "text/json" }));
      Object.assign(document.createElement("a"), { href, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(href), 60_000);
    }
    model.on("msg:custom", hear);
    const endWatching = watchCopies(model, sayCopy);
    return () => {
      model.off("msg:custom", hear);
      endWatching();
    };
  }, []);
  const buttons = KINDS.map(([kind, words, title]) => {
    const ask = () => {
      wait(asked.current = true);
      say("being made …");
      model.send({ ask: kind });
    };
    return ui`<button class="sv-btn" data-testid="keep-${kind}" title=${title} disabled=${waits} onclick=${ask}>
        ${words}</button>`;
  });
  return ui`<div class="sv-foot" inert=${ctx.gone}>
      <span class="sv-soft">${"Save "}</span>${buttons}
      <span class="sv-soft" role="status" data-testid="copy">${copy}</span></div>`;
}
