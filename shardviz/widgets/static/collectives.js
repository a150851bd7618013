// The collectives: their sums by mesh axes, source line, phase and kind as bars, and each of them in a table.
import { h, fill, lineLink } from "./dom.js";
import { axesChips, axisStyle, axisText, shapeText } from "./chips.js";

export function collectives(ctx, el) {
  function bar(item, withLine) {
    return h("div", { class: "sv-barrow", title: item.sentence },
      h("span", { class: "sv-barname", title: item.line || item.label }, item.axes ? axesChips(ctx, item.axes) : withLine && item.line ? lineLink(ctx, item.label) : item.label,
        withLine && item.line ? h("code", {}, ` ${item.line}`) : null),
      h("span", { class: "sv-track" }, item.parts.map((p) => h("i", {
        style: { ...axisStyle(ctx, p.axes && p.axes[0]), width: `${100 * p.share}%` }, class: p.axes && p.axes.length > 1 ? "sv-many" : "",
        title: `${p.text} over ${p.axes ? p.axes.map(axisText).join(", ") || "one device" : "no product of axes"}`,
      }))),
      h("span", { class: "sv-num" }, item.text));
  }

  function group(title, items, withLine) {
    return h("section", {}, h("div", { class: "sv-sec" }, title), items.slice(0, 8).map((item) => bar(item, withLine)),
      items.length > 8 ? h("div", { class: "sv-soft sv-more" }, `and ${items.length - 8} more`) : null);
  }

  function row(c) {
    const what = `${c.phase}${c.origin ? `, written by the ${c.origin}` : ""}`;
    const shape = `${c.dtype}${shapeText(c.shape)}`;
    return h("tr", {},
      h("th", {}, h("div", { class: "sv-clip", title: `${c.kind}${c.operand ? ` of ${c.operand}` : ""}, ${what}` },
        h("span", { class: `sv-coll sv-${c.kind}` }, h("b", {}, c.kind)), c.operand ? [" of ", h("span", { class: "sv-operand" }, c.operand)] : null, h("span", { class: "sv-soft" }, ` · ${what}`)),
      c.source ? h("div", { class: "sv-clip", title: `${c.source} ${c.line || ""}` }, lineLink(ctx, c.source), h("code", { class: "sv-soft" }, ` ${c.line || ""}`)) : null,
      h("div", { class: "sv-clip sv-soft", title: `the result on one device: ${shape}` }, "→ ", h("code", {}, shape))),
      h("td", {}, axesChips(ctx, c.axes), c.group ? h("small", { class: "sv-soft" }, `groups of ${c.group}`) : null),
      h("td", { class: "sv-num" }, c.bytes), h("td", { class: "sv-num" }, `× ${c.count}`, c.conditional ? h("small", {}, "at most") : null),
      h("td", { class: "sv-num" }, h("b", {}, c.total)));
  }

  function draw() {
    const data = ctx.get("collectives");
    const { line } = ctx.get("query");
    const level = ctx.get("status").level;
    if (!data.total) {
      fill(el, h("p", { class: "sv-empty", id: "collectives-none" }, level === "propagated"
        ? "Shardy's propagation needs no collective; XLA's partitioner is being asked." : "Nothing moves between devices."));
      return;
    }
    fill(el,
      h("p", { class: "sv-lead" }, level === "propagated" ? h("span", { class: "sv-pred" }, "predicted by Shardy ") : null,
        "Each device gives ", h("b", {}, data.bytes), ` to ${data.total} collectives in a step. Bytes are operand bytes on one device; counts have the loops in them.`),
      h("div", { class: "sv-bars" }, group("by mesh axes", data.by_axes), group("by phase", data.by_phase), group("by kind", data.by_kind),
        group("by source line", data.by_line, true)),
      line ? h("button", { class: "sv-btn", id: "collectives-line", onclick: () => ctx.query({ line: "" }) }, `only ${line} ×`) : null,
      h("table", { class: "sv-table sv-colls", id: "collectives-table", "data-level": level }, h("thead", {}, h("tr", {}, h("th", {}, "collective, its line, → its result on one device"),
        h("th", {}, "over"), h("th", { class: "sv-num" }, "bytes"), h("th", { class: "sv-num" }, "runs"), h("th", { class: "sv-num" }, "in a step"))),
      h("tbody", {}, data.rows.map(row))),
      data.rows.length < data.found ? h("p", { class: "sv-soft" }, `showing the ${data.rows.length} largest of ${data.found}`) : null);
  }
  for (const key of ["collectives", "mesh"]) ctx.on(key, () => ctx.when("collectives", draw));
  ctx.when("collectives", draw);
}
