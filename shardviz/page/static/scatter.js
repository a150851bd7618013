// @ts-check
// The plans on a scatter of step time against memory, with the memory that a device has as a line; a click opens one.
import { ui, useContextOf } from "./parts.js";
import { plain, rowsOf } from "./words.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [190, 92, 14, 16, 8]; // pixels

/** Nothing where no plan has a time. */
export function Scatter() {
  const ctx = useContextOf();
  const { points = [], usable, at, document } = ctx.get("cards");
  if (!points.length) return ui`<div class="sv-scatter" hidden />`;
  const rows = rowsOf(document.blocks);
  const most = 1.12 * Math.max(usable ?? 0, ...points.map(({ bytes }) => bytes));
  const slowest = 1.12 * Math.max(...points.map(({ seconds }) => seconds));
  const x = (/** @type {number} */ bytes) => LEFT + (WIDTH - LEFT - 6) * bytes / most;
  const y = (/** @type {number} */ seconds) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * seconds / slowest;
  const base = HEIGHT - BOTTOM;
  const dots = points.map(({ card, bytes, seconds, fits }) => {
    const look = `sv-point ${card === at ? "sv-on" : ""} ${fits === false ? "sv-toomuch" : ""}`;
    const open = () => card !== at && ctx.edit({ op: "open_card", card });
    const name = plain(rows.find(({ sel }) => sel?.[1] === card)?.cells[0] ?? card);
    return ui`<circle key=${card} class=${look} cx=${x(bytes)} cy=${y(seconds)} r=${
      card === at ? 5 : 4
    } onclick=${open}>
        <title>${name}</title></circle>`;
  });
  const limit = usable &&
    ui`<path class="sv-limit" d="M${x(usable)} ${TOP - 4}V${base}"><title>memory of a device</title></path>`;
  return ui`<div class="sv-scatter">
      <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" width=${WIDTH} height=${HEIGHT} aria-hidden="true">
        <path class="sv-scatteraxes" d="M${LEFT} ${TOP - 4}V${base}H${WIDTH}" />
        <text x="0" y="0" transform="translate(9 ${base - 2}) rotate(-90)">step</text>
        <text x=${WIDTH} y=${HEIGHT - 3} text-anchor="end">memory</text>${limit}${dots}</svg></div>`;
}
