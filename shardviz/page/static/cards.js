// @ts-check
// The cards: plans side by side, painted from the rows of one table. A click opens a card, Alt and an arrow moves it, a
// drag onto another one tells their difference; the one that is open is the plan that is being changed.
import { fill, find, focused, h, isFilling, keeper } from "./dom.js";
import { documentView, inline, pieces, plain, rowsOf } from "./document.js";
import { notice } from "./head.js";
import { drawScatter } from "./scatter.js";

/** @import { Context, Inline, Kept, Row } from "./types.d.ts" */

/** What stands in each cell of a card's row; `view/cards.py` has the same order. */
const AT = { name: 0, note: 1, step: 2, difference: 3, memory: 4, room: 5, moved: 6, findings: 7, level: 8 };

/**
 * Returns the button that searches, which stands with the verdict.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function cards(ctx, el) {
  const list = h("div", { class: "sv-deck", role: "list", "aria-label": "plans" });
  const tools = h("div", { class: "sv-decktools" });
  const refusal = h("div");
  const presets = h("button", { class: "sv-btn", id: "presets", "aria-expanded": "false", onclick: togglePresets });
  const finder = h("button", { class: "sv-btn sv-primary", id: "find-best", onclick: findBest });
  const progress = h("div", { class: "sv-hunt", role: "status" });
  const offered = h("div", { class: "sv-offers-pane", id: "offers-pane", hidden: true });
  const offersView = documentView(ctx, offered, { offers: { end: takeOf } });
  tools.append(presets, progress);
  const picture = h("div", { class: "sv-scatter" });
  el.append(offered, refusal, h("div", { class: "sv-ledger" }, picture, list, tools));
  /** The card of which is told why it is as it is. @type {string | null} */
  let told = null;
  const reasons = h("div", { class: "sv-offers-pane sv-reasons", id: "card-why", hidden: true });
  const reasonsView = documentView(ctx, reasons);
  offered.after(reasons);
  /** The card whose name is being written. @type {string | null} */
  let naming = null;
  /** The card that was open when it was last looked for, and all cards that were there. */
  let [was, held] = ["", ""];
  /** The card that is being dragged. @type {string | null} */
  let dragged = null;

  /** @returns {Row[]} */
  const rows = () => rowsOf(ctx.get("cards").document.blocks);
  /** @param {Row} row */
  const idOf = (row) => row.sel?.[1] || "";
  const ids = () => rows().map(idOf);

  function togglePresets() {
    ctx.edit({ op: ctx.get("offers").document ? "close_offers" : "offer_presets" });
  }

  el.addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || !ctx.get("offers").document) return;
    togglePresets();
    presets.focus();
    e.stopPropagation();
  });

  function findBest() {
    ctx.edit({ op: ctx.get("offers").hunt ? "stop_finding" : "find_best" });
  }

  /** @param {Row} row */
  function takeOf({ sel }) {
    if (!sel) return null;
    const onclick = () => ctx.edit({ op: "take_offer", offer: sel[1] });
    return h(
      "button",
      { class: "sv-btn", id: `take-${sel[1]}`, title: "make it a card and go to it", onclick },
      "take",
    );
  }

  function drawOffers() {
    const { document, hunt, share, trouble } = ctx.get("offers");
    presets.textContent = document ? "presets ▾" : "+ preset ▴";
    presets.setAttribute("aria-expanded", String(Boolean(document)));
    finder.textContent = hunt ? "■ stop" : "Find the best";
    finder.title = hunt
      ? "end the search; what it found stays"
      : "search meshes and shardings for the shortest step on this machine; what is found becomes a plan below";
    const bar = h(
      "span",
      { class: "sv-track" },
      h("i", { class: "sv-fill-work", style: { width: `${100 * share}%` } }),
    );
    fill(progress, hunt ? [bar, h("small", {}, hunt)] : null, !document && trouble ? h("small", {}, trouble) : null);
    offered.hidden = !document;
    if (document) offersView.draw(document);
  }

  /** @param {string} card */
  function open(card) {
    if (card === ctx.get("cards").at) return;
    ctx.edit({ op: "open_card", card });
    draw();
  }

  /** @param {string} card @param {string} name */
  function named(card, name) {
    naming = null;
    if (name.trim()) ctx.edit({ op: "rename_card", card, name });
    draw();
    find(list, `card-${card}`)?.focus();
  }

  /** The difference of two cards: one is opened, and compared with the other. @param {string} card @param {string} other */
  function compare(card, other) {
    if (card === other) return;
    open(card);
    ctx.edit({ op: "compare_with", card: other });
    ctx.setTab("difference");
  }

  /** @param {string} card @param {number} to */
  function move(card, to) {
    if (to >= 0 && to < ids().length) ctx.edit({ op: "move_card", card, to });
  }

  /** @param {KeyboardEvent} e @param {string} card */
  function keys(e, card) {
    if (e.target !== e.currentTarget) return;
    const all = ids();
    const at = all.indexOf(card);
    const side = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (side && e.altKey) move(card, at + side);
    else if (side) find(list, `card-${all[at + side] ?? card}`)?.focus();
    else if (e.key === "Enter" || e.key === " ") open(card);
    else if (e.key === "F2") name(card);
    else if (e.key === "w") tell(card);
    else if (e.key === "k" && card === ctx.get("cards").at) ctx.edit({ op: "pin" });
    else if (e.key === "c") ctx.edit({ op: "compare_with", card });
    else if (e.key === "Delete" && canDelete(card)) ctx.edit({ op: "delete_card", card });
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** @param {string} card */
  function name(card) {
    naming = card;
    draw();
    const field = /** @type {HTMLInputElement | null} */ (find(list, "card-name"));
    field?.focus();
    field?.select();
  }

  /** @param {string} card */
  const canDelete = (card) => card !== "baseline" && card !== ctx.get("cards").at;

  /** @param {string} id @param {string} words @param {string} title @param {() => unknown} act */
  function tool(id, words, title, act) {
    const onclick = (/** @type {Event} */ e) => {
      e.stopPropagation();
      act();
    };
    return h("button", { class: "sv-cardtool", id, title, "aria-label": title, onclick, tabindex: "-1" }, words);
  }

  /** Says why a card is as it is, or no more. @param {string} card */
  function tell(card) {
    told = told === card ? null : card;
    drawReasons();
  }

  function drawReasons() {
    const row = rows().find((each) => idOf(each) === told);
    reasons.hidden = !row?.detail?.length;
    if (row?.detail?.length) {
      const title = [{ t: `Why ${plain(row.cells[AT.name])}`, b: true }];
      reasonsView.draw({ title, blocks: row.detail });
    }
  }

  /**
   * What a person can do with a card.
   * @param {string} card
   * @param {string} called
   * @param {boolean} on
   * @param {import("./types.d.ts").Block[]} [detail] why it is as it is
   */
  function toolsOf(card, called, on, detail) {
    const { against } = ctx.get("cards");
    return h(
      "span",
      { class: "sv-cardtools" },
      card === "draft" || on
        ? tool(`pin-${card}`, "keep", `keep ${called} as a card of its own (k)`, () => ctx.edit({ op: "pin" }))
        : null,
      card !== against
        ? tool(
          `against-${card}`,
          "compare",
          `compare all plans with ${called} (c)`,
          () => ctx.edit({ op: "compare_with", card }),
        )
        : null,
      detail?.length
        ? tool(`why-${card}`, "why", `why ${called}: how the search chose it (w)`, () => tell(card))
        : null,
      tool(`name-${card}`, "name", `give ${called} a name (F2)`, () => name(card)),
      canDelete(card)
        ? tool(`delete-${card}`, "×", `delete ${called} (Delete)`, () => ctx.edit({ op: "delete_card", card }))
        : null,
    );
  }

  /** @param {string} card @param {string} called */
  function nameOf(card, called) {
    if (naming !== card) return h("b", { class: "sv-cardname", title: called }, called);
    /** @type {HTMLInputElement} */
    const field = h("input", {
      class: "sv-cardnaming",
      id: "card-name",
      value: called,
      "aria-label": "the card's name",
      maxlength: 60,
      onclick: (e) => e.stopPropagation(),
      onkeydown: (e) => {
        if (e.key === "Enter") named(card, field.value);
        else if (e.key === "Escape") named(card, "");
        e.stopPropagation();
      },
      onblur: () => {
        if (naming === card && !isFilling()) named(card, field.value === called ? "" : field.value);
      },
    });
    return field;
  }

  /** What would be if the offer that is looked at were taken, as a card that is not there yet. */
  function ghost() {
    const { document, of, trouble } = ctx.get("preview");
    const asked = ctx.get("hovered");
    if (!asked) return null;
    const [row] = of === asked && document ? rowsOf(document.blocks) : [];
    if (of === asked && !document && !trouble) return null; // there is no such offer any more
    const name = asked.slice(asked.indexOf(" ") + 1);
    const head = h(
      "div",
      { class: "sv-cardhead" },
      h("span", { class: "sv-soft" }, "if taken:"),
      h("b", { class: "sv-ghostname", title: name }, name),
    );
    const wait = h("p", { class: "sv-soft" }, of === asked && trouble ? trouble : "Shardy is asked …");
    return h(
      "div",
      { class: "sv-card sv-ghost", id: "card-preview", role: "listitem", "aria-label": `if taken: ${name}` },
      head,
      row ? insides(row, "preview") : wait,
    );
  }

  /** The lines of a card below its head. @param {Row} row @param {string} id @param {import("./types.d.ts").Child} [beside] */
  function insides({ cells }, id, beside = null) {
    const { at } = ctx.get("cards");
    const idOfPart = (/** @type {string} */ part) => at === id ? `kpi-${part}` : `card-${part}-${id}`;
    const level = plain(cells[AT.level]);
    return [
      h(
        "div",
        { class: "sv-cardbig" },
        part("step", cells[AT.step], idOfPart("step")),
        beside,
        part("diff", cells[AT.difference], idOfPart("difference")),
      ),
      h(
        "div",
        { class: "sv-cardrow" },
        part("memory", cells[AT.memory], idOfPart("memory")),
        part("moved", cells[AT.moved], idOfPart("moved")),
      ),
      h(
        "div",
        { class: "sv-cardrow sv-cardfoot" },
        part("findings", cells[AT.findings], idOfPart("findings")),
        h("span", { class: "sv-soft", title: pieces(cells[AT.level])[0].tip }, level),
      ),
    ];
  }

  /** A cell, or nothing where it is empty. @param {string} kind @param {Inline} cell @param {string} [id] */
  function part(kind, cell, id) {
    return plain(cell) || pieces(cell).length ? h("span", { class: `sv-card${kind}`, id }, inline(ctx, cell)) : null;
  }

  /** @param {Row} row */
  function cardOf(row) {
    const { at, against } = ctx.get("cards");
    const { cells } = row;
    const id = idOf(row);
    const called = plain(cells[AT.name]);
    const on = isOn(id);
    const idOfPart = (/** @type {string} */ part) => at === id ? `kpi-${part}` : `card-${part}-${id}`;
    const compared = id === against && ids().length > 1 ? h("span", { class: "sv-cardbase" }, "the reference") : null;
    const card = h(
      "div",
      {
        class: `sv-card ${on ? "sv-on" : ""}`,
        id: `card-${id}`,
        role: "listitem",
        tabindex: on ? "0" : "-1",
        "aria-current": on ? "true" : null,
        "aria-label": `${called}: ${[AT.step, AT.difference, AT.memory].map((n) => plain(cells[n])).join(", ")}`,
        draggable: "true",
        "data-level": plain(cells[AT.level]),
        onclick: () => open(id),
        ondblclick: () => name(id),
        onkeydown: (/** @type {KeyboardEvent} */ e) => keys(e, id),
        ondragstart: (/** @type {DragEvent} */ e) => {
          dragged = id;
          e.dataTransfer?.setData("text/plain", called);
          e.stopPropagation();
        },
        ondragover: (/** @type {DragEvent} */ e) => dragged && e.preventDefault(),
        ondrop: (/** @type {DragEvent} */ e) => {
          if (!dragged) return;
          e.preventDefault();
          e.stopPropagation();
          compare(dragged, id);
          dragged = null;
        },
        ondragend: () => dragged = null,
      },
      h(
        "div",
        { class: "sv-cardhead" },
        nameOf(id, called),
        part("note", cells[AT.note], idOfPart("note")),
        toolsOf(id, called, on, row.detail),
      ),
      insides(row, id, compared),
    );
    return card;
  }

  let scrolled = 0; // pixels
  list.addEventListener("scroll", () => scrolled = list.scrollLeft, { passive: true });
  const keep = keeper();

  /** Whether a card is open, or asked for. @param {string} id */
  const isOn = (id) => (ctx.lastAsked("open_card")?.card ?? ctx.get("cards").at) === id;

  /** A card, with all that it shows. @param {Row} row @returns {Kept<HTMLElement>} */
  function keptCard(row) {
    const { at, against } = ctx.get("cards");
    const id = idOf(row);
    const looks = [at === id, isOn(id), against === id, ids().length > 1, naming === id];
    const around = [ctx.get("selected"), ctx.get("device")];
    return [id, JSON.stringify([row, looks, around, ctx.get("mesh").axes]), () => cardOf(row)];
  }

  function draw() {
    const { error } = ctx.get("status");
    list.classList.toggle("sv-many", ids().length > 4);
    const inside = list.contains(focused(list));
    const preview = ghost();
    fill(list, keep(rows().map(keptCard)), preview);
    const at = ctx.get("cards").at;
    const now = JSON.stringify([at, ids(), Boolean(preview)]);
    const sought = preview ?? (at !== was ? find(list, `card-${at}`) : null);
    if (scrolled) list.scrollLeft = scrolled; // a row that was emptied has forgotten it
    if (now !== held && sought) {
      const [card, seen] = [sought, list].map((each) => each.getBoundingClientRect());
      list.scrollLeft += Math.min(0, card.left - seen.left) + Math.max(0, card.right - seen.right);
    }
    drawScatter(ctx, picture);
    [was, held] = [at, now];
    drawReasons();
    if (inside && !list.contains(focused(list))) find(list, `card-${ctx.get("cards").at}`)?.focus(); // it has a new id
    fill(refusal, error?.place === "card" ? notice("sv-error", "card-error", error.message) : null);
  }

  for (const key of ["offers", "mesh"]) ctx.on(key, drawOffers);
  drawOffers();
  for (const key of ["cards", "mesh", "status", "preview", "hovered"]) ctx.on(key, draw);
  draw();
  return finder;
}

const LINGER = 60; // milliseconds on an offer until it is looked at

/**
 * Asks what an offer would come to while it is pointed at or has the focus.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function watchOffers(ctx, el) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @param {Event} e */
  function look(e) {
    const target = e.composedPath()[0];
    const found = target instanceof Element ? target.closest("[data-offer]") : null;
    const offer = found?.getAttribute("data-offer") || "";
    clearTimeout(timer);
    if (offer === ctx.get("hovered")) return;
    timer = setTimeout(() => ctx.hover(offer), offer ? LINGER : 2 * LINGER);
  }
  for (const event of ["mouseover", "mouseleave", "focusin", "focusout"]) el.addEventListener(event, look);
  el.addEventListener("click", () => {
    clearTimeout(timer);
    ctx.hover(""); // what was looked at is taken, or something else is done
  });
}
