// @ts-check
// The menu of one dimension: the axes that cut it, in order, and those that may be added, or why they may not.
import { fill, find, focused, h } from "./dom.js";
import { axisName, axisText, chip } from "./chips.js";
import { OPS } from "./arrays.js";

/** @import { Axis, Choice, Context, MeshAxis, Opening, What } from "./types.d.ts" */

/**
 * Whether an axis may go into a dimension, from elsewhere in the spec or anew.
 * @param {Choice | undefined} choice
 */
export function isLegal(choice) {
  return choice === 1 || Array.isArray(choice);
}

/**
 * What the menu says of an axis.
 * @param {Choice} choice
 * @param {MeshAxis} axis
 */
export function choiceText(choice, axis) {
  if (choice === 1) return `sharded ${axis.size} ways`;
  return Array.isArray(choice) ? `move it here: it ${choice[0]}` : choice;
}

/**
 * A list with the items at two places exchanged.
 * @template T
 * @param {T[]} items
 * @param {number} i
 * @param {number} j
 */
export function swapped(items, i, j) {
  return items.map((item, at) => (at === i ? items[j] : at === j ? items[i] : item));
}

/**
 * What an edit of an array says of its twins; nothing if it has none.
 * @param {Context} ctx
 * @param {What} what
 * @param {number} place
 * @param {boolean} layers whether it is done to all layers whatever the person said of twins
 * @returns {{ twins?: boolean, layers?: boolean }}
 */
export function twinsOf(ctx, what, place, layers) {
  if (what !== "inputs" || !ctx.arrays(what).twins(place).length) return {};
  return layers && !ctx.twins ? { twins: false, layers: true } : { twins: ctx.twins };
}

/**
 * Twins in a few words.
 * @param {string[]} names
 */
export function twinsText(names) {
  return names.length === 1 ? `its twin ${names[0]}` : `its ${names.length} twins, such as ${names[0]}`;
}

/**
 * Makes the menu, and `ctx.openMenu`, which opens it.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function menu(ctx, el) {
  /** @type {Opening | null} */
  let open = null;
  const box = h("div", { class: "sv-menu", id: "menu", role: "dialog", hidden: true });
  el.append(box);

  /** @param {boolean} refocus whether the focus goes back to the slot */
  function close(refocus) {
    if (!open) return;
    const slot = find(el, open.id);
    open = null;
    box.hidden = true;
    box.replaceChildren();
    slot?.setAttribute("aria-expanded", "false");
    if (refocus) slot?.focus({ preventScroll: true });
  }

  /**
   * What the menu is of: its words, the axes that cut it, what may be added, and the edits that change it.
   * @param {Opening} of
   */
  function subject(of) {
    if (of.what === "dimensions") {
      const row = ctx.get("dimensions").rows.find(({ name }) => name === of.name);
      if (!row) return null;
      /** @param {Axis[]} axes */
      const setAxes = (axes) => ctx.edit({ op: "cut_dimension", name: of.name, axes });
      const asked = ctx.lastAsked("cut_dimension", of.name)?.axes ?? row.axes;
      const move = (/** @type {string} */ axis) => setAxes([...asked, axis]);
      const words = ["dimension ", h("b", {}, row.name), ` · ${row.size} · ${row.said}`];
      return { axes: asked, choices: row.choices, setAxes, move, words, twins: [], choose: null, why: null };
    }
    const { what, name, dimension = 0, layers = false } = of;
    const arrays = ctx.arrays(what);
    const node = arrays.byName.get(name);
    const place = node?.place ?? -1;
    const dims = place < 0 ? null : arrays.dims(place);
    if (!dims || !node?.shape) return null;
    const kind = arrays.kind(place);
    const base = () => ({ name, ...twinsOf(ctx, what, place, layers) });
    return {
      axes: dims[dimension],
      choices: kind.choices[dimension],
      /** @param {Axis[]} axes */
      setAxes: (axes) => ctx.edit({ op: OPS[what].dimension, dimension, axes, ...base() }),
      /** @param {string} axis */
      move: (axis) => ctx.edit({ op: OPS[what].move, dimension, axis, ...base() }),
      words: [h("code", {}, name), ` dimension ${dimension} · ${node.shape[dimension]}`],
      twins: what === "inputs" ? arrays.twins(place).map((each) => arrays.leaves[each].path) : [],
      why: () => ctx.askWhy(name),
      choose: what === "outputs" && !kind.chosen ? () => ctx.edit({ op: OPS.outputs.spec, name, spec: null }) : null,
    };
  }

  function draw() {
    if (!open) return;
    const slot = find(el, open.id);
    const found = subject(open);
    if (!slot || !found) return close(false);
    const active = focused(box);
    const last = active && box.contains(active) ? active.getAttribute("data-testid") : null;
    const { axes, setAxes, move } = found;
    /** @param {() => void} act */
    const thenClose = (act) => () => {
      act();
      close(true);
    };

    const offers = ctx.get("mesh").axes.map((axis, i) => {
      if (axes.some((a) => axisName(a) === axis.name)) return null;
      const choice = found.choices[i];
      const add = Array.isArray(choice) ? () => move(axis.name) : () => setAxes([...axes, axis.name]);
      return offer(axis, choice, thenClose(add), open?.what === "dimensions");
    });
    const clear = h("button", { class: "sv-btn", id: "menu-clear", onclick: thenClose(() => setAxes([])) }, "clear");
    const { choose, why } = found;
    const ask = (/** @type {() => void} */ act) => () => {
      close(true);
      act();
    };
    fill(
      box,
      h("div", { class: "sv-menuhead" }, found.words),
      axes.map((_, i) => present(axes, i, setAxes)),
      h("div", { class: "sv-offers", role: "menu", "aria-label": "axes to add" }, offers),
      found.twins.length ? twinsBox(found.twins) : null,
      h(
        "div",
        { class: "sv-menufoot" },
        axes.length ? clear : null,
        choose
          ? h("button", { class: "sv-btn", id: "menu-choose", onclick: thenClose(choose) }, "let the compiler choose")
          : null,
        why
          ? h("button", { class: "sv-btn", id: "menu-why", title: "why it is cut so", onclick: ask(why) }, "why?")
          : null,
        h("button", { class: "sv-btn", id: "menu-close", onclick: () => close(true) }, "close"),
      ),
    );
    box.hidden = false;
    place(slot);
    /** @type {HTMLElement | null} */
    const first = box.querySelector(".sv-offer:not([aria-disabled])") || box.querySelector("button");
    ((last && find(box, last)) || first)?.focus({ preventScroll: true });
  }

  /**
   * One of the axes that cut the dimension now, with what can be done to it; the menu stays open.
   * @param {Axis[]} axes
   * @param {number} i
   * @param {(next: Axis[]) => void} setAxes
   */
  function present(axes, i, setAxes) {
    const text = axisText(axes[i]);
    const left = h("button", {
      id: `menu-left-${text}`,
      title: "more major",
      "aria-label": `move ${text} left`,
      disabled: i === 0,
      onclick: () => setAxes(swapped(axes, i, i - 1)),
    }, "←");
    const right = h("button", {
      id: `menu-right-${text}`,
      title: "more minor",
      "aria-label": `move ${text} right`,
      disabled: i === axes.length - 1,
      onclick: () => setAxes(swapped(axes, i, i + 1)),
    }, "→");
    const remove = h("button", {
      id: `menu-remove-${text}`,
      title: "remove",
      "aria-label": `remove ${text}`,
      onclick: () => setAxes(axes.filter((_, j) => j !== i)),
    }, "×");
    const order = axes.length > 1 ? [left, right] : null;
    return h("div", { class: "sv-menurow" }, chip(ctx, axes[i]), h("span", { class: "sv-grow" }), order, remove);
  }

  /**
   * An axis that may be added, or that may not and why.
   * @param {MeshAxis} axis
   * @param {Choice} choice
   * @param {() => void} add
   * @param {boolean} everywhere whether it is of a logical dimension
   */
  function offer(axis, choice, add, everywhere) {
    const legal = isLegal(choice);
    const said = everywhere && Array.isArray(choice) ? choice[0] : choiceText(choice, axis);
    const words = h("span", { class: choice === 1 ? "sv-soft" : "sv-why" }, said);
    return h(
      "button",
      {
        class: "sv-offer",
        id: `menu-axis-${axis.name}`,
        role: "menuitem",
        "aria-disabled": legal ? null : "true",
        title: legal ? "" : choice,
        onclick: legal ? add : (/** @type {Event} */ e) => e.preventDefault(),
      },
      chip(ctx, axis.name),
      words,
    );
  }

  /** @param {string[]} names */
  function twinsBox(names) {
    const check = h("input", {
      type: "checkbox",
      id: "menu-twins",
      checked: ctx.twins,
      onchange: () => {
        ctx.setTwins(check.checked);
        draw();
      },
    });
    return h("label", { class: "sv-twins", title: names.slice(0, 40).join("\n") }, check, ` and ${twinsText(names)}`);
  }

  /**
   * Puts the menu under its slot, or above where there is more room.
   * @param {HTMLElement} slot
   */
  function place(slot) {
    const a = slot.getBoundingClientRect();
    const b = el.getBoundingClientRect();
    const left = Math.max(4, Math.min(a.left - b.left - 8, b.width - box.offsetWidth - 4));
    const below = a.bottom - b.top + 4;
    const fits = below + box.offsetHeight < b.height || a.top - b.top < box.offsetHeight;
    box.style.left = `${left}px`;
    box.style.top = `${fits ? below : a.top - b.top - box.offsetHeight - 4}px`;
  }

  box.addEventListener("keydown", (e) => {
    e.stopPropagation();
    /** @type {NodeListOf<HTMLElement>} */
    const found = box.querySelectorAll("button:not(:disabled), input");
    const buttons = [...found];
    const at = buttons.findIndex((button) => button === focused(box));
    if (e.key === "Escape") close(true);
    else if (e.key === "ArrowDown") buttons[(at + 1) % buttons.length].focus();
    else if (e.key === "ArrowUp") buttons[(at + buttons.length - 1) % buttons.length].focus();
    else return;
    e.preventDefault();
  });
  el.addEventListener("pointerdown", (e) => {
    if (open && !box.contains(/** @type {Node} */ (e.target))) close(false);
  });
  for (const key of ["cuts", "out_cuts", "dimensions", "kin", "asked"]) ctx.on(key, draw);
  ctx.openMenu = (opening) => {
    if (open && open.id === opening.id) return close(true);
    close(false);
    open = opening;
    draw();
    find(el, opening.id)?.setAttribute("aria-expanded", "true");
  };
}
