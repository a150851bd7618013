// @ts-check
// The machine that the plan is for: a button in the mesh's row, its menu, and what there is to say of the choice.
import { find, focused } from "./dom.js";
import { Field, Refusal, ui, useContextOf, useTraits } from "./parts.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";

/** @import { Context, MachineGroup } from "./types.d.ts" */

/**
 * Where an arrow key leads in rows of buttons of different lengths; null where it leads nowhere.
 * @template T
 * @param {T[][]} rows none of them empty
 * @param {T | null} from
 * @param {string} key
 * @returns {T | null}
 */
export function neighbour(rows, from, key) {
  const at = rows.findIndex((row) => from !== null && row.includes(from));
  const across = at < 0 || from === null ? 0 : rows[at].indexOf(from);
  if (key === "ArrowDown" || key === "ArrowUp") {
    const row = rows[key === "ArrowDown" ? at + 1 : at - 1];
    return row ? row[Math.min(across, row.length - 1)] : null;
  }
  if (key === "ArrowRight" || key === "ArrowLeft") {
    return rows[at]?.[key === "ArrowRight" ? across + 1 : across - 1] ?? null;
  }
  return null;
}

/** Why the last machine, or the last options, were refused. @param {Context} ctx */
function refused(ctx) {
  const { error } = ctx.get("status");
  return error && ["target", "options"].includes(error.place) && ui`<${Refusal} error=${error} id="target-error" />`;
}

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
  return ui`<div class="sv-targetnotes" data-testid="target-notes" role="status">
      ${!ctx.choosing && refused(ctx)}${trouble && ui`<p class="sv-warn" data-testid="target-trouble">${trouble}</p>`}
      ${remark && ui`<p class="sv-soft" data-testid="target-remark">${remark}</p>`}${
    lack &&
    ui`<p class="sv-soft" data-testid="target-lack" title=${lack.why}>
        ${lack.text}${lack.install && [" ", ui`<code>${lack.install}</code>`]}</p>`
  }</div>`;
}

/** The menu, which opens at the button. */
export function TargetMenu() {
  const ctx = useTraits("targets", "status", "choosing");
  const open = ctx.choosing;
  const show = (/** @type {boolean} */ on) => ctx.put("choosing", on);
  const box = useRef(/** @type {any} */ (null));
  const asked = useRef(""); // the edit that the menu stays open for until it is answered
  const body = () => box.current.closest(".sv-body");
  const button = () => find(body(), "target");

  /** @param {boolean} refocus whether the focus goes back to the button */
  function close(refocus) {
    asked.current = "";
    show(false);
    if (refocus) button()?.focus({ preventScroll: true });
  }
  ctx.chooseTarget = () => open ? close(true) : show(true);

  useLayoutEffect(() => {
    button()?.setAttribute("aria-expanded", String(open));
    if (!open) return;
    const [a, b] = [button(), body()].map((each) => each.getBoundingClientRect());
    const { style } = box.current;
    style.left = `${Math.max(4, Math.min(a.left - b.left, b.width - box.current.offsetWidth - 4))}px`;
    style.top = `${a.bottom - b.top + 4}px`;
    style.maxHeight = `${Math.max(220, b.height - (a.bottom - b.top) - 12)}px`;
    (box.current.querySelector("[aria-pressed=true]") || find(box.current, "target-text")).focus({
      preventScroll: true,
    });
    const away = (/** @type {any} */ { target }) =>
      box.current?.contains(target) || button()?.contains(target) || close(false);
    body().addEventListener("pointerdown", away);
    return () => body()?.removeEventListener("pointerdown", away);
  }, [open]);
  const waits = asked.current && !ctx.lastAsked(asked.current);
  useLayoutEffect(() => { // it is answered
    if (!waits) return;
    asked.current = "";
    if (!refused(ctx)) close(true);
  });

  /** @param {KeyboardEvent} e */
  function keys(e) {
    e.stopPropagation();
    if (e.key === "Escape") {
      close(true);
      return e.preventDefault();
    }
    const active = /** @type {HTMLElement | null} */ (focused(box.current));
    const sideways = e.key === "ArrowLeft" || e.key === "ArrowRight";
    if (sideways && active instanceof HTMLInputElement) return; // the cursor in the text moves
    const rows = [...box.current.querySelectorAll("[data-row]")]
      .map((row) => /** @type {HTMLElement[]} */ ([...row.querySelectorAll("button:not(:disabled), input")]))
      .filter((row) => row.length);
    const to = neighbour(rows, active, e.key);
    if (!to) return;
    to.focus();
    e.preventDefault();
  }

  /** @param {import("./types.d.ts").Edit} edit */
  function ask(edit) {
    ctx.edit(edit);
    asked.current = edit.op;
  }

  return ui`<div class="sv-menu sv-machines" data-testid="target-menu" role="dialog" aria-label="the machine"
        hidden=${!open} ref=${box} onkeydown=${keys}>
      ${open && ui`<${Contents} ask=${ask} close=${close} />`}</div>`;
}

/** @param {{ ask: (edit: import("./types.d.ts").Edit) => void, close: (refocus: boolean) => void }} props */
function Contents({ ask, close }) {
  const ctx = useContextOf();
  const { devices, target, examples, groups, options, sets } = ctx.get("targets");
  const choose = (/** @type {string} */ text) => ask({ op: "set_target", target: text.trim() });
  const setOptions = (/** @type {string} */ text) => ask({ op: "set_options", options: text.trim() });
  const typed = useRef(/** @type {any} */ (null));
  const more = { class: "sv-typed", escape: () => close(true) };
  const cpu = { target: "cpu", label: "cpu", title: "simulated devices", on: target === "cpu" };
  return ui`<div class="sv-menuhead">the machine of ${devices}</div>
    <div data-row="">
      <${Field} ...${more} data-testid="target-text" value=${target} aria-label="a machine" enter=${choose} /></div>
    <div class="sv-why">any machine, such as ${
    examples.map((
      text,
      i,
    ) => [i ? ", " : "", ui`<code>${text}</code>`])
  }; Enter takes it</div><div>${refused(ctx)}</div>
    <div class="sv-machine" data-row="">
      <${Choice} ...${cpu} choose=${choose} />
      <span class="sv-soft sv-wide">simulated devices, with no links and no speed</span></div>
    ${groups.map((group) => ui`<${Group} group=${group} choose=${choose} />`)}
    <div class="sv-sec">compiler options<span class="sv-hint">flags of XLA; Enter takes them</span></div>
    <div data-row="" ref=${typed}>
      <${Field} ...${more} data-testid="options-text" value=${options} placeholder="xla_...=true"
          aria-label="compiler options" enter=${setOptions} /></div>
    <div class="sv-machine" data-row=""><span class="sv-shapes">${
    sets.map(({ name, title }) =>
      ui`<button class="sv-shape" data-testid="options-${name}" title=${title} onclick=${() =>
        setOptions(`${typed.current.querySelector("input").value} ${name}`)}>${name}</button>`
    )
  }</span></div>`;
}

/** @param {{ target: string, label: string, title: string, on: boolean, choose: (text: string) => void }} props */
function Choice({ target, label, title, on, choose }) {
  return ui`<button class="sv-shape" data-testid="target-${target}" title=${title} aria-pressed=${on}
        disabled=${!target} onclick=${() => choose(target)}>
      ${label}</button>`;
}

/** @param {{ group: MachineGroup, choose: (text: string) => void }} props */
function Group({ group: { kind, ready, missing, install, chips }, choose }) {
  return ui`<div class="sv-sec" data-testid="target-kind-${kind}">${kind}${
    ready
      ? ui`<span class="sv-hint sv-good">compiled for here</span>`
      : ui`<span class="sv-hint" title=${missing}>costs only; to compile for it: ${
        install ? ui`<code>${install}</code>` : missing
      }</span>`
  }</div>
    ${
    chips.map(({ name, memory, options, none }) =>
      ui`<div class="sv-machine" data-row="">
          <b>${name}</b><span class="sv-soft sv-num" title="memory of one device">${memory}</span>
          <span class="sv-shapes">
            ${options.map((each) => ui`<${Choice} ...${each} choose=${choose} />`)}
            ${none && ui`<span class="sv-soft">${none}</span>`}</span></div>`
    )
  }`;
}
