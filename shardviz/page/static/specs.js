// @ts-check
// Inputs and outputs: a tree of arrays; each dimension is a slot with its size above it, into which axes go.
import { fill, find, h } from "./dom.js";
import { chip, cutText, shapeText } from "./chips.js";
import { dragAxis, dropAxis } from "./drag.js";
import { OPS } from "./arrays.js";
import { isLegal, twinsOf, twinsText } from "./menu.js";
import { refusal } from "./head.js";
import { FILTERS, itemsOf } from "./tree.js";
import { virtual } from "./virtual.js";

/** @import { Arrays } from "./arrays.js" */
/** @import { Context, Edit, EditError, Item, Kind, What } from "./types.d.ts" */

const MEMORIES = ["device", "pinned_host", "unpinned_host"];
const HEIGHTS = { leaf: 41, tall: 128, branch: 25 }; // pixels, until a row is measured
const FEW = 14; // arrays that are shown from the start
const FOLDED = 24; // leaves from which on a tree that is not the first argument's is closed at first

/** @type {Record<What, { title: string, slot: string, place: "argument" | "output", key: "cuts" | "out_cuts" }>} */
const WORDS = {
  inputs: { title: "Inputs", slot: "slot", place: "argument", key: "cuts" },
  outputs: { title: "Outputs", slot: "out-slot", place: "output", key: "out_cuts" },
};

/** Pixels from the left: small steps from the third level on, so that a deep tree's names can still be read. */
const indent = (/** @type {number} */ depth) => 8 + Math.min(depth, 2) * 14 + Math.max(0, depth - 2) * 5;

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {What} what
 * @param {{ detail?: (name: string) => HTMLElement | null }} [more] what else is said of the selected array
 */
export function specs(ctx, el, what, more = {}) {
  const words = WORDS[what];
  const ops = OPS[what];
  const list = h("div", { class: "sv-specs", role: "tree", "aria-label": words.title });
  const view = { text: "", filter: "" };
  /** Branches that a person opened (false) or closed (true). @type {Map<string, boolean>} */
  const folded = new Map();
  /** What each slot would take. @type {WeakMap<Element, (axis: string) => boolean>} */
  const takes = new WeakMap();
  /** The row and the slot in it (below 0: its name) at which Tab enters the tree. */
  const here = { key: "", dimension: -1 };
  let fresh = false; // whether these specs have just changed
  let turn = 0; // how often the rows were drawn
  let around = ""; // what all rows have in common
  let told = ctx.get(words.key);
  let arrays = ctx.arrays(what);
  /** @type {(keyof import("./types.d.ts").Traits)[]} */
  const shows = [words.key, what, "mesh", "selected", "kin"];
  const tools = what === "inputs" ? searching() : null;
  const hint = what === "outputs"
    ? h("span", { class: "sv-hint" }, "the compiler's choice, unless you set them")
    : null;
  const total = arrays.leaves.length;
  let open = total <= FEW; // whether a person sees the arrays; else they are folded until one is looked for
  const count = h("span", { class: "sv-hint" }, total.toLocaleString("en"));
  const sign = h("span", { class: "sv-tri", "aria-hidden": "true" });
  const onclick = () => {
    open = !open;
    draw();
  };
  const opener = h("button", { class: "sv-fold", id: `open-${what}`, onclick }, sign, words.title, count);
  el.append(h("div", { class: "sv-sec sv-secbar" }, h("span", {}, opener, hint), tools?.twins ?? null));
  if (tools) el.append(tools.bar);
  el.append(list);

  /** Whether the arrays are shown: opened, looked for, or one of them is wrong. */
  function isOpen() {
    const { error } = ctx.get("status");
    return open || Boolean(view.text || view.filter) || error?.place === words.place;
  }

  const rows = virtual(list, el, {
    height: (item) => item.kind !== "leaf" ? HEIGHTS.branch : isSelected(item) ? HEIGHTS.tall : HEIGHTS.leaf,
    row: (item) => (item.kind === "leaf" ? leaf(item) : branch(item)),
    says,
    head: () => {
      const { error } = ctx.get("status");
      const said = error?.place === words.place && !(arrays.byName.has(error.argument ?? ""));
      if (said) return refusal(ctx, error, `${words.place}-error`);
      return rows && !rows.items.length && (view.text || view.filter) ? nothing() : null;
    },
  });

  function nothing() {
    const clear = h("button", { class: "sv-btn", id: "search-clear", onclick: () => tools?.clear() }, "show all");
    return h("div", { class: "sv-empty", role: "status" }, "No input is like that. ", clear);
  }

  function searching() {
    const search = h("input", {
      type: "search",
      class: "sv-filter",
      id: "search",
      placeholder: "search the inputs",
      "aria-label": "search the inputs by path; arrow down goes to them",
      spellcheck: "false",
      oninput: () => {
        view.text = search.value;
        draw();
      },
      onkeydown: (e) => {
        if (e.key === "ArrowDown") focusOn(0, -1);
        else if (e.key === "Escape" && search.value) {
          search.value = view.text = "";
          draw();
        } else if (e.key !== "Escape") {
          e.stopPropagation();
          return;
        }
        e.stopPropagation();
        e.preventDefault();
      },
    });
    const pick = h("select", {
      id: "filter",
      "aria-label": "which inputs are shown",
      onchange: () => {
        view.filter = pick.value;
        draw();
      },
    });
    const options = () => {
      const dimensions = ctx.get("dimensions").rows.map(({ name }, i) => [`=${i}`, `with ${name}`]);
      fill(pick, [...FILTERS, ...dimensions].map(([value, text]) => h("option", { value }, text)));
      pick.value = view.filter;
    };
    options();
    ctx.on("dimensions", options);
    const check = h("input", {
      type: "checkbox",
      id: "twins",
      checked: ctx.twins,
      onchange: () => {
        ctx.setTwins(check.checked);
      },
    });
    ctx.on("twins", () => check.checked = ctx.twins);
    const title = "what is done to an array is done to its twins too: the same leaf of momentum, of other optimizer " +
      "state and of every layer, where it is sharded alike";
    const found = h("span", { class: "sv-soft sv-found", id: "search-found", role: "status" });
    return {
      bar: h("div", { class: "sv-searchbar" }, search, pick, found),
      twins: h("label", { class: "sv-twinscheck", title }, check, " optimizer state too"),
      pick,
      found,
      clear() {
        search.value =
          view.text =
          view.filter =
          pick.value =
            "";
        draw();
        search.focus();
      },
    };
  }

  /** @param {Item} item */
  function isSelected(item) {
    return item.kind === "leaf" && arrays.leaves[item.shown ?? 0]?.path === ctx.get("selected");
  }

  /** @param {string} key @param {Item["node"]} node */
  function isClosed(key, node) {
    const { error } = ctx.get("status");
    if (error?.place === words.place && error.argument?.startsWith(node.path)) return false;
    const large = node.depth === 0 && node.count > FOLDED / 6 && (what === "outputs" || node.at !== 0);
    return folded.get(key) ?? large;
  }

  /** @param {Item} item */
  function branch(item) {
    const { key, label, depth, closed, kind, node } = item;
    const toggle = () => fold(item, !closed);
    const name = h(
      "button",
      {
        class: "sv-name",
        id: `fold-${key}`,
        tabindex: "-1",
        title: label,
        style: { "padding-left": `${indent(depth)}px` },
        onclick: () => {
          Object.assign(here, { key, dimension: -1 });
          toggle();
        },
        onkeydown: (e) => keysOf(e, item, -1),
      },
      h("span", { class: "sv-tri", "aria-hidden": "true" }, closed ? "▸" : "▾"),
      label,
    );
    const sum = node.branch === undefined ? "" : arrays.cuts.sums[node.branch];
    const said = kind === "stack"
      ? `each ${sum}`
      : kind === "branch" && closed
      ? `${node.count} ${node.count === 1 ? "array" : "arrays"} · ${sum}`
      : "";
    const attributes = {
      class: `sv-row sv-branch ${kind === "branch" ? "" : "sv-layers"}`,
      role: "treeitem",
      "aria-expanded": String(!closed),
      "aria-level": depth + 1,
    };
    return tabbed(
      h("div", attributes, name, h("span", { class: "sv-grow" }), h("span", { class: "sv-mem" }, said)),
      key,
    );
  }

  /** @param {Item} item @param {boolean} shut */
  function fold(item, shut) {
    folded.set(item.key, shut);
    draw();
  }

  /**
   * One dimension: its size, and the slot with the axes that cut it.
   * @param {Item} item
   * @param {Row} row
   * @param {number} dimension
   * @param {EditError | null} error
   */
  function slot(item, row, dimension, error) {
    const axes = row.dims ? row.dims[dimension] ?? [] : [];
    const id = `${words.slot}-${item.key}-${dimension}`;
    const wrong = error?.dimension === dimension;
    const chips = axes.map((axis) => {
      const shown = chip(ctx, axis);
      if (typeof axis === "string") dragAxis(shown, axis);
      return shown;
    });
    const of = nameOfDimension(row.place, dimension);
    const button = h("button", {
      class: `sv-slot ${axes.length ? "sv-cut" : ""} ${wrong ? "sv-wrong" : ""} ${row.kind.chosen ? "sv-chosen" : ""}`,
      id,
      tabindex: "-1",
      title: of || null,
      "aria-haspopup": "dialog",
      "aria-expanded": "false",
      "aria-invalid": wrong ? "true" : null,
      disabled: !row.dims,
      "aria-label": `${item.key}, dimension ${dimension}${of ? ` (${of})` : ""} of size ${row.shape[dimension]}: ${
        cutText(axes)
      }`,
      onclick: () => {
        Object.assign(here, { key: item.key, dimension });
        ctx.select(row.name, false); // it is edited, not looked at
        ctx.openMenu({ what, name: row.name, dimension, id, layers: item.count > 1 });
      },
      onkeydown: (e) => keysOf(e, item, dimension),
    }, axes.length ? chips : h("em", {}, "·"));
    const names = ctx.get("mesh").axes.map((a) => a.name);
    /** @param {string} axis */
    const may = (axis) => isLegal(row.kind.choices[dimension]?.[names.indexOf(axis)]);
    takes.set(button, may);
    dropAxis(button, may, (axis) => change(item, row, { op: ops.move, axis, dimension }));
    const thing = of ? { "data-thing": `dimension ${of}` } : {};
    return h("span", { class: "sv-dim", ...thing }, h("small", {}, row.shape[dimension]), button);
  }

  /** @param {number} place @param {number} dimension */
  function nameOfDimension(place, dimension) {
    const at = arrays.kin?.dimensions?.[place]?.[dimension] ?? -1;
    return ctx.get("dimensions").rows[at]?.name ?? "";
  }

  /**
   * Asks for a change of an array: of its twins too where the person wants that, of all layers where the row is theirs.
   * @param {Item} item
   * @param {Row} row
   * @param {Edit} edit
   */
  function change(item, row, edit) {
    ctx.edit({ ...edit, name: row.name, ...twinsOf(ctx, what, row.place, item.count > 1) });
  }

  /**
   * Arrows go from row to row and from slot to slot, Delete empties a slot, Enter opens one.
   * @param {KeyboardEvent} e
   * @param {Item} item
   * @param {number} dimension
   */
  function keysOf(e, item, dimension) {
    const at = rows.items.findIndex(({ key }) => key === item.key);
    const rank = item.node.shape?.length ?? 0;
    if (e.key === "ArrowDown") focusOn(next(at, 1, dimension), dimension);
    else if (e.key === "ArrowUp") focusOn(next(at, -1, dimension), dimension);
    else if (e.key === "Home") focusOn(0, -1);
    else if (e.key === "End") focusOn(rows.items.length - 1, -1);
    else if (e.key === "PageDown") focusOn(Math.min(at + 10, rows.items.length - 1), dimension);
    else if (e.key === "PageUp") focusOn(Math.max(at - 10, 0), dimension);
    else if (e.key === "ArrowRight" && item.kind !== "leaf") item.closed ? fold(item, false) : focusOn(at + 1, -1);
    else if (e.key === "ArrowLeft" && item.kind !== "leaf") item.closed ? focusOn(above(at), -1) : fold(item, true);
    else if (e.key === "ArrowRight") focusOn(at, Math.min(dimension + 1, rank - 1));
    else if (e.key === "ArrowLeft") dimension < 0 ? focusOn(above(at), -1) : focusOn(at, dimension - 1);
    else if ((e.key === "Delete" || e.key === "Backspace") && dimension >= 0) {
      const row = rowOf(item);
      if (row.dims?.[dimension].length) change(item, row, { op: ops.dimension, dimension, axes: [] });
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** The next row in a direction that has slots, where one is in a slot. @param {number} at @param {number} by @param {number} dimension */
  function next(at, by, dimension) {
    for (let i = at + by; rows.items[i]; i += by) {
      if (dimension < 0 || rows.items[i].node.shape?.length) return i;
    }
    return at;
  }

  /** The branch that a row is in. @param {number} at */
  function above(at) {
    const depth = rows.items[at]?.depth ?? 0;
    for (let i = at - 1; i >= 0; i--) if (rows.items[i].depth < depth) return i;
    return at;
  }

  /** @param {number} at @param {number} dimension */
  function focusOn(at, dimension) {
    const item = rows.items[at];
    if (!item) return;
    const d = item.kind === "leaf" ? Math.min(dimension, (item.node.shape?.length ?? 0) - 1) : -1;
    rows.reveal(item.key);
    const old = list.querySelector('[tabindex="0"]');
    Object.assign(here, { key: item.key, dimension: d });
    const target = entry(item);
    if (!target || target === old) return target?.focus();
    old?.setAttribute("tabindex", "-1");
    target.tabIndex = 0;
    target.focus();
  }

  /** The element of a row at which Tab enters. @param {Item} item */
  function entry(item) {
    if (item.kind !== "leaf") return find(list, `fold-${item.key}`);
    const id = here.dimension < 0 ? `name-${item.key}` : `${words.slot}-${item.key}-${here.dimension}`;
    return find(list, id);
  }

  /** Makes the row's name, or its slot, the one place of the tree that Tab finds. @param {HTMLElement} row @param {string} key */
  function tabbed(row, key) {
    if (key !== here.key) return row;
    const all = row.querySelectorAll(".sv-slot");
    const target = all[here.dimension] ?? row.querySelector(".sv-name");
    target?.setAttribute("tabindex", "0");
    return row;
  }

  /** @typedef {{ name: string, place: number, shape: number[], dtype: string, donated: boolean, dims: import("./types.d.ts").Dims | null, kind: Kind }} Row */

  /** The array that a row shows. @param {Item} item @returns {Row} */
  function rowOf(item) {
    const place = item.shown ?? 0;
    const { path: name, shape = [], dtype = "", donated = false } = arrays.leaves[place];
    return { name, place, shape, dtype, donated, dims: arrays.dims(place), kind: arrays.kind(place) };
  }

  /**
   * The selected array: its spec to type, its shapes, its twins, and why an edit of it was refused.
   * @param {Item} item
   * @param {Row} row
   * @param {EditError | null} error
   */
  function detail(item, row, error) {
    const { kind, place } = row;
    const value = kind.chosen ? "" : kind.text;
    /** @param {KeyboardEvent} e */
    function onkeydown(e) {
      e.stopPropagation();
      if (e.key === "Enter") {
        const spec = what === "outputs" && input.value.trim() === "" ? null : input.value;
        change(item, row, { op: ops.spec, spec });
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
      placeholder: kind.chosen ? `${kind.text}, chosen by the compiler` : "",
      "aria-label": `PartitionSpec of ${row.name}`,
      onkeydown,
    });
    const shard = kind.shard ? [" → shard ", h("code", {}, shapeText(kind.shard))] : null;
    const memory = h("select", {
      class: "sv-memory",
      id: `memory-${row.name}`,
      "aria-label": `memory of ${row.name}`,
      onchange: (/** @type {Event} */ e) => {
        const { value: to } = /** @type {HTMLSelectElement} */ (e.target);
        ctx.edit({ op: ops.memory, name: row.name, kind: to });
      },
    }, MEMORIES.map((each) => h("option", { value: each, selected: each === kind.memory }, each)));
    const twins = what === "inputs" ? arrays.twins(place) : [];
    const names = twins.map((each) => arrays.leaves[each].path);
    return h(
      "div",
      { class: "sv-detail" },
      input,
      h("span", { class: "sv-soft" }, `${row.dtype} `, h("code", {}, shapeText(row.shape)), shard),
      h("span", { class: "sv-soft" }, row.donated ? " · donated" : "", " · in "),
      memory,
      names.length
        ? h(
          "div",
          { class: "sv-soft sv-kin", id: `twins-${row.name}`, title: names.slice(0, 40).join("\n") },
          ctx.twins ? "with " : "without ",
          twinsText(names),
        )
        : null,
      what === "inputs" ? more.detail?.(row.name) : null,
      error ? refusal(ctx, error, "argument-error") : null,
    );
  }

  /** @param {Item} item */
  function leaf(item) {
    const row = rowOf(item);
    const { error } = ctx.get("status");
    const selected = ctx.get("selected") === row.name;
    const mine = error?.argument === row.name ? error : null;
    const own = mine?.place === words.place ? mine : null;
    const waits = arrays.asked.has(row.place);
    const { kind } = row;
    /** @type {Record<string, string>} */
    const wide = item.depth > 2 ? { "flex-basis": `${100 + (item.depth - 2) * 9}px` } : {};
    const name = h(
      "button",
      {
        class: "sv-name",
        id: `name-${item.key}`,
        tabindex: "-1",
        title: `${row.name} ${row.dtype}${shapeText(row.shape)}`,
        style: { "padding-left": `${indent(item.depth) + (item.depth ? 0 : 2)}px`, ...wide },
        onclick: () => {
          Object.assign(here, { key: item.key, dimension: -1 });
          ctx.select(row.name);
        },
        onkeydown: (e) => keysOf(e, item, -1),
      },
      item.label,
      mine ? h("span", { class: "sv-warn", title: mine.message }, " ▲") : null,
      item.above ? h("small", { class: "sv-above", title: row.name }, item.above) : null,
    );
    const elsewhere = kind.unused ? "unused" : kind.memory === "device" ? "" : kind.memory;
    const slots = row.shape.map((_, d) => slot(item, row, d, mine));
    const odd = item.odd
      ? h("small", { class: "sv-warn", title: "sharded otherwise in these layers" }, `${item.odd} differ`)
      : null;
    const line = h(
      "div",
      {
        class: "sv-leafline",
        onclick: (/** @type {Event} */ e) => {
          if (!(/** @type {Element} */ (e.target).closest("button,input,select"))) ctx.select(row.name);
        },
      },
      name,
      h("span", { class: "sv-dims" }, slots.length ? slots : h("span", { class: "sv-soft" }, "scalar")),
      h(
        "span",
        { class: `sv-mem ${waits ? "sv-old" : ""}` },
        kind.bytes,
        item.count > 1 ? h("small", {}, `× ${item.count}`) : null,
        ...[elsewhere, kind.chosen ? "chosen" : ""].map((said) => said ? h("small", {}, said) : null),
        odd,
      ),
    );
    const attributes = {
      class: `sv-row sv-leaf ${selected ? "sv-sel" : ""} ${kind.changed && fresh ? "sv-changed" : ""}`,
      role: "treeitem",
      "data-thing": `value ${row.name}`,
      "aria-level": item.depth + 1,
      "aria-selected": String(selected),
      id: `${words.place}-${item.key}`,
    };
    return tabbed(h("div", attributes, line, selected || own ? detail(item, row, own) : null), item.key);
  }

  /** All that a row shows; empty where that is more than can be told. @param {Item} item */
  function says(item) {
    const { node, ...own } = item;
    const entered = item.key === here.key ? here.dimension : null;
    if (item.kind !== "leaf") {
      return JSON.stringify([around, own, entered, node.count, arrays.cuts.sums[node.branch ?? -1]]);
    }
    if (isSelected(item)) return "";
    const row = rowOf(item);
    const names = row.shape.map((_, d) => nameOfDimension(row.place, d));
    const flash = row.kind.changed && fresh ? turn : 0;
    return JSON.stringify([around, own, entered, row, names, arrays.asked.has(row.place), flash]);
  }

  function draw() {
    fresh = ctx.get(words.key) !== told; // else what an earlier edit has changed is lit again
    told = ctx.get(words.key);
    turn += 1;
    around = JSON.stringify([ctx.get("mesh").axes, ctx.get("status").error]);
    arrays = ctx.arrays(what);
    const isUnfolded = (/** @type {string} */ key) => folded.get(key) === false;
    const shown = isOpen();
    list.hidden = !shown;
    opener.setAttribute("aria-expanded", String(shown));
    sign.textContent = shown ? "▾" : "▸";
    if (hint) hint.hidden = !shown;
    if (tools) tools.twins.hidden = tools.pick.hidden = !shown;
    if (!shown) return;
    const items = itemsOf(arrays, { ...view, isClosed, isOpen: isUnfolded });
    if (!items.some(({ key }) => key === here.key)) {
      Object.assign(here, { key: (items.find(isSelected) ?? items[0])?.key ?? "", dimension: -1 });
    }
    const sought = view.text || view.filter;
    const many = items.reduce((sum, item) => sum + (item.kind === "leaf" ? item.count : 0), 0);
    if (tools) tools.found.textContent = sought ? `${many} of ${arrays.leaves.length}` : "";
    rows.set(items);
    fresh = false;
  }

  /** What the rows were drawn of last. @type {unknown[]} */
  let drawn = [];

  /** Draws the rows where something has changed that they show. */
  function update() {
    const asked = JSON.stringify([...ctx.arrays(what).asked]);
    const now = [...shows.map((key) => ctx.get(key)), ctx.twins, JSON.stringify(ctx.get("status").error), asked];
    if (now.every((value, i) => value === drawn[i])) return;
    drawn = now;
    draw();
  }

  el.closest(".shardviz")?.addEventListener("sv-drag", (e) => {
    const axis = /** @type {CustomEvent<string | null>} */ (e).detail;
    for (const button of list.querySelectorAll(".sv-slot")) {
      const may = axis !== null && takes.get(button)?.(axis);
      button.classList.toggle("sv-may", axis !== null && may === true);
      button.classList.toggle("sv-maynot", axis !== null && may === false);
    }
  });
  for (const key of [...shows, "twins", "asked", "status"]) ctx.on(key, update);
  update();
}
