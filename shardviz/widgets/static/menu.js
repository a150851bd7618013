// @ts-check
// The menu of one dimension: the axes that cut it, in order, and those that may be added, or why they may not.
import { fill, find, focused, h } from "./dom.js";
import { axisName, axisText, chip } from "./chips.js";

/** @import { Axis, Branch, Choice, Context, Leaf, MeshAxis, Tree } from "./types.d.ts" */

/** The edits that a dimension of an argument or of an output takes. */
export const OPS = {
  inputs: { spec: "set_spec", dimension: "set_dim", move: "move_axis" },
  outputs: { spec: "set_out_spec", dimension: "set_out_dim", move: "move_out_axis" },
};

/**
 * The arguments or outputs of a tree, without its branches.
 * @param {Tree} tree
 */
export function leavesOf(tree) {
  return tree.rows.filter(isLeaf);
}

/**
 * @param {Branch | Leaf} row
 * @returns {row is Leaf}
 */
export function isLeaf(row) {
  return !row.leaves;
}

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
  if (choice === 1) return `cut ${axis.size} ways`;
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
 * What an edit of an argument says of its twins; nothing if it has none.
 * @param {Leaf} row
 * @param {boolean} twins whether they are changed too
 */
export function withTwins(row, twins) {
  return row.twins?.length ? { twins } : {};
}

/**
 * @param {string[]} twins their names
 */
export function twinsText(twins) {
  return twins.length === 1 ? twins[0] : `its ${twins.length} twins, such as ${twins[0]}`;
}

/**
 * Makes the menu, and `ctx.openMenu`, which opens it.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function menu(ctx, el) {
  /** @type {{ what: "inputs" | "outputs", name: string, dimension: number, id: string } | null} */
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

  function draw() {
    if (!open) return;
    const { what, name, dimension, id } = open;
    const row = leavesOf(ctx.get(what)).find((leaf) => leaf.name === name);
    const slot = find(el, id);
    if (!slot || !row?.dims) return close(false);
    const active = focused(box);
    const last = active && box.contains(active) ? active.getAttribute("data-testid") : null;
    const axes = row.dims[dimension];
    const base = { name, ...withTwins(row, ctx.twins) };

    /** @param {Axis[]} next */
    const setAxes = (next) => ctx.edit({ op: OPS[what].dimension, dimension, axes: next, ...base });
    /** @param {string} axis */
    const move = (axis) => ctx.edit({ op: OPS[what].move, dimension, axis, ...base });
    /** @param {() => void} act */
    const thenClose = (act) => () => {
      act();
      close(true);
    };

    const offers = ctx.get("mesh").axes.map((axis, i) => {
      if (axes.some((a) => axisName(a) === axis.name)) return null;
      const choice = row.choices[dimension][i];
      const add = Array.isArray(choice) ? () => move(axis.name) : () => setAxes([...axes, axis.name]);
      return offer(axis, choice, thenClose(add));
    });
    const clear = h("button", { class: "sv-btn", id: "menu-clear", onclick: thenClose(() => setAxes([])) }, "clear");
    const choose = h("button", {
      class: "sv-btn",
      id: "menu-choose",
      onclick: thenClose(() => ctx.edit({ op: OPS.outputs.spec, name, spec: null })),
    }, "let the compiler choose");
    fill(
      box,
      h("div", { class: "sv-menuhead" }, h("code", {}, name), ` dimension ${dimension} · ${row.shape[dimension]}`),
      axes.map((_, i) => present(axes, i, setAxes)),
      h("div", { class: "sv-offers", role: "menu", "aria-label": "axes to add" }, offers),
      row.twins?.length ? twinsBox(row.twins) : null,
      h(
        "div",
        { class: "sv-menufoot" },
        axes.length ? clear : null,
        what === "outputs" && !row.chosen ? choose : null,
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
   */
  function offer(axis, choice, add) {
    const legal = isLegal(choice);
    const words = h("span", { class: choice === 1 ? "sv-soft" : "sv-why" }, choiceText(choice, axis));
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

  /** @param {string[]} twins */
  function twinsBox(twins) {
    const check = h("input", {
      type: "checkbox",
      id: "menu-twins",
      checked: ctx.twins,
      onchange: () => {
        ctx.twins = check.checked;
        draw();
      },
    });
    return h("label", { class: "sv-twins", title: twins.join("\n") }, check, ` and ${twinsText(twins)}`);
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
  ctx.on("inputs", draw);
  ctx.on("outputs", draw);
  ctx.openMenu = (what, name, dimension, id) => {
    if (open && open.id === id) return close(true);
    close(false);
    open = { what, name, dimension, id };
    draw();
    find(el, id)?.setAttribute("aria-expanded", "true");
  };
}
