// @ts-check
// The plans on a scatter of step time against memory, with the memory that a device has as a line; a click opens one.
import { plain, rowsOf } from "./document.js";
import { fill, svg } from "./dom.js";

/** @import { Context } from "./types.d.ts" */

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [190, 92, 14, 16, 8]; // pixels

/**
 * Draws it, or nothing where no plan has a time.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function drawScatter(ctx, el) {
  const { points = [], usable, at, document } = ctx.get("cards");
  el.hidden = !points.length;
  if (!points.length) return;
  const rows = rowsOf(document.blocks);
  const most = 1.12 * Math.max(usable ?? 0, ...points.map(({ bytes }) => bytes));
  const slowest = 1.12 * Math.max(...points.map(({ seconds }) => seconds));
  const x = (/** @type {number} */ bytes) => LEFT + (WIDTH - LEFT - 6) * bytes / most;
  const y = (/** @type {number} */ seconds) => HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * seconds / slowest;
  const base = HEIGHT - BOTTOM;
  const dots = points.map(({ card, bytes, seconds, fits }) => {
    const title = plain(rows.find(({ sel }) => sel?.[1] === card)?.cells[0] ?? card);
    const look = `sv-point ${card === at ? "sv-on" : ""} ${fits === false ? "sv-toomuch" : ""}`;
    const onclick = () => card !== at && ctx.edit({ op: "open_card", card });
    return svg(
      "circle",
      { class: look, cx: x(bytes), cy: y(seconds), r: card === at ? 5 : 4, onclick },
      svg("title", {}, title),
    );
  });
  const limit = usable
    ? svg("path", { class: "sv-limit", d: `M${x(usable)} ${TOP - 4}V${base}` }, svg("title", {}, "memory of a device"))
    : null;
  fill(
    el,
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
      svg("path", { class: "sv-scatteraxes", d: `M${LEFT} ${TOP - 4}V${base}H${WIDTH}` }),
      svg("text", { x: 0, y: 0, transform: `translate(9 ${base - 2}) rotate(-90)` }, "step"),
      svg("text", { x: WIDTH, y: HEIGHT - 3, "text-anchor": "end" }, "memory"),
      limit,
      dots,
    ),
  );
}
