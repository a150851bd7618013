// @ts-check
// The tabs that are Documents, each with what a person can do beside it: filter, take a filter away, finish a compile.
import { copyButton, fill, focused, h } from "./dom.js";
import { documentView } from "./document.js";
import { waiting } from "./head.js";

/** @import { Child, Context, Pane, Query } from "./types.d.ts" */

/**
 * A tab whose trait is a Document; while the kernel has not said one yet, the tab says so.
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {"values" | "collectives" | "memory" | "costs" | "problems"} key
 * @param {{ tab?: string, above?: () => Child, below?: (data: Pane) => Child }} options what stands above and below
 */
function pane(ctx, el, key, { tab = key, above, below }) {
  const top = h("div", {});
  const body = h("div", {});
  const end = h("div", {});
  const view = documentView(ctx, body);
  let drawn = false;
  let fresh = false;

  function draw() {
    const data = ctx.get(key);
    if (!data.document) {
      if (!drawn) fill(body, waiting(ctx)); // else the last answer stays
      return;
    }
    drawn = true;
    if (above) fill(top, above());
    view.draw(data.document, fresh);
    fresh = false;
    if (below) fill(end, below(data));
  }

  el.append(top, body, end);
  ctx.on(key, () => {
    fresh = true;
    ctx.when(tab, draw);
  });
  for (const other of ["mesh", "selected", "status", "gone"]) ctx.on(other, () => ctx.when(tab, draw));
  ctx.when(tab, draw);
}

/**
 * A button that takes the filter by a source line away.
 * @param {Context} ctx
 * @param {string} id
 * @param {string} words
 */
function lineFilter(ctx, id, words) {
  const { line } = ctx.get("query");
  if (!line) return null;
  return h("button", { class: "sv-btn", id, onclick: () => ctx.query({ line: "" }) }, `${words}${line} ×`);
}

/**
 * Every value, with a filter that the kernel answers.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function values(ctx, el) {
  const filter = h("input", {
    type: "search",
    class: "sv-filter",
    id: "values-filter",
    placeholder: "filter: a name, an operation, model.py:20, an axis …",
    "aria-label": "filter the values",
    spellcheck: "false",
    onkeydown: (/** @type {Event} */ e) => e.stopPropagation(),
  });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => ctx.query({ text: filter.value }), 120);
  });
  const changed = h("input", { type: "checkbox", id: "values-changed" });
  changed.addEventListener("change", () => ctx.query({ changed: changed.checked }));
  const orders = [["program", "in program order"], ["bytes", "largest shard first"]];
  const sort = h(
    "select",
    { id: "values-sort", "aria-label": "order" },
    orders.map(([value, words]) => h("option", { value }, words)),
  );
  sort.addEventListener("change", () => ctx.query({ sort: /** @type {Query["sort"]} */ (sort.value) }));
  const line = h("span", {});
  const found = h("span", { class: "sv-soft", id: "values-found", role: "status" });
  el.append(
    h("div", { class: "sv-tools" }, filter, h("label", {}, changed, " changed by the last edit"), sort, line, found),
  );
  pane(ctx, el, "values", {
    above() {
      const query = ctx.get("query");
      if (focused(filter) !== filter) filter.value = query.text || "";
      changed.checked = Boolean(query.changed);
      sort.value = query.sort || "program";
      found.textContent = ctx.get("values").said || "";
      fill(line, lineFilter(ctx, "values-line", ""));
      return null;
    },
  });
}

/**
 * The collectives: their sums, and each of them.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function collectives(ctx, el) {
  pane(ctx, el, "collectives", { above: () => lineFilter(ctx, "collectives-line", "only ") });
}

/**
 * The memory of one device.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function memory(ctx, el) {
  const title =
    "let the compiler run to its end: machine code, its own memory analysis, and how a TPU runs each collective";
  const onclick = () => ctx.edit({ op: "finish" });
  pane(ctx, el, "memory", {
    below: ({ finishable }) =>
      finishable && !ctx.get("status").busy
        ? h("button", { class: "sv-btn", id: "finish", title, onclick }, "finish the compile")
        : null,
  });
}

/**
 * What a step costs.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function cost(ctx, el) {
  pane(ctx, el, "costs", { tab: "cost" });
}

/**
 * What is wrong, and what is worth knowing.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function problems(ctx, el) {
  pane(ctx, el, "problems", {});
}

/**
 * The Python that rebuilds the plan.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function code(ctx, el) {
  const text = h("pre", { class: "sv-code", id: "code", tabindex: "0" });
  const words = h("span", { class: "sv-soft" }, "This rebuilds the plan; explorer.code() gives it too.");
  el.append(h("div", { class: "sv-tools" }, words, copyButton(text, "copy-code", "copy the code")), text);
  const draw = () => {
    text.textContent = ctx.get("plan_code");
  };
  ctx.on("plan_code", draw);
  draw();
}
