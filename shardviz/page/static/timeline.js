// @ts-check
// The step as it would run, the open card's and the other's on one scale: lanes on a canvas that is zoomed, moved and
// walked with keys. An event is as wide as all that it takes of the step.
import { fill, h } from "./dom.js";
import { axisStyle, chip } from "./chips.js";
import { documentView, inline, pieces } from "./document.js";
import { waiting } from "./head.js";

/** @import { Context, Timed, Timelines } from "./types.d.ts" */

/**
 * A stretch of a lane that can be pointed at: an event, or a loop's trips.
 * @typedef {{ begin: number, wide: number, said: string, event?: Timed }} Item
 * @typedef {{ y: number, high: number, card: number, name: string, items: Item[], ends: number }} Lane
 */

const [HIGH, HEAD, BAND, RULER, NAMES] = [20, 26, 14, 22, 172]; // pixels
const LEAST = 0.7; // pixels of the narrowest event
const ROOM = 90; // pixels between the ruler's numbers
const FONT = "11px system-ui, sans-serif";
const DEEPEST = 1e7; // times that it can be zoomed
/** What is drawn over a fill, on tiles of six pixels. @type {Record<string, string>} */
const HATCHES = { right: "M-1 7L7 -1M-1 1L1 -1M5 7L7 5", left: "M-1 -1L7 7M-1 5L1 7M5 -1L7 1", down: "M3 0V6", dots: "M2 3H4" };
const OF_AXES = ["", "left", "dots", "down"]; // as the bars of a mesh axis have it
/** @type {[number, string][]} */
const UNITS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];

/** Round times for a ruler: their step, and how each is said. @param {number} least seconds between two of them */
export function ruler(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * (/** @type {number} */ ([1, 2, 5, 10].find((times) => times * power >= least * 0.999999)));
  const [unit, name] = UNITS.find(([size]) => step >= size * 0.999999) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-6));
  return { step, say: (/** @type {number} */ at) => `${(at / unit).toFixed(digits)} ${name}` };
}

/** The item at a time of those in order, else the nearest within some room; -1 for none. @param {Item[]} items @param {number} at @param {number} room */
export function itemAt(items, at, room) {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle].begin <= at) low = middle + 1;
    else high = middle;
  }
  const far = (/** @type {number} */ n) => {
    const { begin, wide } = items[n];
    return Math.max(begin - at, at - begin - wide, 0);
  };
  const near = [low - 1, low].filter((n) => n >= 0 && n < items.length && far(n) <= room);
  return near.length ? near.reduce((one, other) => far(other) < far(one) ? other : one) : -1;
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function timeline(ctx, el) {
  const hint = "The wheel zooms, a drag moves. With keys: + and −, the arrows go from event to event, Enter selects.";
  const button = (/** @type {string} */ id, /** @type {string} */ words, /** @type {string} */ title, /** @type {() => void} */ onclick) =>
    h("button", { class: "sv-btn", id: `timeline-${id}`, title, "aria-label": title, onclick }, words);
  const tools = h(
    "div",
    { class: "sv-tltools" },
    button("in", "+", "zoom in (+)", () => zoom(2)),
    button("out", "−", "zoom out (−)", () => zoom(0.5)),
    button("whole", "whole step", "the whole step (Home)", whole),
  );
  const canvas = h("canvas", { id: "timeline-canvas", tabindex: "0", role: "application", "aria-roledescription": "timeline" });
  const names = h("div", { class: "sv-tlnames" });
  const said = h("p", { class: "sv-said", id: "timeline-said", "aria-live": "polite" }, hint);
  const detail = h("p", { class: "sv-tlchosen", id: "timeline-chosen", role: "status" });
  const legend = h("ul", { class: "sv-tllegend", id: "timeline-legend" });
  const notes = h("p", { class: "sv-soft" });
  const box = h("div", { class: "sv-tlbox" }, names, canvas);
  const body = h("div", {});
  const drawn = h("div", { hidden: true }, tools, box, said, detail, legend, notes);
  const view = documentView(ctx, body);
  el.append(drawn, body);

  /** @type {Lane[]} */
  let lanes = [];
  /** @type {Timelines | null} */
  let data = null;
  let [from, to] = [0, 1]; // seconds that are in sight
  /** What the keys are at, and what is chosen. @type {{ lane: number, at: number } | null} */
  let here = null;
  /** @type {Item | null} */
  let chosen = null;
  let frame = 0;

  const wide = () => canvas.clientWidth || 1;
  /** @param {number} x @param {Lane} lane @param {number} room in pixels */
  const hit = (x, lane, room) => itemAt(lane.items, from + x * (to - from) / wide(), room * (to - from) / wide());

  function paint() {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (data && canvas.clientWidth) draw();
    });
  }

  /** Fill, ink on it and hatch of each look: the legend's, so that both are the same. */
  function looks() {
    const ground = getComputedStyle(box).backgroundColor;
    return [...legend.querySelectorAll("i")].map((sample) => {
      const { backgroundColor, color } = getComputedStyle(sample);
      return { fill: backgroundColor, ink: color, hatch: pattern(sample.dataset.hatch || "", ground), wait: pattern("right", ground) };
    });
  }

  /** @param {string} name @param {string} colour */
  function pattern(name, colour) {
    if (!name) return null;
    const tile = new OffscreenCanvas(6, 6);
    const pen = /** @type {OffscreenCanvasRenderingContext2D} */ (tile.getContext("2d"));
    pen.strokeStyle = colour;
    pen.globalAlpha = 0.6;
    pen.lineWidth = name === "dots" ? 2 : 1;
    pen.stroke(new Path2D(HATCHES[name]));
    return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d")).createPattern(tile, "repeat");
  }

  /** Draws what is in sight. */
  function draw() {
    const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const [width, high, ratio] = [wide(), canvas.clientHeight, devicePixelRatio || 1];
    [canvas.width, canvas.height] = [width * ratio, high * ratio];
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = FONT;
    pen.textBaseline = "middle";
    const style = getComputedStyle(box);
    const [ink, line, ground] = [style.color, style.borderTopColor, style.backgroundColor];
    const soft = getComputedStyle(notes).color;
    const all = looks();
    const x = (/** @type {number} */ at) => (at - from) * width / (to - from);
    const { step, say } = ruler(ROOM * (to - from) / width);
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      pen.fillStyle = line;
      pen.fillRect(x(at), RULER - 6, 1, high);
      pen.fillStyle = soft;
      pen.fillText(say(at), x(at) + 4, RULER / 2);
    }
    const ofLine = chosen?.event ? chosen.event[7] : -1;
    for (const { y, high: tall, name, items, ends } of lanes) {
      pen.fillStyle = getComputedStyle(tools).backgroundColor;
      if (name) pen.fillRect(x(0), y + 1, x(ends) - x(0), tall - 2);
      let last = -1; // the pixel up to which the lane is drawn
      for (let n = Math.max(0, itemAt(items, from, Infinity) - 1); n < items.length; n += 1) {
        const { begin, wide: length, event } = items[n];
        const left = Math.max(x(begin), -2);
        const right = Math.min(Math.max(x(begin + length), left + LEAST), width + 2);
        if (left > width) break;
        if (right <= last + LEAST / 4 || right < 0) continue;
        last = right;
        const look = event && all[event[3]];
        const waits = name === "waits";
        pen.globalAlpha = waits ? 0.5 : 1;
        pen.fillStyle = look ? look.fill : line;
        pen.fillRect(left, y + 2, right - left, tall - 4);
        pen.globalAlpha = 1;
        const hatch = look && (waits ? look.wait : look.hatch);
        if (hatch && right - left > 4) {
          pen.fillStyle = hatch;
          pen.fillRect(left, y + 2, right - left, tall - 4);
        }
        if (right - left > 30) label(items[n], name, left, right, y + tall / 2 + 0.5, look && !waits ? look.ink : ink, look?.fill ?? "");
        if (right - left > 3) {
          pen.fillStyle = ground;
          pen.fillRect(right - 0.5, y + 2, 0.5, tall - 4);
        }
        if (event && ofLine >= 0 && event[7] === ofLine) {
          pen.fillStyle = ink;
          pen.fillRect(left, y + tall - 2, Math.max(right - left, 1.5), 2);
        }
      }
    }
    mark(x, ink);

    /** @param {Item} item @param {string} lane @param {number} left @param {number} right @param {number} y @param {string} colour @param {string} under */
    function label({ event, said: words }, lane, left, right, y, colour, under) {
      const about = event ? data?.words[event[5]].split(",")[0] ?? "" : `× ${words.split(" ")[0]}`;
      const at = event && event[7] >= 0 ? data?.lines[event[7]][0] : "";
      const texts = lane === "compute" ? [at && `${at} ${about}`, at] : [about, about.split(" over ")[0]];
      const fits = texts.find((text) => text && pen.measureText(text).width < right - left - 8);
      if (!fits) return;
      pen.textAlign = event ? "left" : "center";
      const begin = event ? left + 4 : (left + right) / 2;
      if (under && lane !== "waits") { // no hatch behind the letters
        pen.fillStyle = under;
        pen.fillRect(left + 2, y - 7, pen.measureText(fits).width + 4, 14);
      }
      pen.fillStyle = colour;
      pen.fillText(fits, begin, y);
      pen.textAlign = "left";
    }

    /** Marks where the keys are. @param {(at: number) => number} x @param {string} colour */
    function mark(x, colour) {
      const lane = here && lanes[here.lane];
      const item = here && lane?.items[here.at];
      if (!lane || !item) return;
      pen.strokeStyle = colour;
      pen.lineWidth = 2;
      const [left, right] = [Math.max(x(item.begin), -4), Math.min(x(item.begin + item.wide), width + 4)];
      pen.strokeRect(left - 1, lane.y + 1, Math.max(right - left, 1) + 2, lane.high - 2);
    }
  }

  /** @param {number} begin @param {number} end */
  function look(begin, end) {
    const total = data?.seconds || 1;
    const length = Math.min(Math.max(end - begin, total / DEEPEST), total * 1.02);
    from = Math.min(Math.max(begin, 0), total * 1.02 - length);
    to = from + length;
    paint();
  }

  /** @param {number} times @param {number} [at] seconds that stay where they are */
  function zoom(times, at = middle()) {
    look(at - (at - from) / times, at + (to - at) / times);
  }

  /** What is looked at: where the keys are, if that is in sight. */
  function middle() {
    const item = here && lanes[here.lane]?.items[here.at];
    const at = item ? item.begin + item.wide / 2 : -1;
    return at >= from && at <= to ? at : (from + to) / 2;
  }

  function whole() {
    look(0, Infinity);
  }

  /** Goes to an item, which is brought into sight, and says what it is. @param {number} lane @param {number} at */
  function go(lane, at) {
    here = { lane, at };
    const { begin, wide: length } = lanes[lane].items[at];
    const margin = (to - from) / 10;
    if (begin + length < from + margin / 5 || begin > to - margin / 5) look(begin - 3 * margin, begin + 7 * margin);
    say(lanes[lane], at);
    paint();
  }

  /** @param {Lane | undefined} lane @param {number} at */
  function say(lane, at) {
    const item = lane?.items[at];
    said.textContent = item && lane ? `${lane.name || "loop"}${lanes.at(-1)?.card ? ` of ${data?.cards[lane.card].name}` : ""}: ${item.said}` : hint;
  }

  /** Selects the line, its value and the collective of an event; of a loop what is in sight. @param {Item} item */
  function choose(item) {
    if (!item.event || !data) return look(item.begin, item.begin + item.wide);
    chosen = item;
    const [, , , , time, , name, line] = item.event;
    const [at, values] = data.lines[line] ?? ["", []];
    if (at) ctx.light([at], at);
    if (values.length && !values.includes(ctx.get("selected"))) ctx.select(values[0]);
    tell();
    paint();
    return undefined;
  }

  /** What is chosen, with the ways to what is said of it elsewhere. */
  function tell() {
    const event = chosen?.event;
    const values = event && data?.lines[event[7]]?.[1] || [];
    fill(detail, event && data ? [h("code", {}, data.words[event[6]]), ` ${data.words[event[4]]} `, inline(ctx, data.chosen[event[8]])] : null);
    detail.hidden = !event;
    detail.dataset.values = values.join(" ");
  }

  /** @param {number} by */
  function along(by) {
    if (!here) return go(lanes.findIndex(({ name }) => name), 0);
    const at = Math.min(Math.max(here.at + by, 0), lanes[here.lane].items.length - 1);
    return go(here.lane, at);
  }

  /** To the lane above or below that has something at this time. @param {number} by */
  function across(by) {
    if (!here) return along(0);
    const { begin, wide: length } = lanes[here.lane].items[here.at];
    for (let lane = here.lane + by; lanes[lane]; lane += by) {
      const at = itemAt(lanes[lane].items, begin + length / 2, Infinity);
      if (at >= 0) return go(lane, at);
    }
    return undefined;
  }

  canvas.addEventListener("keydown", (e) => {
    const part = (to - from) / 4;
    const item = here && lanes[here.lane]?.items[here.at];
    /** @type {Record<string, () => unknown>} */
    const does = {
      "+": () => zoom(2),
      "=": () => zoom(2),
      "-": () => zoom(0.5),
      "−": () => zoom(0.5),
      Home: whole,
      ArrowRight: () => e.shiftKey ? look(from + part, to + part) : along(1),
      ArrowLeft: () => e.shiftKey ? look(from - part, to - part) : along(-1),
      ArrowDown: () => across(1),
      ArrowUp: () => across(-1),
      Enter: () => item && choose(item),
    };
    if (!does[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    does[e.key]();
    e.preventDefault();
    e.stopPropagation();
  });
  canvas.addEventListener("wheel", (e) => {
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
    const seconds = (to - from) / wide();
    if (!sideways && e.deltaY > 0 && to - from >= (data?.seconds ?? 0)) return; // then the pane scrolls
    e.preventDefault();
    if (sideways) look(from + (e.deltaX || e.deltaY) * seconds, to + (e.deltaX || e.deltaY) * seconds);
    else zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.002)), from + e.offsetX * seconds);
  }, { passive: false });

  /** Where a drag began, and what was in sight. */
  let drag = { x: 0, from: 0, on: false, moved: false };
  const laneAt = (/** @type {number} */ y) => lanes.findIndex((lane) => y >= lane.y && y < lane.y + lane.high);
  canvas.addEventListener("pointerdown", (e) => {
    drag = { x: e.offsetX, from, on: true, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (drag.on && (drag.moved || Math.abs(e.offsetX - drag.x) > 4)) {
      drag.moved = true;
      const begin = drag.from - (e.offsetX - drag.x) * (to - from) / wide();
      return look(begin, begin + to - from);
    }
    const lane = laneAt(e.offsetY);
    const at = lane < 0 ? -1 : hit(e.offsetX, lanes[lane], 4);
    canvas.style.cursor = at < 0 ? "grab" : "pointer";
    return say(lanes[lane], at);
  });
  canvas.addEventListener("pointerup", (e) => {
    const lane = laneAt(e.offsetY);
    const at = lane < 0 ? -1 : hit(e.offsetX, lanes[lane], 4);
    if (drag.on && !drag.moved && at >= 0) {
      go(lane, at);
      choose(lanes[lane].items[at]);
    }
    drag.on = false;
  });
  canvas.addEventListener("pointerleave", () => say(here ? lanes[here.lane] : undefined, here?.at ?? -1));
  canvas.addEventListener("focus", () => here && say(lanes[here.lane], here.at));

  /** The rows of what the kernel says, and beside them what each is. */
  function lay() {
    if (!data) return;
    const { words, cards } = data;
    let y = RULER;
    lanes = [];
    /** @type {HTMLElement[]} */
    const heads = [];
    cards.forEach(({ name, said: time, rests, seconds, lanes: own, axes, busy, loops, events }, card) => {
      heads.push(h("div", { class: "sv-tlhead", style: { top: `${y}px` } }, h("b", {}, `${name}  ${time}`), h("span", { class: "sv-soft" }, rests)));
      y += HEAD;
      for (let depth = 0; loops.some((loop) => loop[2] === depth); depth += 1) {
        const items = loops.filter((loop) => loop[2] === depth).map(([begin, long, , , told]) => ({ begin, wide: long, said: words[told] }));
        lanes.push({ y, high: BAND, card, name: "", ends: seconds, items: items.sort((a, b) => a.begin - b.begin) });
        y += BAND;
      }
      own.forEach((lane, n) => {
        const items = events.filter((event) => event[0] === n).map((event) => ({
          begin: event[1],
          wide: event[2],
          said: `${words[event[4]]}, ${words[event[5]]} (${words[event[6]]})`,
          event,
        }));
        lanes.push({ y, high: HIGH, card, name: lane, ends: seconds, items });
        const [before, after] = axes[n] ? lane.split(axes[n]) : [lane, ""];
        const title = busy[n] ? `${lane}, busy ${busy[n]} of ${time}` : lane;
        const label = axes[n] ? [before, chip(ctx, axes[n]), after] : lane;
        heads.push(h("div", { class: "sv-tlname", title, style: { top: `${y}px` } }, h("span", {}, label), h("span", { class: "sv-soft" }, busy[n])));
        y += HIGH;
      });
      y += 8;
    });
    box.style.height = `${y}px`;
    fill(names, heads);
    fill(
      legend,
      data.looks.map(({ text, axis }) => {
        const place = ctx.get("mesh").axes.findIndex((each) => each.name === axis);
        const hatch = axis ? OF_AXES[place % OF_AXES.length] : text.endsWith("HBM") ? "down" : "";
        const look = axis ? "axis" : text.endsWith("HBM") ? "hbm" : text.endsWith("FLOPs") ? "flops" : "other";
        return h("li", {}, h("i", { class: `sv-tllook sv-tl-${look}`, style: axis ? axisStyle(ctx, axis) : null, "data-hatch": hatch }), text);
      }),
    );
    notes.textContent = `${data.notes.join("; ")}.`;
    const told = cards.map(({ name, said: time, lanes: own }) => `${name}: ${time} a step, lanes ${own.join(", ")}`).join("; ");
    canvas.setAttribute("aria-label", `The step as it would run. ${told}. Arrows go from event to event; the tables below say the same.`);
  }

  function update() {
    const told = ctx.get("timeline");
    el.classList.toggle("sv-asked", !told.document && Boolean(data));
    if (!told.document) {
      if (!data && !body.childElementCount) fill(body, waiting(ctx)); // else the last answer stays
      return;
    }
    view.draw(told.document);
    drawn.hidden = !told.cards;
    const before = data?.seconds;
    data = told.cards ? /** @type {Timelines} */ (told) : null;
    if (data?.seconds !== before) {
      here = chosen = null;
      say(undefined, -1);
      whole();
    }
    lay();
    tell();
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
