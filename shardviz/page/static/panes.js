// @ts-check
// The tabs that are Documents, each with what a person can do beside it: filter, take a filter away.
import { Documented } from "./document.js";
import { Check, SearchField, Select } from "./fields.js";
import { CopyButton, LineFilter, ui, useLast, useTraits, Waiting } from "./parts.js";

/** @import { Editors, Pane as Content } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

/**
 * A tab whose trait is a Document; while the kernel has not said one yet, the tab says so.
 * @param {{ of: "values" | "collectives" | "memory" | "costs" | "most" | "problems" | "rules" | "difference",
 *   above?: () => View, editors?: Editors }} props what stands above, and what of it can be changed
 */
export function Pane({ of, above, editors }) {
  const ctx = useTraits(of, "mesh", "selected", "status", "gone");
  const content = useLast(/** @type {Content} */ (ctx.get(of)));
  if (!content.document) return ui`<${Waiting} />`;
  return ui`<div>${above?.()}</div><${Documented} of=${content.document} editors=${editors} flashes />`;
}

export function Collectives() {
  return ui`<${Pane} of="collectives" above=${() => ui`<${LineFilter} id="collectives-line" words="only " />`} />`;
}

/** @type {[string, string][]} */
const ORDERS = [["program", "in program order"], ["bytes", "largest shard first"]];

/** Every value, with a filter that the kernel answers. */
export function Values() {
  const ctx = useTraits("values", "query");
  const { text = "", changed, sort = "program" } = ctx.get("query");
  const filter = (/** @type {string} */ typed) => ctx.query({ text: typed });
  return ui`<div class="sv-tools">
      <${SearchField} data-testid="values-filter" value=${text} aria-label="filter the values"
          placeholder="filter: a name, an operation, model.py:20, an axis …" say=${filter} />
      <${Check} id="values-changed" on=${Boolean(changed)} set=${(on) => ctx.query({ changed: on })}>
        changed by the last edit<//>
      <${Select} id="values-sort" aria-label="order" value=${sort} set=${(to) => ctx.query({ sort: to })}
          options=${ORDERS} />
      <span><${LineFilter} id="values-line" /></span>
      <span class="sv-soft" data-testid="values-found" role="status">${useLast(ctx.get("values")).said}</span></div>
    <${Pane} of="values" />`;
}

/** The memory of one device. */
export function Memory() {
  return ui`<${Pane} of="memory" />`;
}

/** The shard map of the selected value. @param {{ small?: boolean }} props small: beside the source */
export function Shards({ small }) {
  const ctx = useTraits("shards", "mesh", "device");
  const { document, large } = ctx.get("shards");
  return ui`<${Documented} of=${large && !small ? large : document} data-testid=${small ? "map-small" : null} />`;
}

/** The plan's code: what runs it with JAX alone, and the `sv.Plan`. */
export function Code() {
  const ctx = useTraits("plan_code", "codes", "code_run");
  const { jax, why } = ctx.get("codes");
  const { document: run, busy } = ctx.get("code_run");
  const parts = [
    ["jax-code", jax, "This runs the plan with JAX alone; explorer.program.code(explorer.plan) gives it too."],
    ["code", ctx.get("plan_code"), "This rebuilds the plan as an sv.Plan; explorer.code() gives it too."],
  ];
  const sections = parts.map(([id, text, said]) =>
    ui`<section hidden=${!text}>
        <div class="sv-tools">
          <span class="sv-soft">${said}</span><${CopyButton} of=${id} id="copy-${id}" title="copy" /></div>
        <pre class="sv-code" data-testid=${id} tabindex="0">${text || ""}</pre></section>`
  );
  const title = busy
    ? "end the process that runs the code"
    : "run this code with small arrays, in a process of its own, and compare it with one device; your function runs only then";
  return ui`<div class="sv-tools" hidden=${!jax}><button class="sv-btn" data-testid="run-code" title=${title}
        onclick=${() => ctx.edit({ op: busy ? "stop_code" : "run_code" })}>
        ${busy ? "■ stop" : "Run on 8 simulated devices"}</button></div>
    <div data-testid="code-run" role="status" hidden=${!run}>${run && ui`<${Documented} of=${run} />`}</div>
    <p class="sv-empty" data-testid="no-jax-code" hidden=${!why}>There is no code for JAX alone: ${why}</p>
    ${sections}`;
}
