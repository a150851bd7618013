// The rules: specs by pattern, the first that catches wins; what each catches, and what none catches.
import { fill, h } from "./dom.js";
import { notice } from "./head.js";

const HELP = "A rule gives every argument that its pattern catches a spec. The first rule that catches an argument " +
  "wins; an edit by hand goes before all rules. In a pattern * stands for any characters.";

/** @import { Context } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function rules(ctx, el) {
  const list = h("div", { class: "sv-rules", id: "rules" });
  const pattern = h("input", {
    type: "text",
    id: "rule-new-filter",
    placeholder: "*kernel",
    spellcheck: "false",
    "aria-label": "pattern of the new rule",
    onkeydown: (e) => key(e, add),
  });
  const spec = h("input", {
    type: "text",
    id: "rule-new-spec",
    placeholder: "P('data', 'model')",
    spellcheck: "false",
    "aria-label": "spec of the new rule",
    onkeydown: (e) => key(e, add),
  });
  const form = h(
    "div",
    { class: "sv-rulenew" },
    pattern,
    h("span", { class: "sv-soft" }, "→"),
    spec,
    h("button", { class: "sv-btn", id: "rule-add", onclick: () => add() }, "add rule"),
  );
  el.append(list, form);
  let sent = 0;

  function add() {
    if (!pattern.value.trim()) {
      pattern.focus();
      return;
    }
    sent = ctx.get("rules").rows.length + 1;
    ctx.edit({ op: "add_rule", pattern: pattern.value, spec: spec.value });
  }

  function key(e, enter) {
    e.stopPropagation();
    if (e.key === "Enter") enter();
  }

  function field(id, value, label, done) {
    const input = h("input", {
      type: "text",
      id,
      value,
      spellcheck: "false",
      "aria-label": label,
      onkeydown: (e) => {
        key(e, () => {
          if (input.value !== value) done(input.value);
        });
        if (e.key === "Escape") {
          input.value = value;
          input.blur();
        }
      },
      onchange: () => {
        if (input.isConnected && input.value !== value) done(input.value);
      },
    });
    return input;
  }

  function names(row) {
    return row.names.map((
      n,
      i,
    ) => [
      i ? ", " : null,
      h("button", {
        class: `sv-link ${n.by ? "sv-lost" : ""}`,
        title: n.by ? `rule ${n.by} catches it first` : n.edited ? "edited by hand, which goes before the rule" : "",
        onclick: () => ctx.select(n.name),
      }, n.name),
      n.by
        ? h("small", { class: "sv-soft" }, ` (rule ${n.by} wins)`)
        : n.edited
        ? h("small", { class: "sv-soft" }, " (edited by hand)")
        : null,
    ]);
  }

  function rule(row, i, count) {
    const button = (id, text, title, off, edit) =>
      h("button", {
        class: "sv-btn",
        id: `${id}-${i}`,
        title,
        "aria-label": `${title}: rule ${i + 1}`,
        disabled: off,
        onclick: () => ctx.edit(edit),
      }, text);
    return h(
      "div",
      { class: "sv-rule", role: "listitem", id: `rule-${i}` },
      h(
        "div",
        { class: "sv-rulehead" },
        h("b", {}, i + 1),
        row.typed
          ? field(
            `rule-filter-${i}`,
            row.filter,
            `pattern of rule ${i + 1}`,
            (v) => ctx.edit({ op: "set_rule", place: i, pattern: v }),
          )
          : h("code", { class: "sv-rulefilter" }, row.filter),
        h("span", { class: "sv-soft" }, "→"),
        field(
          `rule-spec-${i}`,
          row.spec,
          `spec of rule ${i + 1}`,
          (v) => ctx.edit({ op: "set_rule", place: i, spec: v }),
        ),
        button("rule-up", "↑", "move up", i === 0, { op: "move_rule", place: i, to: i - 1 }),
        button("rule-down", "↓", "move down", i === count - 1, { op: "move_rule", place: i, to: i + 1 }),
        button("rule-remove", "×", "remove", false, { op: "remove_rule", place: i }),
      ),
      h(
        "p",
        { class: row.caught ? "" : "sv-why" },
        row.caught ? `catches ${row.caught}, wins ${row.wins}: ` : "catches none",
        names(row),
        row.more ? `, and ${row.more} more` : null,
      ),
      row.unfit.map((why) => h("p", { class: "sv-why" }, why)),
    );
  }

  function draw() {
    const data = ctx.get("rules");
    const { error } = ctx.get("status");
    if (!data.rows) return;
    if (sent && data.rows.length >= sent) {
      pattern.value = "";
      spec.value = "";
      sent = 0;
    }
    fill(
      list,
      h(
        "p",
        { class: "sv-soft" },
        HELP,
      ),
      error && error.place === "rule" ? notice("sv-error", "rule-error", error.message, error.detail) : null,
      h("div", { role: "list", "aria-label": "rules" }, data.rows.map((row, i) => rule(row, i, data.rows.length))),
      data.rows.length
        ? h(
          "p",
          { id: "rules-left" },
          data.left.length
            ? [
              h("b", {}, `No rule catches ${data.left_text}`),
              ": ",
              data.left.map((
                n,
                i,
              ) => [
                i ? ", " : null,
                h("button", { class: "sv-link", onclick: () => ctx.select(n.name) }, n.name),
                h("small", { class: "sv-soft" }, ` ${n.spec}`),
              ]),
              data.more ? `, and ${data.more} more` : null,
            ]
            : "Every argument is caught by a rule.",
        )
        : h("p", { class: "sv-empty" }, "No rules yet."),
    );
  }
  ctx.on("rules", () => ctx.when("rules", draw));
  let last = "";
  ctx.on("status", () => {
    const now = JSON.stringify(ctx.get("status").error);
    if (now !== last) draw();
    last = now;
  });
  draw();
}
