// @ts-check
// What is not answered yet: while an edit waits for the kernel, what it may change is grey, with the time since.
import { h } from "./dom.js";

/** @import { Context } from "./types.d.ts" */

const PATIENCE = 150; // milliseconds before it is said: most edits are answered within
export const TICK = 200; // milliseconds between two numbers of a clock that runs

/**
 * Seconds in words: `0.4 s`.
 * @param {number} milliseconds
 */
export function secondsText(milliseconds) {
  return `${(milliseconds / 1000).toFixed(1)} s`;
}

/**
 * Marks the page with the class `sv-asked` while an edit is not answered; returns how to stop that.
 * @param {Context} ctx
 * @param {HTMLElement} root
 */
export function waits(ctx, root) {
  const clock = h("div", { class: "sv-asking", id: "asking", role: "status", hidden: true });
  root.append(clock);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  function draw() {
    clearTimeout(timer);
    const waited = performance.now() - ctx.since;
    const asked = ctx.asked().length > 0;
    const shown = asked && waited >= PATIENCE;
    root.classList.toggle("sv-asked", shown);
    clock.hidden = !shown;
    clock.textContent = shown ? `asked ${secondsText(waited)} ago; numbers are from before` : "";
    if (asked) timer = setTimeout(draw, shown ? TICK : PATIENCE - waited + 1);
  }

  for (const key of ["asked", "status", "gone"]) ctx.on(key, draw);
  draw();
  return () => clearTimeout(timer);
}
