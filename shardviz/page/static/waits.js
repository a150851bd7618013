// @ts-check
// What is not answered yet: while an edit waits for the kernel, what it may change is grey, with the time since.
import { ui, useAgain, useTraits } from "./parts.js";
import { useLayoutEffect } from "./vendor/preact.js";

const PATIENCE = 150; // milliseconds before it is said: most edits are answered within
const TICK = 200; // milliseconds between two numbers of a clock that runs

/** Seconds in words: `0.4 s`. @param {number} milliseconds */
export function secondsText(milliseconds) {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}

/** Draws a component again and again while a clock runs. @param {boolean} runs */
export function useTicks(runs, tick = TICK) {
  const again = useAgain();
  useLayoutEffect(() => {
    if (!runs) return;
    const timer = setInterval(again, tick);
    return () => clearInterval(timer);
  }, [runs, tick]);
}

/** Whether an edit has waited for its answer for so long that it is said. */
export function useAsking() {
  const ctx = useTraits("asked", "status", "gone");
  const waited = performance.now() - ctx.since;
  const asked = ctx.asked().length > 0;
  useTicks(asked, waited < PATIENCE ? PATIENCE + 1 : TICK);
  return { shown: asked && waited >= PATIENCE, waited };
}

/** Says how long the last edit waits. */
export function Asking() {
  const { shown, waited } = useAsking();
  return ui`<div class="sv-asking" data-testid="asking" role="status" hidden=${!shown}>
      ${shown && `asked ${secondsText(waited)} ago; numbers are from before`}</div>`;
}

const UNITS = /** @type {const} */ ([[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);

/** Round times for a ruler: the step between them, and how each is said. @param {number} least seconds of a step */
export function ruler(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find((times) => times * power >= least) ?? 10);
  const [unit, name] = UNITS.find(([size]) => step > size * 0.999) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-6));
  return { step, say: (/** @type {number} */ at) => `${(at / unit).toFixed(digits)} ${name}` };
}
