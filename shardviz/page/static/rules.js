// @ts-check
// The rules: what the kernel tells of each, with fields to change them, buttons to move them, and a form for a new one.
import { entry, find, h } from "./dom.js";
import { pane } from "./panes.js";
import { refusal } from "./head.js";

/** @import { Context, Edit } from "./types.d.ts" */

const WIDTHS = [5, 30, 30, 8, 6]; // characters of the columns

/**
 * A field that says what was typed once the person is done with it; Escape takes it back.
 * @param {string} id
 * @param {string} label
 * @param {string} value
 * @param {(text: string) => void} done
 */
function field(id, label, value, done) {
  const send = () => {
    if (input.isConnected && input.value !== value) done(input.value);
  };
  const input = entry({ id, value, "aria-label": label }, send);
  input.addEventListener("change", send);
  input.addEventListener("keydown", (e) => {
    if (e.key !== "Escape") return;
    input.value = value;
    input.blur();
  });
  return input;
}

/**
 * What moves and removes a rule: a sign, what it does, and the edit, or null where it cannot.
 * @param {number} place
 * @param {number} count how many rules there are
 * @returns {[id: string, sign: string, words: string, edit: Edit | null][]}
 */
export function moves(place, count) {
  const to = (/** @type {number} */ there) =>
    there < 0 || there >= count ? null : { op: "move_rule", place, to: there };
  return [
    ["up", "↑", "move up", to(place - 1)],
    ["down", "↓", "move down", to(place + 1)],
    ["remove", "×", "remove", { op: "remove_rule", place }],
  ];
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function rules(ctx, el) {
  let sent = 0; // how many rules there are once the new one is taken
  const fields = () => ctx.get("rules").fields || [];
  const pattern = entry(
    { id: "rule-new-filter", placeholder: "*kernel", "aria-label": "pattern of the new rule" },
    add,
  );
  const spec = entry(
    { id: "rule-new-spec", placeholder: "P('data', 'model')", "aria-label": "spec of the new rule" },
    add,
  );

  function add() {
    if (!pattern.value.trim()) return pattern.focus();
    sent = fields().length + 1;
    ctx.edit({ op: "add_rule", pattern: pattern.value, spec: spec.value });
  }

  /** @param {unknown} _ @param {number} place @param {number} column */
  function cell(_, place, column) {
    const { filter, spec: cut } = fields()[place];
    const change = (/** @type {object} */ what) => ctx.edit({ op: "set_rule", place, ...what });
    const rule = `of rule ${place + 1}`;
    if (column === 1 && filter !== null) {
      return field(`rule-filter-${place}`, `pattern ${rule}`, filter, (typed) => change({ pattern: typed }));
    }
    return column === 2
      ? field(`rule-spec-${place}`, `spec ${rule}`, cut, (typed) => change({ spec: typed }))
      : undefined;
  }

  /** @param {unknown} _ @param {number} place */
  function end(_, place) {
    return moves(place, fields().length).map(([id, sign, title, edit]) =>
      h("button", {
        class: "sv-btn",
        id: `rule-${id}-${place}`,
        title,
        "aria-label": `${title}: rule ${place + 1}`,
        disabled: !edit,
        onclick: () => edit && ctx.edit(edit),
      }, sign)
    );
  }

  function above() {
    if (sent && fields().length >= sent) {
      pattern.value = spec.value = "";
      sent = 0;
    }
    const { error } = ctx.get("status");
    return error?.place === "rule" ? refusal(ctx, error, "rule-error") : null;
  }

  pane(ctx, el, "rules", { above, editors: { rules: { cell, end, widths: WIDTHS } } });
  const button = h("button", { class: "sv-btn", id: "rule-add", onclick: add }, "add rule");
  const { words: count, draw: drawCount } = counting(ctx, pattern, "rule-new-count");
  ctx.on("trial", drawCount);
  el.append(h("div", { class: "sv-rulenew" }, pattern, h("span", { class: "sv-soft" }, "→"), spec, button, count));
}

const PAUSE = 100; // milliseconds without a key before a pattern is tried

/**
 * What a pattern catches, while it is typed.
 * @param {Context} ctx
 * @param {HTMLInputElement} input
 * @param {string} id
 */
function counting(ctx, input, id) {
  const words = h("span", { class: "sv-soft sv-count", id, role: "status" });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => ctx.attempt(input.value), PAUSE);
    draw();
  });
  function draw() {
    const { pattern, said = "", names = [], count = 0 } = ctx.get("trial");
    const fresh = Boolean(pattern) && pattern === input.value;
    words.textContent = fresh ? said : input.value.trim() ? "…" : "";
    words.title = fresh ? [...names, ...(count > names.length ? ["…"] : [])].join("\n") : "";
  }
  draw();
  return { words, draw };
}

/**
 * The parts of a tree path: `layers`, `0`, `down` of `['layers'][0]['down']`.
 * @param {string} path
 */
export function keysOf(path) {
  const found = path.matchAll(/\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]|\[([^\[\]'"]+)\]|\.?([^.[\]]+)/g);
  return [...found].map(([, one, two, three, four]) => one ?? two ?? three ?? four);
}

/**
 * Patterns for an array, the widest first: its last key, the two last, the whole path.
 * @param {string} path
 */
export function patternsOf(path) {
  const keys = keysOf(path);
  const ends = keys.length > 1 ? [keys.slice(-1), keys.slice(-2)] : [];
  return [...new Set([...ends.map((end) => end.join(".")), path])];
}

/**
 * What makes a rule of the selected array: a pattern, what it catches, and a button that adds it with the array's spec.
 * @param {Context} ctx
 * @returns {(name: string) => HTMLElement}
 */
export function ruleMaker(ctx) {
  let open = "";
  let drawCount = () => {}; // of the form that is there
  ctx.on("trial", () => drawCount());
  return (name) => {
    const box = h("div", { class: "sv-rulemaker" });
    const show = () => {
      open = name;
      box.replaceChildren(...form());
      ctx.attempt(patternsOf(name)[0]);
      /** @type {HTMLElement | null} */ (find(box, "make-pattern"))?.focus();
    };
    function form() {
      const make = () => {
        if (!input.value.trim()) return input.focus();
        open = "";
        ctx.edit({ op: "make_rule", pattern: input.value, name });
      };
      const [value] = patternsOf(name);
      const label = `pattern of a rule with the spec of ${name}`;
      const input = entry({ id: "make-pattern", value, placeholder: "*kernel", "aria-label": label }, make);
      const { words: count, draw } = counting(ctx, input, "make-count");
      drawCount = draw;
      const offers = patternsOf(name).map((pattern) =>
        h("button", {
          class: "sv-link sv-offered",
          tabindex: "-1",
          onclick: () => {
            input.value = pattern;
            ctx.attempt(pattern);
          },
        }, pattern)
      );
      const add = h("button", { class: "sv-btn sv-do", id: "make-rule", onclick: make }, "add rule");
      return [h("div", { class: "sv-makerow" }, input, add), h("div", {}, count, " · ", offers)];
    }
    if (open === name) box.append(...form());
    else {
      const title = "one rule for all arrays like this one, with the spec that it has now";
      box.append(h("button", { class: "sv-link", id: "make-rule-open", title, onclick: show }, "make a rule of it …"));
    }
    return box;
  };
}
