// @ts-check
// The centre: tabs, and behind *More* a second row of what is asked for less often. Arrows go along each row.
import { fill, h } from "./dom.js";

/** @import { Context } from "./types.d.ts" */

/** @type {[key: string, title: string, tip?: string][]} */
export const TABS = [
  ["source", "Source"],
  ["timeline", "Timeline"],
  ["memory", "Memory"],
  ["collectives", "Collectives"],
  ["shards", "Shard maps"],
  ["machine", "Machine"],
];

/** @type {[key: string, title: string, tip?: string][]} */
export const MORE = [
  ["most", "Fix", "what costs you most, each with what was tried against it"],
  ["problems", "Findings"],
  ["cost", "Cost"],
  ["difference", "Difference", "to the plan that this one is compared with"],
  ["values", "Values"],
  ["stages", "Raw stages", "snapshots of the HLO, and Shardy's passes"],
  ["rosetta", "Notations", "the selected value's sharding in every notation; and any notation read"],
  ["rules", "Rules", "specs by a pattern of the arguments' names"],
  ["code", "Code", "the Python that rebuilds the plan"],
];

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function places(ctx, el) {
  const badge = h("b", { class: "sv-badge" });
  const notes = h("span", { class: "sv-notes" });
  let open = false; // whether the second row was asked for
  const more = h("button", { class: "sv-tabmore", id: "more", "aria-expanded": "false", onclick: toggle }, "More ▾");

  function toggle() {
    open = !open;
    show();
  }

  /** @param {KeyboardEvent} e */
  function arrows(e) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    const own = /** @type {HTMLElement} */ (e.currentTarget);
    const all = /** @type {HTMLElement[]} */ ([...own.querySelectorAll("[role=tab]")]);
    const to = step && all[all.indexOf(/** @type {HTMLElement} */ (e.target)) + step];
    if (!to) return;
    to.click();
    to.focus();
    e.preventDefault();
    e.stopPropagation();
  }

  /** @param {[key: string, title: string, tip?: string]} view @param {number} n */
  const tab = ([key, title, tip], n) =>
    h(
      "button",
      { role: "tab", id: `tab-${key}`, title: tip ?? `key ${n + 1}`, onclick: () => ctx.setTab(key) },
      title,
      key === "problems" ? [" ", badge, " ", notes] : null,
    );
  const all = [...TABS, ...MORE];
  const tabs = all.map(tab);
  const panels = all.map(([key, title]) =>
    h("div", { class: `sv-panel sv-panel-${key}`, role: "tabpanel", id: `panel-${key}`, "aria-label": title })
  );
  const first = h("div", { class: "sv-tabs", role: "tablist", "aria-label": "views" });
  const second = h("div", { class: "sv-views", role: "tablist", "aria-label": "more views" });
  fill(first, tabs.slice(0, TABS.length));
  fill(second, tabs.slice(TABS.length));
  for (const row of [first, second]) row.addEventListener("keydown", arrows);
  const work = h("div", { class: "sv-work" }, panels);
  el.append(
    h("div", { class: "sv-places" }, h("div", { class: "sv-tabrow" }, first, more, fullWindow(el)), second),
    work,
  );

  function show() {
    const at = ctx.get("tab");
    const within = MORE.some(([key]) => key === at);
    second.hidden = !open && !within;
    more.setAttribute("aria-expanded", String(!second.hidden));
    more.textContent = second.hidden ? "More ▾" : "More ▴";
    all.forEach(([key], n) => {
      tabs[n].setAttribute("aria-selected", String(key === at));
      panels[n].hidden = key !== at;
    });
    ctx.shown(at);
  }

  function count() {
    const data = ctx.get("problems");
    badge.textContent = data.problems ? String(data.problems) : "";
    badge.hidden = !data.problems;
    notes.textContent = data.notes ? `${data.problems ? "" : "0 "}· ${data.notes}` : "";
    tabs[all.findIndex(([key]) => key === "problems")].title = data.said;
  }

  ctx.on("tab", () => {
    open = false;
    show();
  });
  ctx.on("problems", count);
  count();
  return { panels: Object.fromEntries(all.map(([key], n) => [key, panels[n]])), work, show };
}

/** A button that gives the explorer the whole screen, and takes it back. @param {HTMLElement} el */
function fullWindow(el) {
  const root = () => /** @type {HTMLElement} */ (el.closest(".shardviz"));
  const isFull = () => /** @type {Document | ShadowRoot} */ (el.getRootNode()).fullscreenElement === root();
  const onclick = () => isFull() ? document.exitFullscreen() : root().requestFullscreen();
  return h(
    "button",
    { class: "sv-full", id: "full-window", title: "the whole screen (Escape leaves it)", onclick },
    "⤢",
  );
}
