// Problems, and the Python that rebuilds the plan.
import { copyButton, fill, h, lineLink } from "./dom.js";

/** @import { Context } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function problems(ctx, el) {
  const signs = { error: "✖", warning: "▲", info: "i" };
  function row(d, under) {
    const about = [
      under ? null : d.rule,
      lineLink(ctx, d.source),
      d.line ? h("code", {}, d.line) : null,
      d.value ? h("button", { class: "sv-link", onclick: () => ctx.select(d.value) }, d.value) : null,
    ].filter(Boolean);
    return h(
      "div",
      { class: `sv-problem sv-${d.severity} ${under ? "sv-under" : ""}` },
      h("span", { class: "sv-sign", role: "img", "aria-label": d.severity }, signs[d.severity] || "i"),
      h(
        "div",
        {},
        h("p", {}, d.message),
        about.length ? h("p", { class: "sv-soft" }, about.map((part, i) => [i ? " · " : null, part])) : null,
      ),
    );
  }

  function draw() {
    const { rows, leads } = ctx.get("problems");
    if (!rows.length) {
      fill(el, h("p", { class: "sv-empty" }, "Nothing to report at this level."));
      return;
    }
    const told = new Set();
    fill(
      el,
      rows.map((d) => {
        const lead = leads[d.rule];
        const first = lead && !told.has(d.rule);
        told.add(d.rule);
        return [
          first ? h("p", { class: "sv-leadin", id: `lead-${d.rule}` }, h("b", {}, d.rule), ` ${lead}`) : null,
          row(d, Boolean(lead)),
        ];
      }),
    );
  }
  ctx.on("problems", draw);
  draw();
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function code(ctx, el) {
  const text = h("pre", { class: "sv-code", id: "code", tabindex: "0" });
  const copy = copyButton(text, "copy-code", "copy the code");
  el.append(
    h(
      "div",
      { class: "sv-tools" },
      h("span", { class: "sv-soft" }, "This rebuilds the plan; explorer.code() gives it too."),
      copy,
    ),
    text,
  );
  const draw = () => {
    text.textContent = ctx.get("plan_code");
  };
  ctx.on("plan_code", draw);
  draw();
}
