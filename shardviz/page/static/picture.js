// @ts-check
// Any Picture of the kernel: pointed at, walked with the arrow keys, and selected; with its legend.
import { keyed } from "./dom.js";
import { ui, useContextOf } from "./parts.js";
import { itemsOf, nearest } from "./items.js";
import { actOf } from "./pieces.js";
import { layersOf, Sample } from "./shapes.js";
import { useMemo, useRef, useState } from "./vendor/preact.js";

/** @import { Figure as Block, Picture as Data } from "./types.d.ts" */

/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/** The elements that an animation is made of. */
const MOVING = new Set(["b", "div", "form", "i", "input", "label", "pre", "span", "style"]);

/**
 * A picture, and below it the sentence on what is pointed at.
 * @param {{ of: Data, over?: Data | null, pressed?: number, id: string, said?: string, hint?: string,
 *   pick?: (keys: number[]) => void }} props  `over`: another picture that lies over it; `pressed`: the key of what is
 *   selected, below 0 for nothing; `id` and `said` name the picture and the sentence; `hint`
 *   is the sentence while nothing is pointed at; `pick` gets the keys of what is clicked.
 */
export function Picture({ of, over, pressed = -1, id, said, hint = "", pick }) {
  const ctx = useContextOf();
  const svg = useRef(/** @type {any} */ (null));
  const [pointed, point] = useState(-1); // the item under the pointer
  const [walked, walk] = useState(-1); // the item that has the focus, or where the keys are
  const mesh = ctx.get("mesh");
  const items = useMemo(() => itemsOf(of), [of]);
  const chosen = items.findIndex(({ keys }) => keys.includes(pressed));
  const enters = walked >= 0 ? walked : chosen >= 0 ? chosen : items.findIndex(({ button }) => button);
  const layers = useMemo(() =>
    layersOf(
      ctx,
      of,
      (n, attributes, inside) =>
        ui`<g class="sv-item" role="button" tabindex=${n === enters ? "0" : "-1"} aria-label=${items[n].tip}
              aria-pressed=${items[n].keys.includes(pressed)} onfocusin=${() => walk(n)} ...${attributes}>
            ${inside}</g>`,
      over,
    ), [of, over, mesh, pressed, enters]);
  const selecting = of.shapes.some((shape) => shape.select);
  const telling = of.shapes.some((shape) => shape.tip_parts);
  const here = items[pointed >= 0 ? pointed : walked];

  /** The item at a place of the page, flat ones with some room around; -1 for none. @param {MouseEvent} event */
  function at({ clientX, clientY }) {
    const box = svg.current.getBoundingClientRect();
    const [x, y] = [(clientX - box.left) * of.width / box.width, (clientY - box.top) * of.height / box.height];
    return items.findIndex((item) =>
      x >= item.x && x <= item.x + item.w && Math.abs(y - item.y - item.h / 2) <= Math.max(5, item.h / 2)
    );
  }

  /** Does what the item is for; false where it is for nothing. @param {number} n */
  function choose(n) {
    const act = actOf(ctx, items[n]?.sel);
    if (act) act();
    else if (items[n]?.keys.length) pick?.(items[n].keys);
    else return false;
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    const arrow = (/** @type {[number, number]} */ direction) => () => {
      const first = (/** @type {number} */ best, /** @type {number} */ n) =>
        (items[n].y - items[best].y || items[n].x - items[best].x) < 0 ? n : best;
      const from = pointed >= 0 ? pointed : walked;
      const next = from < 0 ? items.map((_, n) => n).reduce(first, 0) : nearest(items, from, direction);
      if (items[next]) go(next);
    };
    const take = () => choose(walked);
    const arrows = Object.entries(ARROWS).map(([key, direction]) => [key, arrow(direction)]);
    keyed(event, { ...Object.fromEntries(arrows), Enter: take, " ": take });
  }

  /** @param {number} n */
  function go(n) {
    point(-1);
    walk(n);
    if (items[n].button) {
      svg.current.querySelectorAll(".sv-item")[
        items.slice(0, n).filter(({ button }) => button).length
      ].focus();
    }
  }

  const leave = (/** @type {FocusEvent} */ e) => svg.current.contains(e.relatedTarget) || walk(-1);
  const sentence = telling &&
    ui`<p class="sv-said" data-testid=${said} aria-live="polite">${here?.tip ?? items[chosen]?.tip ?? hint}</p>`;
  return ui`<div class="sv-picturebox">
      <svg viewBox="0 0 ${of.width} ${of.height}" role=${selecting ? "group" : "img"} aria-label=${of.alt}
          data-testid=${id} tabindex=${selecting ? "-1" : telling ? "0" : null} ref=${svg} onclick=${(e) =>
    choose(at(e))} onmousemove=${(e) => point(at(e))} onmouseleave=${() =>
    point(-1)} onfocusout=${leave} onkeydown=${keys}>
        ${layers}
        <rect class="sv-cursor" visibility=${here ? "visible" : "hidden"} x=${here?.x} y=${here?.y} width=${here?.w}
            height=${here?.h} /></svg>${sentence}</div>`;
}

/** The legend: each key with its sample. @param {{ of: Data, id: string }} props */
function Legend({ of, id }) {
  const ctx = useContextOf();
  const rows = of.keys.map((key) => ui`<li><${Sample} ctx=${ctx} axes=${of.axes} of=${key} /><b>${key.text}</b></li>`);
  return ui`<ul class="sv-legend" data-testid=${id}>${rows}</ul>`;
}

/** An animation, as `paint/motion.py` says: elements with their attributes. @param {{ of: [string, object, any[]] }} props */
function Tree({ of: [tag, attributes, inside] }) {
  const inner = inside.map((each) => Array.isArray(each) ? ui`<${Tree} of=${each} />` : each);
  return ui`<${MOVING.has(tag) ? tag : "span"} ...${attributes}>${inner}<//>`;
}

/** A figure of a Document: a text, a picture, or what only has a description here. @param {{ of: Block }} props */
export function Figure({ of: { of, caption, name = "figure" } }) {
  const ctx = useContextOf();
  if (of.tree) return ui`<${Tree} of=${of.tree} />`;
  if (of.lines) return ui`<pre class="sv-code">${of.lines}</pre>`;
  if (!of.shapes) return ui`<figure>${caption}<p class="sv-soft">${of.alt}</p></figure>`;
  const device = ctx.get("device");
  const pick = (/** @type {number[]} */ keys) => ctx.set("device", keys.includes(device) ? -1 : keys[0]);
  const style = { "--most": `${of.width}px`, "--ratio": of.width / of.height };
  const notes = of.notes.map((/** @type {string} */ text) => ui`<p class="sv-soft">${text}</p>`);
  return ui`<figure class="sv-docfigure" style=${style}>
      <figcaption>${caption}</figcaption>
      <${Picture} of=${of} pressed=${device} id=${name} said="${name}-said" pick=${pick}
          hint="point at what is drawn, or walk with the arrow keys" />
      ${of.keys.length ? ui`<${Legend} of=${of} id="${name}-legend" />` : null}${notes}</figure>`;
}
