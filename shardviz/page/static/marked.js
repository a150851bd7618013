// @ts-check
// A sharding in one notation, its pieces marked: underlined in an axis's colour, each with what it means.
import { axisStyle } from "./chips.js";
import { ui, useContextOf } from "./parts.js";
import { pieces, plain } from "./words.js";

/** @import { Row, Table } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

const SCROLLED = 120; // characters of a text that the arrow keys can scroll

/** A line may end after a comma, and not within a number. @param {string} text @returns {View[]} */
function breaks(text) {
  return text.split(/(?<=,)/).flatMap((part) => [part, ui`<wbr />`]).slice(0, -1);
}

/** A notation's text, each stretch with the number of its letter and the axis that it names. @param {{ row: Row }} props */
export function Text({ row: { cells, detail, sel } }) {
  const ctx = useContextOf();
  const [found, rest] = pieces(cells[1]);
  const notation = sel?.[1] || "";
  const letters = /** @type {Table | undefined} */ (detail?.[0])?.rows || [];
  /** @type {[text: string, letter: number, axis: string][]} */
  const stretches = found.v || [[found.t, -1, ""]];
  const shown = stretches.map(([text, letter, axis], n) => {
    const means = letters[letter] &&
      { title: plain(letters[letter].cells[1]), "data-thing": `letter ${notation} ${letter}` };
    return ui`<span key=${n} ...${means} class=${axis && "sv-onaxis"} style=${axis ? axisStyle(ctx, axis) : null}>
        ${breaks(text)}</span>`;
  });
  return ui`<code class="sv-rostext" data-testid="text-${notation}" tabindex=${found.t.length > SCROLLED ? "0" : null}>
      ${shown}</code>${rest && ui`<p class="sv-soft">${rest.t}</p>`}`;
}
