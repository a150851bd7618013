// @ts-check
// A timeline's lanes painted on a canvas.
import { itemAt, RULER, ruler } from "./lanes.js";

/** @import { Lane } from "./lanes.js" */
/** @import { TimedEvent, Timelines } from "./types.d.ts" */

const ROOM = 80; // pixels between two times
const LEAST = 0.7; // pixels of the shortest event
/** What is drawn over a fill, in tiles of six pixels. @type {Record<string, string>} */
const HATCHES = { rises: "M-1 7L7 -1", falls: "M-1 -1L7 7", down: "M3 0V6", dots: "M2 3H4" };

/**
 * Paints what is in sight.
 * @param {HTMLCanvasElement} canvas
 * @param {{ told: Timelines, lanes: Lane[], from: number, to: number, here: { lane: number, at: number },
 *   chosen?: TimedEvent, box: HTMLElement, notes: Element, samples: HTMLElement[] }} view `from` and `to` in seconds; the
 *   colours are those of the box, the notes and the legend's samples
 */
export function paint(canvas, { told, lanes, from, to, here, chosen, box, notes, samples }) {
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const seconds = (/** @type {number} */ pixels) => pixels * (to - from) / (canvas.clientWidth || 1);
  const x = (/** @type {number} */ at) => (at - from) / seconds(1);

  /** A fill of strokes. @param {string} name @param {string} colour */
  function hatch(name, colour) {
    const tile = new OffscreenCanvas(6, 6);
    const own = /** @type {OffscreenCanvasRenderingContext2D} */ (tile.getContext("2d"));
    Object.assign(own, { strokeStyle: colour, globalAlpha: 0.6, lineWidth: name === "dots" ? 2 : 1 });
    own.stroke(new Path2D(HATCHES[name]));
    return name ? pen.createPattern(tile, "repeat") : null;
  }

  const [wide, high, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
  Object.assign(canvas, { width: wide * ratio, height: high * ratio });
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  Object.assign(pen, { font: "12px system-ui, sans-serif", textBaseline: "middle" });
  const { color: ink, backgroundColor: ground, borderTopColor: rule, outlineColor: tile } = getComputedStyle(box);
  const looks = samples.map((sample) => {
    const { backgroundColor: own, color } = getComputedStyle(sample);
    return { own, color, hatch: hatch(sample.dataset.hatch ?? "", ground) };
  });
  const waits = hatch("rises", ground);
  const { kinds } = told;
  const line = chosen && kinds[chosen[3]][1];

  /** @param {string | CanvasPattern} colour @param {number} left @param {number} y @param {number} w @param {number} tall */
  function rect(colour, left, y, w, tall, alpha = 1) {
    Object.assign(pen, { fillStyle: colour, globalAlpha: alpha });
    pen.fillRect(left, y, w, tall);
    pen.globalAlpha = 1;
  }

  /** A dashed line at a share of a row's height. @param {number} share @param {string} words @param {number} y @param {number} tall @param {number} right */
  function limit(share, words, y, tall, right) {
    const [level, end] = [y + 2 + (tall - 4) * (1 - share), Math.min(right, wide)];
    Object.assign(pen, { strokeStyle: ink, fillStyle: ink, lineWidth: 1 });
    pen.setLineDash([5, 3]);
    pen.stroke(new Path2D(`M${x(0)} ${level + 0.5}H${end}`));
    pen.setLineDash([]);
    pen.fillText(words, end - pen.measureText(words).width - 4, level + (share > 0.5 ? 8 : -7));
  }

  const { step, say } = ruler(seconds(ROOM));
  const first = Math.ceil(from / step);
  const times = Array.from({ length: Math.floor(to / step) - first + 1 }, (_, n) => (first + n) * step);
  const soft = pen.fillStyle = getComputedStyle(notes).color;
  let said = 0; // the pixel up to which times stand
  for (const at of times) {
    const long = pen.measureText(say(at)).width;
    const left = Math.min(x(at) + 3, wide - 3 - long);
    if (left < said) continue;
    pen.fillText(say(at), left, RULER / 2);
    said = left + long + 6;
  }
  for (const { y, high: tall, name, items, card } of lanes) {
    if (name) rect(tile, x(0), y + 1, x(card.seconds) - x(0), tall - 2);
    for (const at of times) rect(rule, x(at), name ? y : RULER, 1, name ? tall : 0);
    const held = new Path2D();
    let last = -2; // the pixel up to which the lane is drawn
    for (let n = Math.max(0, itemAt(items, from) - 1); n < items.length && items[n].begin < to; n += 1) {
      const { begin, long, event, label, share } = items[n];
      const left = Math.max(x(begin), -2);
      const right = Math.min(Math.max(x(begin + long), left + LEAST), wide + 2);
      const pale = Math.min(1, Math.max(0.4, (x(begin + long) - x(begin)) / LEAST)); // so that short ones do not add up
      if (share !== undefined) {
        held.rect(left, y + 2 + (tall - 4) * (1 - share), right - left, (tall - 4) * share);
        continue;
      }
      if (right < last + 0.2) continue; // what is too short to be seen is drawn once
      last = right;
      const kind = event && kinds[event[3]];
      const look = kind && looks[kind[0]];
      const waiting = name === "waits";
      const over = waiting ? waits : look?.hatch;
      rect(look?.own ?? rule, left, y + 2, right - left, tall - 4, waiting ? 0.5 * pale : pale);
      if (over && right - left > 4) rect(over, left, y + 2, right - left, tall - 4);
      if (right - left > 3) rect(ground, right - 0.5, y + 2, 0.5, tall - 4);
      const begins = Math.max(left, 0);
      const text = right - left > 24 && label.find((each) => pen.measureText(each).width < right - begins - 10);
      if (text) {
        const at = event ? begins + 5 : (begins + Math.min(right, wide) - pen.measureText(text).width) / 2;
        if (over && !waiting) rect(look?.own ?? rule, at - 2, y + 3, pen.measureText(text).width + 4, tall - 6);
        pen.fillStyle = look && !waiting ? look.color : ink;
        pen.fillText(text, at, y + tall / 2 + 0.5);
      }
      if (kind?.[1] && kind[1] === line) {
        rect(ink, left, y + tall - 2, Math.max(right - left, 1.5), 2); // all of the line that is chosen
      }
    }
    Object.assign(pen, { fillStyle: soft, globalAlpha: 0.55 });
    pen.fill(held);
    pen.globalAlpha = 1;
    const usable = name === "memory" && card.memory?.usable;
    if (usable && usable[0] <= told.top) limit(usable[0] / told.top, usable[1], y, tall, x(card.seconds));
  }
  const now = lanes[here.lane]?.items[here.at];
  if (!now) return;
  const { y, high: tall } = lanes[here.lane];
  const [left, right] = [Math.max(x(now.begin), -4), Math.min(x(now.begin + now.long), wide + 4)];
  Object.assign(pen, { strokeStyle: ink, lineWidth: 2 });
  pen.strokeRect(left - 1, y + 1, Math.max(right - left, 1) + 2, tall - 2);
}
