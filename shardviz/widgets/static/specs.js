// Inputs and outputs: a tree of arrays; each dimension is a slot with its size above it, into which axes go.
import { fill, find, h } from "./dom.js";
import { axisText, chip, shapeText } from "./chips.js";
import { dragAxis, dropAxis } from "./drag.js";
import { notice } from "./head.js";

const WHAT = {
  inputs: {
    title: "Inputs",
    hint: "drag an axis onto a dimension, click a slot, or type P(…)",
    slot: "slot",
    set: "set_spec",
    dim: "set_dim",
    move: "move_axis",
    place: "argument",
  },
  outputs: {
    title: "Outputs",
    hint: "chosen by the compiler, unless you set them",
    slot: "out-slot",
    set: "set_out_spec",
    dim: "set_out_dim",
    move: "move_out_axis",
    place: "output",
  },
};

// Steps to the right: small ones from the third level on, so that a deep tree's names can still be read.
const indent = (depth) => 8 + Math.min(depth, 2) * 14 + Math.max(0, depth - 2) * 5;
const deep = (depth) => (depth > 2 ? { "flex-basis": `${100 + (depth - 2) * 9}px` } : {});

export function specs(ctx, el, what) {
  const words = WHAT[what];
  const list = h("div", { class: "sv-specs", role: "tree", "aria-label": words.title });
  el.append(h("div", { class: "sv-sec" }, words.title, h("span", { class: "sv-hint" }, words.hint)), list);
  const folded = new Map();
  let fresh = false;

  function isFolded(row, rows) {
    if (folded.has(row.path)) return folded.get(row.path);
    const first = rows.find((r) => r.leaves);
    return row.depth === 0 && row.leaves > 4 && (what === "outputs" || row !== first);
  }

  const twinsOf = (row) => (row.twins && row.twins.length ? { twins: ctx.twins } : {});

  function branch(row, closed) {
    const toggle = () => {
      folded.set(row.path, !closed);
      draw();
    };
    return h(
      "div",
      { class: "sv-row sv-branch", role: "treeitem", "aria-expanded": String(!closed) },
      h(
        "button",
        {
          class: "sv-name",
          id: `fold-${row.path}`,
          style: { "padding-left": `${indent(row.depth)}px` },
          onclick: toggle,
        },
        h("span", { class: "sv-tri", "aria-hidden": "true" }, closed ? "▸" : "▾"),
        row.label,
      ),
      h("span", { class: "sv-grow" }),
      h("span", { class: "sv-mem" }, closed ? `${row.leaves} arrays · ${row.bytes}` : ""),
    );
  }

  function slot(row, d, error) {
    const axes = row.dims ? row.dims[d] : [];
    const id = `${words.slot}-${row.name}-${d}`;
    const wrong = error && error.dimension === d;
    const button = h(
      "button",
      {
        class: `sv-slot ${axes.length ? "sv-cut" : ""} ${wrong ? "sv-wrong" : ""} ${row.chosen ? "sv-chosen" : ""}`,
        id,
        "aria-haspopup": "dialog",
        "aria-expanded": "false",
        "aria-invalid": wrong ? "true" : null,
        disabled: !row.dims,
        "aria-label": `${row.name}, dimension ${d} of size ${row.shape[d]}: ${
          axes.length ? axes.map(axisText).join(" and ") : "not cut"
        }`,
        onclick: () => {
          ctx.select(row.name);
          ctx.openMenu(what, row.name, d, id);
        },
        onkeydown: (e) => slotKeys(e, row, d, axes),
      },
      axes.length
        ? axes.map((axis) => {
          const c = chip(ctx, axis);
          if (typeof axis === "string") dragAxis(c, axis, row.name);
          return c;
        })
        : h("em", {}, "·"),
    );
    const names = ctx.get("mesh").axes.map((a) => a.name);
    const may = (axis) =>
      row.choices[d][names.indexOf(axis)] === 1 || Array.isArray(row.choices[d][names.indexOf(axis)]);
    button.svMay = may;
    dropAxis(button, may, (axis) => ctx.edit({ op: words.move, name: row.name, axis, dimension: d, ...twinsOf(row) }));
    return h("span", { class: "sv-dim" }, h("small", {}, row.shape[d]), button);
  }

  function slotKeys(e, row, d, axes) {
    const rows = ctx.get(what).rows.filter((r) => r.name);
    const go = (name, dimension) => {
      const target = find(list, `${words.slot}-${name}-${dimension}`);
      if (target) target.focus();
      return target;
    };
    const step = (by) => {
      for (let i = rows.findIndex((r) => r.name === row.name) + by; rows[i]; i += by) {
        if (rows[i].shape.length && go(rows[i].name, Math.min(d, rows[i].shape.length - 1))) return;
      }
    };
    if (e.key === "ArrowRight") go(row.name, d + 1);
    else if (e.key === "ArrowLeft") go(row.name, d - 1);
    else if (e.key === "ArrowDown") step(1);
    else if (e.key === "ArrowUp") step(-1);
    else if (e.key === "Delete" || e.key === "Backspace") {
      if (axes.length) ctx.edit({ op: words.dim, name: row.name, dimension: d, axes: [], ...twinsOf(row) });
    } else return;
    e.preventDefault();
    e.stopPropagation();
  }

  function typed(row, error) {
    const input = h("input", {
      type: "text",
      class: "sv-typed",
      id: `spec-${row.name}`,
      value: row.chosen ? "" : row.text,
      spellcheck: "false",
      placeholder: row.chosen ? `${row.text}, chosen by the compiler` : "",
      "aria-label": `PartitionSpec of ${row.name}`,
      onkeydown: (e) => {
        e.stopPropagation();
        if (e.key === "Enter") {
          ctx.edit({
            op: words.set,
            name: row.name,
            spec: input.value.trim() === "" && what === "outputs" ? null : input.value,
            ...twinsOf(row),
          });
        }
        if (e.key === "Escape") {
          input.value = row.chosen ? "" : row.text;
          input.blur();
        }
      },
    });
    const shard = row.shard ? [" → shard ", h("code", {}, shapeText(row.shard))] : null;
    return h(
      "div",
      { class: "sv-detail" },
      input,
      h(
        "span",
        { class: "sv-soft" },
        `${row.dtype} `,
        h("code", {}, shapeText(row.shape)),
        shard,
        row.donated ? " · donated" : "",
      ),
      error ? notice("sv-error", "argument-error", error.message, error.detail) : null,
    );
  }

  function leaf(row, error) {
    const selected = ctx.get("selected") === row.name;
    const mine = error && error.argument === row.name ? error : null;
    const own = mine && mine.place === words.place ? mine : null;
    const line = h(
      "div",
      {
        class: `sv-row sv-leaf ${selected ? "sv-sel" : ""} ${row.changed && fresh ? "sv-changed" : ""}`,
        role: "treeitem",
        "aria-selected": String(selected),
        id: `${words.place}-${row.name}`,
        onclick: (e) => {
          if (!e.target.closest("button,input")) ctx.select(row.name);
        },
      },
      h(
        "button",
        {
          class: "sv-name",
          title: `${row.name} ${row.dtype}${shapeText(row.shape)}`,
          style: { "padding-left": `${indent(row.depth) + (row.depth ? 0 : 2)}px`, ...deep(row.depth) },
          onclick: () => ctx.select(row.name),
        },
        row.label,
        mine ? h("span", { class: "sv-warn", title: mine.message }, " ▲") : null,
      ),
      h(
        "span",
        { class: "sv-dims" },
        row.shape.map((_, d) => slot(row, d, mine)),
        row.shape.length ? null : h("span", { class: "sv-soft" }, "scalar"),
      ),
      h("span", { class: "sv-mem" }, row.bytes, row.chosen ? h("small", {}, "chosen") : null),
    );
    return [line, selected || own ? typed(row, own) : null];
  }

  function draw() {
    const data = ctx.get(what);
    const { error } = ctx.get("status");
    const shown = [];
    let hide = null;
    for (const row of data.rows) {
      if (hide !== null && row.depth > hide) continue;
      hide = null;
      if (row.leaves) {
        const holds = error && error.argument && error.argument.startsWith(row.path) && error.place === words.place;
        const closed = isFolded(row, data.rows) && !holds;
        shown.push(branch(row, closed));
        if (closed) hide = row.depth;
      } else shown.push(leaf(row, error));
    }
    const lost = error && error.place === words.place && !data.rows.some((r) => r.name === error.argument)
      ? notice("sv-error", `${words.place}-error`, error.message, error.detail)
      : null;
    fill(
      list,
      lost,
      shown,
      data.hidden ? h("div", { class: "sv-more" }, `${data.hidden} more rows are not shown`) : null,
    );
  }
  const root = el.closest(".shardviz");
  root.addEventListener("sv-drag", (e) => {
    for (const button of list.querySelectorAll(".sv-slot")) {
      button.classList.toggle("sv-may", e.detail !== null && button.svMay(e.detail));
      button.classList.toggle("sv-maynot", e.detail !== null && !button.svMay(e.detail));
    }
  });
  let lastError = null;
  ctx.on(what, () => {
    fresh = true;
    draw();
    fresh = false;
  });
  ctx.on("mesh", draw);
  ctx.on("selected", draw);
  ctx.on("status", () => {
    const { error } = ctx.get("status");
    if (JSON.stringify(error) !== lastError) draw();
    lastError = JSON.stringify(error);
  });
  draw();
}
