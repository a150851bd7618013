// @ts-check
// The tabs that are Documents, each with what a person can do beside it: filter, take a filter away, finish a compile.
import { copyButton, fill, focused, h, searchField } from "./dom.js";
import { documentView } from "./document.js";
import { waiting } from "./head.js";

/** @import { Child, Context, Editors, Pane, Query } from "./types.d.ts" */

/**
 * A tab whose trait is a Document; while the kernel has not said one yet, the tab says so.
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {"values" | "collectives" | "memory" | "costs" | "most" | "problems" | "rules" | "difference"} key
 * @param {{ tab?: string, above?: () => Child, below?: (data: Pane) => Child, editors?: Editors }} [options] what
 *   stands above and below, and what of it can be changed
 */
export function pane(ctx, el, key, { tab = key, above, below, editors } = {}) {
  const top = h("div", {});
  const body = h("div", {});
  const end = h("div", {});
  const view = documentView(ctx, body, editors);
  /** What is shown. @type {Pane | undefined} */
  let shown;

  function draw() {
    const data = ctx.get(key);
    if (!data.document) {
      if (!shown) fill(body, waiting(ctx)); // else the last answer stays
      return;
    }
    if (above) fill(top, above());
    view.draw(data.document, Boolean(shown) && data !== shown);
    shown = data;
    if (below) fill(end, below(data));
  }

  const update = () => ctx.when(tab, draw);
  el.append(top, body, end);
  for (const other of [key, "mesh", "selected", "status", "gone"]) ctx.on(other, update);
  update();
}

/**
 * A button that takes the filter by a source line away.
 * @param {Context} ctx
 * @param {string} id
 * @param {string} words
 */
export function lineFilter(ctx, id, words) {
  const { line } = ctx.get("query");
  if (!line) return null;
  return h("button", { class: "sv-btn", id, onclick: () => ctx.query({ at: 0, line: "" }) }, `${words}${line} ×`);
}

/**
 * Every value, with a filter that the kernel answers.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function values(ctx, el) {
  const filter = searchField({
    id: "values-filter",
    placeholder: "filter: a name, an operation, model.py:20, an axis …",
    "aria-label": "filter the values",
  }, (text) => ctx.query({ text }));
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
 * The shard map of the selected value.
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {{ small: boolean }} options small: beside the source
 */
export function shards(ctx, el, { small }) {
  const view = documentView(ctx, el);
  const draw = () => {
    const { document, large } = ctx.get("shards");
    view.draw(large && !small ? large : document);
  };
  const update = () => ctx.when(small ? "source" : "shards", draw);
  for (const key of ["shards", "mesh", "device"]) ctx.on(key, update);
  update();
}

/**
 * The plan's code: what runs it with JAX alone, its constraints as a diff of the person's source, and the `sv.Plan`.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function code(ctx, el) {
  const why = h("p", { class: "sv-empty", id: "no-jax-code" });
  /** @param {string} id @param {string} said */
  function part(id, said) {
    const text = h("pre", { class: "sv-code", id, tabindex: "0" });
    const head = h("div", { class: "sv-tools" }, h("span", { class: "sv-soft" }, said));
    head.append(copyButton(() => text, `copy-${id}`, "copy"));
    const all = h("section", {}, head, text);
    return (/** @type {string | undefined} */ words) => {
      all.hidden = !words;
      text.textContent = words || "";
      return all;
    };
  }
  const jax = part("jax-code", "This runs the plan with JAX alone; explorer.program.code(explorer.plan) gives it too.");
  const diff = part("source-diff", "Its constraints, as a diff of your own source.");
  const own = part("code", "This rebuilds the plan as an sv.Plan; explorer.code() gives it too.");
  function draw() {
    const codes = ctx.get("codes");
    why.hidden = !codes.why;
    why.textContent = `There is no code for JAX alone: ${codes.why}`;
    const parts = [jax(codes.jax), diff(codes.diff), own(ctx.get("plan_code"))];
    if (!el.contains(why)) el.append(why, ...parts);
  }
  ctx.on("plan_code", draw);
  ctx.on("codes", draw);
  draw();
}
