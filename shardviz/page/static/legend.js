// @ts-check
// What stands beside the lanes of a timeline, and its legend.
import { axisStyle, Chip } from "./chips.js";
import { ui, useContextOf } from "./parts.js";

/** @import { lanesOf } from "./lanes.js" */
/** @import { Timelines } from "./types.d.ts" */

const OF_AXES = ["", "falls", "dots", "down"]; // the hatch of an axis by its place, as its bars have it

/** What stands beside the lanes.
 * @param {Pick<ReturnType<typeof lanesOf>, "lanes" | "heads"> & { zoom: (times: number) => void, whole: () => void }} props */
export function Names({ lanes, heads, zoom, whole }) {
  /** @type {[id: string, words: string, title: string, act: () => void][]} */
  const tools = [
    ["in", "+", "zoom in (+)", () => zoom(2)],
    ["out", "−", "zoom out (−)", () => zoom(0.5)],
    ["whole", "whole step", "the whole step (Home)", whole],
  ];
  const buttons = tools.map(([id, words, title, act]) =>
    ui`<button class="sv-btn" data-testid="timeline-${id}" title=${title} aria-label=${title} onclick=${act}>${words}</button>`
  );
  const cards = heads.map(({ y, card: { name, said, rests } }) =>
    ui`<div class="sv-tlhead" style=${{ top: `${y}px` }}><b>${name} ${said}</b><span>${rests}</span></div>`
  );
  const named = lanes.filter(({ name }) => name).map(({ y, name, axis, busy, title }) => {
    const [before, after] = axis ? name.split(axis) : [name, ""];
    return ui`<div class="sv-tlname" title=${title || null} style=${{ top: `${y}px` }}>
        <span>${before}${
      axis && ui`<${Chip} axis=${axis} />`
    }${after}</span><span class="sv-soft">${busy}</span></div>`;
  });
  return ui`<div class="sv-tlnames"><div class="sv-tltools">${buttons}</div>${cards}${named}</div>`;
}

/** The legend, whose samples the canvas takes its colours from. @param {{ of: Timelines["looks"] }} props */
export function Looks({ of }) {
  const ctx = useContextOf();
  const axes = ctx.get("mesh").axes.map(({ name }) => name);
  const samples = of.map(([text, kind, hatch]) => {
    const style = kind === "axis" ? axisStyle(ctx, axes[hatch ?? 0]) : null;
    const strokes = kind === "axis" ? OF_AXES[(hatch ?? 0) % OF_AXES.length] : kind === "hbm" ? "down" : "";
    return ui`<li><i class="sv-tl-${kind}" style=${style} data-hatch=${strokes} />${text}</li>`;
  });
  return ui`<ul class="sv-tllegend" data-testid="timeline-legend">${samples}</ul>`;
}
