// @ts-check
// The step as it would run, the open card's and the other's on one scale: lanes on a canvas that is zoomed, moved and
// walked with keys. An event is as wide as all that it takes of the step.
import { fill, h } from "./dom.js";
import { axisStyle, chip } from "./chips.js";
import { documentView, inline } from "./document.js";
import { waiting } from "./head.js";

/** @import { Context, TimedCard, TimedEvent, Timelines } from "./types.d.ts" */

/**
 * What can be pointed at, an event, a loop's trips or memory that is held, with its share of the height: its begin and
 * length in seconds, and what is said of it.
 * @typedef {{ begin: number, long: number, said: string, label: string[], event?: TimedEvent, share?: number }} Item
 * @typedef {{ y: number, high: number, card: TimedCard, name: string, items: Item[] }} Lane
 */

const [RULER, HEAD, BAND, HIGH, HELD] = [22, 26, 14, 20, 56]; // pixels of a row: time, a card's head, loops, a lane, memory
const ROOM = 80; // pixels between two times
const LEAST = 0.7; // pixels of the shortest event
const NEAR = 4; // pixels around what is pointed at
const DEEPEST = 1e7; // times that it can be zoomed
const HINT = "The wheel zooms, a drag moves. Keys: + and − zoom, the arrows go from event to event, Enter selects.";
const UNITS = /** @type {const} */ ([[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]]);
const OF_AXES = ["", "falls", "dots", "down"]; // the hatch of an axis by its place, as its bars have it
/** What is drawn over a fill, in tiles of six pixels. @type {Record<string, string>} */
const HATCHES = { rises: "M-1 7L7 -1", falls: "M-1 -1L7 7", down: "M3 0V6", dots: "M2 3H4" };

/** Round times for a ruler: the step between them, and how each is said. @param {number} least seconds of a step */
export function ruler(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * ([1, 2, 5].find((times) => times * power >= least) ?? 10);
  const [unit, name] = UNITS.find(([size]) => step > size * 0.999) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-6));
  return { step, say: (/** @type {number} */ at) => `${(at / unit).toFixed(digits)} ${name}` };
}

/**
 * The place of the item at a time, of items that are in order; else of the nearest within some room, or -1.
 * @param {{ begin: number, long: number }[]} items
 * @param {number} at
 * @param {number} [room]
 */
export function itemAt(items, at, room = Infinity) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].begin <= at) low = middle + 1;
    else high = middle;
  }
  const far = (/** @type {number} */ n) =>
    items[n] ? Math.max(items[n].begin - at, at - items[n].begin - items[n].long, 0) : Infinity;
  const best = far(low) < far(low - 1) ? low : low - 1;
  return items[best] && far(best) <= room ? best : -1;
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function timeline(ctx, el) {
  const canvas = h("canvas", { id: "timeline-canvas", tabindex: "0", role: "application" });
  const names = h("div", { class: "sv-tlnames" });
  const box = h("div", { class: "sv-tlbox" }, names, canvas);
  const said = h("p", { class: "sv-said", id: "timeline-said", "aria-live": "polite" });
  const about = h("p", { class: "sv-tlchosen", id: "timeline-chosen", role: "status" });
  const legend = h("ul", { class: "sv-tllegend", id: "timeline-legend" });
  const notes = h("p", { class: "sv-soft" });
  const drawn = h("div", { hidden: true }, box, said, about, legend, notes);
  const body = h("div", {});
  const view = documentView(ctx, body);
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  el.append(drawn, body);

  /** @type {Timelines | null} */
  let data = null;
  /** @type {Lane[]} */
  let lanes = [];
  let [from, to] = [0, 1]; // seconds in sight
  let here = { lane: -1, at: -1 }; // the item that the keys are at
  /** @type {TimedEvent | undefined} */
  let chosen;
  let frame = 0;

  const seconds = (/** @type {number} */ pixels) => pixels * (to - from) / (canvas.clientWidth || 1);
  const x = (/** @type {number} */ at) => (at - from) / seconds(1);
  const item = () => lanes[here.lane]?.items[here.at];

  // What is in sight.

  function paint() {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (data && canvas.clientWidth) draw();
    });
  }

  /** @param {number} begin @param {number} long seconds */
  function look(begin, long) {
    const total = (data?.seconds ?? 1) * 1.02;
    const fits = Math.min(Math.max(long, total / DEEPEST), total);
    from = Math.min(Math.max(begin, 0), total - fits);
    to = from + fits;
    paint();
  }

  const whole = () => look(0, Infinity);
  const move = (/** @type {number} */ by) => look(from + by, to - from);

  /** @param {number} times @param {number} [at] seconds that stay where they are: what the keys are at, or the middle */
  function zoom(times, at) {
    const now = item();
    const seen = now && now.begin < to && now.begin + now.long > from ? now.begin + now.long / 2 : -1;
    const fixed = at ?? (seen >= from && seen <= to ? seen : (from + to) / 2);
    look(fixed - (fixed - from) / times, (to - from) / times);
  }

  /** A fill of strokes. @param {string} name @param {string} colour */
  function hatch(name, colour) {
    const tile = new OffscreenCanvas(6, 6);
    const own = /** @type {OffscreenCanvasRenderingContext2D} */ (tile.getContext("2d"));
    Object.assign(own, { strokeStyle: colour, globalAlpha: 0.6, lineWidth: name === "dots" ? 2 : 1 });
    own.stroke(new Path2D(HATCHES[name]));
    return name ? pen.createPattern(tile, "repeat") : null;
  }

  function draw() {
    const [wide, high, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    Object.assign(canvas, { width: wide * ratio, height: high * ratio });
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    Object.assign(pen, { font: "11px system-ui, sans-serif", textBaseline: "middle" });
    const { color: ink, backgroundColor: ground, borderTopColor: rule, outlineColor: tile } = getComputedStyle(box);
    const looks = [...legend.querySelectorAll("i")].map((sample) => {
      const { backgroundColor: own, color } = getComputedStyle(sample);
      return { own, color, hatch: hatch(sample.dataset.hatch ?? "", ground) };
    });
    const waits = hatch("rises", ground);
    const kinds = data?.kinds ?? [];
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
    for (const at of times) {
      pen.fillText(say(at), Math.min(x(at) + 3, wide - 3 - pen.measureText(say(at)).width), RULER / 2);
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
      if (usable && data && usable[0] <= data.top) limit(usable[0] / data.top, usable[1], y, tall, x(card.seconds));
    }
    const now = item();
    if (!now) return;
    const { y, high: tall } = lanes[here.lane];
    const [left, right] = [Math.max(x(now.begin), -4), Math.min(x(now.begin + now.long), wide + 4)];
    Object.assign(pen, { strokeStyle: ink, lineWidth: 2 });
    pen.strokeRect(left - 1, y + 1, Math.max(right - left, 1) + 2, tall - 2);
  }

  // What is pointed at, walked to and chosen.

  /** @param {number} lane @param {number} at */
  function tell(lane, at) {
    const { card, name, items } = lanes[lane] ?? { items: [] };
    const of = data && data.cards.length > 1 && card ? ` of ${card.name}` : "";
    said.textContent = items[at] ? `${name || "loop"}${of}: ${items[at].said}` : HINT;
  }

  /** Goes to an item, and brings it into sight. @param {number} lane @param {number} at */
  function go(lane, at) {
    here = { lane, at };
    const { begin, long } = lanes[lane].items[at];
    if (begin + long <= from || begin >= to) look(begin - 0.3 * (to - from), to - from);
    tell(lane, at);
    paint();
  }

  /** The next on its lane, or the one at the same time on a lane below or above. @param {number} along @param {number} down */
  function walk(along, down) {
    const now = item();
    if (!now) return go(lanes.findIndex(({ name }) => name), 0);
    const { length } = lanes[here.lane].items;
    if (along) return go(here.lane, Math.min(Math.max(here.at + along, 0), length - 1));
    let lane = here.lane + down;
    while (lanes[lane] && !lanes[lane].items.length) lane += down;
    if (lanes[lane]) go(lane, itemAt(lanes[lane].items, now.begin + now.long / 2));
  }

  /** Selects the event's line and its value, and says what it is; of a loop all trips are shown. */
  function choose() {
    const now = item();
    if (!now?.event) return now && now.share === undefined && look(now.begin, now.long);
    chosen = now.event;
    const at = data?.kinds[chosen[3]][1] ?? "";
    const values = data?.values[at] ?? [];
    if (at) ctx.light([at], at);
    if (values.length && !values.includes(ctx.get("selected"))) ctx.select(values[0]);
    drawChosen();
    paint();
  }

  function drawChosen() {
    about.hidden = !chosen;
    fill(about, chosen && data && [h("code", {}, chosen[5]), " ", inline(ctx, data.chosen[data.kinds[chosen[3]][3]])]);
  }

  /** @param {KeyboardEvent} e */
  function keys(e) {
    const part = (to - from) / 4;
    const sideways = (/** @type {number} */ by) => () => e.shiftKey ? move(by * part) : walk(by, 0);
    const own = /** @type {Record<string, () => void>} */ ({
      "+": () => zoom(2),
      "=": () => zoom(2),
      "-": () => zoom(0.5),
      Home: whole,
      ArrowRight: sideways(1),
      ArrowLeft: sideways(-1),
      ArrowDown: () => walk(0, 1),
      ArrowUp: () => walk(0, -1),
      Enter: choose,
    })[e.key];
    if (!own || e.ctrlKey || e.metaKey || e.altKey) return;
    own();
    e.preventDefault();
    e.stopPropagation();
  }

  /** @param {WheelEvent} e */
  function wheel(e) {
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
    if (!sideways && e.deltaY > 0 && to - from >= (data?.seconds ?? 0)) return; // all is in sight: the pane scrolls
    e.preventDefault();
    if (sideways) move(seconds(e.deltaX || e.deltaY));
    else zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.002)), from + seconds(e.offsetX)); // a pinch has ctrlKey
  }

  /** Where the pointer is: which lane, and what is there. @param {MouseEvent} e */
  function pointed({ offsetX, offsetY }) {
    const lane = lanes.findIndex(({ y, high }) => offsetY >= y && offsetY < y + high);
    return { lane, at: lane < 0 ? -1 : itemAt(lanes[lane].items, from + seconds(offsetX), seconds(NEAR)) };
  }

  let drag = { x: 0, from: 0, on: false, far: false };
  /** @type {Record<string, (e: PointerEvent) => void>} */
  const pointer = {
    pointerdown(e) {
      drag = { x: e.offsetX, from, on: true, far: false };
      canvas.setPointerCapture(e.pointerId);
    },
    pointermove(e) {
      drag.far ||= drag.on && Math.abs(e.offsetX - drag.x) > NEAR;
      if (drag.on && drag.far) return look(drag.from - seconds(e.offsetX - drag.x), to - from);
      const { lane, at } = pointed(e);
      canvas.style.cursor = at < 0 ? "grab" : "pointer";
      tell(lane, at);
    },
    pointerup(e) {
      const { lane, at } = pointed(e);
      if (drag.on && !drag.far && at >= 0) {
        go(lane, at);
        choose();
      }
      drag.on = false;
    },
    pointerleave: () => tell(here.lane, here.at),
  };
  for (const [name, listener] of Object.entries(pointer)) canvas.addEventListener(name, /** @type {any} */ (listener));
  canvas.addEventListener("keydown", keys);
  canvas.addEventListener("wheel", wheel, { passive: false });

  // What the kernel says.

  /**
   * The rows of a card from a pixel on, with what stands beside them.
   * @param {Timelines} told
   * @param {TimedCard} card
   * @param {number} top
   */
  function rows({ kinds, top: most }, card, top) {
    const head = h("div", { class: "sv-tlhead" }, h("b", {}, card.name, " ", card.said), h("span", {}, card.rests));
    const beside = [at(head, top)];
    let y = top + HEAD;
    const deepest = Math.max(-1, ...card.loops.map(([, , depth]) => depth));
    for (let depth = 0; depth <= deepest; depth += 1, y += BAND) {
      const items = card.loops.filter((loop) => loop[2] === depth)
        .map(([begin, long, , trips, said]) => ({ begin, long, said, label: [trips] }));
      lanes.push({ y, high: BAND, card, name: "", items: items.sort((a, b) => a.begin - b.begin) });
    }
    card.lanes.forEach(([name, axis, busy], n) => {
      const items = card.events.filter((event) => event[0] === n).map((event) => {
        const [, begin, long, kind, time, own] = event;
        const [, line, about] = kinds[kind];
        const what = about.split(",")[0];
        const label = line && name === "compute" ? [`${line} ${what}`, line] : [what, what.split(" over ")[0]];
        return { begin, long, said: `${time}: ${about} (${own})`, label, event };
      });
      lanes.push({ y, high: HIGH, card, name, items });
      const [before, after] = axis ? name.split(axis) : [name, ""];
      const label = h("span", {}, before, axis && chip(ctx, axis), after);
      const title = busy && `${name}: busy ${busy} of ${card.said}`;
      beside.push(at(h("div", { class: "sv-tlname", title }, label, h("span", { class: "sv-soft" }, busy)), y));
      y += HIGH;
    });
    if (card.memory) {
      const { steps, peak, said: title } = card.memory;
      const items = steps.map(([begin, bytes, words], n) => {
        return {
          begin,
          long: (steps[n + 1]?.[0] ?? card.seconds) - begin,
          said: words,
          label: [],
          share: bytes / most,
        };
      });
      lanes.push({ y, high: HELD, card, name: "memory", items });
      const label = h("span", {}, "memory");
      beside.push(at(h("div", { class: "sv-tlname", title }, label, h("span", { class: "sv-soft" }, peak)), y));
      y += HELD;
    }
    return { beside, bottom: y + 6 };
  }

  /** @param {HTMLElement} row @param {number} y */
  function at(row, y) {
    row.style.top = `${y}px`;
    return row;
  }

  /** Which steps they are. @param {Timelines | null} told */
  const which = (told) => JSON.stringify(told?.cards.map(({ name, rests, seconds }) => [name, rests, seconds]));

  /** @param {Timelines} told */
  function lay(told) {
    lanes = [];
    let y = RULER;
    const beside = told.cards.flatMap((card) => {
      const made = rows(told, card, y);
      y = made.bottom;
      return made.beside;
    });
    box.style.height = `${y}px`;
    /** @type {[id: string, words: string, title: string, onclick: () => void][]} */
    const buttons = [
      ["in", "+", "zoom in (+)", () => zoom(2)],
      ["out", "−", "zoom out (−)", () => zoom(0.5)],
      ["whole", "whole step", "the whole step (Home)", whole],
    ];
    const tools = buttons.map(([id, words, title, onclick]) =>
      h("button", { class: "sv-btn", id: `timeline-${id}`, title, "aria-label": title, onclick }, words)
    );
    fill(names, h("div", { class: "sv-tltools" }, tools), beside);
    const axes = ctx.get("mesh").axes.map(({ name }) => name);
    const samples = told.looks.map(([text, kind, hatch]) => {
      const style = kind === "axis" ? axisStyle(ctx, axes[hatch ?? 0]) : null;
      const strokes = kind === "axis" ? OF_AXES[(hatch ?? 0) % OF_AXES.length] : kind === "hbm" ? "down" : "";
      return h("li", {}, h("i", { class: `sv-tl-${kind}`, style, "data-hatch": strokes }), text);
    });
    fill(legend, samples);
    notes.textContent = `${told.notes.join("; ")}.`;
    const words = told.cards.map(({ name, said, lanes: own }) =>
      `${name} ${said}, lanes ${own.map(([n]) => n).join(", ")}`
    );
    canvas.setAttribute("aria-label", `The step as it would run: ${words.join("; ")}. ${HINT}`);
  }

  function update() {
    const told = ctx.get("timeline");
    if (!told.document) {
      if (!body.childElementCount) fill(body, waiting(ctx)); // else the last answer stays
      return;
    }
    const before = data;
    data = told.cards ? /** @type {Timelines} */ (told) : null;
    drawn.hidden = !data;
    view.draw(told.document);
    if (!data) return;
    if (which(data) !== which(before)) [here, chosen] = [{ lane: -1, at: -1 }, undefined];
    if (data.seconds !== before?.seconds) whole();
    lay(data);
    tell(here.lane, here.at);
    drawChosen();
    paint();
  }

  const sized = new ResizeObserver(paint);
  sized.observe(canvas);
  const themed = new MutationObserver(paint);
  themed.observe(document.body, { attributes: true });
  const shown = () => ctx.when("timeline", update);
  for (const key of ["timeline", "mesh", "selected", "gone"]) ctx.on(key, shown);
  shown();
  return () => {
    sized.disconnect();
    themed.disconnect();
    cancelAnimationFrame(frame);
  };
}
