// @ts-check
// Constraints by hand: the selected value inside the function gets a spec, without an edit of the function; and those
// that the plan has, each with a way to take it away.
import { Field, Refusal, ui, useTraits } from "./parts.js";
import { useRef } from "./vendor/preact.js";

export function Constrain() {
  const ctx = useTraits("constraints", "status");
  const box = useRef(/** @type {any} */ (null));
  const { value, rows } = ctx.get("constraints");
  const { error, seq } = ctx.get("status");
  const wrong = error?.place === "value" && error;
  const apply = () => ctx.edit({ op: "constrain", name: value?.name, spec: box.current.querySelector("input").value });
  return ui`<div class="sv-constrain" data-testid="constrain" ref=${box} hidden=${!value && !rows.length && !wrong}>
      ${
    value &&
    ui`<div class="sv-constrainrow" key=${value.name}>
        <code>${value.label}</code>
        <${Field} class="sv-typed" data-testid="constrain-${value.name}" value=${value.spec} enter=${apply}
            answer=${seq} aria-label="constrain ${value.label} to this PartitionSpec" />
        <button class="sv-btn" data-testid="constrain-apply" onclick=${apply}
            title="a with_sharding_constraint at this value, without an edit of the function">constrain</button></div>`
  }
      ${
    rows.map(({ name, line, occurrence, text }, n) => {
      const remove = () => ctx.edit({ op: "constrain", name, spec: null, line: line || null, occurrence });
      return ui`<div class="sv-constrainrow">
          <span class="sv-soft">${"constrained: "}</span><code>${text}</code>
          <button class="sv-btn" data-testid="unconstrain-${n}" aria-label="take away: ${text}"
              title="take this constraint away" onclick=${remove}>×</button></div>`;
    })
  }${wrong && ui`<${Refusal} error=${wrong} id="value-error" />`}</div>`;
}
