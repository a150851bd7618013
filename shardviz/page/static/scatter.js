// @ts-check
// The plans on a scatter of step time against memory, both from zero; a click opens one. The memory that a device has is
// a line, if it is near.
import { ui, useContextOf } from "./parts.js";
import { plain, rowsOf } from "./words.js";

const [WIDTH, HEIGHT, TOP, BASE, EDGE] = [190, 106, 20, 76, 7]; // pixels; EDGE: of the largest ring
const NEAR = 2; // times the memory of the largest plan

/** Nothing where no plan has a time. */
export function Scatter() {
  const ctx = useContextOf();
  const { points = [], usable, at, document, words } = ctx.get("cards");
  if (!points.length || !words) return ui`<div class="sv-scatter" hidden />`;
  const rows = rowsOf(document.blocks);
  const largest = Math.max(...points.map(({ bytes }) => bytes));
  const near = usable && usable <= NEAR * largest;
  const most = near ? Math.max(usable, largest) : largest;
  const slowest = Math.max(...points.map(({ seconds }) => seconds));
  const x = (/** @type {number} */ bytes) => (WIDTH - EDGE) * bytes / most;
  const y = (/** @type {number} */ seconds) => BASE - (BASE - TOP - EDGE) * seconds / slowest;
  const dots = points.map(({ card, bytes, seconds, fits }) => {
    const look = `sv-point ${card === at ? "sv-on" : ""} ${fits === false ? "sv-toomuch" : ""}`;
    const open = () => card !== at && ctx.edit({ op: "open_card", card });
    const name = plain(rows.find(({ sel }) => sel?.[1] === card)?.cells[0] ?? card);
    return ui`<circle key=${card} class=${look} cx=${x(bytes)} cy=${y(seconds)} r=${
      card === at ? 5 : 4
    } onclick=${open}>
        <title>${name}</title></circle>`;
  });
  const limit = near && ui`<path class="sv-limit" d="M${x(usable)} ${TOP}V${BASE}" />`;
  const all = near && usable > largest ? words.usable : words.bytes;
  return ui`<div class="sv-scatter">
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" width=${WIDTH} height=${HEIGHT} aria-hidden="true">
        <text x="0" y="11">step, to ${words.seconds}</text>
        <circle class="sv-key" cx="137" cy="7" r="4" /><text x="146" y="11">is open</text>
        <path class="sv-scatteraxes" d="M0.5 ${TOP}V${BASE}H${WIDTH}" />
        <text x=${WIDTH} y=${BASE + 13} text-anchor="end">memory, to ${all}</text>
        ${
    usable &&
    ui`<text class=${near ? "sv-near" : null} x=${WIDTH} y=${HEIGHT - 3} text-anchor="end">
          limit ${words.usable}${near ? ", dashed" : ", not in view"}</text>`
  }${limit}${dots}</svg></div>`;
}
