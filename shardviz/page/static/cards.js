// @ts-check
// The plans side by side: a click opens a card, Alt and an arrow moves it, a drag onto another one tells their difference;
// the one that is open is the plan that is being changed.
import { canDelete, Card, idOf } from "./card.js";
import { Documented } from "./document.js";
import { find, focused, keyed } from "./dom.js";
import { ui, useContextOf, useTraits } from "./parts.js";
import { Scatter } from "./scatter.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { plain, rowsOf } from "./words.js";

/** @import { Context, Row } from "./types.d.ts" */

export function Cards() {
  const ctx = useTraits("cards", "mesh", "status", "presets", "asked", "gone");
  const [explained, setExplained] = useState(/** @type {string | null} */ (null)); // the card whose reasons are shown
  const [naming, setNaming] = useState(/** @type {string | null} */ (null)); // the card whose name is being written
  const dragged = useRef(/** @type {string | null} */ (null));
  const list = useRef(/** @type {any} */ (null));
  const goes = useRef(/** @type {string | null} */ (null)); // the card to which the focus goes
  const held = useRef({ was: "", now: "", scrolled: 0 });
  const { at, document: { blocks } } = ctx.get("cards");
  const { document } = ctx.get("presets");
  const rows = rowsOf(blocks);
  const ids = rows.map(idOf);
  const reasons = rows.find((row) => idOf(row) === explained && row.detail?.length);
  const active = list.current && focused(list.current);
  const inside = active && list.current.contains(active) ? active.getAttribute("data-testid") : null;

  const open = (/** @type {string} */ card) => card !== at && ctx.edit({ op: "open_card", card });
  const tell = (/** @type {string} */ card) => setExplained(explained === card ? null : card);

  /** The difference of two cards: one is opened, and compared with the other. @param {string} card @param {string} other */
  function compare(card, other) {
    if (card === other) return;
    open(card);
    ctx.edit({ op: "compare_with", card: other });
    ctx.set("tab", "difference");
  }

  /** @param {string} card @param {string} name */
  function named(card, name) {
    goes.current = card;
    setNaming(null);
    if (name.trim()) ctx.edit({ op: "rename_card", card, name });
  }

  /** @param {KeyboardEvent} e @param {string} card */
  function keys(e, card) {
    if (e.target !== e.currentTarget) return;
    const side = (/** @type {number} */ by) => () => {
      const to = ids.indexOf(card) + by;
      if (!e.altKey) find(list.current, `card-${ids[to] ?? card}`)?.focus();
      else if (ids[to]) ctx.edit({ op: "move_card", card, to });
    };
    keyed(e, {
      ArrowLeft: side(-1),
      ArrowRight: side(1),
      Enter: () => open(card),
      " ": () => open(card),
      F2: () => setNaming(card),
      w: () => tell(card),
      k: () => card === at && ctx.edit({ op: "pin" }),
      c: () => ctx.edit({ op: "compare_with", card }),
      Delete: () => canDelete(ctx, card) && ctx.edit({ op: "delete_card", card }),
    });
  }

  useLayoutEffect(() => {
    const deck = list.current;
    const now = JSON.stringify([at, ids]);
    const sought = at !== held.current.was ? find(deck, `card-${at}`) : null;
    if (held.current.scrolled) deck.scrollLeft = held.current.scrolled; // a row that was emptied has forgotten it
    if (now !== held.current.now && sought) {
      const [card, seen] = [sought, deck].map((each) => each.getBoundingClientRect());
      deck.scrollLeft += Math.min(0, card.left - seen.left) + Math.max(0, card.right - seen.right);
    }
    Object.assign(held.current, { was: at, now });
    if (goes.current) find(deck, `card-${goes.current}`)?.focus();
    else if (inside && !deck.contains(focused(deck))) { // it was moved, or has a new id
      (find(deck, inside) ?? find(deck, `card-${at}`))?.focus();
    }
    goes.current = null;
  });

  const away = () => {
    if (!ctx.get("presets").document) return false;
    togglePresets(ctx);
    find(ctx.root, "presets")?.focus();
  };
  const deck = { open, compare, name: setNaming, named, tell, keys, ids, naming, dragged };
  const title = reasons && [{ t: `Why ${plain(reasons.cells[0])}`, b: true }];
  return ui`<div class="sv-strip" inert=${ctx.gone} onkeydown=${(e) => keyed(e, { Escape: away })}>
      <${Offers} />
      <div class="sv-presets-pane sv-reasons" data-testid="card-why" hidden=${!reasons}>
        <${Documented} of=${reasons && { title, blocks: reasons.detail }} /></div>
      <div class="sv-ledger">
        <${Scatter} />
        <div class="sv-deck ${ids.length > 4 ? "sv-many" : ""}" role="list" aria-label="plans" ref=${list}
            onscroll=${() => held.current.scrolled = list.current.scrollLeft}>
          ${rows.map((row) => ui`<${Card} key=${idOf(row)} deck=${deck} row=${row} />`)}</div>
        <div class="sv-decktools">
          <button class="sv-btn" data-testid="presets" aria-expanded=${Boolean(document)} onclick=${() =>
    togglePresets(ctx)}>
            ${document ? "presets ▾" : "+ preset ▴"}</button></div></div></div>`;
}

/** @param {Context} ctx */
const togglePresets = (ctx) => ctx.edit({ op: ctx.get("presets").document ? "close_presets" : "try_presets" });

/** The presets that were tried, each with a button that takes it. */
function Offers() {
  const ctx = useContextOf();
  const { document } = ctx.get("presets");
  const take = (/** @type {Row} */ { sel }) =>
    sel &&
    ui`<button class="sv-btn" data-testid="take-${sel[1]}" title="make it a card and go to it" onclick=${() =>
      ctx.edit({ op: "take_preset", preset: sel[1] })}>take</button>`;
  const editors = { presets: { end: take } };
  return ui`<div class="sv-presets-pane" data-testid="presets-pane" hidden=${!document}>
      <${Documented} of=${document} editors=${editors} /></div>`;
}

/** The button that searches, which stands with the verdict. */
export function Finder() {
  const ctx = useTraits("presets");
  const runs = ctx.get("presets").share !== null;
  const title = runs
    ? "end the search; what it found stays"
    : "search meshes and shardings for the shortest step on this machine; what is found becomes a plan below";
  return ui`<button class="sv-btn sv-primary" data-testid="find-best" title=${title} onclick=${() =>
    ctx.edit({ op: runs ? "stop_search" : "begin_search" })}>${runs ? "■ stop" : "Find the best"}</button>`;
}
