// @ts-check
// Constraints by hand: the selected value inside the function gets a spec, without an edit of the function; and those
// that the plan has, each with a button to remove it.
import { Form } from "./fields.js";
import { ui, useTraits } from "./parts.js";

const TITLE = "a with_sharding_constraint at this value, without an edit of the function";

export function Constrain() {
  const ctx = useTraits("constraints", "status");
  const { value, rows } = ctx.get("constraints");
  const { seq } = ctx.get("status");
  const field = value && {
    class: "sv-typed",
    "data-testid": `constrain-${value.name}`,
    value: value.spec,
    answer: seq,
    "aria-label": `constrain ${value.label} to this PartitionSpec`,
  };
  const apply = (/** @type {string} */ spec) => ctx.edit({ op: "constrain", name: value?.name, spec });
  const constrained = rows.map(({ name, line, text }, n) => {
    const remove = () => ctx.edit({ op: "constrain", name, spec: null, line: line || null });
    return ui`<div class="sv-constrainrow">
        <span class="sv-soft">${"constrained: "}</span><code>${text}</code>
        <button class="sv-btn" data-testid="unconstrain-${n}" aria-label="take away: ${text}"
            title="take this constraint away" onclick=${remove}>×</button></div>`;
  });
  const form = value && ui`<div class="sv-constrainrow" key=${value.name}>
      <code>${value.label}</code>
      <${Form} class="sv-constrainrow sv-grow" take=${apply} id="constrain-apply" words="constrain" title=${TITLE}
          fields=${[field]} /></div>`;
  return ui`<div class="sv-constrain" data-testid="constrain" hidden=${!value && !rows.length}>
      ${form}${constrained}</div>`;
}
