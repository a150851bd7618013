// @ts-check
// The explorer's page. The model's traits are all that it shows; what a person does goes back as edits.
import { h } from "./dom.js";
import { context } from "./context.js";
import { counts, head, plural } from "./head.js";
import { mesh } from "./mesh.js";
import { target } from "./target.js";
import { menu } from "./menu.js";
import { specs } from "./specs.js";
import { source } from "./source.js";
import { memoryPlan, shards } from "./shards.js";
import { code, collectives, cost, memory, problems, values } from "./panes.js";
import { machine } from "./machine.js";
import { rosetta } from "./rosetta.js";
import { rules } from "./rules.js";

/** @import { Context, Model } from "./types.d.ts" */

/** @type {[key: string, title: string][]} */
const TABS = [
  ["source", "Source"],
  ["shards", "Shard maps"],
  ["rosetta", "Rosetta"],
  ["values", "Values"],
  ["collectives", "Collectives"],
  ["memory", "Memory"],
  ["cost", "Cost"],
  ["machine", "Machine"],
  ["rules", "Rules"],
  ["problems", "Problems"],
  ["code", "Code"],
];

/**
 * The tabs: their bar, and a panel for each.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
function tabs(ctx, el) {
  const badge = h("b", { class: "sv-badge" });
  const notes = h("span", { class: "sv-notes" });
  /** @param {KeyboardEvent} e @param {number} at */
  function arrows(e, at) {
    const to = { ArrowRight: all[at + 1], ArrowLeft: all[at - 1] }[e.key];
    if (!to) return;
    ctx.setTab(to.key);
    to.button.focus();
    e.preventDefault();
    e.stopPropagation();
  }
  const all = TABS.map(([key, title], at) => ({
    key,
    button: h(
      "button",
      {
        role: "tab",
        id: `tab-${key}`,
        title: key === "rosetta" ? "the selected value's sharding in every notation; and any notation read" : null,
        onclick: () => ctx.setTab(key),
        onkeydown: (e) => arrows(e, at),
      },
      title,
      key === "problems" ? [" ", badge, " ", notes] : null,
    ),
    panel: h("div", { class: `sv-panel sv-panel-${key}`, role: "tabpanel", id: `panel-${key}`, "aria-label": title }),
  }));
  el.append(h("div", { class: "sv-tabs", role: "tablist" }, all.map(({ button }) => button)));
  el.append(...all.map(({ panel }) => panel));

  function show() {
    const now = all.find(({ key }) => key === ctx.get("tab")) || all[0];
    for (const tab of all) {
      tab.button.setAttribute("aria-selected", String(tab === now));
      tab.button.tabIndex = tab === now ? 0 : -1;
      tab.panel.hidden = tab !== now;
    }
    ctx.shown(now.key);
  }

  const problems = all[TABS.findIndex(([key]) => key === "problems")].button;
  function count() {
    const data = ctx.get("problems");
    badge.textContent = data.problems ? String(data.problems) : "";
    badge.hidden = !data.problems;
    notes.textContent = data.notes ? `${data.problems ? "" : "0 "}· ${plural(data.notes, "note")}` : "";
    problems.title = counts(data.problems, data.notes);
  }
  ctx.on("tab", show);
  ctx.on("problems", count);
  count();
  return { panels: Object.fromEntries(all.map(({ key, panel }) => [key, panel])), show };
}

/**
 * Dark or light: as JupyterLab says, or VS Code; else as the browser does.
 * @param {HTMLElement} root
 */
function theme(root) {
  const lab = document.body.getAttribute("data-jp-theme-light");
  const vscode = document.body.getAttribute("data-vscode-theme-kind");
  const dark = lab !== null
    ? lab === "false"
    : vscode
    ? vscode.includes("dark")
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.classList.toggle("sv-dark", dark);
}

/**
 * Keeps the theme as the page around it; returns how to stop that.
 * @param {HTMLElement} root
 */
function followTheme(root) {
  const draw = () => theme(root);
  const watch = new MutationObserver(draw);
  const attributeFilter = ["data-jp-theme-light", "data-vscode-theme-kind"];
  watch.observe(document.body, { attributes: true, attributeFilter });
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", draw);
  draw();
  return () => {
    watch.disconnect();
    media.removeEventListener("change", draw);
  };
}

/**
 * Undo and redo; and keeps plain keys from JupyterLab, whose command mode would take letters and arrows as its own.
 * @param {Context} ctx
 * @param {KeyboardEvent} e
 */
function keys(ctx, e) {
  const command = e.ctrlKey || e.metaKey;
  const field = e.target instanceof HTMLInputElement;
  if (command && !field && (e.key === "z" || e.key === "Z" || e.key === "y")) {
    ctx.edit({ op: e.key === "y" || e.shiftKey ? "redo" : "undo" });
    e.preventDefault();
  }
  if (!command && !e.altKey && e.key !== "Tab") e.stopPropagation();
  if (e.ctrlKey && (e.key === "z" || e.key === "y")) e.stopPropagation();
}

/**
 * @param {{ model: Model, el: HTMLElement }} view
 */
function render({ model, el }) {
  const ctx = context(model);
  const root = h("div", { class: "shardviz", id: "shardviz", tabindex: "-1" });
  el.append(root);
  // A notebook saved by another version brings that version's style sheet, and a page keeps one of each widget: the
  // last that came. So each view has its own with it.
  const css = model.get("_css");
  if (css) root.append(h("style", {}, css));
  const top = h("div");
  const left = h("div", { class: "sv-left" });
  const right = h("div", { class: "sv-right" });
  const inner = h("div", { class: "sv-body" }, top, h("div", { class: "sv-main" }, left, right));
  root.append(inner);
  const endHead = head(ctx, top);
  menu(ctx, inner);
  mesh(ctx, left, target(ctx, inner));
  specs(ctx, left, "inputs");
  specs(ctx, left, "outputs");
  const { panels, show } = tabs(ctx, right);
  const lines = h("div", { class: "sv-src" });
  const map = h("div");
  const plan = h("div");
  panels.source.append(lines, h("div", { class: "sv-low" }, map, plan));
  source(ctx, lines);
  shards(ctx, map, { small: true });
  memoryPlan(ctx, plan);
  shards(ctx, panels.shards, { small: false });
  rosetta(ctx, panels.rosetta);
  values(ctx, panels.values);
  collectives(ctx, panels.collectives);
  memory(ctx, panels.memory);
  cost(ctx, panels.cost);
  machine(ctx, panels.machine);
  rules(ctx, panels.rules);
  problems(ctx, panels.problems);
  code(ctx, panels.code);
  show();
  ctx.watchKernel();
  const endTheme = followTheme(root);
  root.addEventListener("keydown", (e) => keys(ctx, e));
  return () => {
    endTheme();
    endHead();
    ctx.close();
  };
}

export default { render };
