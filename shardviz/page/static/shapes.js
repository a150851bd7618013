// @ts-check
// The shapes of a Picture as SVG, with the roles of their fills and strokes.
import { ui } from "./parts.js";
import { axisStyle } from "./chips.js";
import { boxesOf, tips } from "./items.js";

/** @import { Box } from "./items.js" */
/** @import { Context, Picture, Shape } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

let patterns = 0;
const OWN = Math.random().toString(36).slice(2, 8); // every explorer of a document has modules of its own

/** The role as part of a class name: all axes have one, with their colours as variables. @param {any} role */
const word = (role) => (role === undefined || role === null ? "none" : typeof role === "number" ? "axis" : role);

/**
 * Class and colours of the roles of a fill and a stroke, and the axis that is lit with it.
 * @param {Pick<Context, "get">} ctx
 * @param {string[]} axes
 * @param {any} fill
 * @param {any} stroke
 */
function look(ctx, axes, fill, stroke) {
  const place = [fill, stroke].find((role) => typeof role === "number");
  const thing = place === undefined ? null : `axis ${axes[place]}`;
  const style = place === undefined ? null : axisStyle(ctx, axes[place]);
  return { class: `sv-f-${word(fill)} sv-s-${word(stroke)}`, "data-thing": thing, style };
}

/**
 * The layers of a picture, from the lowest, each with its shapes. Every rectangle that selects something is what `button`
 * makes of it.
 * @param {Context} ctx
 * @param {Picture} picture
 * @param {(n: number, attributes: object, inside: View) => View} button
 * @param {Picture | null} [over] another picture, whose shapes lie over this one's
 */
export function layersOf(ctx, { axes, shapes }, button, over) {
  let count = 0; // of what can be pointed at
  /** @type {Map<number, View[]>} */
  const layers = new Map();
  const looks = (/** @type {any} */ fill, /** @type {any} */ stroke) => look(ctx, axes, fill, stroke);
  /** @type {Record<string, (shape: Shape, above: boolean) => View>} */
  const painters = { rects, lines, labels };
  for (const [of, above] of /** @type {[Shape[], boolean][]} */ ([[shapes, false], [over?.shapes || [], true]])) {
    for (const shape of of) {
      const layer = layers.get(shape.layer || 0) || [];
      layers.set(shape.layer || 0, layer);
      layer.push(
        above ? ui`<g class="sv-over">${painters[shape.kind](shape, true)}</g>` : painters[shape.kind](shape, false),
      );
    }
  }
  return [...layers].sort(([a], [b]) => a - b).map(([key, inside]) => ui`<g key=${key}>${inside}</g>`);

  /** @param {Shape} shape @param {Box} box @param {number} n */
  function label({ labels = [], fill, hatch: strokes }, box, n) {
    return labels[n]
      ? ui`<text x=${box.x + box.w / 2} y=${box.y + box.h / 2 + 3.3} style=${looks(fill, null).style}
            class="sv-label sv-on-${word(fill)} ${strokes ? "sv-hatched" : ""}">
          ${labels[n]}</text>`
      : null;
  }

  /** @param {Shape} shape @param {Box} box */
  function rect({ fill, stroke, corner }, { x, y, w, h }) {
    return ui`<rect x=${x} y=${y} width=${w} height=${h} rx=${corner} ...${looks(fill, stroke)} />`;
  }

  /** One element for all of them, or one for each that is selected or laid over others. @param {Shape} shape @param {boolean} above */
  function rects(shape, above) {
    const boxes = boxesOf(shape);
    if (above) {
      return boxes.map((box, n) =>
        ui`<g data-key=${shape.keys && shape.keys[n][0]}>${rect(shape, box)}${label(shape, box, n)}</g>`
      );
    }
    if (shape.select) {
      return boxes.map((box, n) => {
        const attributes = { "data-testid": `${shape.select}-${shape.keys[n][0]}`, ...deviceOf(shape, n) };
        return button(count++, attributes, [rect(shape, box), label(shape, box, n)]);
      });
    }
    count += tips(shape).length;
    const d = boxes.map((box) => `M${box.x} ${box.y}h${box.w}v${box.h}h${-box.w}z`).join("");
    const pattern = shape.hatch && `sv-hatch-${OWN}-${++patterns}`;
    const hatched = pattern && ui`<pattern id=${pattern} width="6" height="6" patternUnits="userSpaceOnUse">
          <path d=${shape.hatch} class="sv-hatch" /></pattern>
        <path d=${d} fill="url(#${pattern})" pointer-events="none" />`;
    return ui`<g>
        <path d=${d} ...${
      looks(shape.fill, shape.stroke)
    } fill-opacity=${shape.strength} stroke-dasharray=${shape.dash} />
        ${hatched}${boxes.map((box, n) => label(shape, box, n))}</g>`;
  }

  /** A tile or a cell is its devices. @param {Shape} shape @param {number} n */
  function deviceOf({ keys, select }, n) {
    return ["device", "cell"].includes(select) ? { "data-thing": `device ${keys[n].join(",")}` } : {};
  }

  /** @param {Shape} shape */
  function lines({ lines: all, closed, fill, stroke = "line", strength, width = 1, dash, tip }) {
    const d = all.map((/** @type {number[]} */ points) =>
      `M${points.slice(0, 2)}L${points.slice(2)}${closed ? "Z" : ""}`
    ).join("");
    return ui`<path d=${d} ...${looks(fill, stroke)} stroke-width=${width} opacity=${strength}
          stroke-dasharray=${dash}>
        ${tip && ui`<title>${tip}</title>`}</path>`;
  }

  /** @param {Shape} shape */
  function labels({ at, texts, align = "start", size = "normal", ink = "ink", bold, mono, halo, turned }) {
    const style = typeof size === "number" ? { "font-size": `${size}px` } : null;
    const down = typeof size === "number" ? 0.34 * size : 3.6;
    const names = [
      "sv-text",
      `sv-${size}`,
      `sv-i-${ink}`,
      bold && "sv-bold",
      mono && "sv-mono",
      halo && "sv-halo",
    ];
    return ui`<g class=${names.filter(Boolean).join(" ")} style=${style} text-anchor=${align}>${
      texts.map((/** @type {string} */ text, /** @type {number} */ n) =>
        ui`<text x=${at[n][0]} y=${at[n][1] + down} transform=${turned ? `rotate(-90 ${at[n]})` : null}>${text}</text>`
      )
    }</g>`;
  }
}

/**
 * A sample of a key: a patch or a line.
 * @param {{ ctx: Context, axes: string[], of: Shape }} props
 */
export function Sample({ ctx, axes, of: { fill, stroke, dash } }) {
  const patch = ui`<rect x="10" y="1" width="12" height="12" ...${look(ctx, axes, fill, null)} />`;
  const line = ui`<path d="M0 7H34" ...${look(ctx, axes, null, stroke)} stroke-width="2.2" stroke-dasharray=${dash} />`;
  return ui`<svg width="34" height="14" class="sv-sample" aria-hidden="true">
      ${fill === undefined ? line : patch}</svg>`;
}
