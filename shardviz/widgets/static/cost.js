// What a step costs: its times with their arithmetic, the collectives that take longest, the roofline, FLOPs, traffic.
import { fill, h, lineLink } from "./dom.js";
import { axesChips, axisStyle } from "./chips.js";
import { waiting } from "./head.js";
import { legend, picture } from "./picture.js";

/** @import { Context } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function cost(ctx, el) {
  const open = new Set(); // the bars and rows whose arithmetic is shown

  function toggle(key) {
    if (!open.delete(key)) open.add(key);
    draw();
  }

  const fillOf = (axes) => ({
    class: axes && axes.length ? `sv-fillaxis ${axes.length > 1 ? "sv-many" : ""}` : "sv-fillplain",
    style: axes && axes.length ? axisStyle(ctx, axes[0]) : {},
  });

  function block(axes, share, title) {
    const { class: name, style } = fillOf(axes);
    return h("i", { class: name, title, style: { ...style, width: `${100 * share}%` } });
  }

  function bar(row, step) {
    const shown = open.has(row.key);
    return [
      h(
        "button",
        {
          class: `sv-timerow ${shown ? "sv-open" : ""}`,
          id: `time-${row.key}`,
          "aria-expanded": String(shown),
          title: "its arithmetic",
          onclick: () => toggle(row.key),
        },
        h("span", { class: "sv-timename" }, row.axes ? ["over ", axesChips(ctx, row.axes)] : row.name),
        h("span", { class: "sv-timetrack" }, bounds(step), block(row.axes, row.share, `${row.name}: ${row.text}`)),
        h("b", { class: "sv-timetext" }, row.text),
      ),
      shown
        ? h(
          "div",
          { class: "sv-arith", id: `arith-${row.key}` },
          row.lines.map((line) => h("p", {}, line)),
          row.bound ? h("p", { class: "sv-soft" }, `waits for: ${row.bound}`) : null,
        )
        : null,
    ];
  }

  const bounds = (
    step,
  ) => [
    h("u", { class: "sv-low-line", style: { left: `${100 * step.lower.share}%` } }),
    step.upper ? h("u", { class: "sv-high-line", style: { left: `${100 * step.upper.share}%` } }) : null,
  ];

  function steps(data) {
    const { step } = data;
    return h(
      "section",
      { class: "sv-steps" },
      h("div", { class: "sv-sec" }, "step time", h("span", { class: "sv-hint" }, "click a bar for its arithmetic")),
      h(
        "div",
        { class: "sv-times", id: "step-bars" },
        step.bars.map((row) => bar(row, step)),
        h(
          "div",
          { class: "sv-timerow sv-stackrow" },
          h("span", { class: "sv-timename" }, "one after the other"),
          h(
            "span",
            { class: "sv-timetrack" },
            bounds(step),
            step.stack.map((part) => block(part.axes, part.share, part.name)),
          ),
          h("b", { class: "sv-timetext" }, step.stack_text),
        ),
      ),
      h(
        "p",
        { class: "sv-boundkey", id: "step-bounds" },
        h(
          "span",
          {},
          h("u", { class: "sv-low-key" }),
          step.upper ? " lower bound, all overlaps: " : " at least: ",
          h("b", {}, step.lower.text),
        ),
        step.upper
          ? h(
            "span",
            {},
            h("u", { class: "sv-high-key" }),
            " upper bound, no communication overlaps: ",
            h("b", {}, step.upper.text),
          )
          : null,
      ),
    );
  }

  function waits(c) {
    if (!c.bound) return null;
    return h("span", {
      class: c.floor ? "sv-floor" : "sv-soft",
      title: c.floor ? "so few bytes that the hops' latency is all" : "the bandwidth that bounds it",
    }, c.floor ? "latency floor" : c.bound);
  }

  function collective(c, i) {
    const key = `row-${i}`;
    const shown = open.has(key);
    return [
      h(
        "tr",
        { class: shown ? "sv-sel" : "" },
        h("th", { class: "sv-num" }, h("b", {}, c.seconds)),
        h(
          "td",
          {},
          h("button", {
            class: `sv-link sv-coll sv-${c.kind}`,
            id: `longest-${i}`,
            "aria-expanded": String(shown),
            title: "its arithmetic",
            onclick: () => toggle(key),
          }, h("b", {}, c.kind)),
          " ",
          axesChips(ctx, c.axes),
          h("div", { class: "sv-soft" }, c.runs),
        ),
        h("td", {}, waits(c)),
        h(
          "td",
          {},
          h(
            "div",
            { class: "sv-clip", title: `${c.where} ${c.line}` },
            lineLink(ctx, c.at),
            c.at ? h("code", { class: "sv-soft" }, ` ${c.line}`) : h("span", { class: "sv-soft" }, c.where),
          ),
          c.at && c.where !== c.at ? h("small", { class: "sv-clip", title: c.where }, c.where) : null,
        ),
      ),
      shown
        ? h(
          "tr",
          { class: "sv-sel" },
          h(
            "td",
            { colspan: "4", class: "sv-arith", id: `arith-${key}` },
            h("p", {}, c.formula),
            c.terms.length > 1
              ? h(
                "table",
                { class: "sv-terms" },
                h(
                  "tbody",
                  {},
                  c.terms.map(([bound, seconds, formula, source]) =>
                    h(
                      "tr",
                      { title: source },
                      h("td", {}, bound),
                      h("td", { class: "sv-num" }, seconds),
                      h("td", {}, formula),
                    )
                  ),
                ),
              )
              : null,
          ),
        )
        : null,
    ];
  }

  function longest(data) {
    return h(
      "section",
      { class: "sv-wide" },
      h(
        "div",
        { class: "sv-sec" },
        "collectives, the longest first",
        h("span", { class: "sv-hint" }, `${data.total} in the program`),
      ),
      data.collectives.length
        ? h(
          "table",
          { class: "sv-table sv-longest", id: "longest" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { class: "sv-num" }, "in a step"),
              h("th", {}, "collective, runs × each"),
              h("th", {}, "waits for"),
              h("th", {}, "line"),
            ),
          ),
          h("tbody", {}, data.collectives.map(collective)),
        )
        : h("p", { class: "sv-soft" }, "Nothing moves between devices."),
      data.more ? h("p", { class: "sv-soft" }, `and ${data.more}`) : null,
    );
  }

  function share(row) {
    return h(
      "div",
      { class: "sv-barrow sv-workrow", title: `${row.text}, ${row.part}${row.line ? `: ${row.line}` : ""}` },
      h("span", { class: "sv-barname" }, row.at ? [lineLink(ctx, row.at), h("code", {}, ` ${row.line}`)] : row.label),
      h("span", { class: "sv-track" }, h("i", { class: "sv-fillplain", style: { width: `${100 * row.share}%` } })),
      h("span", { class: "sv-num" }, row.text),
    );
  }

  function work(data) {
    if (!data.total) return null;
    const group = (
      title,
      found,
    ) => (found && found.rows.length
      ? h(
        "div",
        {},
        h("div", { class: "sv-sec" }, title),
        found.rows.map(share),
        found.more ? h("p", { class: "sv-soft" }, `and ${found.more} more`) : null,
      )
      : null);
    return h(
      "section",
      { class: "sv-wide", id: "flops" },
      h(
        "div",
        { class: "sv-sec" },
        "FLOPs of one device in a step",
        h("span", { class: "sv-hint" }, `matrix products: ${data.total}`),
      ),
      data.said ? h("p", { id: "flops-said" }, data.said) : null,
      data.phases
        ? h(
          "div",
          { class: "sv-bars" },
          group("by phase", data.phases),
          group("by module", data.modules),
          group("by source line", data.lines),
        )
        : null,
    );
  }

  function roofline(data) {
    const view = picture(ctx, data, { id: "roofline" });
    const rest = data.notes.map((text) => h("p", { class: "sv-soft" }, text));
    return h("div", {}, view.element, legend(ctx, data, view, "roofline-legend"), rest);
  }

  function traffic(tables) {
    if (!tables.length) return h("p", { class: "sv-soft" }, "One device: nothing moves.");
    const hint = "point at a cell, or walk with the arrow keys";
    const figures = tables.map((data, i) => {
      const view = picture(ctx, data, { id: `traffic-${i}`, said: `traffic-said-${i}`, hint });
      const text = data.alt.slice(data.title.length);
      return h(
        "figure",
        { class: "sv-trafficbox" },
        h("figcaption", {}, h("b", {}, data.title), h("span", { class: "sv-soft" }, text)),
        view.element,
        legend(ctx, data, view, `traffic-legend-${i}`),
      );
    });
    const words = "the stronger, the more bytes: the lightest a ten-thousandth of the most, or less";
    return h("div", {}, h("div", { class: "sv-traffics" }, figures), h("p", { class: "sv-soft" }, words));
  }

  function draw() {
    const data = ctx.get("costs");
    if (data.why) {
      fill(
        el,
        h(
          "p",
          { class: "sv-empty", id: "cost-why" },
          data.why,
          " Choose a target above, such as tpu v5p:4x4x4 or gpu h100:8x8.",
        ),
      );
      return;
    }
    if (!data.step) {
      fill(el, waiting(ctx));
      return;
    }
    fill(
      el,
      h(
        "p",
        { class: "sv-lead", id: "cost-headline" },
        h("b", {}, data.headline),
        h("span", { class: "sv-soft" }, ` · ${data.of}`),
      ),
      data.words.length
        ? h("ul", { class: "sv-costwords", id: "cost-words" }, data.words.map((text) => h("li", {}, text)))
        : null,
      h(
        "div",
        { class: "sv-costgrid" },
        h(
          "div",
          {},
          steps(data),
          h(
            "section",
            {},
            h("div", { class: "sv-sec" }, "where each number is from"),
            h(
              "table",
              { class: "sv-from", id: "cost-levels" },
              h(
                "tbody",
                {},
                data.levels.map(([what, text]) => h("tr", {}, h("th", { scope: "row" }, what), h("td", {}, text))),
              ),
            ),
          ),
        ),
        h("section", {}, h("div", { class: "sv-sec" }, "roofline of one device"), roofline(data.roofline)),
      ),
      longest(data),
      work(data.work),
      h(
        "section",
        { class: "sv-wide" },
        h(
          "div",
          { class: "sv-sec" },
          "traffic in a step",
          h("span", { class: "sv-hint" }, "row sends, column receives, whatever way it goes"),
        ),
        traffic(data.traffic),
      ),
    );
  }

  for (const key of ["costs", "gone"]) ctx.on(key, () => ctx.when("cost", draw));
  ctx.when("cost", draw);
}
