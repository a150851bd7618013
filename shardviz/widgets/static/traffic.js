// Who sends how many bytes to whom: one table of devices, or one for each mesh axis. Pointed at, or walked with the arrows.
import { h, svg } from "./dom.js";
import { axisStyle, chip } from "./chips.js";

const SIDE = 288;
const HATCHES = ["M0 4L4 0", "M0 0L4 4", "M2 0V4", "M0 2H4"]; // of the first, second, third and fourth axis

export function traffic(ctx, data) {
  if (!data.tables.length) return h("p", { class: "sv-soft" }, "One device: nothing moves.");
  const [first] = data.tables;
  const several = first.cells.some((cell) => cell[4] < 0);
  const key = first.along ? null : h("div", { class: "sv-traffickey sv-soft" }, first.names.filter((_, a) => first.cells.some((cell) => cell[4] === a)).map((name) => h("p", {}, chip(ctx, name), " the two differ along it")),
    several ? h("p", {}, h("i", { class: "sv-swatch" }), " they differ along several axes") : null);
  return h("div", {}, h("div", { class: "sv-traffics" }, data.tables.map((table, i) => one(ctx, table, data.steps, i)), key),
    h("p", { class: "sv-soft" }, "the stronger, the more bytes: the lightest a ten-thousandth of the most, or less"));
}

function one(ctx, table, steps, number) {
  const side = SIDE / table.size;
  const at = new Map(table.cells.map((cell) => [cell[0] * table.size + cell[1], cell]));
  const label = (i) => (table.block === 1 ? `${i}` : `${i * table.block}-${(i + 1) * table.block - 1}`);
  const who = table.along ? `${table.along} ` : "device ";
  const said = h("p", { class: "sv-said", id: `traffic-said-${number}`, "aria-live": "polite" });
  let here = null;

  function axesOf(cell) {
    if (cell[4] >= 0) return [chip(ctx, table.names[cell[4]])];
    return ["several axes at once"];
  }

  function show(i, j) {
    if (i === null) { said.replaceChildren("point at a cell, or walk with the arrow keys"); cursor.setAttribute("visibility", "hidden"); return; }
    const cell = at.get(i * table.size + j);
    cursor.setAttribute("visibility", "visible");
    cursor.setAttribute("x", j * side);
    cursor.setAttribute("y", i * side);
    const ends = `${who}${label(i)} sends ${who}${label(j)} `;
    said.replaceChildren(...(cell ? [ends, h("b", {}, table.words[cell[3]]), " a step, over ", ...axesOf(cell)] : [i === j ? `${who}${label(i)}: itself` : `${ends}nothing`]));
  }

  const layers = new Map();
  const cell = (side - (table.size <= 32 ? 1 : 0)).toFixed(2);
  for (const [i, j, strong, , axis] of table.cells) {
    const key = `${axis}/${strong}`;
    layers.set(key, `${layers.get(key) || ""}M${(j * side).toFixed(2)} ${(i * side).toFixed(2)}h${cell}v${cell}h-${cell}z`);
  }
  const cursor = svg("rect", { width: side, height: side, class: "sv-cursor", visibility: "hidden" });
  const step = table.size > 16 ? 2 ** Math.ceil(Math.log2(table.size / 16)) : 1;
  const ticks = Array.from({ length: Math.ceil(table.size / step) }, (_, k) => k * step);
  const many = table.size > 32;
  const name = (axis) => (axis < 0 ? null : table.names[axis]);
  const inside = svg("g", { transform: "translate(34,16)" },
    svg("rect", { width: SIDE, height: SIDE, class: "sv-ground" }),
    [...layers].map(([key, d]) => {
      const [axis, strong] = key.split("/").map(Number);
      return svg("path", { d, class: "sv-heatcell", style: { ...axisStyle(ctx, name(axis)), "fill-opacity": strong / steps } });
    }),
    many ? null : [...new Set(table.cells.map((c) => c[4]))].filter((a) => a >= 0).map((axis) => svg("path", {
      d: table.cells.filter((c) => c[4] === axis).map((c) => hatch(c, side, axis)).join(""), class: "sv-hatch" })),
    ticks.map((k) => [svg("text", { x: -5, y: (k + 0.5) * side + 3.5, class: "sv-tick sv-end" }, label(k)), table.block === 1 || k === 0 ? svg("text", { x: (k + 0.5) * side, y: -4, class: "sv-tick sv-mid" }, label(k)) : null]),
    cursor);
  const picture = svg("svg", { viewBox: `0 0 ${SIDE + 38} ${SIDE + 20}`, class: "sv-matrix", tabindex: "0", role: "img", "aria-label": table.text, id: `traffic-${number}`,
    onmousemove: (e) => {
      const box = picture.getBoundingClientRect();
      const scale = (SIDE + 38) / box.width;
      const j = Math.floor(((e.clientX - box.left) * scale - 34) / side);
      const i = Math.floor(((e.clientY - box.top) * scale - 16) / side);
      if (i >= 0 && j >= 0 && i < table.size && j < table.size) { here = [i, j]; show(i, j); }
    },
    onmouseleave: () => { if (document.activeElement !== picture) show(null); },
    onkeydown: (e) => {
      const move = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[e.key];
      if (!move) return;
      here = here ? [here[0] + move[0], here[1] + move[1]].map((n) => Math.min(Math.max(n, 0), table.size - 1)) : [0, 0];
      show(...here);
      e.preventDefault();
      e.stopPropagation();
    } }, inside);
  show(null);
  return h("figure", { class: "sv-trafficbox" }, h("figcaption", {}, h("b", {}, table.title), h("span", { class: "sv-soft" }, table.text.slice(table.title.length))), picture, said);
}

// A stroke through a cell that tells its axis without colour.
function hatch([i, j], side, axis) {
  const [, x1, y1, kind, x2, y2] = HATCHES[axis % HATCHES.length].match(/M([\d.]+) ([\d.]+)([LVH])([\d.]+) ?([\d.]+)?/);
  const k = side / 4;
  const X = j * side;
  const Y = i * side;
  const end = kind === "L" ? [x2 * k, y2 * k] : kind === "V" ? [x1 * k, x2 * k] : [x2 * k, y1 * k];
  return `M${(X + x1 * k).toFixed(1)} ${(Y + y1 * k).toFixed(1)}L${(X + end[0]).toFixed(1)} ${(Y + end[1]).toFixed(1)}`;
}
