// @ts-check
// Mesh axes as chips. A chip always says its axis's name; the colour only helps.
import { h } from "./dom.js";

/** @import { Axis, Context, Dims, Props } from "./types.d.ts" */

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

/**
 * @param {Context} ctx
 * @param {Axis} axis
 * @param {Props} [props]
 * @param {string} [text] what it says, such as the axis with its size
 */
export function chip(ctx, axis, props, text = axisText(axis)) {
  const long = text.length > LONGEST ? { class: "sv-chip sv-long", title: text } : {};
  const thing = { "data-thing": `axis ${axisName(axis)}` };
  return h("span", { class: "sv-chip", style: axisStyle(ctx, axis), ...thing, ...long, ...props }, text);
}

/**
 * The axes that a collective goes over, or what stands for them.
 * @param {Context} ctx
 * @param {Axis[] | null} [axes]
 */
export function axesChips(ctx, axes) {
  if (!axes) return h("span", { class: "sv-soft" }, "no product of axes");
  if (!axes.length) return h("span", { class: "sv-soft" }, "one device");
  return h("span", { class: "sv-axes" }, axes.map((axis) => chip(ctx, axis)));
}

/**
 * A spec in brackets: `[data, ·, model]`.
 * @param {Context} ctx
 * @param {Dims | null} [dims]
 * @param {Axis[]} [unreduced] the axes over which it is still to be reduced
 * @param {string} [kind] by what: a sum where nothing is said
 * @param {string} [name] the value: a click on an axis asks why it is there
 */
export function specChips(ctx, dims, unreduced, kind = "sum", name = "") {
  if (!dims) return h("span", { class: "sv-soft" }, "no PartitionSpec");
  const parts = dims.map((axes, i) => [
    i ? h("b", {}, ",") : null,
    axes.length ? axes.map((axis) => name ? asking(ctx, axis, name) : chip(ctx, axis)) : h("em", {}, "·"),
  ]);
  const sum = unreduced?.length
    ? [h("span", { class: "sv-soft" }, ` ${kind} over `), unreduced.map((axis) => chip(ctx, axis))]
    : null;
  return h("span", { class: "sv-spec", "aria-label": specText(dims) }, h("b", {}, "["), parts, h("b", {}, "]"), sum);
}

/**
 * An axis of a value's spec: a click asks why the value is cut along it.
 * @param {Context} ctx
 * @param {Axis} axis
 * @param {string} name
 */
function asking(ctx, axis, name) {
  const of = axisName(axis);
  const onclick = (/** @type {Event} */ e) => {
    e.stopPropagation();
    ctx.askWhy(name, of);
  };
  const props = {
    "data-thing": `axis ${of}`,
    id: `why-${of}-${name}`,
    title: `why is it sharded along ${of}?`,
    onclick,
  };
  return h("button", { class: "sv-chip sv-ask", style: axisStyle(ctx, axis), ...props }, shortened(axisText(axis)));
}

/**
 * A spec in words, for screen readers: `data and model, not sharded`.
 * @param {Dims} dims
 */
export function specText(dims) {
  return dims.map(cutText).join(", ");
}

/**
 * What cuts one dimension, in words.
 * @param {Axis[]} axes
 */
export function cutText(axes) {
  return axes.length ? axes.map(axisText).join(" and ") : "not sharded";
}

/** @param {number[]} shape */
export function shapeText(shape) {
  return `[${shape.join(", ")}]`;
}
