// @ts-check
// Mesh axes as chips. A chip always says its axis's name; the colour only helps.
import { ui, useContextOf } from "./parts.js";

/** @import { Axis, Context, Dims } from "./types.d.ts" */

const LONGEST = 24; // characters of a name that is shown as it is
const UNKNOWN = { "--c": "#6b7280", "--cd": "#9ca3af", "--i": "#fff", "--id": "#111" };

/**
 * `data`, or `data:(2)4` for a part of an axis.
 * @param {Axis} axis
 */
export function axisText(axis) {
  return typeof axis === "string" ? axis : `${axis[0]}:(${axis[1]})${axis[2]}`;
}

/** @param {Axis} axis */
export function axisName(axis) {
  return typeof axis === "string" ? axis : axis[0];
}

/**
 * The CSS variables that carry an axis's colours; grey for an axis that is not in the mesh.
 * @param {Pick<Context, "get">} ctx
 * @param {Axis | null} [axis]
 * @returns {Record<string, string>}
 */
export function axisStyle(ctx, axis) {
  const found = axis && ctx.get("mesh").axes.find((a) => a.name === axisName(axis));
  if (!found) return UNKNOWN;
  return { "--c": found.light, "--cd": found.dark, "--i": found.ink, "--id": found.dark_ink };
}

/** @param {string} name */
export function shortened(name) {
  return name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}…` : name;
}

/** A spec in words, for screen readers: `data and model, not sharded`. @param {Dims} dims */
export function specText(dims) {
  return dims.map(shardingText).join(", ");
}

/** What shardings one dimension, in words. @param {Axis[]} axes */
export function shardingText(axes) {
  return axes.length ? axes.map(axisText).join(" and ") : "not sharded";
}

/** @param {number[]} shape */
export function shapeText(shape) {
  return `[${shape.join(", ")}]`;
}

/** @param {{ axis: Axis, text?: string, [attribute: string]: unknown }} props what it says, such as the axis with its size */
export function Chip({ axis, text = axisText(axis), ...more }) {
  const ctx = useContextOf();
  const long = text.length > LONGEST ? { class: "sv-chip sv-long", title: text } : { class: "sv-chip" };
  const thing = `axis ${axisName(axis)}`;
  return ui`<span style=${axisStyle(ctx, axis)} data-thing=${thing} ...${long} ...${more}>${text}</span>`;
}

/** The axes that a collective goes over, or what stands for them. @param {{ axes?: Axis[] | null }} props */
export function Axes({ axes }) {
  if (!axes?.length) return ui`<span class="sv-soft">${axes ? "one device" : "no product of axes"}</span>`;
  return ui`<span class="sv-axes">${axes.map((axis) => ui`<${Chip} axis=${axis} />`)}</span>`;
}

/**
 * A spec in brackets: `[data, ·, model]`.
 * @param {{ dims?: Dims | null, unreduced?: Axis[], kind?: string, name?: string }} props the axes over which it is still
 *   to be reduced; by what, a sum where nothing is said; the value: a click on an axis asks why it is there
 */
export function SpecChips({ dims, unreduced, kind = "sum", name = "" }) {
  if (!dims) return ui`<span class="sv-soft">no PartitionSpec</span>`;
  const one = (/** @type {Axis} */ axis) =>
    name ? ui`<${Asking} axis=${axis} name=${name} />` : ui`<${Chip} axis=${axis} />`;
  const parts = dims.map((axes, i) => [i ? ui`<b>,</b>` : null, axes.length ? axes.map(one) : ui`<em>·</em>`]);
  const sum = unreduced?.length
    ? [ui`<span class="sv-soft">${` ${kind} over `}</span>`, unreduced.map((axis) => ui`<${Chip} axis=${axis} />`)]
    : null;
  return ui`<span class="sv-spec" aria-label=${specText(dims)}><b>[</b>${parts}<b>]</b>${sum}</span>`;
}

/** An axis of a value's spec: a click asks why the value is sharded along it. @param {{ axis: Axis, name: string }} props */
function Asking({ axis, name }) {
  const ctx = useContextOf();
  const of = axisName(axis);
  const ask = (/** @type {Event} */ e) => {
    e.stopPropagation();
    ctx.askWhy(name, of);
  };
  return ui`<button class="sv-chip sv-ask" style=${axisStyle(ctx, axis)} data-thing="axis ${of}"
        data-testid="why-${of}-${name}" title="why is it sharded along ${of}?" onclick=${ask}>
      ${shortened(axisText(axis))}</button>`;
}
