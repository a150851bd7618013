// @ts-check
// The shard map of the selected value: a grid of slices, device numbers in it, a bar for each axis along its sides.
import { fill, h, svg } from "./dom.js";
import { axisStyle, axisText, chip, specChips } from "./chips.js";

/** @import { Cell, Context, Mesh, ShardMap, Side } from "./types.d.ts" */

const BAR = 14; // pixels from one bar to the next

/**
 * What a cell holds, as an index: `0:128, 64:128`.
 * @param {Pick<ShardMap, "panels" | "rows" | "columns">} map
 * @param {Cell} cell
 */
export function indexText({ panels, rows, columns }, cell) {
  const parts = [...panels[cell.panel].index];
  if (rows.dimension !== null && rows.cut) parts[rows.dimension] = rows.slices[cell.row];
  if (columns.dimension !== null && columns.cut) parts[columns.dimension] = columns.slices[cell.column];
  return parts.join(", ");
}

/**
 * The number of a cell, counted through all panels, row by row.
 * @param {Pick<ShardMap, "labels">} map
 * @param {Cell} cell
 */
export function cellNumber({ labels }, { panel, row, column }) {
  return (panel * labels[0].length + row) * labels[0][0].length + column;
}

/**
 * The cell that a device holds; null if it holds none.
 * @param {Pick<ShardMap, "labels" | "cells">} map
 * @param {number} place the device's, in the mesh; below 0 for no device
 * @returns {Cell | null}
 */
export function cellOf({ labels, cells }, place) {
  const number = cells[place] ?? -1;
  if (number < 0) return null;
  const rows = labels[0].length;
  const columns = labels[0][0].length;
  return {
    panel: Math.floor(number / (rows * columns)),
    row: Math.floor(number / columns) % rows,
    column: number % columns,
  };
}

/**
 * Where a device is along each axis of the mesh; the last axis is the fastest.
 * @param {Pick<Mesh, "axes" | "ids">} mesh
 * @param {number} device its number
 */
export function coordinates({ axes, ids }, device) {
  let rest = ids.length ? ids.indexOf(device) : device;
  return [...axes].reverse().map(({ name, size }) => {
    const at = rest % size;
    rest = Math.floor(rest / size);
    return { name, at };
  }).reverse();
}

/**
 * @param {Cell | null} a
 * @param {Cell | null} b
 */
function isSame(a, b) {
  return a !== null && b !== null && a.panel === b.panel && a.row === b.row && a.column === b.column;
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {{ small: boolean }} options small: beside the source
 */
export function shards(ctx, el, { small }) {
  /** @type {Cell | null} */
  let picked = null;
  let pickedFor = "";

  /**
   * One panel as a picture.
   * @param {ShardMap} map
   * @param {number} panel
   * @param {number} size of a cell, in pixels
   */
  function grid(map, panel, size) {
    const labels = map.labels[panel];
    const columns = labels[0].length;
    const left = map.rows.bars.length * BAR + 2;
    const top = map.columns.bars.length * BAR + 2;
    const longest = Math.max(...labels.flat().map((text) => text.length));
    const width = Math.max(size, columns < 9 ? Math.min(110, longest * 6.6 + 8) : 0);
    return svg(
      "svg",
      {
        width: left + columns * width + 1,
        height: top + labels.length * size + 1,
        role: "group",
        "aria-label": map.text,
        class: "sv-map",
      },
      bars(map.columns, (level, at, cells) => [left + at * width, level * BAR, cells * width - 1.5, BAR - 4]),
      bars(map.rows, (level, at, cells) => [level * BAR, top + at * size, BAR - 4, cells * size - 1.5]),
      labels.map((texts, row) =>
        texts.map((text, column) => {
          const cell = { panel, row, column };
          const attributes = { transform: `translate(${left + column * width},${top + row * size})` };
          return slice(map, cell, text, width, size, attributes);
        })
      ),
    );
  }

  /**
   * One cell: the devices that hold one slice.
   * @param {ShardMap} map
   * @param {Cell} cell
   * @param {string} text
   * @param {number} width
   * @param {number} height
   * @param {{ transform: string }} where
   */
  function slice(map, cell, text, width, height, where) {
    const on = isSame(picked, cell);
    const first = !cell.panel && !cell.row && !cell.column;
    const readable = height >= 14 && text.length * 6.3 < width + 4;
    return svg(
      "g",
      {
        ...where,
        class: `sv-cell ${on ? "sv-on" : ""}`,
        id: `cell-${cell.panel}-${cell.row}-${cell.column}`,
        tabindex: on || (!picked && first) ? "0" : "-1",
        role: "button",
        "aria-label": `devices ${text}`,
        "aria-pressed": String(on),
        onclick: () => toggle(cell),
        onkeydown: (e) => keys(e, map, cell),
      },
      svg("rect", { width: width - 1.5, height: height - 1.5, rx: Math.min(3, height / 6) }),
      readable ? svg("text", { x: (width - 1.5) / 2, y: height / 2 + 3 }, text) : null,
      svg("title", {}, `devices ${text} hold [${indexText(map, cell)}]`),
    );
  }

  /**
   * The bars along one side: one level for each axis, one bar for each of its coordinates.
   * @param {Side} side
   * @param {(level: number, at: number, cells: number) => [number, number, number, number]} box
   */
  function bars(side, box) {
    return side.bars.map(({ axis, spans }, level) => {
      let at = 0;
      return spans.map(([text, cells]) => {
        const [x, y, width, height] = box(level, at, cells);
        at += cells;
        const readable = width >= 9 && height >= 9;
        return svg(
          "g",
          { class: "sv-bar", style: axisStyle(ctx, axis) },
          svg("rect", { x, y, width: Math.max(1, width), height: Math.max(1, height), rx: 2 }),
          readable ? svg("text", { x: x + width / 2, y: y + height / 2 + 3 }, text) : null,
          svg("title", {}, `${axisText(axis)} = ${text}`),
        );
      });
    });
  }

  /** @param {Cell | null} cell */
  function pick(cell) {
    picked = cell;
    const map = ctx.get("shards");
    if (!map.cells?.length) ctx.pickCell(pickedFor, cell);
    else ctx.pickDevice(cell ? map.cells.indexOf(cellNumber(map, cell)) : -1);
  }

  /** @param {Cell} cell */
  const toggle = (cell) => pick(isSame(picked, cell) ? null : cell);

  /**
   * @param {KeyboardEvent} e
   * @param {ShardMap} map
   * @param {Cell} cell
   */
  function keys(e, map, cell) {
    const { panel, row, column } = cell;
    const to = {
      ArrowRight: { panel, row, column: column + 1 },
      ArrowLeft: { panel, row, column: column - 1 },
      ArrowDown: { panel, row: row + 1, column },
      ArrowUp: { panel, row: row - 1, column },
    }[e.key];
    if (to) {
      if (map.labels[panel][to.row]?.[to.column] !== undefined) pick(to);
    } else if (e.key === "Enter" || e.key === " ") toggle(cell);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /**
   * What the picked device holds, in words.
   * @param {ShardMap} map
   */
  function holds(map) {
    if (!picked) return h("p", { class: "sv-soft" }, "Click a device to see its slice.");
    const label = map.labels[picked.panel][picked.row][picked.column];
    const one = /^\d+$/.test(label);
    const where = one
      ? coordinates(ctx.get("mesh"), Number(label))
        .map(({ name, at }) => h("span", { class: "sv-coord" }, chip(ctx, name), ` ${at}`))
      : null;
    const slice = h("code", {}, `${map.label || map.name}[${indexText(map, picked)}]`);
    const copies = map.replicas > 1 ? `; ${map.replicas} copies of it in the mesh` : "";
    return [
      h("p", { id: "device" }, one ? `device ${label}` : `devices ${label}`, where),
      h("p", { id: "device-slice" }, one ? "holds " : "hold ", slice),
      h("p", { class: "sv-soft" }, `${map.bytes} of ${map.dtype}${map.shard}`, copies),
    ];
  }

  /** @param {ShardMap} map */
  function title(map) {
    const shard = map.shard ? ` → ${map.shard} · ${map.bytes} per device` : "";
    const rosetta = h("button", {
      class: "sv-link",
      id: small ? "to-rosetta-small" : "to-rosetta",
      title: "this sharding in every notation",
      onclick: () => ctx.setTab("rosetta"),
    }, "in every notation");
    return h(
      "div",
      { class: "sv-maptitle" },
      h("code", {}, map.label || map.name),
      " ",
      specChips(ctx, map.dims),
      h("span", { class: "sv-soft" }, ` ${map.dtype}${map.shape}`, shard),
      " ",
      rosetta,
      map.remark ? h("p", { class: "sv-soft sv-remark" }, map.remark) : null,
    );
  }

  /** @param {ShardMap} map */
  function panels(map) {
    const count = map.labels.length;
    const most = Math.max(map.labels[0].length, map.labels[0][0].length);
    const room = (small ? 244 : 480) / (count > 1 ? 2 : 1);
    const size = Math.max(8, Math.min(small ? 34 : 46, Math.floor(room / most)));
    return map.labels.map((_, panel) => {
      const caption = count > 1 ? h("figcaption", {}, map.panels[panel].text) : null;
      return h("figure", {}, caption, grid(map, panel, size));
    });
  }

  function draw() {
    const map = ctx.get("shards");
    pickedFor = map.name;
    const shared = map.cells?.length ? cellOf(map, ctx.get("device")) : ctx.pickedCell(map.name);
    picked = shared && map.labels?.[shared.panel]?.[shared.row]?.[shared.column] !== undefined ? shared : null;
    if (!map.name) {
      const words = map.remark || "Select a value to see which device holds which slice.";
      return fill(el, h("p", { class: "sv-empty", id: "nothing-selected" }, words));
    }
    if (map.missing) {
      const words = `${map.name} does not occur at this level; select another value.`;
      return fill(el, h("p", { class: "sv-empty" }, words));
    }
    if (!map.labels) {
      const words = map.sharding || "its sharding is not known at this level";
      return fill(el, title(map), h("p", { class: "sv-soft" }, words));
    }
    const notes = [map.rows.text, map.columns.text].filter(Boolean).concat(map.notes);
    fill(
      el,
      title(map),
      h(
        "div",
        { class: "sv-mapbox" },
        h("div", { class: "sv-maps", id: small ? "map-small" : "map" }, panels(map)),
        h("div", { class: "sv-mapnotes" }, holds(map), notes.map((text) => h("p", { class: "sv-soft" }, text))),
      ),
    );
  }
  const tab = small ? "source" : "shards";
  for (const key of ["shards", "mesh", "cell", "device"]) ctx.on(key, () => ctx.when(tab, draw));
  ctx.when(tab, draw);
}

/**
 * The memory of one device in a few lines, beside the source.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function memoryPlan(ctx, el) {
  /**
   * Whether it fits, as a link to the whole.
   * @param {string} verdict
   * @param {string} text
   * @param {string} [title]
   */
  function room(verdict, text, title) {
    const onclick = () => ctx.setTab("memory");
    return h("button", { class: `sv-link sv-plain sv-is-${verdict}`, title, onclick }, text);
  }

  function words() {
    const { memory: plan, fit } = ctx.get("head");
    if (plan) {
      const rows = plan.parts.map(({ label, text, share, title }, i) => {
        const bar = h("i", { class: `sv-m${i}`, style: { width: `${Math.round(34 * share)}px` } });
        return h("tr", { title }, h("th", {}, label), h("td", { class: "sv-num" }, text), h("td", {}, bar));
      });
      const sum = h("tr", {}, h("th", {}, "set aside in all"), h("td", { class: "sv-num" }, h("b", {}, plan.total)));
      const peak = `alive at once, at most: ${plan.peak}`;
      const { caution, detail } = plan;
      return [
        h("table", { class: "sv-mm", id: "memory-table" }, h("tbody", {}, rows), h("tbody", { class: "sv-sum" }, sum)),
        plan.room ? h("p", { id: "memory-room" }, room(plan.room.fits ? "yes" : "no", plan.room.text)) : null,
        h("p", { class: "sv-soft", id: "memory-peak", title: plan.peak_title }, peak),
        caution ? h("p", { class: "sv-soft", id: "memory-caution", title: detail }, caution) : null,
      ];
    }
    if (!fit) return h("p", { class: "sv-soft" }, "known once the program is compiled");
    const more = fit.verdict === "no" ? ` ${fit.over}` : "; more is known once it is compiled";
    const link = room(fit.verdict, fit.text, fit.title);
    return h("p", { id: "memory-room" }, link, h("span", { class: "sv-soft" }, more));
  }

  function draw() {
    const { flops } = ctx.get("head");
    const work = flops ? h("p", { class: "sv-soft" }, `matrix products: ${flops} per device and step`) : null;
    fill(el, h("div", { class: "sv-sec" }, "memory, per device"), words(), work);
  }
  ctx.on("head", draw);
  draw();
}
