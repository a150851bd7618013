// @ts-check
// A tour of two minutes on the person's own function: each step stands beside what it is about, which is outlined.
import { find } from "./dom.js";
import { Over } from "./over.js";
import { ui, useContextOf } from "./parts.js";
import { useLayoutEffect, useState } from "./vendor/preact.js";
import { pieces } from "./words.js";

/** @import { Context } from "./types.d.ts" */

const WIDE = 380; // pixels of the box, as its style has it
const GAP = 8; // pixels between it and what it is about

/** What each step is about, by a selector; its title; its words, with what is the program's own in braces; the tab that it is in.
 * @type {[at: string, title: string, words: string, view?: string][]} */
export const STEPS = [
  [
    ".sv-head",
    "The answer",
    "How long one call of {program} takes, whether it fits on each device, and what it waits for, in a sentence.",
  ],
  [".sv-mesh", "The mesh", "{mesh}. + and − change an axis; the last button chooses the machine."],
  [
    ".sv-dimensions",
    "The specs",
    "An axis in a slot shards that dimension, in every array that has it. Drag an axis onto a slot, or press Enter " +
    "there. Below are the arrays, each with slots of its own.",
  ],
  [
    ".sv-work",
    "Your own lines",
    "The lines of {program}, each with its predicted time. A click on a line opens what it costs, why, and what to try.",
    "source",
  ],
  [
    ".sv-work",
    "What helps",
    "What costs most, each with the change that was tried against it. A click takes a change, Ctrl+Z takes it " +
    "back.",
    "most",
  ],
  [
    ".sv-strip",
    "The plans",
    "Your plans, step time against memory; the dashed line is what a device has. A click opens a plan; drag one onto " +
    "another to compare them. “Find the best” adds plans.",
  ],
  [
    ".sv-places",
    "Everything else",
    "More has notations, rules, raw HLO and code. The key / finds any array, line or action; ? lists the keys. A word " +
    "with a dotted underline says what it means.",
  ],
];

/** A step's words, of this program and its mesh. @param {Context} ctx @param {string} words */
function filled(ctx, words) {
  const { axes, devices } = ctx.get("mesh");
  const grid = axes.map(({ name, size }) => `${name}=${size}`).join(", ");
  const mesh = `${devices.toLocaleString("en")} devices as a grid${grid && `: ${grid}`}`;
  const program = pieces(ctx.get("head").document.title || [])[0]?.t || "the function";
  return words.replace("{program}", () => program).replace("{mesh}", () => mesh);
}

/** @param {{ close: () => void, keys: () => void }} props `keys` shows the list of the keys */
export function Tour({ close, keys }) {
  const ctx = useContextOf();
  const [n, go] = useState(0);
  const [place, put] = useState({ left: "0px", top: "0px" });
  const [at, title, words, view] = STEPS[n];
  const id = `sv-tour-${ctx.number}`;
  useLayoutEffect(() => {
    const tab = ctx.get("tab");
    return () => ctx.set("tab", tab);
  }, []);
  useLayoutEffect(() => {
    if (view) ctx.set("tab", view);
    const box = /** @type {HTMLElement} */ (find(ctx.root, "tour"));
    const about = [at, ".sv-left"].map((each) => ctx.root.querySelector(each)).find((el) => el?.checkVisibility()) ??
      box;
    about.classList.add("sv-toured");
    const [all, one, own] = [ctx.root, about, box].map((el) => el.getBoundingClientRect());
    const tops = [one.bottom + GAP, one.top - own.height - GAP, one.bottom - own.height - 2 * GAP];
    const top = tops.find((y) => y >= all.top && y + own.height <= all.bottom) ?? tops[0];
    const left = Math.max(0, Math.min(one.left + GAP, all.right - Math.min(WIDE, all.width) - GAP) - all.left);
    put({ left: `${left}px`, top: `${top - all.top}px` });
    find(box, "tour-next")?.focus({ preventScroll: true });
    about.scrollIntoView({ block: "nearest" });
    return () => about.classList.remove("sv-toured");
  }, [n]);
  const last = n === STEPS.length - 1;
  const next = () => last ? close() : go(n + 1);
  const back = () => go(Math.max(0, n - 1));
  return ui`<${Over} class="sv-tour" data-testid="tour" aria-label="tour, step ${
    n + 1
  } of ${STEPS.length}" style=${place}
        aria-describedby=${id} close=${close} first=${[".sv-primary"]} keys=${{ ArrowRight: next, ArrowLeft: back }}>
      <h2>${title}<span class="sv-soft">${` ${n + 1} of ${STEPS.length}`}</span></h2>
      <p id=${id}>${filled(ctx, words)}</p>
      <div class="sv-tourfoot">
        <button class="sv-btn sv-primary" data-testid="tour-next" onclick=${next}>${last ? "done" : "next →"}</button>
        <button class="sv-btn" data-testid="tour-back" disabled=${!n} onclick=${back}>← back</button>
        <span class="sv-grow" /><button class="sv-btn" data-testid="tour-keys" onclick=${keys}>all keys</button>
        <button class="sv-btn" data-testid="tour-close" title="end the tour (Escape)" onclick=${close}>end</button></div><//>`;
}
