// The roofline: lines, marks and labels where the kernel has put them; each roof has its dashes and its mark.
import { h, svg } from "./dom.js";
import { axisStyle, shortened } from "./chips.js";

const DASHES = ["", "7 3", "2 2.5", "8 3 2 3", "1 2", "11 4"];
const MARKS = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0", "M-4.5-4.5H4.5V4.5H-4.5Z", "M0-6L5.5 0L0 6L-5.5 0Z", "M0-5.5L5.5 4.5H-5.5Z", "M0 5.5L5.5-4.5H-5.5Z", "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
];

const points = (list) => list.map(([x, y]) => `${x},${y}`).join(" ");

export function roofline(ctx, data) {
  const [left, top, right, bottom] = data.box;
  const style = (roof) => (roof.axis ? axisStyle(ctx, roof.axis) : null);
  const parts = [];
  const light = (i, on) => { for (const p of parts[i]) p.classList.toggle("sv-lit", on); };
  const over = (i) => ({ onmouseenter: () => light(i, true), onmouseleave: () => light(i, false), onfocus: () => light(i, true), onblur: () => light(i, false) });
  const picture = svg("svg", { viewBox: `0 0 ${data.width} ${data.height}`, class: "sv-roofs", role: "img", "aria-label": data.text, id: "roofline" },
    data.x.map(([x, text]) => [svg("line", { class: "sv-gridline", x1: x, x2: x, y1: top, y2: bottom }), svg("text", { x, y: bottom + 14, class: "sv-tick sv-mid" }, text)]),
    data.y.map(([y, text]) => [svg("line", { class: "sv-gridline", x1: left, x2: right, y1: y, y2: y }), svg("text", { x: left - 6, y: y + 3.5, class: "sv-tick sv-end" }, text)]),
    svg("text", { x: (left + right) / 2, y: data.height - 4, class: "sv-tick sv-mid" }, "FLOPs a byte"),
    svg("text", { x: right, y: data.peak - 6, class: "sv-tick sv-end sv-strong" }, data.rate));
  const later = [];
  data.roofs.forEach((roof, i) => {
    const line = svg("polyline", { points: points(roof.line), class: "sv-roof", style: style(roof), "stroke-dasharray": DASHES[i % DASHES.length] }, svg("title", {}, roof.title));
    const name = shortened(roof.name);
    const wide = 6.2 * name.length + 6;
    const [x, y] = roof.label;
    const before = x - wide - 5 > left; // the name stands left of its line where there is room
    const label = svg("g", { class: "sv-rooflabel", style: style(roof), transform: `translate(${before ? x - wide - 5 : x + 6},${y})` },
      svg("rect", { x: 0, y: -8, width: wide, height: 15, rx: 3 }), svg("text", { x: 3, y: 3.5 }, name));
    const mark = roof.mark ? svg("path", { d: MARKS[i % MARKS.length], transform: `translate(${roof.mark[0]},${roof.mark[1]})`, class: "sv-roofmark", style: style(roof) },
      svg("title", {}, `${roof.name}: ${roof.verdict}; ${roof.reaches}`)) : null;
    parts.push([line, label, mark].filter(Boolean));
    for (const part of parts[i]) { part.addEventListener("mouseenter", () => light(i, true)); part.addEventListener("mouseleave", () => light(i, false)); }
    picture.append(line);
    later.push(label, mark);
  });
  picture.append(...later.filter(Boolean));
  const sample = (roof, i) => svg("svg", { width: 34, height: 14, class: "sv-sample", "aria-hidden": "true" },
    svg("line", { x1: 0, x2: 34, y1: 7, y2: 7, class: "sv-roof", style: style(roof), "stroke-dasharray": DASHES[i % DASHES.length] }),
    roof.mark ? svg("path", { d: MARKS[i % MARKS.length], transform: "translate(17,7) scale(.85)", class: "sv-roofmark", style: style(roof) }) : null);
  const legend = h("ul", { class: "sv-legend", id: "roofline-legend" }, data.roofs.map((roof, i) => {
    const item = h("li", { tabindex: "0", title: roof.formula, ...over(i) }, sample(roof, i),
      h("span", {}, h("b", {}, roof.title), h("br"), h("span", { class: "sv-soft" }, roof.verdict)));
    parts[i].push(item);
    return item;
  }), data.rest ? h("li", { class: "sv-soft sv-restof" }, data.rest) : null);
  return h("div", { class: "sv-roofbox" }, picture, legend);
}
