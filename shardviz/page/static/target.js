// @ts-check
// The machine that the plan is for: a button in the mesh's row, its menu, and what there is to say of the choice.
import { find } from "./dom.js";
import { Field } from "./fields.js";
import { Over } from "./over.js";
import { ui, useContextOf, useTraits } from "./parts.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";

/** @import { Edit, MachineGroup } from "./types.d.ts" */

const PLACES = ["target", "options"]; // of what is refused of a machine

export function TargetButton() {
  const ctx = useTraits("targets");
  const { kind, label, words, trouble } = ctx.get("targets");
  const none = kind === "cpu";
  const title = none
    ? "no machine is chosen, so there are no times; devices are simulated"
    : `${words}. Choose the machine`;
  return ui`<button class="sv-target ${none ? "sv-missed" : ""} ${trouble ? "sv-wrong" : ""}" data-testid="target"
        title=${title} aria-haspopup="dialog" aria-expanded="false" onclick=${() => ctx.chooseTarget()}>
      ${none ? "choose a machine ▾" : `${label} ▾`}</button>`;
}

/** What there is to say of the machine. */
export function TargetNotes() {
  const ctx = useTraits("targets", "status", "choosing");
  const { trouble, remark, lack } = ctx.get("targets");
  const install = lack?.install && [" ", ui`<code>${lack.install}</code>`];
  return ui`<div class="sv-targetnotes" data-testid="target-notes" role="status">
      ${trouble && ui`<p class="sv-warn" data-testid="target-trouble">${trouble}</p>`}
      ${remark && ui`<p class="sv-soft" data-testid="target-remark">${remark}</p>`}
      ${lack && ui`<p class="sv-soft" data-testid="target-lack" title=${lack.why}>${lack.text}${install}</p>`}</div>`;
}

/** The menu, which opens at the button. */
export function TargetMenu() {
  const ctx = useTraits("targets", "status", "choosing", "asked");
  const asked = useRef(""); // the edit that the menu stays open for until it is answered
  const show = (/** @type {boolean} */ on) => {
    asked.current = "";
    ctx.put("choosing", on);
  };
  const close = () => show(false);
  ctx.chooseTarget = () => show(!ctx.choosing);
  useLayoutEffect(() => { // it is answered
    if (!asked.current || ctx.lastAsked(asked.current)) return;
    asked.current = "";
    if (!PLACES.includes(ctx.get("status").error?.place ?? "")) close();
  });
  const ask = (/** @type {Edit} */ edit) => {
    ctx.edit(edit);
    asked.current = edit.op;
  };
  return ctx.choosing &&
    ui`<${Over} class="sv-menu sv-machines" data-testid="target-menu" aria-label="the machine" at="target" close=${close}
          first=${["[aria-pressed=true]", "input"]}><${Contents} ask=${ask} close=${close} /><//>`;
}

/** @param {{ ask: (edit: Edit) => void, close: () => void }} props */
function Contents({ ask, close }) {
  const ctx = useContextOf();
  const { devices, target, examples, groups, options, sets } = ctx.get("targets");
  const choose = (/** @type {string} */ text) => ask({ op: "set_target", target: text.trim() });
  const setOptions = (/** @type {string} */ text) => ask({ op: "set_options", options: text.trim() });
  const such = examples.map((text, i) => [i ? ", " : "", ui`<code>${text}</code>`]);
  const typed = () => /** @type {HTMLInputElement | null} */ (find(ctx.root, "options-text"))?.value ?? "";
  const more = { class: "sv-typed", escape: close };
  const cpu = { target: "cpu", label: "cpu", title: "simulated devices", on: target === "cpu" };
  const flags = sets.map(({ name, title }) =>
    ui`<button class="sv-shape" data-testid="options-${name}" title=${title} onclick=${() =>
      setOptions(`${typed()} ${name}`)}>${name}</button>`
  );
  return ui`<div class="sv-menuhead">the machine of ${devices}</div>
    <div data-row="">
      <${Field} ...${more} data-testid="target-text" value=${target} aria-label="a machine" enter=${choose} /></div>
    <div class="sv-why">any machine, such as ${such}; Enter takes it</div>
    <div class="sv-machine" data-row="">
      <${Choice} ...${cpu} choose=${choose} />
      <span class="sv-soft sv-wide">simulated devices, with no links and no speed</span></div>
    ${groups.map((group) => ui`<${Group} group=${group} choose=${choose} />`)}
    <div class="sv-sec">compiler options<span class="sv-hint">flags of XLA; Enter takes them</span></div>
    <div data-row="">
      <${Field} ...${more} data-testid="options-text" value=${options} placeholder="xla_...=true"
          aria-label="compiler options" enter=${setOptions} /></div>
    <div class="sv-machine" data-row=""><span class="sv-shapes">${flags}</span></div>`;
}

/** @param {{ target: string, label: string, title: string, on: boolean, choose: (text: string) => void }} props */
function Choice({ target, label, title, on, choose }) {
  return ui`<button class="sv-shape" data-testid="target-${target}" title=${title} aria-pressed=${on}
        disabled=${!target} onclick=${() => choose(target)}>
      ${label}</button>`;
}

/** @param {{ group: MachineGroup, choose: (text: string) => void }} props */
function Group({ group: { kind, ready, missing, install, chips }, choose }) {
  const how = install ? ui`<code>${install}</code>` : missing;
  const said = ready
    ? ui`<span class="sv-hint sv-good">compiled for here</span>`
    : ui`<span class="sv-hint" title=${missing}>costs only; to compile for it: ${how}</span>`;
  const rows = chips.map(({ name, memory, options, none }) =>
    ui`<div class="sv-machine" data-row="">
        <b>${name}</b><span class="sv-soft sv-num" title="memory of one device">${memory}</span>
        <span class="sv-shapes">
          ${options.map((each) => ui`<${Choice} ...${each} choose=${choose} />`)}
          ${none && ui`<span class="sv-soft">${none}</span>`}</span></div>`
  );
  return ui`<div class="sv-sec" data-testid="target-kind-${kind}">${kind}${said}</div>${rows}`;
}
