// @ts-check
// The step as it would run, the open card's and the other's on one scale: lanes on a canvas that is zoomed, moved and
// walked with keys. An event is as wide as all that it takes of the step.
import { Documented } from "./document.js";
import { keyed } from "./dom.js";
import { itemAt, lanesOf } from "./lanes.js";
import { Looks, Names } from "./legend.js";
import { paint } from "./paint.js";
import { ui, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { Pieces } from "./pieces.js";
import { useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact.js";

/** @import { Lane } from "./lanes.js" */
/** @import { TimedEvent, Timelines } from "./types.d.ts" */

const NEAR = 4; // pixels around what is pointed at
const DEEPEST = 1e7; // times that it can be zoomed
const HINT = "The wheel zooms, a drag moves. Keys: + and − zoom, the arrows go from event to event, Enter selects.";

export function Timeline() {
  const ctx = useTraits("timeline", "mesh", "gone");
  const told = useLast(ctx.get("timeline"));
  if (!told.document) return ui`<${Waiting} />`;
  return ui`${told.cards && ui`<${Steps} told=${told} />`}<${Documented} of=${told.document} />`;
}

/** @param {{ told: Timelines }} props */
function Steps({ told }) {
  const ctx = useContextOf();
  const { lanes, heads, high } = useMemo(() => lanesOf(told), [told]);
  const canvas = useRef(/** @type {any} */ (null));
  const which = JSON.stringify(told.cards.map(({ name, rests, seconds }) => [name, rests, seconds]));
  const view = useRef({ from: 0, to: 1, frame: 0 }).current; // what is in sight, seconds
  const [at, put] = useState({ which, lane: -1, at: -1 }); // the item that the keys are at
  const [pointed, point] = useState({ lane: -1, at: -1 });
  const [picked, choose] = useState({ which, event: /** @type {TimedEvent | undefined} */ (undefined) });
  const here = at.which === which ? at : { lane: -1, at: -1 };
  const chosen = picked.which === which ? picked.event : undefined;
  const item = lanes[here.lane]?.items[here.at];
  const seconds = (/** @type {number} */ pixels) => pixels * (view.to - view.from) / (canvas.current.clientWidth || 1);

  const draw = useRef(() => {});
  draw.current = () => {
    const { current } = canvas;
    if (!current?.clientWidth) return;
    const root = current.closest(".sv-timeline");
    const [box, notes, samples] = [".sv-tlbox", ".sv-tlnotes", ".sv-tllegend i"].map((all) =>
      root.querySelectorAll(all)
    );
    const { from, to } = view;
    paint(current, { told, lanes, from, to, here, chosen, box: box[0], notes: notes[0], samples: [...samples] });
  };
  function again() {
    view.frame ||= requestAnimationFrame(() => {
      view.frame = 0;
      draw.current();
    });
  }

  /** @param {number} begin @param {number} long seconds */
  function look(begin, long) {
    const total = told.seconds * 1.02;
    const fits = Math.min(Math.max(long, total / DEEPEST), total);
    view.from = Math.min(Math.max(begin, 0), total - fits);
    view.to = view.from + fits;
    again();
  }
  const whole = () => look(0, Infinity);
  const move = (/** @type {number} */ by) => look(view.from + by, view.to - view.from);

  /** @param {number} times @param {number} [fix] seconds that stay where they are: what the keys are at, or the middle */
  function zoom(times, fix) {
    const { from, to } = view;
    const seen = item && item.begin < to && item.begin + item.long > from ? item.begin + item.long / 2 : -1;
    const fixed = fix ?? (seen >= from && seen <= to ? seen : (from + to) / 2);
    look(fixed - (fixed - from) / times, (to - from) / times);
  }

  useLayoutEffect(whole, [told.seconds]);
  useLayoutEffect(again);
  useLayoutEffect(() => {
    const sized = new ResizeObserver(again);
    const themed = new MutationObserver(again);
    sized.observe(canvas.current);
    themed.observe(document.body, { attributes: true });
    canvas.current.addEventListener("wheel", wheeled, { passive: false });
    return () => {
      sized.disconnect();
      themed.disconnect();
      cancelAnimationFrame(view.frame);
    };
  }, []);

  const wheel = useRef((/** @type {WheelEvent} */ _) => {});
  const wheeled = (/** @type {WheelEvent} */ e) => wheel.current(e);
  wheel.current = (e) => {
    const sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
    if (!sideways && e.deltaY > 0 && view.to - view.from >= told.seconds) return; // all is in sight: the pane scrolls
    e.preventDefault();
    if (sideways) move(seconds(e.deltaX || e.deltaY));
    else zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.002)), view.from + seconds(e.offsetX)); // a pinch has ctrlKey
  };

  /** Goes to an item, and brings it into sight. @param {number} lane @param {number} n */
  function go(lane, n) {
    put({ which, lane, at: n });
    point({ lane: -1, at: -1 });
    const { begin, long } = lanes[lane].items[n];
    const wide = view.to - view.from;
    if (begin + long <= view.from || begin >= view.to) look(begin - 0.3 * wide, wide);
  }

  /** The next on its lane, or the one at the same time on a lane below or above. @param {number} along @param {number} down */
  function walk(along, down) {
    if (!item) return go(lanes.findIndex(({ name }) => name), 0);
    if (along) return go(here.lane, Math.min(Math.max(here.at + along, 0), lanes[here.lane].items.length - 1));
    let lane = here.lane + down;
    while (lanes[lane] && !lanes[lane].items.length) lane += down;
    if (lanes[lane]) go(lane, itemAt(lanes[lane].items, item.begin + item.long / 2));
  }

  /** Selects an event's line and its value, and says what it is; of a loop all trips are shown. @param {Lane["items"][0] | undefined} of */
  function select(of) {
    if (!of?.event) return of && of.share === undefined && look(of.begin, of.long);
    choose({ which, event: of.event });
    const line = told.kinds[of.event[3]][1];
    const values = told.values[line] ?? [];
    if (line) ctx.put("lit", { lines: [line], now: line });
    if (values.length && !values.includes(ctx.get("selected"))) ctx.select(values[0]);
  }

  /** @param {KeyboardEvent} e */
  function keys(e) {
    const part = (view.to - view.from) / 4;
    const sideways = (/** @type {number} */ by) => () => e.shiftKey ? move(by * part) : walk(by, 0);
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    keyed(e, {
      "+": () => zoom(2),
      "=": () => zoom(2),
      "-": () => zoom(0.5),
      Home: whole,
      ArrowRight: sideways(1),
      ArrowLeft: sideways(-1),
      ArrowDown: () => walk(0, 1),
      ArrowUp: () => walk(0, -1),
      Enter: () => select(item),
    });
  }

  /** Where the pointer is: which lane, and what is there. @param {MouseEvent} e */
  function under({ offsetX, offsetY }) {
    const lane = lanes.findIndex(({ y, high: tall }) => offsetY >= y && offsetY < y + tall);
    return { lane, at: lane < 0 ? -1 : itemAt(lanes[lane].items, view.from + seconds(offsetX), seconds(NEAR)) };
  }

  const drag = useRef({ x: 0, from: 0, on: false, far: false }).current;
  const pointer = {
    onpointerdown(/** @type {PointerEvent} */ e) {
      Object.assign(drag, { x: e.offsetX, from: view.from, on: true, far: false });
      canvas.current.setPointerCapture(e.pointerId);
    },
    onpointermove(/** @type {PointerEvent} */ e) {
      drag.far ||= drag.on && Math.abs(e.offsetX - drag.x) > NEAR;
      if (drag.on && drag.far) return look(drag.from - seconds(e.offsetX - drag.x), view.to - view.from);
      const now = under(e);
      canvas.current.style.cursor = now.at < 0 ? "grab" : "pointer";
      if (now.at !== pointed.at || now.lane !== pointed.lane) point(now);
    },
    onpointerup(/** @type {PointerEvent} */ e) {
      const { lane, at: n } = under(e);
      if (drag.on && !drag.far && n >= 0) {
        go(lane, n);
        select(lanes[lane].items[n]);
      }
      drag.on = false;
    },
    onpointerleave: () => point({ lane: -1, at: -1 }),
  };

  const { lane, at: n } = pointed.at < 0 && pointed.lane < 0 ? here : pointed;
  const { card, name = "", items = [] } = lanes[lane] ?? {};
  const of = told.cards.length > 1 && card ? ` of ${card.name}` : "";
  const said = items[n] ? `${name || "loop"}${of}: ${items[n].said}` : HINT;
  const words = told.cards.map((each) =>
    `${each.name} ${each.said}, lanes ${each.lanes.map(([own]) => own).join(", ")}`
  );
  const label = `The step as it would run: ${words.join("; ")}. ${HINT}`;
  const about = chosen &&
    [ui`<code>${chosen[5]}</code>`, " ", ui`<${Pieces} of=${told.chosen[told.kinds[chosen[3]][3]]} />`];
  return ui`<div class="sv-timeline">
      <div class="sv-tlbox" style=${{ height: `${high}px` }}>
        <${Names} lanes=${lanes} heads=${heads} zoom=${zoom} whole=${whole} />
        <canvas data-testid="timeline-canvas" tabindex="0" role="application" ref=${canvas} onkeydown=${keys} ...${pointer}
            aria-label=${label} /></div>
      <p class="sv-said" data-testid="timeline-said" aria-live="polite">${said}</p>
      <p class="sv-tlchosen" data-testid="timeline-chosen" role="status" hidden=${!chosen}>${about}</p>
      <${Looks} of=${told.looks} /><p class="sv-soft sv-tlnotes">${`${told.notes.join("; ")}.`}</p></div>`;
}
