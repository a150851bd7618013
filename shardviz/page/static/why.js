// @ts-check
// Why a value is sharded as it is, or a collective is there: in the drawer, with a scrubber that goes along the
// chain from the cause to the value and lights up the lines.
import { axisStyle } from "./chips.js";
import { Documented } from "./document.js";
import { find, focused, keyed } from "./dom.js";
import { ui, useContextOf, useTraits } from "./parts.js";
import { Pieces } from "./pieces.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { pieces, plain } from "./words.js";

/** @import { Block, Document, Row } from "./types.d.ts" */

/** What stands in each cell of a chain's row; `view/why.py` has the same order. */
const AT = { step: 0, words: 1, value: 2, spec: 3, rule: 4 };

/** @typedef {{ axis: string, rows: Row[] }} Chain */

/**
 * The chains of an answer, one for each mesh axis.
 * @param {Document | undefined} document
 * @returns {Chain[]}
 */
export function chainsOf(document) {
  /** @type {Chain[]} */
  const found = [];
  /** @param {Block[]} blocks */
  function visit(blocks) {
    for (const block of blocks) {
      if (block.block === "section") visit(block.blocks || []);
      else if (block.block === "table" && block.name === "why-chain" && block.rows?.length) {
        found.push({ axis: stepOf(block.rows[0]).axis, rows: block.rows });
      }
    }
  }
  visit(document?.blocks || []);
  return found;
}

/** The axis and the place of a step. @param {Row} row */
function stepOf({ sel }) {
  const text = sel?.[1] || "";
  const at = text.lastIndexOf(":");
  return { axis: text.slice(0, at), place: Number(text.slice(at + 1)) };
}

/** The line of a step, `model.py:20`; empty where it has none. @param {Row} row */
export function lineOf({ cells }) {
  return pieces(cells[AT.step]).find(({ k }) => k === "line")?.t || "";
}

export function Why() {
  const ctx = useTraits("why", "mesh");
  const { document, name, axis, busy, tried, trouble, line } = ctx.get("why");
  const chains = chainsOf(document);
  const of = JSON.stringify([name, axis, Boolean(document)]);
  const [gone, go] = useState({ of: "", which: 0, step: 0 }); // where a person has gone along which chain, of which answer
  const { which, step } = gone.of === of ? gone : { which: 0, step: Math.max(0, (chains[0]?.rows.length ?? 1) - 1) };
  const rows = chains[which]?.rows || [];
  const row = rows[Math.min(step, rows.length - 1)];
  const box = useRef(/** @type {any} */ (null));
  const asker = useRef(""); // the test id of what the answer was asked from, to which the focus goes back
  const enters = useRef(false); // whether the focus is to go into the answer when it is there
  const to = (/** @type {number} */ chain, /** @type {number} */ at) =>
    go({ of, which: chain, step: Math.max(0, Math.min(at, chains[chain].rows.length - 1)) });

  ctx.askWhy = (about, along = "") => {
    const active = focused(box.current);
    if (active && !box.current.contains(active)) asker.current = active.getAttribute("data-testid") || "";
    enters.current = true;
    ctx.openDrawer();
    ctx.edit({ op: "ask_why", name: about, axis: along });
  };
  ctx.goStep = (text) => {
    const { axis: along, place } = stepOf(/** @type {Row} */ ({ cells: [], sel: ["step", text] }));
    const chain = chains.findIndex((each) => each.axis === along);
    if (chain >= 0) to(chain, place);
  };

  useLayoutEffect(() => {
    const near = [row, ...rows.slice(0, step).reverse(), ...rows.slice(step + 1)].filter(Boolean).map(lineOf).find(
      Boolean,
    );
    ctx.put(
      "lit",
      row ? { lines: rows.map(lineOf).filter(Boolean), now: near || "" } : { lines: line ? [line] : [], now: "" },
    );
    for (const each of box.current.querySelectorAll("tr.sv-now")) each.classList.remove("sv-now");
    if (row?.sel) find(box.current, `step-${row.sel[1]}`)?.classList.add("sv-now");
  }, [of, which, step, document]);
  useLayoutEffect(() => {
    if (!document || !enters.current) return;
    enters.current = false;
    find(box.current, row ? "why-step" : "why-close")?.focus({ preventScroll: true });
  });

  /** Takes the answer away; the focus goes back to where it was asked. */
  function end() {
    const inside = box.current.contains(focused(box.current));
    ctx.edit({ op: "close_why" });
    if (inside) find(ctx.root, asker.current)?.focus({ preventScroll: true });
  }

  const scrub = row && ui`<${Scrubber} chains=${chains} which=${which} step=${step} to=${to} />`;
  const rest = document && { ...document, title: undefined };
  const waiting = `Taking specs away one by one, to see which of them cause it …${tried ? ` ${tried} tried` : ""}`;
  return ui`<div class="sv-whybox" data-testid="why" role="region" aria-label="why" tabindex="-1" hidden=${!name}
        ref=${box} onkeydown=${(e) => keyed(e, { Escape: end })}>
      <div class="sv-whyhead">
        <button class="sv-link sv-whyclose" data-testid="why-close" title="close the answer (Escape)"
        onclick=${end}>‹ back</button>
        <div class="sv-whytitle">
          ${document?.title ? ui`<${Pieces} of=${document.title} />` : ["why ", ui`<code>${name}</code>`]}</div></div>
      <div class="sv-scrub" hidden=${!row}>${scrub}</div>
      <div class="sv-whyrest">
        <div class="sv-whytold">
          ${!document && busy && ui`<p class="sv-soft" role="status">${waiting}</p>`}
          ${trouble && ui`<p class="sv-warn" role="alert">${trouble}</p>`}</div>
        <${Documented} class="sv-whybody" of=${rest} hidden=${!document} /></div></div>`;
}

/**
 * What goes along a chain, and the step in words: what hands the axis on, from what to what.
 * @param {{ chains: Chain[], which: number, step: number, to: (chain: number, step: number) => void }} props
 */
function Scrubber({ chains, which, step, to }) {
  const ctx = useContextOf();
  const { rows } = chains[which];
  const row = rows[step];
  const before = rows[step - 1];
  /** @param {string} id @param {string} label @param {string} sign @param {number} by */
  const stepper = (id, label, sign, by) =>
    ui`<button class="sv-btn" data-testid=${id} aria-label=${label} disabled=${!rows[step + by]} onclick=${() =>
      to(which, step + by)}>${sign}</button>`;
  const value = (/** @type {Row} */ each) =>
    ui`<${Pieces} of=${each.cells[AT.value]} />${" "}<${Pieces} of=${each.cells[AT.spec]} />`;
  const keys = (/** @type {KeyboardEvent} */ e) => e.key !== "Escape" && e.key !== "Tab" && e.stopPropagation();
  const axes = chains.map(({ axis }, n) =>
    ui`<button class="sv-chip" style=${axisStyle(ctx, axis)} aria-pressed=${n === which} data-testid="why-axis-${axis}"
          onclick=${() => to(n, 0)}>${axis}</button>`
  );
  const words = before && ui`<${Pieces} of=${row.cells[AT.words]} />`;
  return ui`<div class="sv-scrubbar">
      <span class="sv-whyaxes" role="group" aria-label="the chain of which axis">${chains.length > 1 && axes}</span>
      ${stepper("why-back", "a step back", "◂", -1)}
      <input type="range" data-testid="why-step" min="0" max=${rows.length - 1} step="1" value=${step}
          aria-label="step of the chain, from the cause to the value" onkeydown=${keys}
          aria-valuetext="${step + 1} of ${rows.length}: ${row.cells.slice(0, 4).map(plain).join(" ")}" oninput=${(
    { target },
  ) => to(which, Number(target.value))} />${stepper("why-on", "a step on", "▸", 1)}
      <span class="sv-soft sv-whycount">${`${step + 1} / ${rows.length}`}</span></div>
    <div class="sv-whynow" data-testid="why-now" role="status">
      <span class="sv-whyends">${before ? [value(before), ui`<b>${" → "}</b>`] : "begins at "}${value(row)}</span>
      <span><${Pieces} of=${row.cells[AT.step]} />${" "}${words}</span>
      <span class="sv-soft"><${Pieces} of=${row.cells[AT.rule]} /></span></div>`;
}
