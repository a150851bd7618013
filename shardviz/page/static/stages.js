// @ts-check
// The texts that a program goes through, one at a time: which, searched, held against the one before or another plan's.
import { fill, focused, h, searchField } from "./dom.js";
import { documentView } from "./document.js";
import { waiting } from "./head.js";
import { lineFilter } from "./panes.js";

/** @import { Context, Editor, Query } from "./types.d.ts" */

/** @type {Record<string, string>} */
const GROUPS = { jaxpr: "JAX", mlir: "StableHLO and Shardy", hlo: "XLA" };

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function stages(ctx, el) {
  const stage = h("select", { id: "stage-name", "aria-label": "which text" });
  const against = h("select", { id: "stage-against", "aria-label": "compared with" });
  const only = h("input", { type: "checkbox", id: "stage-only" });
  const onlyLabel = h("label", {}, only, " only what differs");
  const search = searchField({
    id: "stage-find",
    placeholder: "search: all-reduce, model.py:20, dot_general …",
    "aria-label": "search the text",
  }, (text) => ask({ find: text }));
  const step = (/** @type {number} */ by, /** @type {string} */ id, /** @type {string} */ title, words = title) =>
    h("button", { class: "sv-btn", id, title, "aria-label": title, onclick: () => go(by) }, words);
  const back = step(-1, "stage-before", "the text before it", "◂");
  const on = step(1, "stage-next", "the text after it", "▸");
  const line = h("span", {});
  const found = h("span", { class: "sv-soft", id: "stage-found", role: "status" });
  const tools = h("div", { class: "sv-tools" }, back, stage, on, against, onlyLabel, search, line, found);
  const passes = h("p", { class: "sv-soft sv-passes", id: "stage-passes", role: "status" });
  const every = h("button", {
    class: "sv-link",
    id: "show-passes",
    title: "takes about twice as long as a compile, and is done only when it is asked for",
    onclick: () => ctx.edit({ op: "show_passes" }),
  }, "compile once more, with every pass");
  const body = h("div", {});
  const pages = h("div", { class: "sv-pages" });
  el.append(tools, passes, body, pages);
  /** @type {Editor} */
  const editor = { widths: [9, 100, 14] };
  const view = documentView(ctx, body, { stage: editor });
  let drawn = false;
  let at = -1;

  /** From the first row. @param {Query} change */
  const ask = (change) => ctx.query({ at: 0, ...change });

  /** @param {number} by */
  function go(by) {
    const { names, name } = ctx.get("stages");
    const next = names[names.findIndex(([own]) => own === name) + by];
    if (next) ask({ stage: next[0] });
  }

  stage.addEventListener("change", () => ask({ stage: stage.value }));
  against.addEventListener("change", () => {
    const held = /** @type {Query["against"]} */ (against.value);
    ask({ against: held, only: Boolean(held) });
  });
  only.addEventListener("change", () => ask({ only: only.checked }));

  function drawTools() {
    const { names, name, could, other, found: count, against: held } = ctx.get("stages");
    const query = ctx.get("query");
    const groups = Object.entries(GROUPS).map(([kind, label]) =>
      h(
        "optgroup",
        { label },
        names.filter((each) => each[2] === kind).map(([own, title]) => h("option", { value: own }, title)),
      )
    );
    if (focused(stage) !== stage) fill(stage, groups);
    stage.value = name;
    const place = names.findIndex(([own]) => own === name);
    back.toggleAttribute("disabled", place <= 0);
    on.toggleAttribute("disabled", place >= names.length - 1);
    /** @type {[string, string][]} */
    const held_to = [["", "as it is"], ["stage", "against the text before"], ["card", `against ${other}`]];
    fill(
      against,
      held_to.filter(([key]) => !key || could.includes(/** @type {"stage"} */ (key)))
        .map(([key, words]) => h("option", { value: key }, words)),
    );
    against.value = held;
    onlyLabel.hidden = !held;
    only.checked = Boolean(query.only);
    if (focused(search) !== search) search.value = query.find || "";
    fill(line, lineFilter(ctx, "stage-line", "only "));
    found.textContent = `${count.toLocaleString("en")} line${count === 1 ? "" : "s"}`;
  }

  function drawPasses() {
    const { count, busy, trouble } = ctx.get("stages").passes;
    const few = "Three snapshots of the HLO are kept: before the partitioner, after it, and the final one. ";
    if (busy) fill(passes, "It is being compiled once more, with every pass …");
    else if (count) {
      fill(passes, `The list has the program after each of XLA's passes that changed it: ${count} texts.`);
    } else fill(passes, trouble ? `${trouble} ` : few, every);
  }

  function drawPages() {
    const { at: first, found: count, most } = ctx.get("stages");
    const to = (/** @type {number} */ place, /** @type {string} */ id, /** @type {string} */ words) =>
      h("button", {
        class: "sv-btn",
        id,
        disabled: place < 0 || place >= count,
        onclick: () => ctx.query({ at: place }),
      }, words);
    const last = Math.min(first + most, count);
    const said = `${(first + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of ${count.toLocaleString("en")}`;
    fill(
      pages,
      count > most
        ? [
          to(first - most, "stage-earlier", "◂ earlier"),
          h("span", { class: "sv-soft" }, said),
          to(first + most, "stage-later", "later ▸"),
        ]
        : null,
    );
  }

  function draw() {
    const data = ctx.get("stages");
    if (!data.document) {
      if (!drawn) fill(body, waiting(ctx)); // else the last answer stays
      return;
    }
    drawn = true;
    tools.hidden = !data.names.length;
    drawTools();
    drawPasses();
    view.draw(data.document);
    drawPages();
    if (at !== data.at) el.scrollTop = 0;
    at = data.at;
  }

  const update = () => ctx.when("stages", draw);
  for (const key of ["stages", "mesh", "gone"]) ctx.on(key, update);
  update();
}
