// @ts-check
// Constraints by hand: the selected value inside the function gets a spec, without an edit of the function; and those
// that the plan has, each with a way to take it away.
import { fill, h } from "./dom.js";
import { refusal } from "./head.js";

/** @import { Context } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function constrain(ctx, el) {
  const box = h("div", { class: "sv-constrain", id: "constrain" });
  el.append(box);

  /** A field for the selected value. @param {{ name: string, label: string, spec: string }} value */
  function field({ name, label, spec }) {
    const apply = () => ctx.edit({ op: "constrain", name, spec: input.value });
    /** @type {HTMLInputElement} */
    const input = h("input", {
      type: "text",
      class: "sv-typed",
      id: `constrain-${name}`,
      value: spec,
      spellcheck: "false",
      "aria-label": `constrain ${label} to this PartitionSpec`,
      onkeydown: (/** @type {KeyboardEvent} */ e) => {
        e.stopPropagation();
        if (e.key === "Enter") apply();
        if (e.key === "Escape") {
          input.value = spec;
          input.blur();
        }
      },
    });
    const title = "a with_sharding_constraint at this value, without an edit of the function";
    const button = h("button", { class: "sv-btn", id: "constrain-apply", title, onclick: apply }, "constrain");
    return h("div", { class: "sv-constrainrow" }, h("code", {}, label), input, button);
  }

  function draw() {
    const { value, rows } = ctx.get("constraints");
    const { error } = ctx.get("status");
    const held = rows.map(({ name, line, occurrence, text }, n) => {
      const remove = () => ctx.edit({ op: "constrain", name, spec: null, line: line || null, occurrence });
      const attributes = { class: "sv-btn", id: `unconstrain-${n}`, "aria-label": `take away: ${text}` };
      return h(
        "div",
        { class: "sv-constrainrow" },
        h("span", { class: "sv-soft" }, "constrained: "),
        h("code", {}, text),
        h("button", { ...attributes, title: "take this constraint away", onclick: remove }, "×"),
      );
    });
    fill(
      box,
      value ? field(value) : null,
      held,
      error?.place === "value" ? refusal(ctx, error, "value-error") : null,
    );
    box.hidden = !box.childElementCount;
  }

  let lastError = "";
  ctx.on("constraints", draw);
  ctx.on("status", () => {
    const { error } = ctx.get("status");
    const said = error?.place === "value" ? JSON.stringify(error) : "";
    if (said !== lastError) draw();
    lastError = said;
  });
  draw();
}
