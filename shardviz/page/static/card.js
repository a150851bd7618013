// @ts-check
// A card: a plan's name, its numbers, what can be done with it; and the one of a plan that is not there yet.
import { Field } from "./fields.js";
import { ui, useContextOf } from "./parts.js";
import { Pieces } from "./pieces.js";
import { isEmpty, pieces, plain } from "./words.js";

/** @import { Context, Inline, Row } from "./types.d.ts" */

/** What stands in each cell of a card's row; `view/cards.py` has the same order. */
const AT = { name: 0, note: 1, step: 2, difference: 3, memory: 4, moved: 6, findings: 7, level: 8, programs: 9 };

/** What all cards can do. @typedef {{ open: (card: string) => void, compare: (card: string, other: string) => void,
 *   name: (card: string) => void, named: (card: string, name: string) => void, tell: (card: string) => void,
 *   keys: (e: KeyboardEvent, card: string) => void, ids: string[], naming: string | null,
 *   dragged: { current: string | null } }} Deck */

/** @param {Row} row */
export const idOf = (row) => row.sel?.[1] || "";

/** @param {Context} ctx @param {string} card */
export const canDelete = (ctx, card) => card !== "baseline" && card !== ctx.get("cards").at;

/** Whether a card is open, or asked for. @param {Context} ctx @param {string} id */
const isOn = (ctx, id) => (ctx.lastAsked("open_card")?.card ?? ctx.get("cards").at) === id;

/** @param {{ deck: Deck, row: Row }} props */
export function Card({ deck, row }) {
  const ctx = useContextOf();
  const { cells } = row;
  const [id, called] = [idOf(row), plain(cells[AT.name])];
  const on = isOn(ctx, id);
  const compared = id === ctx.get("cards").against && deck.ids.length > 1 &&
    ui`<span class="sv-cardbase">the reference</span>`;
  const dragstart = (/** @type {DragEvent} */ e) => {
    deck.dragged.current = id;
    e.dataTransfer?.setData("text/plain", called);
    e.stopPropagation();
  };
  const drop = (/** @type {DragEvent} */ e) => {
    const { current } = deck.dragged;
    if (!current) return;
    e.preventDefault();
    e.stopPropagation();
    deck.compare(current, id);
    deck.dragged.current = null;
  };
  const clicked = (/** @type {any} */ { target, currentTarget }) => { // before what is clicked acts on the open card
    if (target.closest(".sv-cardtools, input")) return;
    currentTarget.scrollIntoView({ block: "nearest", inline: "nearest" });
    deck.open(id);
  };
  const rename = (/** @type {string} */ name) => deck.named(id, name);
  const title = deck.naming === id
    ? ui`<${Field} class="sv-cardnaming" data-testid="card-name" value=${called} aria-label="the card's name" grab
          maxlength="60" escape=${() => rename("")} enter=${rename} leave=${rename} />`
    : ui`<b class="sv-cardname" title=${called}>${called}</b>`;
  const drag = {
    ondragstart: dragstart,
    ondragover: (/** @type {DragEvent} */ e) => deck.dragged.current && e.preventDefault(),
    ondrop: drop,
    ondragend: () => deck.dragged.current = null,
  };
  return ui`<div class="sv-card ${on ? "sv-on" : ""}" data-testid="card-${id}" role="listitem" tabindex="-1"
        aria-current=${on ? "true" : null} draggable data-level=${plain(cells[AT.level])} ...${drag}
        aria-label="${called}: ${[AT.step, AT.difference, AT.memory].map((n) => plain(cells[n])).join(", ")}"
        onclickCapture=${clicked} ondblclick=${() => deck.name(id)} onkeydown=${(e) => deck.keys(e, id)}>
      <div class="sv-cardhead">${title}<${Part} card=${id} of="note" row=${row} /></div>
      <${Insides} row=${row} id=${id} beside=${compared} />
      <${Tools} deck=${deck} row=${row} called=${called} on=${on} /></div>`;
}

/** What a person can do with a card. @param {{ deck: Deck, row: Row, called: string, on: boolean }} props */
function Tools({ deck, row, called, on }) {
  const ctx = useContextOf();
  const card = idOf(row);
  const { against } = ctx.get("cards");
  const tell = () => deck.tell(card);
  const compare = () => ctx.edit({ op: "compare_with", card });
  const remove = () => ctx.edit({ op: "delete_card", card });
  /** @type {[there: boolean, id: string, words: string, title: string, act: () => void][]} */
  const tools = [
    [card === "draft" || on, "pin", "keep", `keep ${called} as a card of its own (k)`, () => ctx.edit({ op: "pin" })],
    [card !== against, "against", "compare", `compare all plans with ${called} (c)`, compare],
    [Boolean(row.detail?.length), "why", "why", `why ${called}: how the search chose it (w)`, tell],
    [true, "name", "name", `give ${called} a name (F2)`, () => deck.name(card)],
    [canDelete(ctx, card), "delete", "×", `delete ${called} (Delete)`, remove],
  ];
  const buttons = tools.filter(([there]) => there).map(([, id, words, title, act]) =>
    ui`<button class="sv-cardtool" key=${id} data-testid="${id}-${card}" title=${title} aria-label=${title} tabindex="-1"
          onclick=${act}>${words}</button>`
  );
  return ui`<span class="sv-cardtools">${buttons}</span>`;
}

/** The lines of a card below its head. @param {{ row: Row, id: string, beside?: import("./vendor/preact.d.ts").View }} props */
function Insides({ row, id, beside }) {
  const level = row.cells[AT.level];
  return ui`<div class="sv-cardbig">
      <${Part} card=${id} of="step" row=${row} />${beside}
      <${Part} card=${id} of="difference" look="diff" row=${row} /></div>
    <div class="sv-cardrow">
      <${Part} card=${id} of="memory" row=${row} /><${Part} card=${id} of="moved" row=${row} /></div>
    <div class="sv-cardrow"><${Part} card=${id} of="programs" row=${row} /></div>
    <div class="sv-cardrow sv-cardfoot">
      <${Part} card=${id} of="findings" row=${row} />
      <span class="sv-cardlevel" title=${pieces(level)[0].tip}>${plain(level)}</span></div>`;
}

/** A cell, or nothing where it is empty. @param {{ card: string, of: keyof typeof AT, look?: string, row: Row }} props */
function Part({ card, of, look = of, row }) {
  const ctx = useContextOf();
  const cell = /** @type {Inline} */ (row.cells[AT[of]] ?? "");
  if (isEmpty(cell)) return null;
  const id = ctx.get("cards").at === card ? `kpi-${of}` : `card-${of}-${card}`;
  return ui`<span class="sv-card${look}" data-testid=${id}><${Pieces} of=${cell} /></span>`;
}
