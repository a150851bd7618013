// @ts-check
// Any Picture of the kernel as SVG: shapes with roles, pointed at, walked with the arrow keys, and selected.
import { h, svg } from "./dom.js";
import { axisStyle } from "./chips.js";

/** @typedef {Record<string, any>} Shape  A shape or a key of the legend, as `Picture.to_json` has it. */
/**
 * @typedef {Object} Picture
 * @property {number} width
 * @property {number} height
 * @property {string} title
 * @property {string} alt
 * @property {string[]} axes
 * @property {Shape[]} shapes
 * @property {Shape[]} keys
 * @property {string[]} notes
 */
/**
 * A rectangle that can be pointed at.
 * @typedef {Object} Item
 * @property {number} x
 * @property {number} y
 * @property {number} w
 * @property {number} h
 * @property {string} tip
 * @property {number[]} keys
 * @property {SVGElement | null} element  Its own element where it selects something.
 */

const SVG_MARKS = /** @type {Record<string, string>} */ ({
  circle: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
  square: "M-4.5-4.5H4.5V4.5H-4.5Z",
  diamond: "M0-6L5.5 0L0 6L-5.5 0Z",
  up: "M0-5.5L5.5 4.5H-5.5Z",
  down: "M0 5.5L5.5-4.5H-5.5Z",
  plus: "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
});
const ARROWS = /** @type {Record<string, [number, number]>} */ ({
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
});
let patterns = 0;

/** The texts of a tip's template, one for each of its rows of words.
 * @param {Shape} shape
 * @returns {string[]} */
export function tips(shape) {
  const { tip = "", words = [], told = [] } = shape;
  const parts = tip.split("{}");
  const each = parts.length - 1;
  if (!each) return [];
  const found = [];
  for (let i = 0; i < told.length; i += each) {
    found.push(
      parts.reduce((/** @type {string} */ text, /** @type {string} */ part, /** @type {number} */ n) =>
        text + words[told[i + n - 1]] + part
      ),
    );
  }
  return found;
}

/** The number of the item that is nearest in a direction; -1 where none is.
 * @param {{ x: number, y: number, w: number, h: number }[]} items
 * @param {number} from
 * @param {[number, number]} way */
export function nearest(items, from, way) {
  const middle = (
    /** @type {{ x: number, y: number, w: number, h: number }} */ item,
  ) => [item.x + item.w / 2, item.y + item.h / 2];
  const [x, y] = middle(items[from]);
  let best = -1;
  let least = Infinity;
  items.forEach((item, n) => {
    const [dx, dy] = [middle(item)[0] - x, middle(item)[1] - y];
    const ahead = dx * way[0] + dy * way[1];
    const far = ahead + 2.5 * Math.abs(dx * way[1] + dy * way[0]);
    if (ahead > 0.5 && far < least) {
      best = n;
      least = far;
    }
  });
  return best;
}

/** Points of lines, x and y by turns, as SVG's `d`.
 * @param {Shape} shape */
function path({ lines, curved, closed }) {
  const d = (/** @type {number[]} */ p) => {
    if (curved) return `M${p[0]} ${p[1]}C${p.slice(2).join(" ")}`;
    let text = `M${p[0]} ${p[1]}`;
    for (let i = 2; i < p.length; i += 2) text += `L${p[i]} ${p[i + 1]}`;
    return closed ? `${text}Z` : text;
  };
  return lines.map(d).join("");
}

/** x, y, width and height of each rectangle.
 * @param {Shape} shape */
const boxes = ({ x, y, wide, high }) =>
  x.map((/** @type {number} */ left, /** @type {number} */ n) => [
    left,
    y[n],
    Array.isArray(wide) ? wide[n] : wide,
    Array.isArray(high) ? high[n] : high,
  ]);

/** An element with its pictures' SVG and, below, the sentence on what is pointed at.
 *
 * @param {any} ctx
 * @param {Picture} data
 * @param {{ id: string, said: string, hint: string, keys?: number[],
 *   pick?: (keys: number[]) => void }} options  `id` and `said` name the picture and its sentence; `hint` is the sentence while nothing is
 *   pointed at; `pick` is called with the keys of what is clicked.
 */
export function picture(ctx, data, { id, said, hint, pick }) {
  const sentence = h("p", { class: "sv-said", id: said, "aria-live": "polite" }, hint);
  /** @type {Item[]} */
  const items = [];
  /** @type {Map<number, SVGElement>} */
  const layers = new Map();
  const defs = svg("defs", {});
  const cursor = svg("rect", { class: "sv-cursor", visibility: "hidden" });
  let here = -1;

  const style = (/** @type {any} */ role) => (typeof role === "number" ? axisStyle(ctx, data.axes[role]) : {});
  /** Classes for the roles of a fill and a stroke. @param {Shape} shape */
  function look({ fill, stroke, ...more }) {
    const of = (
      /** @type {any} */ role,
    ) => (role === undefined || role === null ? "none" : typeof role === "number" ? "axis" : role);
    const painted = stroke === undefined && more.kind === "lines" ? "line" : stroke;
    return { class: `sv-f-${of(fill)} sv-s-${of(painted)}`, style: { ...style(fill), ...style(stroke) } };
  }

  /** A fill of strokes. @param {string} d */
  function pattern(d) {
    patterns += 1;
    const name = `sv-hatch-${patterns}`;
    const tile = svg(
      "pattern",
      { width: 6, height: 6, patternUnits: "userSpaceOnUse" },
      svg("path", { d, class: "sv-hatch" }),
    );
    tile.setAttribute("id", name);
    defs.append(tile);
    return `url(#${name})`;
  }

  /** One element for all of them, or one for each where they select something. @param {Shape} shape @param {boolean} over */
  function rects(shape, over) {
    const all = boxes(shape);
    const found = tips(shape);
    const size = (/** @type {number[]} */ [, , w, hh]) => ({ width: w, height: hh, rx: shape.corner });
    const label = (/** @type {number} */ n, /** @type {number[]} */ [x, y, w, hh]) =>
      shape.labels && shape.labels[n]
        ? svg("text", {
          x: x + w / 2,
          y: y + hh / 2 + 3.3,
          class: `sv-label sv-on-${typeof shape.fill === "number" ? "axis" : shape.fill}`,
          style: style(shape.fill),
        }, shape.labels[n])
        : null;
    if (shape.select && !over) {
      return svg(
        "g",
        {},
        all.map((/** @type {number[]} */ box, /** @type {number} */ n) => {
          const keys = shape.keys[n];
          const [x, y, w, hh] = box;
          const tile = svg("rect", { x, y, ...size(box), ...look(shape) });
          const thin = hh < 12
            ? svg("rect", { x: x - 3, y: y + hh / 2 - 5, width: w + 6, height: 10, class: "sv-hit" })
            : null;
          const element = svg(
            "g",
            {
              class: "sv-item",
              id: `${shape.select}-${keys[0]}`,
              tabindex: items.length ? "-1" : "0",
              role: "button",
              "aria-label": found[n],
              "aria-pressed": "false",
              "data-item": items.length,
            },
            thin,
            tile,
            label(n, box),
          );
          items.push({ x, y, w, h: hh, tip: found[n], keys, element });
          return element;
        }),
      );
    }
    if (found.length) {
      all.forEach(([x, y, w, hh], n) => items.push({ x, y, w, h: hh, tip: found[n], keys: [], element: null }));
    }
    if (over) {
      return svg(
        "g",
        {},
        all.map((/** @type {number[]} */ box, /** @type {number} */ n) => [
          svg("rect", {
            x: box[0],
            y: box[1],
            ...size(box),
            ...look(shape),
            "data-key": shape.keys && shape.keys[n][0],
          }),
          label(n, box),
        ]),
      );
    }
    const d = all.map(([x, y, w, hh]) => `M${x} ${y}h${w}v${hh}h${-w}z`).join("");
    return svg(
      "g",
      {},
      svg("path", { d, ...look(shape), "fill-opacity": shape.strength }),
      shape.hatch ? svg("path", { d, fill: pattern(shape.hatch) }) : null,
      all.map(label),
    );
  }

  /** @param {Shape} shape */
  function lines(shape) {
    const { strength, width = 1, dash, name, tip } = shape;
    return svg("path", {
      d: path(shape),
      ...look(shape),
      "stroke-width": width,
      opacity: strength,
      "stroke-dasharray": dash,
      "data-name": name,
    }, tip ? svg("title", {}, tip) : null);
  }

  /** @param {Shape} shape */
  function marks(shape) {
    const { at, mark = "circle", size = 10, name, tip } = shape;
    const places = at.filter((/** @type {number} */ _, /** @type {number} */ i) => i % 2 === 0);
    return svg(
      "g",
      { ...look({ fill: "ink", ...shape }), "data-name": name },
      tip ? svg("title", {}, tip) : null,
      places.map((/** @type {number} */ x, /** @type {number} */ n) =>
        svg("path", {
          d: SVG_MARKS[mark],
          "vector-effect": "non-scaling-stroke",
          transform: `translate(${x},${at[2 * n + 1]}) scale(${size / 10})`,
        })
      ),
    );
  }

  /** @param {Shape} shape */
  function labels(shape) {
    const { at, texts, align = "start", size = "normal", ink = "ink", bold, mono, halo, name } = shape;
    const names = `sv-text sv-${size} sv-i-${ink} ${bold ? "sv-bold" : ""} ${mono ? "sv-mono" : ""} ${
      halo ? "sv-halo" : ""
    }`;
    return svg(
      "g",
      { class: names, "text-anchor": align, "data-name": name },
      texts.map((/** @type {string} */ text, /** @type {number} */ n) =>
        svg("text", { x: at[2 * n], y: at[2 * n + 1] + 3.6 }, text)
      ),
    );
  }

  /** @param {Shape} shape @param {boolean} over */
  const draw = (shape, over) =>
    shape.kind === "rects"
      ? rects(shape, over)
      : shape.kind === "lines"
      ? lines(shape)
      : shape.kind === "marks"
      ? marks(shape)
      : labels(shape);

  /** The group of a layer; those of lower numbers stand before it. @param {number} n */
  function layer(n) {
    let group = layers.get(n);
    if (!group) {
      group = svg("g", {});
      layers.set(n, group);
      const after = [...layers.keys()].filter((m) => m > n).sort((a, b) => a - b)[0];
      element.insertBefore(group, after === undefined ? cursor : layers.get(after) || cursor);
    }
    return group;
  }

  /** Says what an item is, and marks it. @param {number} n */
  function show(n) {
    here = n;
    const item = items[n];
    sentence.textContent = item ? item.tip : hint;
    cursor.setAttribute("visibility", item ? "visible" : "hidden");
    if (!item) return;
    for (const [key, value] of Object.entries({ x: item.x, y: item.y, width: item.w, height: item.h })) {
      cursor.setAttribute(key, String(value));
    }
  }

  /** The item at a place of the page; -1 for none. @param {MouseEvent} event */
  function at(event) {
    const box = element.getBoundingClientRect();
    const scale = data.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    return items.findIndex((item) =>
      x >= item.x && x <= item.x + item.w && y >= item.y - Math.max(0, 5 - item.h / 2) &&
      y <= item.y + Math.max(item.h, item.h / 2 + 5)
    );
  }

  /** @param {KeyboardEvent} event */
  function keys(event) {
    const way = ARROWS[event.key];
    if (way && items.length) {
      const next = here < 0 ? first() : nearest(items, here, way);
      if (next >= 0) focus(next);
    } else if (pick && here >= 0 && (event.key === "Enter" || event.key === " ")) pick(items[here].keys);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  const first = () =>
    items.reduce(
      (best, item, n) => (item.y < items[best].y || (item.y === items[best].y && item.x < items[best].x) ? n : best),
      0,
    );

  /** @param {number} n */
  function focus(n) {
    const now = items[n].element;
    if (now) {
      for (const item of items) {
        if (item.element) item.element.setAttribute("tabindex", item.element === now ? "0" : "-1");
      }
      now.focus();
    }
    show(n);
  }

  const selecting = data.shapes.some((shape) => shape.select);
  const pointed = data.shapes.some((shape) => shape.told);
  const element = svg(
    "svg",
    {
      viewBox: `0 0 ${data.width} ${data.height}`,
      class: "sv-picture",
      role: selecting ? "group" : "img",
      "aria-label": data.alt,
      id,
      tabindex: selecting ? "-1" : pointed ? "0" : null,
      onclick: (/** @type {MouseEvent} */ event) => {
        const n = at(event);
        if (pick && n >= 0) pick(items[n].keys);
      },
      onmousemove: (/** @type {MouseEvent} */ event) => {
        const n = at(event);
        if (n >= 0) show(n);
      },
      onmouseleave: () => {
        if (!element.contains(/** @type {ShadowRoot | Document} */ (element.getRootNode()).activeElement)) show(-1);
      },
      onfocusin: (/** @type {FocusEvent} */ event) => {
        const tile = /** @type {Element} */ (event.target).closest("[data-item]");
        if (tile) show(Number(tile.getAttribute("data-item")));
      },
      onkeydown: keys,
    },
    defs,
    cursor,
  );
  for (const shape of data.shapes) layer(shape.layer || 0).append(draw(shape, false));

  return {
    element: h("div", { class: "sv-picturebox" }, element, pointed ? sentence : null),
    /** Lays the shapes of another picture over this one, in place of those before. @param {Picture | null} other */
    over(other) {
      for (const old of element.querySelectorAll(".sv-over")) old.remove();
      for (const shape of other ? other.shapes : []) {
        const found = draw(shape, true);
        found.classList.add("sv-over");
        layer(shape.layer || 0).append(found);
      }
    },
    /** Marks what is selected. @param {number} key */
    press(key) {
      for (const item of items) {
        if (!item.element) continue;
        const on = item.keys.includes(key);
        item.element.setAttribute("aria-pressed", String(on));
        if (key >= 0) item.element.setAttribute("tabindex", on ? "0" : "-1");
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

/** A sample of a key: a patch, or a line with its mark.
 * @param {any} ctx
 * @param {{ axes: string[] }} data
 * @param {Shape} key */
export function sample(ctx, data, key) {
  const role = key.fill === undefined ? key.stroke : key.fill;
  const style = typeof role === "number" ? axisStyle(ctx, data.axes[role]) : {};
  const name = typeof role === "number" ? "axis" : role;
  return svg(
    "svg",
    { width: 34, height: 14, class: "sv-sample", "aria-hidden": "true" },
    key.fill === undefined
      ? svg("path", {
        d: "M0 7H34",
        class: `sv-f-none sv-s-${name}`,
        style,
        "stroke-width": 2.2,
        "stroke-dasharray": key.dash,
      })
      : svg("rect", { x: 10, y: 1, width: 12, height: 12, class: `sv-f-${name} sv-s-line`, style }),
    key.mark
      ? svg("path", {
        d: SVG_MARKS[key.mark],
        transform: "translate(17,7) scale(.85)",
        class: `sv-f-${name} sv-s-ground`,
        style,
      })
      : null,
  );
}

/** The legend: each key with its sample; pointing at one lights what belongs to it.
 * @param {any} ctx
 * @param {Picture} data
 * @param {{ light: (name: string, on: boolean) => void }} view
 * @param {string} id */
export function legend(ctx, data, view, id) {
  return h(
    "ul",
    { class: "sv-legend", id },
    data.keys.map((key) => {
      const over = (/** @type {boolean} */ on) => () => {
        view.light(key.name, on);
        item.classList.toggle("sv-lit", on);
      };
      const events = key.name
        ? {
          tabindex: "0",
          onmouseenter: over(true),
          onmouseleave: over(false),
          onfocus: over(true),
          onblur: over(false),
        }
        : {};
      const item = h(
        "li",
        { title: key.title, ...events },
        sample(ctx, data, key),
        h("span", {}, h("b", {}, key.text), key.more ? [h("br"), h("span", { class: "sv-soft" }, key.more)] : null),
      );
      return item;
    }),
  );
}
