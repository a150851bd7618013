// @ts-check
// Any Picture of the kernel as SVG: shapes with roles, pointed at, walked with the arrow keys, and selected.
import { h, svg } from "./dom.js";
import { axisStyle } from "./chips.js";

/**
 * A rectangle that can be pointed at; it has an element of its own where it selects something.
 * @typedef {{ x: number, y: number, w: number, h: number }} Box
 * @typedef {Box & { tip: string, keys: number[], element?: Element }} Item
 */

/** @type {Record<string, string>} */
const MARKS = {
  circle: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
  square: "M-4.5-4.5H4.5V4.5H-4.5Z",
  diamond: "M0-6L5.5 0L0 6L-5.5 0Z",
  up: "M0-5.5L5.5 4.5H-5.5Z",
  down: "M0 5.5L5.5-4.5H-5.5Z",
  plus: "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
};

/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

/** @import { Context, Picture, Shape } from "./types.d.ts" */

let patterns = 0;
const OWN = Math.random().toString(36).slice(2, 8); // every explorer of a document has modules of its own

/**
 * What is said of each rectangle: the template with its words put in.
 * @param {Shape} shape
 * @returns {string[]}
 */
export function tips({ tip = "", words = [], told = [] }) {
  const [first, ...rest] = tip.split("{}");
  const found = [];
  for (let i = 0; rest.length && i < told.length; i += rest.length) {
    found.push(
      first + rest.map((/** @type {string} */ part, /** @type {number} */ n) => words[told[i + n]] + part).join(""),
    );
  }
  return found;
}

/**
 * The number of the box that is nearest in a direction; -1 where none is.
 * @param {Box[]} boxes
 * @param {number} from
 * @param {[number, number]} way
 */
export function nearest(boxes, from, [right, down]) {
  const { x, y, w, h: high } = boxes[from];
  let best = -1;
  let least = Infinity;
  boxes.forEach((box, n) => {
    const dx = box.x + box.w / 2 - x - w / 2;
    const dy = box.y + box.h / 2 - y - high / 2;
    const ahead = dx * right + dy * down;
    const far = ahead + 2.5 * Math.abs(dx * down + dy * right);
    if (ahead > 0.5 && far < least) [best, least] = [n, far];
  });
  return best;
}

/**
 * x, y, width and height of each rectangle.
 * @param {Shape} shape
 * @returns {Box[]}
 */
function boxesOf({ x, y, wide, high }) {
  const one = (/** @type {any} */ size, /** @type {number} */ n) => (Array.isArray(size) ? size[n] : size);
  return x.map((/** @type {number} */ left, /** @type {number} */ n) => ({
    x: left,
    y: y[n],
    w: one(wide, n),
    h: one(high, n),
  }));
}

/**
 * Points of lines, x and y by turns, as SVG's `d`.
 * @param {Shape} shape
 */
function path({ lines, curved, closed }) {
  return lines.map((/** @type {number[]} */ points) =>
    `M${points.slice(0, 2)}${curved ? "C" : "L"}${points.slice(2)}${closed ? "Z" : ""}`
  ).join("");
}

/** The role as part of a class name: all axes have one, with their colours as variables. @param {any} role */
const word = (role) => (role === undefined || role === null ? "none" : typeof role === "number" ? "axis" : role);

/**
 * Class and colours of the roles of a fill and a stroke.
 * @param {Context} ctx
 * @param {string[]} axes
 * @param {any} fill
 * @param {any} stroke
 */
function look(ctx, axes, fill, stroke) {
  const place = [fill, stroke].find((role) => typeof role === "number");
  return {
    class: `sv-f-${word(fill)} sv-s-${word(stroke)}`,
    ...(place === undefined ? {} : { "data-thing": `axis ${axes[place]}` }),
    style: place === undefined ? {} : axisStyle(ctx, axes[place]),
  };
}

/**
 * A picture, and below it the sentence on what is pointed at.
 * @param {Context} ctx
 * @param {Picture} data
 * @param {{ id: string, said?: string, hint?: string, pick?: (keys: number[]) => void }} options  `id` and `said` name
 *   the picture and the sentence; `hint` is the sentence while nothing is pointed at; `pick` gets the keys of what is
 *   clicked.
 */
export function picture(ctx, data, { id, said, hint = "", pick }) {
  /** @type {Item[]} */
  const items = [];
  /** @type {Map<number, Element>} */
  const layers = new Map();
  let here = -1;
  let rest = hint; // what is said while nothing is pointed at
  const pointed = data.shapes.some((shape) => shape.told);
  const selecting = data.shapes.some((shape) => shape.select);
  const sentence = h("p", { class: "sv-said", id: said, "aria-live": "polite" }, hint);
  const defs = svg("defs", {});
  const cursor = svg("rect", { class: "sv-cursor", visibility: "hidden" });
  /** @type {SVGSVGElement} */
  const element = svg(
    "svg",
    {
      viewBox: `0 0 ${data.width} ${data.height}`,
      role: selecting ? "group" : "img",
      "aria-label": data.alt,
      id,
      tabindex: selecting ? "-1" : pointed ? "0" : null,
      onclick: (/** @type {MouseEvent} */ event) => choose(at(event)),
      onmousemove: (/** @type {MouseEvent} */ event) => show(at(event)),
      onmouseleave: () => show(-1),
      onfocusin: (/** @type {FocusEvent} */ event) => show(items.findIndex((item) => item.element === event.target)),
      onkeydown: keys,
    },
    defs,
    cursor,
  );

  /** @param {any} fill @param {any} stroke */
  const looks = (fill, stroke) => look(ctx, data.axes, fill, stroke);

  /** A fill of strokes. @param {string} d */
  function hatch(d) {
    patterns += 1;
    const tile = svg(
      "pattern",
      { width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      svg("path", { d, class: "sv-hatch" }),
    );
    tile.setAttribute("id", `sv-hatch-${OWN}-${patterns}`);
    defs.append(tile);
    return `url(#sv-hatch-${OWN}-${patterns})`;
  }

  /** @param {Shape} shape @param {Box} box @param {number} n */
  function label({ labels = [], fill, hatch: strokes }, box, n) {
    if (!labels[n]) return null;
    const { style } = looks(fill, null);
    return svg("text", {
      x: box.x + box.w / 2,
      y: box.y + box.h / 2 + 3.3,
      class: `sv-label sv-on-${word(fill)} ${strokes ? "sv-hatched" : ""}`,
      style,
    }, labels[n]);
  }

  /** @param {Shape} shape @param {Box} box */
  const rect = ({ fill, stroke, corner }, { x, y, w, h: high }) =>
    svg("rect", { x, y, width: w, height: high, rx: corner, ...looks(fill, stroke) });

  /** One element for all of them, or one for each that is selected or laid over others. @param {Shape} shape @param {boolean} over */
  function rects(shape, over) {
    const boxes = boxesOf(shape);
    const found = tips(shape);
    if (over) {
      return svg(
        "g",
        {},
        boxes.map((box, n) =>
          svg("g", { "data-key": shape.keys && shape.keys[n][0] }, rect(shape, box), label(shape, box, n))
        ),
      );
    }
    if (shape.select) {
      return svg(
        "g",
        {},
        boxes.map((box, n) => {
          const name = { id: `${shape.select}-${shape.keys[n][0]}`, "aria-label": found[n], "aria-pressed": "false" };
          const button = svg(
            "g",
            { class: "sv-item", role: "button", tabindex: items.length ? "-1" : "0", ...name, ...deviceOf(shape, n) },
            rect(shape, box),
            label(shape, box, n),
          );
          items.push({ ...box, tip: found[n], keys: shape.keys[n], element: button });
          return button;
        }),
      );
    }
    found.forEach((tip, n) => items.push({ ...boxes[n], tip, keys: [] }));
    const d = boxes.map((box) => `M${box.x} ${box.y}h${box.w}v${box.h}h${-box.w}z`).join("");
    return svg(
      "g",
      {},
      svg("path", {
        d,
        ...looks(shape.fill, shape.stroke),
        "fill-opacity": shape.strength,
        "stroke-dasharray": shape.dash,
      }),
      shape.hatch && svg("path", { d, fill: hatch(shape.hatch), "pointer-events": "none" }),
      boxes.map((box, n) => label(shape, box, n)),
    );
  }

  /** A tile or a cell is its devices. @param {Shape} shape @param {number} n */
  const deviceOf = ({ keys, select }, n) =>
    ["device", "cell", "holder"].includes(select) ? { "data-thing": `device ${keys[n].join(",")}` } : {};

  /** @param {Shape} shape */
  function lines(shape) {
    const { fill, stroke = "line", strength, width = 1, dash, name, tip } = shape;
    const more = { "stroke-width": width, opacity: strength, "stroke-dasharray": dash, "data-name": name };
    return svg("path", { d: path(shape), ...looks(fill, stroke), ...more }, tip && svg("title", {}, tip));
  }

  /** @param {Shape} shape */
  function marks({ at, mark = "circle", size = 10, fill = "ink", stroke, name, tip }) {
    const all = at.map((/** @type {number[]} */ [x, y]) =>
      svg("path", {
        d: MARKS[mark],
        "vector-effect": "non-scaling-stroke",
        transform: `translate(${x},${y}) scale(${size / 10})`,
      })
    );
    return svg("g", { ...looks(fill, stroke), "data-name": name }, tip && svg("title", {}, tip), all);
  }

  /** @param {Shape} shape */
  function labels({ at, texts, align = "start", size = "normal", ink = "ink", bold, mono, halo, turned, name }) {
    const style = typeof size === "number" ? { "font-size": `${size}px` } : null;
    const names = ["sv-text", `sv-${size}`, `sv-i-${ink}`, bold && "sv-bold", mono && "sv-mono", halo && "sv-halo"]
      .filter(Boolean);
    const all = texts.map((/** @type {string} */ text, /** @type {number} */ n) =>
      svg("text", {
        x: at[n][0],
        y: at[n][1] + (style ? 0.34 * size : 3.6),
        transform: turned ? `rotate(-90 ${at[n]})` : null,
      }, text)
    );
    return svg("g", { class: names.join(" "), style, "text-anchor": align, "data-name": name }, all);
  }

  /** @type {Record<string, (shape: Shape, over: boolean) => Element>} */
  const painters = { rects, lines, marks, labels };

  /** Puts a shape among those of its layer. @param {Shape} shape @param {boolean} over */
  function paint(shape, over) {
    const number = shape.layer || 0;
    let layer = layers.get(number);
    if (!layer) {
      layer = svg("g", {});
      layers.set(number, layer);
      const above = Math.min(...[...layers.keys()].filter((other) => other > number));
      element.insertBefore(layer, layers.get(above) || cursor);
    }
    const painted = painters[shape.kind](shape, over);
    if (over) painted.classList.add("sv-over");
    layer.append(painted);
  }

  /** Says what an item is, and marks it. @param {number} n */
  function show(n) {
    const focused = items.findIndex((item) => item.element && item.element.matches(":focus"));
    here = n < 0 ? focused : n;
    const item = items[here];
    sentence.textContent = item ? item.tip : rest;
    cursor.setAttribute("visibility", item ? "visible" : "hidden");
    if (!item) return;
    for (const [name, value] of Object.entries({ x: item.x, y: item.y, width: item.w, height: item.h })) {
      cursor.setAttribute(name, String(value));
    }
  }

  /** The item at a place of the page, flat ones with some room around; -1 for none. @param {MouseEvent} event */
  function at({ clientX, clientY }) {
    const box = element.getBoundingClientRect();
    const [x, y] = [(clientX - box.left) * data.width / box.width, (clientY - box.top) * data.height / box.height];
    return items.findIndex((item) =>
      x >= item.x && x <= item.x + item.w && Math.abs(y - item.y - item.h / 2) <= Math.max(5, item.h / 2)
    );
  }

  /** @param {number} n */
  function choose(n) {
    if (pick && n >= 0) pick(items[n].keys);
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    if (event.key in ARROWS && items.length) {
      const start = items.reduce(
        (best, item, n) => (item.y - items[best].y || item.x - items[best].x) < 0 ? n : best,
        0,
      );
      const next = here < 0 ? start : nearest(items, here, ARROWS[event.key]);
      if (next >= 0) go(next);
    } else if (pick && (event.key === "Enter" || event.key === " ")) choose(here);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** @param {number} n */
  function go(n) {
    const button = /** @type {HTMLElement | undefined} */ (items[n].element);
    if (button) {
      for (const { element: other } of items) if (other) other.setAttribute("tabindex", other === button ? "0" : "-1");
      button.focus();
    }
    show(n);
  }

  for (const shape of data.shapes) paint(shape, false);
  return {
    element: h("div", { class: "sv-picturebox" }, element, pointed ? sentence : null),

    /** Lays the shapes of another picture over this one, in place of those before. @param {Picture | null} other */
    over(other) {
      for (const old of element.querySelectorAll(".sv-over")) old.remove();
      if (other) { for (const shape of other.shapes) paint(shape, true); }
    },

    /** Marks what is selected, and says what it is; below 0 nothing. @param {number} key */
    press(key) {
      rest = sentence.textContent = items.find(({ keys: own }) => own.includes(key))?.tip ?? hint;
      for (const { element: button, keys: own } of items) {
        if (!button) continue;
        button.setAttribute("aria-pressed", String(own.includes(key)));
        if (key >= 0) button.setAttribute("tabindex", own.includes(key) ? "0" : "-1");
      }
    },

    /** Lights what belongs to a key of the legend. @param {string} name @param {boolean} on */
    light(name, on) {
      for (const part of element.querySelectorAll("[data-name]")) {
        part.classList.toggle("sv-lit", on && part.getAttribute("data-name") === name);
      }
    },
  };
}

/**
 * A sample of a key: a patch, or a line with its mark.
 * @param {Context} ctx
 * @param {string[]} axes
 * @param {Shape} key
 */
export function sample(ctx, axes, { fill, stroke, dash, mark }) {
  const patch = fill !== undefined;
  return svg(
    "svg",
    { width: 34, height: 14, class: "sv-sample", "aria-hidden": "true" },
    patch
      ? svg("rect", { x: 10, y: 1, width: 12, height: 12, ...look(ctx, axes, fill, null) })
      : svg("path", { d: "M0 7H34", ...look(ctx, axes, null, stroke), "stroke-width": 2.2, "stroke-dasharray": dash }),
    mark &&
      svg("path", { d: MARKS[mark], transform: "translate(17,7) scale(.85)", ...look(ctx, axes, stroke, "ground") }),
  );
}

/**
 * The legend: each key with its sample; pointing at one lights what belongs to it.
 * @param {Context} ctx
 * @param {Picture} data
 * @param {{ light: (name: string, on: boolean) => void }} view
 * @param {string} id
 */
export function legend(ctx, data, view, id) {
  return h(
    "ul",
    { class: "sv-legend", id },
    data.keys.map((key) => {
      const item = h(
        "li",
        { title: key.title, tabindex: key.name ? "0" : null },
        sample(ctx, data.axes, key),
        h("span", {}, h("b", {}, key.text), key.more ? [h("br"), h("span", { class: "sv-soft" }, key.more)] : null),
      );
      for (const [event, on] of Object.entries({ mouseenter: true, mouseleave: false, focus: true, blur: false })) {
        item.addEventListener(event, () => {
          if (key.name) view.light(key.name, on);
          item.classList.toggle("sv-lit", on);
        });
      }
      return item;
    }),
  );
}
