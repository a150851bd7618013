// @ts-check
// What a Document says, without its looks: pieces as text, the rows of its tables, how wide these are.

/** @import { Block, Column, Inline, Piece, Row } from "./types.d.ts" */

const CLOSING = /^[,;:.)]/;
const BAR = 18; // characters that a bar is as wide as
const SAMPLE = 60; // rows by which a table's columns are made as wide as they are
const NAME = 12; // characters of a name that is never broken over two lines
const [HEAD, PADDING] = [7.5, 14]; // pixels of a character of a column's head, and of what is around it
const WHOLE = 4; // characters that a column of names gets more than they have, since it cannot be narrower

/**
 * The pieces of a cell or a line.
 * @param {Inline} inline
 * @returns {Piece[]}
 */
export function pieces(inline) {
  const found = Array.isArray(inline) ? inline : [inline];
  return found.map((piece) => (typeof piece === "string" ? { t: piece } : { t: "", ...piece }));
}

/**
 * Things with a space between them, but before a comma, a colon or the like.
 * @template T
 * @param {Piece[]} found
 * @param {T[]} made what was made of each
 * @returns {(T | string)[]}
 */
export function spaced(found, made) {
  return made.flatMap((part, i) => (i && found[i].t && !CLOSING.test(found[i].t) ? [" ", part] : [part]));
}

/**
 * Pieces in plain text, as the kernel's painter of text writes them.
 * @param {Inline} inline
 */
export function plain(inline) {
  const found = pieces(inline);
  return spaced(found, found.map(({ t, k, v }) => (k === "line" && v ? `${t} ${v}` : t))).join("").trim();
}

/** Whether a cell says nothing, and has no bar or the like. @param {Inline} cell */
export const isEmpty = (cell) => pieces(cell).every(({ t, k }) => !t && !k);

/**
 * The first piece of a row's first cell if it is the strong one, and the quieter ones that go below it.
 * @param {Inline} cell
 */
export function stacked(cell) {
  const found = pieces(cell);
  const stacks = found.length > 1 && found[0].b && found.slice(1).every(({ q, k }) => q || k === "line");
  return stacks ? { main: found.slice(0, 1), below: found.slice(1) } : { main: found, below: [] };
}

/**
 * The rows of all tables of a document, those in sections too.
 * @param {Block[]} blocks
 * @returns {Row[]}
 */
export function rowsOf(blocks) {
  return blocks.flatMap((block) =>
    block.block === "table" ? block.rows || [] : block.block === "section" ? rowsOf(block.blocks || []) : []
  );
}

/**
 * How wide each column of a table is, in characters: as its longest cell, within reason.
 * @param {{ columns: Column[], rows: Row[] }} table
 */
export function widths({ columns, rows }) {
  return columns.map(({ title = "", right, wrap }, i) => {
    const sample = rows.slice(0, SAMPLE);
    const longest = Math.max(0, ...sample.map(({ cells }) => wide(cells[i], i === 0)));
    const whole = i && !right && rows.length && sample.every(({ cells }) => isName(cells[i])) ? WHOLE : 0;
    return Math.min(right ? 20 : wrap ? 52 : i ? 36 : 46, Math.max(right ? 12 : 6, title.length, longest + whole));
  });
}

/**
 * The widths of columns that share a room, none narrower than the longest word of its head, which else runs into the next.
 * @param {number[]} chars
 * @param {Column[]} columns
 * @param {number} room in pixels
 */
export function fitted(chars, columns, room) {
  const words = chars.map((_, i) => Math.max(...(columns[i]?.title ?? "").split(" ").map(({ length }) => length)));
  const shares = words.map((word) => (word && word * HEAD + PADDING) / room);
  const free = 1 - shares.reduce((sum, share) => sum + share, 0);
  const wants = chars.reduce((sum, n) => sum + n, 0);
  if (free <= 0 || shares.every((share, i) => chars[i] / wants >= share)) return chars;
  const more = chars.map((n, i) => Math.max(0, n / wants - shares[i]));
  const all = more.reduce((sum, n) => sum + n, 0);
  return shares.map((share, i) => wants * (share + free * more[i] / all));
}

/** Whether a cell is one short word, which is never broken over two lines. @param {Inline} cell */
export const isName = (cell) => /^\S+$/.test(plain(cell)) && isShort(cell) && pieces(cell).every(({ k }) => !k);

/** @param {Inline} cell */
export const isShort = (cell) => plain(cell).length <= NAME;

/** @param {Inline} cell @param {boolean} first */
function wide(cell, first) {
  const { main, below } = first ? stacked(cell) : { main: pieces(cell), below: [] };
  if (main.some(({ k }) => k === "bar")) return BAR;
  return Math.max(plain(main).length + (main.some(({ k }) => k === "line") ? 6 : 3), plain(below).length);
}
