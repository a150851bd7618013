// @ts-check
// A tour of two minutes on the person's own function: each step stands beside what it is about, which is outlined.
import { focused } from "./dom.js";
import { ui, useContextOf } from "./parts.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { pieces } from "./words.js";

/** @import { Context } from "./types.d.ts" */
/** @typedef {{ at: string, view?: string, title: string, words: (ctx: Context) => string }} Step */

const WIDE = 380; // pixels of the box, as its style has it
const GAP = 8; // pixels between it and what it is about

/** @param {Context} ctx */
const program = (ctx) => pieces(ctx.get("head").document.title || [])[0]?.t || "the function";

/** @type {Step[]} */
export const STEPS = [
  {
    at: ".sv-head",
    title: "The answer",
    words: (ctx) =>
      `How long one call of ${
        program(ctx)
      } takes, whether it fits on each device, and what it waits for, in a sentence.`,
  },
  {
    at: ".sv-mesh",
    title: "The mesh",
    words(ctx) {
      const { axes, devices } = ctx.get("mesh");
      const grid = axes.map(({ name, size }) => `${name}=${size}`).join(", ");
      return `${devices.toLocaleString("en")} devices as a grid${
        grid && `: ${grid}`
      }. + and − change an axis; the last button chooses the machine.`;
    },
  },
  {
    at: ".sv-dimensions",
    title: "The specs",
    words: () =>
      "An axis in a slot shards that dimension, in every array that has it. Drag an axis onto a slot, or press Enter " +
      "there. Below are the arrays, each with slots of its own.",
  },
  {
    at: ".sv-work",
    view: "source",
    title: "Your own lines",
    words: (ctx) =>
      `The lines of ${
        program(ctx)
      }, each with its predicted time. A click on a line opens what it costs, why, and what to try.`,
  },
  {
    at: ".sv-work",
    view: "most",
    title: "What helps",
    words: () =>
      "What costs most, each with the change that was tried against it. Point at a change to see its plan below; a " +
      "click takes it, Ctrl+Z takes it back.",
  },
  {
    at: ".sv-strip",
    title: "The plans",
    words: () =>
      "Your plans, step time against memory; the dashed line is what a device has. A click opens a plan; drag one onto " +
      "another to compare them. “Find the best” adds plans.",
  },
  {
    at: ".sv-places",
    title: "Everything else",
    words: () =>
      "More has notations, rules, raw HLO and code. The key / finds any array, line or action; ? lists the keys. A word " +
      "with a dotted underline says what it means.",
  },
];

/** @param {{ close: () => void, keys: () => void }} props `keys` shows the list of the keys */
export function Tour({ close, keys }) {
  const ctx = useContextOf();
  const box = useRef(/** @type {any} */ (null));
  const [n, go] = useState(0);
  const [place, put] = useState({ left: "0px", top: "0px" });
  const { at, view, title, words } = STEPS[n];
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (focused(box.current));
    const tab = ctx.get("tab");
    return () => {
      ctx.setTab(tab);
      before?.focus({ preventScroll: true });
    };
  }, []);
  useLayoutEffect(() => {
    if (view) ctx.setTab(view);
    const root = box.current.closest(".shardviz");
    const about = [at, ".sv-left"].map((each) => root.querySelector(each)).find((el) => el?.checkVisibility());
    about.classList.add("sv-toured");
    const [all, one, own] = [root, about, box.current].map((el) => el.getBoundingClientRect());
    const tops = [one.bottom + GAP, one.top - own.height - GAP, one.bottom - own.height - 2 * GAP];
    const top = tops.find((y) => y >= all.top && y + own.height <= all.bottom) ?? tops[0];
    const left = Math.max(0, Math.min(one.left + GAP, all.right - Math.min(WIDE, all.width) - GAP) - all.left);
    put({ left: `${left}px`, top: `${top - all.top}px` });
    box.current.querySelector(".sv-primary").focus({ preventScroll: true });
    about.scrollIntoView({ block: "nearest" });
    return () => about.classList.remove("sv-toured");
  }, [n]);
  const last = n === STEPS.length - 1;
  const next = () => last ? close() : go(n + 1);

  /** @param {KeyboardEvent} e */
  function pressed(e) {
    if (e.key === "Escape") close();
    else if (e.key === "ArrowRight") next();
    else if (e.key === "ArrowLeft") go(Math.max(0, n - 1));
    else return;
    e.preventDefault();
    e.stopPropagation();
  }
  return ui`<div class="sv-tour" data-testid="tour" role="dialog" aria-label="tour, step ${n + 1} of ${STEPS.length}"
        aria-describedby="sv-tour-${ctx.number}" style=${place} onkeydown=${pressed} ref=${box}>
      <h2>${title}<span class="sv-soft">${` ${n + 1} of ${STEPS.length}`}</span></h2>
      <p id="sv-tour-${ctx.number}">${words(ctx)}</p>
      <div class="sv-tourfoot">
        <button class="sv-btn sv-primary" data-testid="tour-next" onclick=${next}>${last ? "done" : "next →"}</button>
        <button class="sv-btn" data-testid="tour-back" disabled=${!n} onclick=${() => go(n - 1)}>← back</button>
        <span class="sv-grow" /><button class="sv-btn" data-testid="tour-keys" onclick=${keys}>all keys</button>
        <button class="sv-btn" data-testid="tour-close" title="end the tour (Escape)" onclick=${close}>end</button></div></div>`;
}
