// @ts-check
// The step as it would run, the open card's and the other's, each on its own scale; the kernel draws the part that is looked at.
import { Documented } from "./document.js";
import { keyed } from "./dom.js";
import { ui, useLast, useTraits, Waiting } from "./parts.js";

const DEEPEST = 1e-6; // of the step

export function Timeline() {
  const ctx = useTraits("timeline", "span", "mesh", "gone");
  const content = useLast(ctx.get("timeline"));
  if (!content.document) return ui`<${Waiting} />`;
  const [from, to] = ctx.get("span");

  /** @param {number} middle @param {number} long shares of the step */
  function look(middle, long) {
    const fits = Math.min(Math.max(long, DEEPEST), 1);
    const begin = Math.min(Math.max(middle - fits / 2, 0), 1 - fits);
    ctx.set("span", [begin, begin + fits]);
  }
  const zoom = (/** @type {number} */ times) => () => look((from + to) / 2, (to - from) / times);
  const move = (/** @type {number} */ by) => () => look((from + to) / 2 + by * (to - from), to - from);
  const whole = () => look(0, 1);
  /** @type {[id: string, words: string, title: string, act: () => void][]} */
  const tools = [
    ["in", "+", "zoom in (+)", zoom(2)],
    ["out", "−", "zoom out (−)", zoom(0.5)],
    ["before", "◂", "earlier (<)", move(-0.5)],
    ["after", "▸", "later (>)", move(0.5)],
    ["whole", "whole step", "the whole step (Home)", whole],
  ];
  const buttons = tools.map(([id, words, title, act]) =>
    ui`<button class="sv-btn" data-testid="timeline-${id}" title=${title} aria-label=${title} onclick=${act}>${words}</button>`
  );
  const acts = { "+": zoom(2), "=": zoom(2), "-": zoom(0.5), "<": move(-0.5), ">": move(0.5), Home: whole };
  const keys = (/** @type {KeyboardEvent} */ e) => e.ctrlKey || e.metaKey || e.altKey || keyed(e, acts);
  return ui`<div onkeydown=${keys}>
      ${content.steps ? ui`<div class="sv-tools" role="toolbar" aria-label="zoom">${buttons}</div>` : null}
      <${Documented} of=${content.document} /></div>`;
}
