// @ts-check
// One sharding in every notation, as the kernel tells it, its pieces marked; and a field in which any is read.
import { axisStyle } from "./chips.js";
import { Documented } from "./document.js";
import { twinsText } from "./menu.js";
import { CopyButton, Field, Notice, ui, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { useRef, useState } from "./vendor/preact.js";
import { pieces, plain } from "./words.js";

/** @import { Reading, Row, Table } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

const EXAMPLE = "{devices=[2,4]<=[8]}  ·  #sdy.sharding<@mesh, [{\"data\"}, {}]>  ·  P('data', None)  ·  [data, ·]";
const MARKED = 4000; // characters of a text whose pieces are marked
const SCROLLED = 120; // characters of a text that the arrow keys can scroll

/**
 * The mesh axis that a piece names and nothing else: 'data', "data", data, I_data, or a part of it; null for none.
 * @param {string} piece
 * @param {string} notation
 * @param {string[]} names of the mesh axes
 */
export function axisOf(piece, notation, names) {
  const bare = piece.replace(/:\(\d+\)\d+$/, "").replace(/^(['"])(.*)\1$/, "$2");
  const name = notation === "book" ? bare.replace(/^\p{Lu}_/u, "") : bare;
  return names.includes(name) ? name : null;
}

/**
 * A text in stretches, each with the number of the letter that it is: -1 for none, null where several are the same and
 * which of them stands here is not known.
 * @param {string} text
 * @param {string[]} letters
 * @returns {{ part: string, letter: number | null }[]}
 */
export function marked(text, letters) {
  /** @type {Map<string, number[]>} */
  const places = new Map();
  letters.forEach((piece, i) => places.set(piece, [...(places.get(piece) || []), i]));
  const known = [...places.keys()].filter((piece) => piece && !piece.endsWith("…")).sort((a, b) => b.length - a.length);
  const inWord = (/** @type {string | undefined} */ a, /** @type {string | undefined} */ b) =>
    Boolean(a && b && /[\p{L}\p{N}_]/u.test(a) && /[\p{L}\p{N}_]/u.test(b));
  /** @type {{ part: string, places: number[] }[]} */
  const parts = [];
  let before = 0;
  for (let at = 0; at < text.length;) {
    const end = (/** @type {string} */ piece) => at + piece.length;
    const piece = known.find((each) =>
      text.startsWith(each, at) && !inWord(text[at - 1], each[0]) && !inWord(each.at(-1), text[end(each)])
    );
    if (piece === undefined) {
      at += 1;
      continue;
    }
    if (at > before) parts.push({ part: text.slice(before, at), places: [] });
    parts.push({ part: piece, places: places.get(piece) || [] });
    before = at = end(piece);
  }
  if (before < text.length) parts.push({ part: text.slice(before), places: [] });
  /** @type {Map<string, number>} */
  const seen = new Map();
  return parts.map(({ part, places: own }) => {
    if (own.length < 2) return { part, letter: own.length ? own[0] : -1 };
    const nth = seen.get(part) || 0;
    seen.set(part, nth + 1);
    return { part, letter: own.length === parts.filter((other) => other.part === part).length ? own[nth] : null };
  });
}

/** A line may end after a comma, and not within a number. @param {string} text @returns {View[]} */
function breaks(text) {
  return text.split(/(?<=,)/).flatMap((part) => [part, ui`<wbr />`]).slice(0, -1);
}

/** The letters of a notation's row: each piece, and what it means. @param {Row} row */
function lettersOf({ detail }) {
  const table = /** @type {Table | undefined} */ (detail?.[0]);
  return (table?.rows || []).map(({ cells }) => ({ piece: plain(cells[0]), meaning: plain(cells[1]) }));
}

export function Rosetta() {
  const ctx = useTraits("rosetta", "mesh", "status", "gone");
  const told = useLast(ctx.get("rosetta"));
  const [own, showOwn] = useState(""); // the text that was read, where the value's own notations are shown all the same
  const [meanings, showMeanings] = useState(true);
  const body = useRef(/** @type {any} */ (null));
  const { document, read, name, label } = told;
  const other = document && read?.document && !read.same ? read.document : null;
  const ownShown = Boolean(read) && own === read?.text;
  const choose = (/** @type {string} */ id, /** @type {View} */ words, /** @type {boolean} */ toOwn) =>
    ui`<button class="sv-btn" data-testid=${id} aria-pressed=${ownShown === toOwn} onclick=${() =>
      showOwn(toOwn ? read?.text ?? "" : "")}>${words}</button>`;

  /** Lights the piece whose meaning is pointed at. @param {any} e */
  function light({ target }) {
    for (const old of body.current.querySelectorAll(".sv-lit")) old.classList.remove("sv-lit");
    const line = target.closest("[data-testid^=letters-] > tbody > tr");
    const number = [...line?.parentElement.children || []].indexOf(line);
    for (const piece of line?.closest("td:has(> .sv-rostext)")?.querySelectorAll(`[data-i="${number}"]`) || []) {
      piece.classList.add("sv-lit");
    }
  }
  return ui`<div class="sv-reader">
      <div class="sv-sec">read any notation<span class="sv-hint">paste one, or type it and press Enter</span></div>
      <${Reader} read=${(
    /** @type {string} */ text,
  ) => (showOwn(""), ctx.read(text))} clears=${Boolean(read)} />
      <div class="sv-answer" data-testid="read-answer" role="status"><${Answer} of=${read} /></div></div>
    <div class="sv-rostools">${
    other && name &&
    ui`<span class="sv-choice" role="group" aria-label="which sharding">
        ${choose("show-read", "what was read", false)}${choose("show-own", label, true)}</span>`
  }<label><input type="checkbox" data-testid="meanings" checked=${meanings} onchange=${(
    /** @type {any} */ { target },
  ) =>
    showMeanings(
      target.checked,
    )} />${" what each piece means"}</label></div><div ref=${body} onmouseover=${light} onmouseleave=${light}>${
    document
      ? ui`<${Documented} class="sv-ros ${meanings ? "" : "sv-bare"}"
            of=${other && !(ownShown && name) ? other : document} editors=${EDITORS} />`
      : ui`<${Waiting} />`
  }</div>`;
}

/** The field in which a notation is read. @param {{ read: (text: string) => void, clears: boolean }} props */
function Reader({ read, clears }) {
  const ctx = useContextOf();
  const box = useRef(/** @type {any} */ (null));
  const [text, type] = useState(ctx.get("reading"));
  const input = () => box.current.querySelector("input");
  const go = () => {
    type(input().value);
    read(input().value);
  };
  const clear = () => {
    input().value = "";
    go();
    input().focus();
  };
  return ui`<div class="sv-readrow" ref=${box}>
      <${Field} class="sv-typed" data-testid="read" value=${ctx.get("reading")} placeholder=${EXAMPLE} enter=${go}
          aria-label="a sharding in any notation, to be read on this mesh" onpaste=${() => setTimeout(go)} oninput=${(
    /** @type {any} */ { target },
  ) => type(target.value)} />
      <button class="sv-btn" data-testid="read-go" disabled=${text === ctx.get("reading")} onclick=${go}>read</button>
      <button class="sv-btn" data-testid="read-clear" hidden=${!text && !clears} onclick=${clear}>clear</button></div>`;
}

/** What was read, and what gives it to the selected value. @param {{ of?: Reading | null }} props */
function Answer({ of }) {
  const ctx = useContextOf();
  const { name = "", label, role } = ctx.get("rosetta");
  const { error } = ctx.get("status");
  const here = of && error && name && error.argument === name && ["argument", "output"].includes(error.place);
  const output = role === "output";
  const arrays = ctx.arrays(output ? "outputs" : "inputs");
  const place = arrays.byName.get(name)?.place ?? -1;
  const twins = output || place < 0 || !ctx.twins ? [] : arrays.twins(place).map((at) => arrays.leaves[at].path);
  const op = output ? "set_out_spec" : "set_spec";
  const apply = () => ctx.edit({ op, name, spec: of?.apply, ...(twins.length ? { twins: true } : {}) });
  return ui`<${Documented} of=${of?.answer} />
    ${of?.error && ui`<${Notice} kind="sv-error" id="read-error" message=${of.error} />`}${
    of?.apply &&
    ui`<p>
        <button class="sv-btn sv-do" data-testid="read-apply" title=${twins.join("\n") || null} onclick=${apply}>
          ${"apply to "}<code>${label}</code>${twins.length ? ` and ${twinsText(twins)}` : ""}</button></p>`
  }
    ${here && ui`<${Notice} kind="sv-error" id="read-refused" message=${error.message} detail=${error.detail} />`}`;
}

/** A notation's text with its pieces marked: underlined in an axis's colour, lit when its meaning is pointed at.
 * @param {{ row: Row }} props */
function Text({ row }) {
  const ctx = useContextOf();
  const [found, rest] = pieces(row.cells[1]);
  const notation = row.sel?.[1] || "";
  const letters = lettersOf(row);
  const names = ctx.get("mesh").axes.map(({ name }) => name);
  const parts = found.t.length > MARKED
    ? [{ part: found.t, letter: -1 }]
    : marked(found.t, letters.map((l) => l.piece));
  const shown = parts.map(({ part, letter }) => {
    if (letter === -1) return breaks(part);
    const axis = axisOf(part, notation, names);
    return ui`<span data-i=${letter} title=${letter === null ? null : letters[letter].meaning}
          class="sv-piece ${axis ? "sv-onaxis" : ""}" style=${axis ? axisStyle(ctx, axis) : null}>
        ${breaks(part)}</span>`;
  });
  return ui`<code class="sv-rostext" data-testid="text-${notation}" tabindex=${found.t.length > SCROLLED ? "0" : null}>
      ${shown}</code>${rest && ui`<p class="sv-soft">${rest.t}</p>`}`;
}

const EDITORS = {
  rosetta: {
    inside: 1,
    widths: [17, 60],
    /** @param {Row} row @param {number} _ @param {number} column */
    cell(row, _, column) {
      const [{ t, tip }] = pieces(row.cells[0]);
      if (column === 0) return ui`<b>${t}</b><small>${tip}</small>`;
      return pieces(row.cells[1])[0].k === "code" ? ui`<${Text} row=${row} />` : undefined;
    },
    /** What copies a row's text; none where there is none, or not all of it. @param {Row} row */
    end(row) {
      const [found, ...rest] = pieces(row.cells[1]);
      const notation = row.sel?.[1] || "";
      const title = `copy it in this notation: ${plain(row.cells[0])}`;
      return found.k === "code" && !rest.length &&
        ui`<${CopyButton} of="text-${notation}" id="copy-${notation}" title=${title} />`;
    },
  },
};
