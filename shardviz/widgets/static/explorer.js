// The explorer's page. The model's traits are all that it shows; what a person does goes back as edits.
import { h } from "./dom.js";
import { counts, head } from "./head.js";
import { mesh } from "./mesh.js";
import { target } from "./target.js";
import { menu } from "./menu.js";
import { specs } from "./specs.js";
import { source } from "./source.js";
import { memory, shards } from "./shards.js";
import { memoryTab } from "./memory.js";
import { cost } from "./cost.js";
import { machine } from "./machine.js";
import { rosetta } from "./rosetta.js";
import { values } from "./values.js";
import { collectives } from "./collectives.js";
import { rules } from "./rules.js";
import { code, problems } from "./notes.js";

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

function context(model) {
  const listeners = [];
  const local = new Map();
  const stale = new Map();
  let cell = null;
  const tell = (key) => {
    for (const fn of local.get(key) || []) fn();
  };
  const ctx = {
    gone: false, // whether no kernel is behind the page any more; "gone" is told when that changes
    twins: false, // whether a change of an argument is made to its twins too
    get: (key) => model.get(key),
    on(key, fn) {
      if (key === "cell" || key === "gone") {
        local.set(key, [...(local.get(key) || []), fn]);
        return;
      }
      model.on(`change:${key}`, fn);
      listeners.push([`change:${key}`, fn]);
    },
    // Does `draw` if its tab is shown, else when it next is.
    when(tab, draw) {
      if (model.get("tab") === tab) draw();
      else stale.set(tab, (stale.get(tab) || new Set()).add(draw));
    },
    shown(tab) {
      const todo = stale.get(tab) || [];
      stale.delete(tab);
      for (const draw of todo) draw();
    },
    // An edit is repeated with the next one until the kernel has answered it: while it is busy only a trait's newest value is sent.
    edit(edit) {
      const done = model.get("status").seq;
      const waiting = model.get("edits").filter((e) => e.seq > done);
      const seq = Math.max(done, ...waiting.map((e) => e.seq)) + 1;
      model.set("edits", [...waiting, { ...edit, seq }]);
      model.save_changes();
      return seq;
    },
    select(name) {
      if (model.get("selected") === name) return;
      model.set("selected_at", model.get("status").level); // an intermediate has its name at one level only
      model.set("selected", name);
      model.save_changes();
    },
    query(change) {
      model.set("query", { ...model.get("query"), ...change });
      model.save_changes();
    },
    // Has any notation of a sharding read.
    read(text) {
      model.set("reading", text);
      model.save_changes();
    },
    setTab(tab) {
      model.set("tab", tab);
      model.save_changes();
    },
    pickCell(name, at) {
      cell = at && { name, ...at };
      tell("cell");
    },
    // Selects a device by its place in the mesh; below 0 for none.
    pickDevice(place) {
      model.set("device", place);
      model.save_changes();
    },
    pickedCell: (name) => (cell && cell.name === name ? cell : null),
    // Asks whether a kernel is behind the page: now, and whenever that may have changed.
    watchKernel() {
      const ask = async () => {
        const gone = !(await isAlive(model));
        if (gone === ctx.gone) return;
        ctx.gone = gone;
        tell("gone");
      };
      for (const event of ["comm_live_update", "comm:close"]) {
        model.on(event, ask);
        listeners.push([event, ask]);
      }
      ask();
    },
    close() {
      for (const [key, fn] of listeners) model.off(key, fn);
    },
  };
  return ctx;
}

// Whether the model still has its comm. Where nobody can say (no ipywidgets around the page) it is taken to have it.
async function isAlive(model) {
  const manager = model.widget_manager;
  if (!manager || !model.get("comm_id")) return true;
  try {
    return (await manager.get_model(model.get("comm_id"))).comm_live !== false;
  } catch {
    return false; // the manager has forgotten it
  }
}

function tabs(ctx, el) {
  const bar = h("div", { class: "sv-tabs", role: "tablist" });
  const badge = h("b", { class: "sv-badge" });
  const notes = h("span", { class: "sv-notes" });
  const panels = new Map();
  const buttons = new Map();
  for (const [key, title] of TABS) {
    const button = h(
      "button",
      {
        role: "tab",
        id: `tab-${key}`,
        onclick: () => ctx.setTab(key),
        onkeydown: (e) => {
          const at = TABS.findIndex(([k]) => k === key);
          const to = { ArrowRight: at + 1, ArrowLeft: at - 1 }[e.key];
          if (to === undefined || !TABS[to]) return;
          ctx.setTab(TABS[to][0]);
          buttons.get(TABS[to][0]).focus();
          e.preventDefault();
          e.stopPropagation();
        },
      },
      title,
      key === "problems" ? [" ", badge, " ", notes] : null,
    );
    buttons.set(key, button);
    bar.append(button);
    panels.set(
      key,
      h("div", { class: `sv-panel sv-panel-${key}`, role: "tabpanel", id: `panel-${key}`, "aria-label": title }),
    );
  }
  el.append(bar, ...panels.values());
  const show = () => {
    const now = panels.has(ctx.get("tab")) ? ctx.get("tab") : "source";
    for (const [key] of TABS) {
      buttons.get(key).setAttribute("aria-selected", String(key === now));
      buttons.get(key).tabIndex = key === now ? 0 : -1;
      panels.get(key).hidden = key !== now;
    }
    ctx.shown(now);
  };
  buttons.get("rosetta").title = "the selected value's sharding in every notation; and any notation read";
  const count = () => {
    const data = ctx.get("problems");
    badge.textContent = data.problems || "";
    badge.hidden = !data.problems;
    notes.textContent = data.notes
      ? `${data.problems ? "" : "0 "}· ${data.notes} note${data.notes === 1 ? "" : "s"}`
      : "";
    buttons.get("problems").title = counts(data.problems, data.notes);
  };
  ctx.on("tab", show);
  ctx.on("problems", count);
  count();
  return { panels, show };
}

// Dark or light: as JupyterLab says, else from the page's own background.
function theme(root) {
  const lab = document.body.getAttribute("data-jp-theme-light");
  let dark = lab === "false";
  if (lab === null) {
    const vscode = document.body.getAttribute("data-vscode-theme-kind");
    dark = vscode ? vscode.includes("dark") : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  root.classList.toggle("sv-dark", dark);
}

function render({ model, el }) {
  const ctx = context(model);
  const root = h("div", { class: "shardviz", id: "shardviz", tabindex: "-1" });
  el.append(root);
  // A notebook saved by another version brings that version's style sheet, and a page keeps one of each widget: the
  // last that came. So each view has its own with it.
  if (model.get("_css")) root.append(h("style", {}, model.get("_css")));
  const left = h("div", { class: "sv-left" });
  const right = h("div", { class: "sv-right" });
  const inner = h("div", { class: "sv-body" });
  root.append(inner);
  const top = h("div", {});
  inner.append(top, h("div", { class: "sv-main" }, left, right));
  const endHead = head(ctx, top);
  menu(ctx, inner);
  mesh(ctx, left, target(ctx, inner));
  specs(ctx, left, "inputs");
  specs(ctx, left, "outputs");
  const { panels, show } = tabs(ctx, right);
  const lines = h("div", { class: "sv-src" });
  const map = h("div", {});
  const mem = h("div", {});
  panels.get("source").append(lines, h("div", { class: "sv-low" }, map, mem));
  source(ctx, lines);
  shards(ctx, map, { small: true });
  memory(ctx, mem);
  shards(ctx, panels.get("shards"), { small: false });
  rosetta(ctx, panels.get("rosetta"));
  values(ctx, panels.get("values"));
  collectives(ctx, panels.get("collectives"));
  memoryTab(ctx, panels.get("memory"));
  cost(ctx, panels.get("cost"));
  machine(ctx, panels.get("machine"));
  rules(ctx, panels.get("rules"));
  problems(ctx, panels.get("problems"));
  code(ctx, panels.get("code"));
  show();
  ctx.watchKernel();

  theme(root);
  const watch = new MutationObserver(() => theme(root));
  watch.observe(document.body, {
    attributes: true,
    attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind"],
  });
  const media = matchMedia("(prefers-color-scheme: dark)");
  const onMedia = () => theme(root);
  media.addEventListener("change", onMedia);

  root.addEventListener("keydown", (e) => {
    const field = e.target instanceof HTMLInputElement;
    if ((e.ctrlKey || e.metaKey) && !field && (e.key === "z" || e.key === "Z" || e.key === "y")) {
      ctx.edit({ op: e.key === "y" || e.shiftKey ? "redo" : "undo" });
      e.preventDefault();
    }
    // JupyterLab's command mode would take plain letters and arrows as its own.
    if (!e.ctrlKey && !e.metaKey && !e.altKey && e.key !== "Tab") e.stopPropagation();
    if (e.ctrlKey && (e.key === "z" || e.key === "y")) e.stopPropagation();
  });
  return () => {
    watch.disconnect();
    media.removeEventListener("change", onMedia);
    endHead();
    ctx.close();
  };
}

export default { render };
