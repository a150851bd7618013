// @ts-check
// A sharding in one notation, its pieces marked: underlined in an axis's colour, each with what it means.
import { axisStyle } from "./chips.js";
import { ui, useContextOf } from "./parts.js";
import { pieces, plain } from "./words.js";

/** @import { Row, Table } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

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

/** A notation's text with its pieces marked: underlined in an axis's colour, lit when its meaning is pointed at.
 * @param {{ row: Row }} props */
export function Text({ row }) {
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
