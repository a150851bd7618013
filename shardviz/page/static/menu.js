// @ts-check
// The menu of one dimension: the axes that shard it, in order, and those that may be added, or why they may not.
import { OPS } from "./arrays.js";
import { axisName, axisText, Chip } from "./chips.js";
import { choiceText, isLegal, swapped, twinsOf, twinsText } from "./choices.js";
import { find } from "./dom.js";
import { Over } from "./over.js";
import { Check } from "./fields.js";
import { ui, useTraits } from "./parts.js";
import { useState } from "./vendor/preact.js";

/** @import { Axis, Choice, Context, MeshAxis, Opening } from "./types.d.ts" */

/**
 * What the menu is of: its words, the axes that shard it, what may be added, and the edits that change it.
 * @param {Context} ctx
 * @param {Opening} of
 */
function subject(ctx, of) {
  if (of.what === "dimensions") {
    const row = ctx.get("dimensions").rows.find(({ name }) => name === of.name);
    if (!row) return null;
    const setAxes = (/** @type {Axis[]} */ axes) => ctx.edit({ op: "shard_dimension", name: of.name, axes });
    const axes = ctx.lastAsked("shard_dimension", of.name)?.axes ?? row.axes;
    const move = (/** @type {string} */ axis) => setAxes([...axes, axis]);
    const words = ui`dimension <b>${row.name}</b> · ${row.size} · ${row.said}`;
    return { axes, choices: row.choices, setAxes, move, words, twins: [], choose: null, why: null };
  }
  const { what, name, dimension = 0, layers = false } = of;
  const arrays = ctx.arrays(what);
  const node = arrays.byName.get(name);
  const place = node?.place ?? -1;
  const dims = place < 0 ? null : arrays.dims(place);
  if (!dims || !node?.shape) return null;
  const kind = arrays.kind(place);
  const base = () => ({ name, dimension, ...twinsOf(ctx, what, place, layers) });
  return {
    axes: dims[dimension],
    choices: kind.choices[dimension],
    setAxes: (/** @type {Axis[]} */ axes) => ctx.edit({ ...OPS.dim[what], axes, ...base() }),
    move: (/** @type {string} */ axis) => ctx.edit({ ...OPS.move[what], axis, ...base() }),
    words: ui`<code>${name}</code> dimension ${dimension} · ${node.shape[dimension]}`,
    twins: what === "inputs" ? arrays.twins(place).map((each) => arrays.leaves[each].path) : [],
    why: () => ctx.askWhy(name),
    choose: what === "outputs" && !kind.chosen ? () => ctx.edit({ ...OPS.spec.outputs, name, spec: null }) : null,
  };
}

/** The menu, and `ctx.openMenu`, which opens it. */
export function Menu() {
  const ctx = useTraits(
    "shardings",
    "out_shardings",
    "dimensions",
    "array_groups",
    "asked",
    "mesh",
    "twins",
    "selected",
    "status",
  );
  const [open, show] = useState(/** @type {Opening | null} */ (null));
  ctx.openMenu = (opening) => show(open?.id === opening.id ? null : opening);
  const of = open && subject(ctx, open);
  if (!open || !of) return null;
  const { axes, choices, setAxes, move, words, twins, choose, why } = of;
  const close = () => {
    find(ctx.root, open.id)?.focus({ preventScroll: true });
    show(null);
  };
  /** @param {string} id @param {string} text @param {() => void} act */
  const button = (id, text, act, title = "") =>
    ui`<button class="sv-btn" data-testid="menu-${id}" title=${title} onclick=${() => (close(),
      act())}>${text}</button>`;
  const offers = ctx.get("mesh").axes.map((axis, i) => {
    if (axes.some((a) => axisName(a) === axis.name)) return null;
    const add = () => (close(), Array.isArray(choices[i]) ? move(axis.name) : setAxes([...axes, axis.name]));
    return ui`<${Offer} key=${axis.name} axis=${axis} choice=${choices[i]} add=${add}
          everywhere=${open.what === "dimensions"} />`;
  });
  return ui`<${Over} class="sv-menu" data-testid="menu" at=${open.id} close=${() => show(null)}
        first=${[".sv-offer:not([aria-disabled])", "button"]} key=${open.id}>
      <div class="sv-menuhead">${words}</div>
      ${axes.map((axis, i) => ui`<${Present} key=${axisText(axis)} axes=${axes} i=${i} setAxes=${setAxes} />`)}
      <div class="sv-offers" role="menu" aria-label="axes to add">${offers}</div>${
    twins.length > 0 &&
    ui`<${Check} class="sv-twins" title=${twins.slice(0, 40).join("\n")} id="menu-twins" on=${ctx.twins}
        set=${(on) => ctx.put("twins", on)}>${`and ${twinsText(twins)}`}<//>`
  }
      <div class="sv-menufoot" data-row="">
        ${axes.length > 0 && button("clear", "clear", () => setAxes([]))}
        ${choose && button("choose", "let the compiler choose", choose)}
        ${why && button("why", "why?", why, "why it is sharded so")}${button("close", "close", () => {})}</div><//>`;
}

/** One of the axes that shard the dimension now, with what can be done to it; the menu stays open.
 * @param {{ axes: Axis[], i: number, setAxes: (axes: Axis[]) => void }} props */
function Present({ axes, i, setAxes }) {
  const text = axisText(axes[i]);
  /** @param {string} id @param {string} sign @param {string} title @param {string} label @param {Axis[]} next */
  const button = (id, sign, title, label, next, disabled = false) =>
    ui`<button data-testid="menu-${id}-${text}" title=${title} aria-label=${label} disabled=${disabled} onclick=${() =>
      setAxes(next)}>${sign}</button>`;
  return ui`<div class="sv-menurow" data-row=""><${Chip} axis=${axes[i]} /><span class="sv-grow" />${
    axes.length > 1 && [
      button("left", "←", "more major", `move ${text} left`, swapped(axes, i, i - 1), i === 0),
      button("right", "→", "more minor", `move ${text} right`, swapped(axes, i, i + 1), i === axes.length - 1),
    ]
  }${button("remove", "×", "remove", `remove ${text}`, axes.filter((_, j) => j !== i))}</div>`;
}

/** An axis that may be added, or that may not and why.
 * @param {{ axis: MeshAxis, choice: Choice, add: () => void, everywhere: boolean }} props `everywhere`: whether it is of a
 *   logical dimension */
function Offer({ axis, choice, add, everywhere }) {
  const legal = isLegal(choice);
  const said = everywhere && Array.isArray(choice) ? choice[0] : choiceText(choice, axis);
  return ui`<button class="sv-offer" data-testid="menu-axis-${axis.name}" role="menuitem"
        aria-disabled=${legal ? null : "true"} title=${legal ? "" : choice} onclick=${legal ? add : null}>
      <${Chip} axis=${axis.name} /><span class=${choice === 1 ? "sv-soft" : "sv-why"}>${said}</span></button>`;
}
