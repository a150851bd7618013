// @ts-check
// The rules: what the kernel tells of each, with fields to change them, buttons to move them, and a form for a new one.
import { Pane } from "./panes.js";
import { Field, Refusal, ui, useContextOf, useTraits } from "./parts.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { Edit } from "./types.d.ts" */

const WIDTHS = [5, 30, 30, 8, 6]; // characters of the columns
const PAUSE = 100; // milliseconds without a key before a pattern is tried

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

export function Rules() {
  const ctx = useContextOf();
  const fields = () => ctx.get("rules").fields || [];

  /** @param {unknown} _ @param {number} place @param {number} column */
  function cell(_, place, column) {
    if (!fields()[place] || (column !== 1 && column !== 2)) return undefined;
    const { filter, spec } = fields()[place];
    const [name, value, of] = column === 1 ? ["pattern", filter, "filter"] : ["spec", spec, "spec"];
    const change = (/** @type {string} */ typed) => ctx.edit({ op: "set_rule", place, [name]: typed });
    return value !== null &&
        ui`<${Field} value=${value} data-testid="rule-${of}-${place}" leave=${change}
              aria-label="${name} of rule ${place + 1}" answer=${ctx.get("status").seq} />` || undefined;
  }

  /** @param {unknown} _ @param {number} place */
  function end(_, place) {
    return moves(place, fields().length).map(([id, sign, title, edit]) =>
      ui`<button class="sv-btn" data-testid="rule-${id}-${place}" title=${title}
            aria-label="${title}: rule ${place + 1}" disabled=${!edit} onclick=${() => edit && ctx.edit(edit)}>
          ${sign}</button>`
    );
  }
  function above() {
    const { error } = ctx.get("status");
    return error?.place === "rule" && ui`<${Refusal} error=${error} id="rule-error" />`;
  }
  return ui`<${Pane} of="rules" above=${above} editors=${{ rules: { cell, end, widths: WIDTHS } }} /><${NewRule} />`;
}

/** The form for a new rule, which is emptied when it is taken. */
function NewRule() {
  const ctx = useTraits("rules");
  const count = ctx.get("rules").fields?.length ?? 0;
  const [sent, send] = useState(Infinity); // how many rules there are once the new one is taken
  const form = useRef(/** @type {any} */ (null));
  const [pattern, type] = useState("");
  const inputs = () => [...form.current.querySelectorAll("input")];
  useLayoutEffect(() => {
    if (count < sent) return;
    for (const input of inputs()) input.value = "";
    type("");
    send(Infinity);
  });
  const add = () => {
    const [filter, spec] = inputs().map(({ value }) => value);
    if (!filter.trim()) return inputs()[0].focus();
    send(count + 1);
    ctx.edit({ op: "add_rule", pattern: filter, spec });
  };
  return ui`<div class="sv-rulenew" ref=${form}>
      <${Field} data-testid="rule-new-filter" placeholder="*kernel" aria-label="pattern of the new rule" enter=${add}
          oninput=${(
    /** @type {any} */ { target },
  ) =>
    type(
      target.value,
    )} /><span class="sv-soft">→</span>
      <${Field} data-testid="rule-new-spec" placeholder="P('data', 'model')" aria-label="spec of the new rule"
          enter=${add} /><button class="sv-btn" data-testid="rule-add" onclick=${add}>add rule</button>
      <${Count} of=${pattern} id="rule-new-count" /></div>`;
}

/** What a pattern catches, while it is typed. @param {{ of: string, id: string }} props */
function Count({ of, id }) {
  const ctx = useTraits("trial");
  const { pattern, said = "", names = [], count = 0 } = ctx.get("trial");
  const fresh = Boolean(pattern) && pattern === of;
  useLayoutEffect(() => {
    if (fresh || !of.trim()) return;
    const timer = setTimeout(() => ctx.attempt(of), PAUSE);
    return () => clearTimeout(timer);
  }, [of]);
  useLayoutEffect(() => {
    if (of.trim()) ctx.attempt(of);
  }, []);
  return ui`<span class="sv-soft sv-count" data-testid=${id} role="status"
        title=${fresh ? [...names, ...(count > names.length ? ["…"] : [])].join("\n") : ""}>
      ${fresh ? said : of.trim() ? "…" : ""}</span>`;
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

/** What makes a rule of an array: a pattern, what it catches, and a button that adds it with the array's spec. @param {{ name: string }} props */
export function RuleMaker({ name }) {
  const ctx = useContextOf();
  const [open, show] = useState(false);
  const [pattern, type] = useState(patternsOf(name)[0]);
  if (!open) {
    return ui`<div class="sv-rulemaker"><button class="sv-link" data-testid="make-rule-open" onclick=${() =>
      show(
        true,
      )} title="one rule for all arrays like this one, with the spec that it has now">make a rule of it …</button>
      </div>`;
  }
  const make = () => {
    if (!pattern.trim()) return;
    show(false);
    ctx.edit({ op: "make_rule", pattern, name });
  };
  return ui`<div class="sv-rulemaker">
      <div class="sv-makerow">
        <${Field} data-testid="make-pattern" value=${pattern} placeholder="*kernel" enter=${make} grab
            aria-label="pattern of a rule with the spec of ${name}" oninput=${(
    /** @type {any} */ { target },
  ) =>
    type(
      target.value,
    )} /><button class="sv-btn sv-do" data-testid="make-rule" onclick=${make}>add rule</button></div>
      <div><${Count} of=${pattern} id="make-count" />${" · "}${
    patternsOf(name).map((each) =>
      ui`<button class="sv-link sv-offered" tabindex="-1" onclick=${() => type(each)}>${each}</button>`
    )
  }</div></div>`;
}
