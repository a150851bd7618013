// @ts-check
// Three places beside the inputs (the program, its memory, the machine), each with its views; and what is opened from
// elsewhere: notations, rules, code. Arrows go along.
import { fill, h } from "./dom.js";
import { pieces, plain } from "./document.js";

/** @import { Context } from "./types.d.ts" */

/** @type {{ key: string, title: string, views: [key: string, title: string][] }[]} */
export const PLACES = [
  {
    key: "program",
    title: "Program",
    views: [
      ["source", "source"],
      ["values", "values"],
      ["collectives", "collectives"],
      ["problems", "findings"],
      ["stages", "raw stages"],
      ["difference", "difference"],
    ],
  },
  { key: "memory", title: "Memory", views: [["memory", "one device"], ["shards", "shard map"]] },
  {
    key: "machine",
    title: "Machine",
    views: [["machine", "topology"], ["timeline", "timeline"], ["cost", "cost and traffic"]],
  },
];

/** What belongs to no place: it is opened where it is needed. @type {[key: string, title: string, tip: string][]} */
const SHEETS = [
  ["rosetta", "notations", "the selected value's sharding in every notation; and any notation read"],
  ["rules", "rules", "specs by a pattern of the arguments' names"],
  ["code", "code", "the Python that rebuilds the plan"],
];

/** The place that a view belongs to; none for what is opened from elsewhere. @param {string} view */
export const placeOf = (view) => PLACES.find(({ views }) => views.some(([key]) => key === view));

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function places(ctx, el) {
  /** The view of each place that was looked at last. @type {Map<string, string>} */
  const last = new Map();
  const badge = h("b", { class: "sv-badge" });
  const notes = h("span", { class: "sv-notes" });
  const against = h("select", { id: "against", "aria-label": "differences are told to" });
  const bar = h("div", { class: "sv-tabs", role: "tablist", "aria-label": "places" });
  const views = h("div", { class: "sv-views", role: "tablist", "aria-label": "views" });
  const sheets = h("div", { class: "sv-sheets" });

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

  /** @param {string} place */
  function go(place) {
    const found = PLACES.find(({ key }) => key === place) || PLACES[0];
    ctx.setTab(last.get(found.key) || found.views[0][0]);
  }

  const panels = [...PLACES.flatMap(({ views }) => views), ...SHEETS].map(([key, title]) => ({
    key,
    panel: h("div", { class: `sv-panel sv-panel-${key}`, role: "tabpanel", id: `panel-${key}`, "aria-label": title }),
  }));
  const placeTabs = PLACES.map(({ key, title }, n) =>
    h("button", { role: "tab", id: `place-${key}`, title: `key ${n + 1}`, onclick: () => go(key) }, title)
  );
  const sheetTabs = SHEETS.map(([key, title, tip]) =>
    h("button", { class: "sv-sheet", id: `tab-${key}`, title: tip, onclick: () => open(key) }, title)
  );
  /** @param {string} key */
  const open = (key) => ctx.get("tab") === key ? go(shown) : ctx.setTab(key);
  let shown = "program";

  fill(bar, placeTabs);
  fill(sheets, h("label", { class: "sv-against" }, "difference to ", against), sheetTabs);
  bar.addEventListener("keydown", arrows);
  views.addEventListener("keydown", arrows);
  against.addEventListener("change", () => ctx.edit({ op: "compare_with", card: against.value }));
  el.append(h("div", { class: "sv-places" }, bar, sheets), views, ...panels.map(({ panel }) => panel));

  function drawViews() {
    const tab = ctx.get("tab");
    const place = placeOf(tab);
    fill(
      views,
      (place || { views: [] }).views.map(([key, title]) =>
        h(
          "button",
          {
            role: "tab",
            id: `tab-${key}`,
            "aria-selected": String(key === tab),
            tabindex: key === tab ? "0" : "-1",
            title: key === "problems" ? ctx.get("problems").said : null,
            onclick: () => ctx.setTab(key),
          },
          title,
          key === "problems" ? [" ", badge, " ", notes] : null,
        )
      ),
    );
    views.hidden = !place;
  }

  function show() {
    const tab = ctx.get("tab");
    const place = placeOf(tab);
    if (place) {
      last.set(place.key, tab);
      shown = place.key;
    }
    PLACES.forEach(({ key }, n) => {
      placeTabs[n].setAttribute("aria-selected", String(place?.key === key));
      placeTabs[n].tabIndex = shown === key ? 0 : -1;
    });
    SHEETS.forEach(([key], n) => sheetTabs[n].setAttribute("aria-pressed", String(key === tab)));
    drawViews();
    for (const { key, panel } of panels) panel.hidden = key !== tab;
    ctx.shown(tab);
  }

  function count() {
    const data = ctx.get("problems");
    badge.textContent = data.problems ? String(data.problems) : "";
    badge.hidden = !data.problems;
    notes.textContent = data.notes ? `${data.problems ? "" : "0 "}· ${data.notes}` : "";
  }

  function drawCards() {
    const { document, against: other } = ctx.get("cards");
    const [table] = document.blocks;
    const rows = table.block === "table" ? table.rows || [] : [];
    fill(
      against,
      rows.map(({ sel, cells }) => h("option", { value: sel?.[1] }, plain(pieces(cells[0])))),
    );
    against.value = other;
    against.closest("label")?.toggleAttribute("hidden", rows.length < 2);
  }

  ctx.on("tab", show);
  ctx.on("problems", () => {
    count();
    drawViews();
  });
  ctx.on("cards", drawCards);
  count();
  drawCards();
  return { panels: Object.fromEntries(panels.map(({ key, panel }) => [key, panel])), show };
}
