// The collectives: their sums by mesh axes, source line, phase and kind as bars, and each of them in a table.
import { fill, h, lineLink } from "./dom.js";
import { axesChips, axisStyle, axisText, shapeText } from "./chips.js";

/** @import { Context } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function collectives(ctx, el) {
  function bar(item, withLine) {
    return h(
      "div",
      { class: "sv-barrow", title: item.sentence },
      h(
        "span",
        { class: "sv-barname", title: item.line || item.label },
        item.axes ? axesChips(ctx, item.axes) : withLine && item.line ? lineLink(ctx, item.label) : item.label,
        withLine && item.line ? h("code", {}, ` ${item.line}`) : null,
      ),
      h(
        "span",
        { class: "sv-track" },
        item.parts.map((p) =>
          h("i", {
            style: { ...axisStyle(ctx, p.axes && p.axes[0]), width: `${100 * p.share}%` },
            class: p.axes && p.axes.length > 1 ? "sv-many" : "",
            title: `${p.text} over ${p.axes ? p.axes.map(axisText).join(", ") || "one device" : "no product of axes"}`,
          })
        ),
      ),
      h("span", { class: "sv-num" }, item.text),
    );
  }

  function group(title, items, withLine) {
    return h(
      "section",
      {},
      h("div", { class: "sv-sec" }, title),
      items.slice(0, 8).map((item) => bar(item, withLine)),
      items.length > 8 ? h("div", { class: "sv-soft sv-more" }, `and ${items.length - 8} more`) : null,
    );
  }

  const opened = new Set(); // of which rows the arithmetic is shown

  // What the target runs in the place of a collective.
  function asRun(runs) {
    return runs.map((r) =>
      h(
        "div",
        { title: [r.name, r.how, r.algorithm, r.formula].filter(Boolean).join("\n") },
        r.text ? [r.text, " "] : null,
        r.how ? h("span", { class: "sv-soft" }, r.how) : null,
        r.algorithm ? h("span", { class: "sv-soft" }, ` ${r.algorithm}`) : null,
        r.seconds ? [" ", h("b", {}, r.seconds)] : null,
      )
    );
  }

  function row(c, i, data) {
    const key = `${c.name}|${i}`;
    const open = opened.has(key);
    const toggle = () => {
      if (open) opened.delete(key);
      else opened.add(key);
      draw();
    };
    const columns = 5 + (data.target ? 1 : 0) + (data.runs ? 1 : 0);
    const first = collective(c, data, open, toggle, key);
    if (!open) return first;
    return [
      first,
      h(
        "tr",
        { class: "sv-formula" },
        h(
          "td",
          { colspan: columns, id: `formula-${key}` },
          h("code", {}, c.formula),
          c.each ? h("span", { class: "sv-soft" }, `; ${c.each} each time`) : null,
          (c.as_run || []).filter((r) => r.formula && r.formula !== c.formula).map((r) =>
            h("div", {}, h("span", { class: "sv-soft" }, `as run, ${r.name}: `), h("code", {}, r.formula))
          ),
        ),
      ),
    ];
  }

  function collective(c, data, open, toggle, key) {
    const what = `${c.phase}${c.origin ? `, written by the ${c.origin}` : ""}`;
    const shape = `${c.dtype}${shapeText(c.shape)}`;
    return h(
      "tr",
      {},
      h(
        "th",
        {},
        h(
          "div",
          { class: "sv-clip", title: `${c.kind}${c.operand ? ` of ${c.operand}` : ""}, ${what}` },
          h("span", { class: `sv-coll sv-${c.kind}` }, h("b", {}, c.kind)),
          c.operand ? [" of ", h("span", { class: "sv-operand" }, c.operand)] : null,
          h("span", { class: "sv-soft" }, ` · ${what}`),
        ),
        c.source
          ? h(
            "div",
            { class: "sv-clip", title: `${c.source} ${c.line || ""}` },
            lineLink(ctx, c.source),
            h("code", { class: "sv-soft" }, ` ${c.line || ""}`),
          )
          : null,
        h("div", { class: "sv-clip sv-soft", title: `the result on one device: ${shape}` }, "→ ", h("code", {}, shape)),
        c.as_run
          ? h(
            "div",
            { class: "sv-asrun sv-asrunline" },
            h("span", { class: "sv-soft" }, "the target: "),
            asRun(c.as_run),
          )
          : null,
      ),
      h("td", {}, axesChips(ctx, c.axes), c.group ? h("small", { class: "sv-soft" }, `groups of ${c.group}`) : null),
      h("td", { class: "sv-num" }, c.bytes),
      h("td", { class: "sv-num" }, `× ${c.count}`, c.conditional ? h("small", {}, "at most") : null),
      h("td", { class: "sv-num" }, data.target ? c.total : h("b", {}, c.total)),
      data.target
        ? h(
          "td",
          { class: "sv-num" },
          c.formula
            ? h(
              "button",
              {
                class: "sv-link sv-plain",
                id: `seconds-${key}`,
                title: c.formula,
                "aria-expanded": String(open),
                onclick: toggle,
              },
              h("b", {}, c.seconds),
              open ? " ▾" : " ▸",
            )
            : c.seconds,
        )
        : null,
      data.runs ? h("td", { class: "sv-asrun sv-asruncell" }, c.as_run ? asRun(c.as_run) : null) : null,
    );
  }

  function draw() {
    const data = ctx.get("collectives");
    const { line } = ctx.get("query");
    const level = ctx.get("status").level;
    if (!data.total) {
      fill(
        el,
        h(
          "p",
          { class: "sv-empty", id: "collectives-none" },
          level === "propagated"
            ? "Shardy's propagation needs no collective; XLA's partitioner is being asked."
            : "Nothing moves between devices.",
        ),
      );
      return;
    }
    fill(
      el,
      h(
        "p",
        { class: "sv-lead" },
        level === "propagated" ? h("span", { class: "sv-pred" }, "predicted by Shardy ") : null,
        "Each device gives ",
        h("b", {}, data.bytes),
        ` to ${data.total} collectives in a step`,
        data.target
          ? [
            ": ",
            h("b", { id: "collectives-seconds" }, data.seconds),
            " on ",
            h("code", {}, data.target),
            " one after the other",
            data.untimed ? `, without ${data.untimed} of unknown time` : "",
          ]
          : null,
        ". Bytes are operand bytes on one device; counts have the loops in them.",
      ),
      data.runs
        ? h(
          "p",
          { class: "sv-lead", id: "collectives-runs" },
          "As the target runs them: ",
          data.run_seconds ? h("b", {}, data.run_seconds) : null,
          data.run_seconds ? "; " : null,
          data.runs,
          ".",
        )
        : null,
      h(
        "div",
        { class: "sv-bars" },
        group("by mesh axes", data.by_axes),
        group("by phase", data.by_phase),
        group("by kind", data.by_kind),
        group("by source line", data.by_line, true),
      ),
      line
        ? h("button", {
          class: "sv-btn",
          id: "collectives-line",
          onclick: () => ctx.query({ line: "" }),
        }, `only ${line} ×`)
        : null,
      h(
        "table",
        { class: `sv-table sv-colls ${data.runs ? "sv-both" : ""}`, id: "collectives-table", "data-level": level },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h(
              "th",
              {},
              data.runs
                ? "as partitioned: the collective, its line, → its result on one device"
                : "collective, its line, → its result on one device",
            ),
            h("th", {}, "over"),
            h("th", { class: "sv-num" }, "bytes"),
            h("th", { class: "sv-num" }, "runs"),
            h("th", { class: "sv-num" }, "in a step"),
            data.target ? h("th", { class: "sv-num" }, "seconds") : null,
            data.runs ? h("th", { class: "sv-asruncell" }, "as the target runs it") : null,
          ),
        ),
        h(
          "tbody",
          {},
          data.rows.map((c, i) => row(c, i, data)),
        ),
      ),
      data.runs && data.added.length
        ? [
          h("div", { class: "sv-sec" }, "added by the target's compiler"),
          h("div", { class: "sv-asrun", id: "collectives-added" }, asRun(data.added)),
        ]
        : null,
      data.rows.length < data.found
        ? h("p", { class: "sv-soft" }, `showing the ${data.rows.length} largest of ${data.found}`)
        : null,
    );
  }
  for (const key of ["collectives", "mesh"]) ctx.on(key, () => ctx.when("collectives", draw));
  ctx.when("collectives", draw);
}
