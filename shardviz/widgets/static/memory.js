// The memory of one device: what is needed against what there is, what is alive at the peak, and what would help.
import { fill, find, h, lineLink } from "./dom.js";
import { waiting } from "./head.js";

/** @import { Context } from "./types.d.ts" */

const WORDS = { yes: "fits", no: "does not fit", unknown: "not known whether it fits" };
const COLOURS = { arguments: 0, temporaries: 1, outputs: 2, "constants and other": 3, "kept for the backward pass": 4 };

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function memoryTab(ctx, el) {
  function bar(data) {
    const line = data.line === null ? null : h("span", {
      class: "sv-hbmline",
      style: { left: `${100 * data.line}%` },
      title: `${data.usable} usable on one device: ${data.source}`,
    });
    return h(
      "div",
      { class: `sv-hbm ${data.complete ? "" : "sv-atleast"}`, role: "img", "aria-label": data.words },
      h(
        "div",
        { class: "sv-hbmbar" },
        data.parts.map((p) =>
          h("i", {
            class: `sv-p${COLOURS[p.label] ?? 3}`,
            style: { width: `${100 * p.share}%` },
            title: `${p.label}: ${p.text}`,
          })
        ),
      ),
      line,
      data.line === null ? null : h("small", {
        class: `sv-hbmtext ${data.line > 0.7 ? "sv-end" : ""}`,
        style: data.line > 0.7 ? { right: `${100 * (1 - data.line)}%` } : { left: `${100 * data.line}%` },
      }, `${data.usable} usable`),
    );
  }

  function row(a, selected) {
    const name = a.value
      ? h("button", {
        class: "sv-link",
        id: `alive-${a.value}`,
        "aria-pressed": String(selected === a.value),
        onclick: () => ctx.select(a.value),
      }, a.name)
      : a.name;
    return h(
      "tr",
      { class: selected && selected === a.value ? "sv-sel" : "" },
      h(
        "th",
        {},
        h("div", { class: "sv-clip sv-operand", title: a.name }, name),
        h(
          "small",
          { class: "sv-clip", title: [a.kind, a.source, a.line].filter(Boolean).join(" · ") },
          a.kind,
          a.source ? [" · ", lineLink(ctx, a.source)] : null,
          a.line ? [" ", h("code", {}, a.line)] : null,
        ),
      ),
      h("td", { title: a.shape || "" }, h("code", { class: "sv-clip sv-soft" }, a.shape || "")),
      h("td", { class: "sv-num" }, a.text),
      h(
        "td",
        {},
        h(
          "span",
          { class: "sv-track" },
          h("i", { class: `sv-k-${a.kind.split(" ")[0]}`, style: { width: `${Math.max(0.5, 100 * a.share)}%` } }),
        ),
      ),
    );
  }

  function draw() {
    const data = ctx.get("memory");
    if (!data.parts) {
      if (!find(el, "memory-verdict")) fill(el, waiting(ctx)); // else the last answer stays
      return;
    }
    const selected = ctx.get("selected");
    fill(
      el,
      h(
        "p",
        { class: "sv-verdict", id: "memory-verdict" },
        h("b", { class: `sv-is-${data.verdict}` }, WORDS[data.verdict]),
        data.target === "cpu" ? null : [" on each device of ", h("code", {}, data.target)],
        `: ${data.words}`,
      ),
      bar(data),
      h(
        "table",
        { class: "sv-parts", id: "memory-parts" },
        h(
          "tbody",
          {},
          data.parts.map((p) =>
            h(
              "tr",
              { title: p.title },
              h("th", {}, h("i", { class: `sv-p${COLOURS[p.label] ?? 3}`, "aria-hidden": "true" }), p.label),
              h("td", { class: "sv-num" }, p.text),
              h("td", { class: "sv-soft" }, p.title),
            )
          ),
        ),
        h(
          "tbody",
          { class: "sv-sum" },
          h(
            "tr",
            {},
            h("th", {}, data.complete ? "in all" : "in all, at least"),
            h("td", { class: "sv-num" }, h("b", {}, data.total)),
            h("td", { class: "sv-soft" }, data.peak),
          ),
        ),
      ),
      data.code
        ? h(
          "p",
          { class: "sv-soft", id: "memory-code" },
          data.code,
          " ",
          data.finishable && !ctx.get("status").busy
            ? h("button", {
              class: "sv-btn",
              id: "finish",
              title:
                "let the compiler run to its end: machine code, its own memory analysis, and how a TPU runs each collective",
              onclick: () => ctx.edit({ op: "finish" }),
            }, "finish the compile")
            : null,
        )
        : null,
      data.stated ? h("p", { class: "sv-soft", id: "memory-stated" }, "memory_analysis() says: ", data.stated) : null,
      data.caution ? h("p", { class: "sv-soft" }, data.caution) : null,
      data.helps.length
        ? h(
          "section",
          { id: "memory-helps" },
          h("div", { class: "sv-sec" }, "what would help"),
          h("ul", {}, data.helps.map((text) => h("li", {}, text))),
        )
        : null,
      data.rows.length
        ? h(
          "section",
          {},
          h(
            "div",
            { class: "sv-sec" },
            data.alive
              ? "alive at the peak, the heaviest"
              : "what is known so far, the heaviest; not all of it need be alive at once",
          ),
          h(
            "table",
            { class: "sv-table sv-alive", id: "memory-alive" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                h("th", {}, "value, its line"),
                h("th", {}, "on one device"),
                h("th", { class: "sv-num" }, "bytes"),
                h("th", {}),
              ),
            ),
            h("tbody", {}, data.rows.map((a) => row(a, selected))),
          ),
        )
        : null,
    );
  }
  for (const key of ["memory", "selected", "status", "gone"]) ctx.on(key, () => ctx.when("memory", draw));
  ctx.when("memory", draw);
}
