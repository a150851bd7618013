// @ts-check
// Dragging a mesh axis onto a dimension. While it is in the air the slots that would take it are marked.
import { Chip } from "./chips.js";
import { isLegal } from "./choices.js";
import { ui, useContextOf } from "./parts.js";

/** @import { Axis, Choice, Context } from "./types.d.ts" */

/** The axis in the air, and the explorer that it was taken up on: all explorers on a page have one module.
 * @type {{ axis: string, ctx: Pick<Context, "put"> } | null} */
let air = null;

function end() {
  air?.ctx.put("air", "");
  air = null;
}

/**
 * What lets a person drag an element as a mesh axis.
 * @param {Pick<Context, "put">} ctx
 * @param {string} axis
 */
export function dragged(ctx, axis) {
  return {
    draggable: true,
    ondragstart(/** @type {any} */ e) {
      e.dataTransfer.setData("text/plain", axis);
      e.dataTransfer.effectAllowed = "copyMove";
      air = { axis, ctx };
      ctx.put("air", axis);
      // no mouse moves while something is dragged, and what has left the page hears of no end
      e.currentTarget.ownerDocument.addEventListener("mousemove", end, { once: true });
      e.stopPropagation();
    },
    ondragend: end,
  };
}

/**
 * What makes a slot take an axis.
 * @param {Pick<Context, "put">} ctx
 * @param {(axis: string) => boolean} may whether it would take it
 * @param {(axis: string) => void} take
 */
export function dropped(ctx, may, take) {
  const over = (/** @type {any} */ e, on = false) => e.currentTarget.classList.toggle("sv-aimed", on);
  return {
    ondragover(/** @type {any} */ e) {
      if (air?.ctx !== ctx || !may(air.axis)) return;
      e.preventDefault();
      over(e, true);
    },
    ondragleave: (/** @type {any} */ e) => over(e),
    ondrop(/** @type {any} */ e) {
      over(e);
      if (air?.ctx !== ctx) return;
      e.preventDefault();
      e.stopPropagation();
      const { axis } = air;
      if (!may(axis)) return;
      end();
      take(axis);
    },
  };
}

/**
 * A slot: the axes that shard a dimension, each of which can be dragged on; it takes those that may be there.
 * @param {{ axes: Axis[], choices?: Choice[], take: (axis: string) => void, empty: string, class?: string,
 *   [attribute: string]: unknown }} props `choices`: what each axis of the mesh may do there; `empty`: what stands there
 *   without an axis
 */
export function AxisSlot({ axes, choices, take, empty, class: look = "", ...more }) {
  const ctx = useContextOf();
  const names = ctx.get("mesh").axes.map(({ name }) => name);
  const may = (/** @type {string} */ axis) => isLegal(choices?.[names.indexOf(axis)]);
  const marks = ctx.air && (may(ctx.air) ? "sv-may" : "sv-maynot");
  const chips = axes.map((axis) =>
    ui`<${Chip} axis=${axis} ...${typeof axis === "string" ? dragged(ctx, axis) : {}} />`
  );
  return ui`<button ...${more} class="sv-slot ${axes.length ? "sv-cut" : ""} ${marks} ${look}" aria-haspopup="dialog"
        aria-expanded="false" ...${dropped(ctx, may, take)}>
      ${chips.length ? chips : ui`<em>${empty}</em>`}</button>`;
}
