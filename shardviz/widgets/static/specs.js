// @ts-check
// Inputs and outputs: a tree of arrays; each dimension is a slot with its size above it, into which axes go.
import { fill, find, h } from "./dom.js";
import { chip, cutText, shapeText } from "./chips.js";
import { dragAxis, dropAxis } from "./drag.js";
import { isLeaf, isLegal, leavesOf, OPS, withTwins } from "./menu.js";
import { notice } from "./head.js";

/** @import { Branch, Context, EditError, Leaf } from "./types.d.ts" */

const WORDS = {
  inputs: {
    title: "Inputs",
    hint: "drag an axis onto a dimension, click a slot, or type P(…)",
    slot: "slot",
    place: "argument",
  },
  outputs: {
    title: "Outputs",
    hint: "chosen by the compiler, unless you set them",
    slot: "out-slot",
    place: "output",
  },
};

/**
 * The rows that are to be seen: what lies under a closed branch is left out.
 * @param {(Branch | Leaf)[]} rows
 * @param {(row: Branch) => boolean} isClosed
 */
export function visibleRows(rows, isClosed) {
  const seen = [];
  let depth = Infinity; // of the closed branch that we are in
  for (const row of rows) {
    if (row.depth > depth) continue;
    depth = !isLeaf(row) && isClosed(row) ? row.depth : Infinity;
    seen.push(row);
  }
  return seen;
}

/** Pixels from the left: small steps from the third level on, so that a deep tree's names can still be read. */
const indent = (/** @type {number} */ depth) => 8 + Math.min(depth, 2) * 14 + Math.max(0, depth - 2) * 5;

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {"inputs" | "outputs"} what
 */
export function specs(ctx, el, what) {
  const words = WORDS[what];
  const ops = OPS[what];
  const list = h("div", { class: "sv-specs", role: "tree", "aria-label": words.title });
  el.append(h("div", { class: "sv-sec" }, words.title, h("span", { class: "sv-hint" }, words.hint)), list);
  /** Branches that a person opened (false) or closed (true). @type {Map<string, boolean>} */
  const folded = new Map();
  /** What each slot would take. @type {WeakMap<Element, (axis: string) => boolean>} */
  const takes = new WeakMap();
  let fresh = false; // whether these specs have just changed

  /**
   * @param {Branch} row
   * @param {EditError | null} error
   */
  function isClosed(row, error) {
    if (error?.place === words.place && error.argument?.startsWith(row.path)) return false;
    const first = ctx.get(what).rows.find((r) => !isLeaf(r));
    const large = row.depth === 0 && row.leaves > 4 && (what === "outputs" || row !== first);
    return folded.get(row.path) ?? large;
  }

  /**
   * @param {Branch} row
   * @param {boolean} closed
   */
  function branch(row, closed) {
    const name = h(
      "button",
      {
        class: "sv-name",
        id: `fold-${row.path}`,
        style: { "padding-left": `${indent(row.depth)}px` },
        onclick: () => {
          folded.set(row.path, !closed);
          draw();
        },
      },
      h("span", { class: "sv-tri", "aria-hidden": "true" }, closed ? "▸" : "▾"),
      row.label,
    );
    const sum = h("span", { class: "sv-mem" }, closed ? `${row.leaves} arrays · ${row.bytes}` : "");
    const attributes = { class: "sv-row sv-branch", role: "treeitem", "aria-expanded": String(!closed) };
    return h("div", attributes, name, h("span", { class: "sv-grow" }), sum);
  }

  /**
   * One dimension: its size, and the slot with the axes that cut it.
   * @param {Leaf} row
   * @param {number} dimension
   * @param {EditError | null} error
   */
  function slot(row, dimension, error) {
    const axes = row.dims ? row.dims[dimension] : [];
    const id = `${words.slot}-${row.name}-${dimension}`;
    const wrong = error?.dimension === dimension;
    const chips = axes.map((axis) => {
      const shown = chip(ctx, axis);
      if (typeof axis === "string") dragAxis(shown, axis);
      return shown;
    });
    const button = h("button", {
      class: `sv-slot ${axes.length ? "sv-cut" : ""} ${wrong ? "sv-wrong" : ""} ${row.chosen ? "sv-chosen" : ""}`,
      id,
      "aria-haspopup": "dialog",
      "aria-expanded": "false",
      "aria-invalid": wrong ? "true" : null,
      disabled: !row.dims,
      "aria-label": `${row.name}, dimension ${dimension} of size ${row.shape[dimension]}: ${cutText(axes)}`,
      onclick: () => {
        ctx.select(row.name);
        ctx.openMenu(what, row.name, dimension, id);
      },
      onkeydown: (e) => slotKeys(e, row, dimension),
    }, axes.length ? chips : h("em", {}, "·"));
    const names = ctx.get("mesh").axes.map((a) => a.name);
    /** @param {string} axis */
    const may = (axis) => isLegal(row.choices[dimension][names.indexOf(axis)]);
    takes.set(button, may);
    dropAxis(button, may, (axis) => {
      ctx.edit({ op: ops.move, name: row.name, axis, dimension, ...withTwins(row, ctx.twins) });
    });
    return h("span", { class: "sv-dim" }, h("small", {}, row.shape[dimension]), button);
  }

  /**
   * Arrows go from slot to slot, Delete empties one.
   * @param {KeyboardEvent} e
   * @param {Leaf} row
   * @param {number} dimension
   */
  function slotKeys(e, row, dimension) {
    /**
     * @param {string} name
     * @param {number} d
     */
    const go = (name, d) => {
      const target = find(list, `${words.slot}-${name}-${d}`);
      target?.focus();
      return target !== null;
    };
    /** @param {number} by rows, to the next one that is shown and no scalar */
    const step = (by) => {
      const rows = leavesOf(ctx.get(what));
      for (let i = rows.findIndex((r) => r.name === row.name) + by; rows[i]; i += by) {
        const { name, shape } = rows[i];
        if (shape.length && go(name, Math.min(dimension, shape.length - 1))) return;
      }
    };
    if (e.key === "ArrowRight") go(row.name, dimension + 1);
    else if (e.key === "ArrowLeft") go(row.name, dimension - 1);
    else if (e.key === "ArrowDown") step(1);
    else if (e.key === "ArrowUp") step(-1);
    else if (e.key === "Delete" || e.key === "Backspace") {
      if (row.dims?.[dimension].length) {
        ctx.edit({ op: ops.dimension, name: row.name, dimension, axes: [], ...withTwins(row, ctx.twins) });
      }
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /**
   * The selected array: its spec to type, its shapes, and why an edit of it was refused.
   * @param {Leaf} row
   * @param {EditError | null} error
   */
  function detail(row, error) {
    const value = row.chosen ? "" : row.text;
    /** @param {KeyboardEvent} e */
    function onkeydown(e) {
      e.stopPropagation();
      if (e.key === "Enter") {
        const spec = what === "outputs" && input.value.trim() === "" ? null : input.value;
        ctx.edit({ op: ops.spec, name: row.name, spec, ...withTwins(row, ctx.twins) });
      }
      if (e.key === "Escape") {
        input.value = value;
        input.blur();
      }
    }
    const input = h("input", {
      type: "text",
      class: "sv-typed",
      id: `spec-${row.name}`,
      value,
      spellcheck: "false",
      placeholder: row.chosen ? `${row.text}, chosen by the compiler` : "",
      "aria-label": `PartitionSpec of ${row.name}`,
      onkeydown,
    });
    const shard = row.shard ? [" → shard ", h("code", {}, shapeText(row.shard))] : null;
    const shape = h("code", {}, shapeText(row.shape));
    return h(
      "div",
      { class: "sv-detail" },
      input,
      h("span", { class: "sv-soft" }, `${row.dtype} `, shape, shard, row.donated ? " · donated" : ""),
      error ? notice("sv-error", "argument-error", error.message, error.detail) : null,
    );
  }

  /**
   * @param {Leaf} row
   * @param {EditError | null} error
   */
  function leaf(row, error) {
    const selected = ctx.get("selected") === row.name;
    const mine = error?.argument === row.name ? error : null;
    const here = mine?.place === words.place ? mine : null;
    /** @type {Record<string, string>} */
    const wide = row.depth > 2 ? { "flex-basis": `${100 + (row.depth - 2) * 9}px` } : {};
    const attributes = {
      class: `sv-row sv-leaf ${selected ? "sv-sel" : ""} ${row.changed && fresh ? "sv-changed" : ""}`,
      role: "treeitem",
      "aria-selected": String(selected),
      id: `${words.place}-${row.name}`,
      onclick: (/** @type {Event} */ e) => {
        if (!(/** @type {Element} */ (e.target).closest("button,input"))) ctx.select(row.name);
      },
    };
    const name = h(
      "button",
      {
        class: "sv-name",
        title: `${row.name} ${row.dtype}${shapeText(row.shape)}`,
        style: { "padding-left": `${indent(row.depth) + (row.depth ? 0 : 2)}px`, ...wide },
        onclick: () => ctx.select(row.name),
      },
      row.label,
      mine ? h("span", { class: "sv-warn", title: mine.message }, " ▲") : null,
    );
    const slots = row.shape.map((_, d) => slot(row, d, mine));
    const line = h(
      "div",
      attributes,
      name,
      h("span", { class: "sv-dims" }, slots.length ? slots : h("span", { class: "sv-soft" }, "scalar")),
      h("span", { class: "sv-mem" }, row.bytes, row.chosen ? h("small", {}, "chosen") : null),
    );
    return [line, selected || here ? detail(row, here) : null];
  }

  function draw() {
    const data = ctx.get(what);
    const { error } = ctx.get("status");
    const shown = visibleRows(data.rows, (row) => isClosed(row, error))
      .map((row) => isLeaf(row) ? leaf(row, error) : branch(row, isClosed(row, error)));
    const homeless = error?.place === words.place && !leavesOf(data).some((r) => r.name === error.argument);
    fill(
      list,
      homeless ? notice("sv-error", `${words.place}-error`, error.message, error.detail) : null,
      shown,
      data.hidden ? h("div", { class: "sv-more" }, `${data.hidden} more rows are not shown`) : null,
    );
  }

  el.closest(".shardviz")?.addEventListener("sv-drag", (e) => {
    const axis = /** @type {CustomEvent<string | null>} */ (e).detail;
    for (const button of list.querySelectorAll(".sv-slot")) {
      const may = axis !== null && takes.get(button)?.(axis);
      button.classList.toggle("sv-may", axis !== null && may === true);
      button.classList.toggle("sv-maynot", axis !== null && may === false);
    }
  });
  let lastError = "";
  ctx.on(what, () => {
    fresh = true;
    draw();
    fresh = false;
  });
  ctx.on("mesh", draw);
  ctx.on("selected", draw);
  ctx.on("status", () => {
    const error = JSON.stringify(ctx.get("status").error);
    if (error !== lastError) draw();
    lastError = error;
  });
  draw();
}
