// @ts-check
// The rules: what the kernel tells of each, with fields to change them, buttons to move them, and a form for a new one.
import { Pane } from "./panes.js";
import { find } from "./dom.js";
import { Field, Form } from "./fields.js";
import { ui, useContextOf, useTraits } from "./parts.js";
import { useState } from "./vendor/preact.js";

/** @import { Edit } from "./types.d.ts" */

const WIDTHS = [5, 30, 30, 8, 6]; // characters of the columns

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
  return ui`<${Pane} of="rules" editors=${{ rules: { cell, end, widths: WIDTHS } }} /><${NewRule} />`;
}

/** The form for a new rule, which is emptied when it is taken. */
function NewRule() {
  const ctx = useTraits("rules");
  const count = ctx.get("rules").fields?.length ?? 0;
  const fields = [
    { "data-testid": "rule-new-filter", placeholder: "*kernel", "aria-label": "pattern of the new rule" },
    { "data-testid": "rule-new-spec", placeholder: "P('data', 'model')", "aria-label": "spec of the new rule" },
  ];
  const add = (/** @type {string} */ filter, /** @type {string} */ spec) =>
    filter.trim() ? ctx.edit({ op: "add_rule", pattern: filter, spec }) : find(ctx.root, "rule-new-filter")?.focus();
  return ui`<${Form} key=${count} class="sv-rulenew" fields=${fields} between=${ui`<span class="sv-soft">→</span>`}
        take=${add} id="rule-add" words="add rule" />`;
}

/** What makes a rule of an array: a pattern, and a button that adds it with the array's spec. @param {{ name: string }} props */
export function RuleMaker({ name }) {
  const ctx = useTraits("constraints");
  const { patterns: own = [] } = ctx.get("constraints");
  const patterns = own.at(-1) === name ? own : [name];
  const [open, show] = useState(false);
  const [pattern, type] = useState("");
  const begin = () => {
    type(patterns[0]);
    show(true);
  };
  const title = "one rule for all arrays like this one, with the spec that it has now";
  if (!open) {
    return ui`<div class="sv-rulemaker"><button class="sv-link" data-testid="make-rule-open" title=${title}
          onclick=${begin}>make a rule of it …</button></div>`;
  }
  const make = (/** @type {string} */ typed) => {
    if (!typed.trim()) return;
    show(false);
    ctx.edit({ op: "make_rule", pattern: typed, name });
  };
  const field = {
    "data-testid": "make-pattern",
    value: pattern,
    placeholder: "*kernel",
    grab: true,
    "aria-label": `pattern of a rule with the spec of ${name}`,
    oninput: (/** @type {any} */ { target }) => type(target.value),
  };
  const offered = patterns.map((each) =>
    ui`<button class="sv-link sv-offered" tabindex="-1" onclick=${() => type(each)}>${each}</button>`
  );
  return ui`<div class="sv-rulemaker">
      <${Form} class="sv-makerow" fields=${[field]} take=${make} id="make-rule" words="add rule" button="sv-do" />
      <div>${offered}</div></div>`;
}
