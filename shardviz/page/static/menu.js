// @ts-check
// The menu of one dimension: the axes that cut it, in order, and those that may be added, or why they may not.
import { OPS } from "./arrays.js";
import { axisName, axisText, Chip } from "./chips.js";
import { choiceText, isLegal, swapped, twinsOf, twinsText } from "./choices.js";
import { find, focused } from "./dom.js";
import { ui, useTraits } from "./parts.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { Axis, Choice, Context, MeshAxis, Opening } from "./types.d.ts" */

/**
 * What the menu is of: its words, the axes that cut it, what may be added, and the edits that change it.
 * @param {Context} ctx
 * @param {Opening} of
 */
function subject(ctx, of) {
  if (of.what === "dimensions") {
    const row = ctx.get("dimensions").rows.find(({ name }) => name === of.name);
    if (!row) return null;
    const setAxes = (/** @type {Axis[]} */ axes) => ctx.edit({ op: "cut_dimension", name: of.name, axes });
    const axes = ctx.lastAsked("cut_dimension", of.name)?.axes ?? row.axes;
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
    setAxes: (/** @type {Axis[]} */ axes) => ctx.edit({ op: OPS[what].dimension, axes, ...base() }),
    move: (/** @type {string} */ axis) => ctx.edit({ op: OPS[what].move, axis, ...base() }),
    words: ui`<code>${name}</code> dimension ${dimension} · ${node.shape[dimension]}`,
    twins: what === "inputs" ? arrays.twins(place).map((each) => arrays.leaves[each].path) : [],
    why: () => ctx.askWhy(name),
    choose: what === "outputs" && !kind.chosen ? () => ctx.edit({ op: OPS.outputs.spec, name, spec: null }) : null,
  };
}

/** The menu, and `ctx.openMenu`, which opens it. */
export function Menu() {
  const ctx = useTraits("cuts", "out_cuts", "dimensions", "kin", "asked", "mesh", "twins");
  const [open, show] = useState(/** @type {Opening | null} */ (null));
  const box = useRef(/** @type {any} */ (null));
  const last = useRef(""); // the test id of what had the focus in it
  const body = () => box.current.closest(".sv-body");
  const found = open && subject(ctx, open);

  /** @param {boolean} refocus whether the focus goes back to the slot */
  function close(refocus) {
    const slot = open && find(body(), open.id);
    show(null);
    if (refocus) slot?.focus({ preventScroll: true });
  }
  ctx.openMenu = (opening) => open?.id === opening.id ? close(true) : show(opening);

  useLayoutEffect(() => {
    if (!open) return;
    last.current = "";
    const slot = find(body(), open.id);
    slot?.setAttribute("aria-expanded", "true");
    const away = (/** @type {any} */ { target }) => box.current?.contains(target) || close(false);
    body().addEventListener("pointerdown", away);
    return () => {
      slot?.setAttribute("aria-expanded", "false");
      body()?.removeEventListener("pointerdown", away);
    };
  }, [open]);
  useLayoutEffect(() => {
    if (!open) return;
    const slot = find(body(), open.id);
    if (!slot || !found) return close(false);
    place(box.current, slot, body());
    if (box.current.contains(focused(box.current))) return;
    const first = box.current.querySelector(".sv-offer:not([aria-disabled])") || box.current.querySelector("button");
    ((last.current && find(box.current, last.current)) || first)?.focus({ preventScroll: true });
  });

  /** @param {KeyboardEvent} e */
  function keys(e) {
    e.stopPropagation();
    const buttons = [...box.current.querySelectorAll("button:not(:disabled), input")];
    const at = buttons.indexOf(focused(box.current));
    if (e.key === "Escape") close(true);
    else if (e.key === "ArrowDown") buttons[(at + 1) % buttons.length].focus();
    else if (e.key === "ArrowUp") buttons[(at + buttons.length - 1) % buttons.length].focus();
    else return;
    e.preventDefault();
  }

  const focusin = (/** @type {any} */ { target }) => last.current = target.dataset.testid ?? "";
  return ui`<div class="sv-menu" data-testid="menu" role="dialog" hidden=${!found} ref=${box} onkeydown=${keys}
        onfocusin=${focusin}>${
    found &&
    ui`<${Contents} of=${found} everywhere=${open?.what === "dimensions"} close=${() => close(true)} />`
  }</div>`;
}

/** @param {{ of: NonNullable<ReturnType<typeof subject>>, everywhere: boolean, close: () => void }} props */
function Contents({ of, everywhere, close }) {
  const ctx = useTraits();
  const { axes, choices, setAxes, move, words, twins, choose, why } = of;
  /** @param {string} id @param {string} text @param {() => void} act */
  const button = (id, text, act, title = "") =>
    ui`<button class="sv-btn" data-testid="menu-${id}" title=${title} onclick=${() => (close(),
      act())}>${text}</button>`;
  const offers = ctx.get("mesh").axes.map((axis, i) => {
    if (axes.some((a) => axisName(a) === axis.name)) return null;
    const act = Array.isArray(choices[i]) ? () => move(axis.name) : () => setAxes([...axes, axis.name]);
    return ui`<${Offer} key=${axis.name} axis=${axis} choice=${choices[i]} add=${() => (act(), close())}
          everywhere=${everywhere} />`;
  });
  return ui`<div class="sv-menuhead">${words}</div>
    ${axes.map((axis, i) => ui`<${Present} key=${axisText(axis)} axes=${axes} i=${i} setAxes=${setAxes} />`)}
    <div class="sv-offers" role="menu" aria-label="axes to add">${offers}</div>${
    twins.length > 0 &&
    ui`<label class="sv-twins" title=${twins.slice(0, 40).join("\n")}>
        <input type="checkbox" data-testid="menu-twins" checked=${ctx.twins}
            onchange=${(/** @type {any} */ { target }) => ctx.put("twins", target.checked)} />${` and ${
      twinsText(twins)
    }`}</label>`
  }
    <div class="sv-menufoot">
      ${axes.length > 0 && button("clear", "clear", () => setAxes([]))}
      ${choose && button("choose", "let the compiler choose", choose)}
      ${why && button("why", "why?", why, "why it is cut so")}${button("close", "close", () => {})}</div>`;
}

/** One of the axes that cut the dimension now, with what can be done to it; the menu stays open.
 * @param {{ axes: Axis[], i: number, setAxes: (axes: Axis[]) => void }} props */
function Present({ axes, i, setAxes }) {
  const text = axisText(axes[i]);
  /** @param {string} id @param {string} sign @param {string} title @param {string} label @param {Axis[]} next */
  const button = (id, sign, title, label, next, disabled = false) =>
    ui`<button data-testid="menu-${id}-${text}" title=${title} aria-label=${label} disabled=${disabled} onclick=${() =>
      setAxes(next)}>${sign}</button>`;
  return ui`<div class="sv-menurow"><${Chip} axis=${axes[i]} /><span class="sv-grow" />${
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
        aria-disabled=${legal ? null : "true"} title=${legal ? "" : choice}
        onclick=${legal ? add : (/** @type {Event} */ e) => e.preventDefault()}>
      <${Chip} axis=${axis.name} /><span class=${choice === 1 ? "sv-soft" : "sv-why"}>${said}</span></button>`;
}

/** Puts the menu under its slot, or above where there is more room. @param {HTMLElement} box @param {HTMLElement} slot @param {HTMLElement} body */
function place(box, slot, body) {
  const a = slot.getBoundingClientRect();
  const b = body.getBoundingClientRect();
  const below = a.bottom - b.top + 4;
  const fits = below + box.offsetHeight < b.height || a.top - b.top < box.offsetHeight;
  box.style.left = `${Math.max(4, Math.min(a.left - b.left - 8, b.width - box.offsetWidth - 4))}px`;
  box.style.top = `${fits ? below : a.top - b.top - box.offsetHeight - 4}px`;
}
