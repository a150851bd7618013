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
