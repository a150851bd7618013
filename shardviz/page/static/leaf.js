// @ts-check
// A row of the tree: a branch; or an array, whose dimensions are slots, each with its size above it, into which axes go.
import { OPS, WORDS } from "./arrays.js";
import { shapeText, shardingText } from "./chips.js";
import { twinsText } from "./choices.js";
import { Documented } from "./document.js";
import { find, keyed } from "./dom.js";
import { AxisSlot } from "./drag.js";
import { Field, Select } from "./fields.js";
import { ui, useContextOf } from "./parts.js";
import { RuleMaker } from "./rules.js";

/** @import { Dims, Edit, Item, Kind, What } from "./types.d.ts" */

/** @type {[string, string][]} */
const MEMORIES = ["device", "pinned_host", "unpinned_host"].map((each) => [each, each]);

/** Pixels from the left: small steps from the third level on, so that a deep tree's names can still be read. */
const indent = (/** @type {number} */ depth) => 8 + Math.min(depth, 2) * 14 + Math.max(0, depth - 2) * 5;

/** The state of a row: at which slot (below 0: its name) Tab enters the tree, if at this row; and what can be done to it.
 * @typedef {{ what: What, item: Item, enters: number | null, enter: (dimension: number) => void,
 *   keys: (e: KeyboardEvent, item: Item, dimension: number) => void, change: (item: Item, edit: Edit) => void }} Own */

/** The array that a row shows.
 * @typedef {{ name: string, place: number, shape: number[], dtype: string, donated: boolean, dims: Dims | null, kind: Kind }} Shown */

/** @param {Own & { fold: () => void }} props */
export function Branch({ what, item, enters, enter, keys, fold }) {
  const { key, label, depth, closed, kind, node } = item;
  const { sums } = useContextOf().arrays(what).shardings;
  const sum = node.branch === undefined ? "" : sums[node.branch];
  const said = kind === "stack"
    ? `each ${sum}`
    : kind === "branch" && closed
    ? `${node.count} ${node.count === 1 ? "array" : "arrays"} · ${sum}`
    : "";
  const style = { "padding-left": `${indent(depth)}px` };
  return ui`<div class="sv-row sv-branch ${kind === "branch" ? "" : "sv-layers"}" role="treeitem"
        aria-expanded=${!closed} aria-level=${depth + 1}>
      <button class="sv-name" data-testid="fold-${key}" tabindex=${enters === null ? "-1" : "0"} title=${label}
          style=${style} onclick=${() => (enter(-1), fold())} onkeydown=${(e) => keys(e, item, -1)}>
        <span class="sv-tri" aria-hidden="true">${closed ? "▸" : "▾"}</span>${label}</button><span class="sv-grow" />
      <span class="sv-mem">${said}</span></div>`;
}

/** @param {Own & { flash: string }} props */
export function Leaf({ flash, ...own }) {
  const { what, item, enters, enter, keys } = own;
  const ctx = useContextOf();
  const arrays = ctx.arrays(what);
  const place = item.shown ?? 0;
  const { path: name, shape = [], dtype = "", donated = false } = arrays.leaves[place];
  const kind = arrays.kind(place);
  const row = { name, place, shape, dtype, donated, dims: arrays.dims(place), kind };
  const { error } = ctx.get("status");
  const selected = ctx.get("selected") === name;
  const mine = error?.argument === name ? error : null;
  const style = {
    "padding-left": `${indent(item.depth) + (item.depth ? 0 : 2)}px`,
    "flex-basis": item.depth > 2 ? `${100 + (item.depth - 2) * 9}px` : "",
  };
  const select = (/** @type {any} */ { target }) => target.closest("button,input,select") || ctx.select(name);
  const enterable = shape.length && enters !== null ? Math.min(enters, shape.length - 1) : -1;
  const elsewhere = kind.unused ? "unused" : kind.memory === "device" ? "" : kind.memory;
  const slots = shape.map((_, d) =>
    ui`<${Slot} own=${own} row=${row} dimension=${d} enters=${enterable === d} wrong=${mine?.dimension === d} />`
  );
  /** Who shards it otherwise: other layers, and other programs that share it. @type {[text: string, title: string][]} */
  const others = [ctx.get("sharing").wishes?.[name] ?? ["", ""]];
  if (item.odd) others.push([`${item.odd} differ`, "sharded otherwise in these layers"]);
  return ui`<div class="sv-row sv-leaf ${selected ? "sv-sel" : ""} ${kind.changed ? flash : ""}" role="treeitem"
        data-thing="value ${name}" aria-level=${item.depth + 1} aria-selected=${selected}
        data-testid="${WORDS[what].place}-${item.key}">
      <div class="sv-leafline" onclick=${select}>
        <button class="sv-name" data-testid="name-${item.key}" tabindex=${enters !== null && enterable < 0 ? "0" : "-1"}
            title="${name} ${dtype}${shapeText(shape)}" style=${style} onclick=${() => (enter(-1), ctx.select(name))}
            onkeydown=${(e) => keys(e, item, -1)}>
          ${item.label}${mine && ui`<span class="sv-warn" title=${mine.message}>${" ▲"}</span>`}
          ${item.above && ui`<small class="sv-above" title=${name}>${item.above}</small>`}</button>
        <span class="sv-dims">${slots.length ? slots : ui`<span class="sv-soft">scalar</span>`}</span>
        <span class="sv-mem ${arrays.asked.has(place) ? "sv-old" : ""}">
          ${kind.bytes}${item.count > 1 && ui`<small>× ${item.count}</small>`}
          ${[elsewhere, kind.chosen ? "chosen" : ""].map((said) => said && ui`<small>${said}</small>`)}
          ${
    others.map(([text, title]) => text && ui`<small class="sv-warn" title=${title}>${text}</small>`)
  }</span></div>
      ${selected && ui`<${Detail} own=${own} row=${row} />`}</div>`;
}

/** One dimension: its size, and the slot with the axes that shard it.
 * @param {{ own: Own, row: Shown, dimension: number, enters: boolean, wrong: boolean }} props */
function Slot({ own: { what, item, enter, keys, change }, row, dimension, enters, wrong }) {
  const ctx = useContextOf();
  const { kind, dims, shape, place, name } = row;
  const axes = dims?.[dimension] ?? [];
  const id = `${WORDS[what].slot}-${item.key}-${dimension}`;
  const of = ctx.arrays(what).groups?.dimensions?.[place]?.[dimension] ?? "";
  const take = (/** @type {string} */ axis) => change(item, { ...OPS.move[what], axis, dimension });
  const open = () => {
    enter(dimension);
    ctx.select(name, false); // it is edited, not looked at
    ctx.openMenu({ what, name, dimension, id, layers: item.count > 1 });
  };
  const which = `${item.key}, dimension ${dimension}${of ? ` (${of})` : ""}`;
  const said = `${which} of size ${shape[dimension]}: ${shardingText(axes)}`;
  return ui`<span class="sv-dim" data-thing=${of ? `dimension ${of}` : null}>
      <small>${shape[dimension]}</small>
      <${AxisSlot} axes=${axes} choices=${kind.choices[dimension]} take=${take} empty="·" data-testid=${id}
          class="${wrong ? "sv-wrong" : ""} ${kind.chosen ? "sv-chosen" : ""}" tabindex=${enters ? "0" : "-1"}
          title=${of || null} aria-invalid=${wrong ? "true" : null} disabled=${!dims} aria-label=${said} onclick=${open}
          onkeydown=${(e) => keys(e, item, dimension)} /></span>`;
}

/** The selected array: its spec to type, its shapes, its twins.
 * @param {{ own: Own, row: Shown }} props */
function Detail({ own: { what, item, change }, row: { name, place, shape, dtype, donated, kind } }) {
  const ctx = useContextOf();
  const arrays = ctx.arrays(what);
  const sharing = ctx.get("sharing");
  const typed = (/** @type {string} */ text) =>
    change(item, { ...OPS.spec[what], spec: what === "outputs" && !text.trim() ? null : text });
  const store = (/** @type {string} */ to) => ctx.edit({ ...OPS.memory[what], name, kind: to });
  const twins = what === "inputs" ? arrays.twins(place).map((each) => arrays.leaves[each].path) : [];
  const others = ui`<div class="sv-soft sv-twinlist" data-testid="twins-${name}" title=${twins.slice(0, 40).join("\n")}>
      ${ctx.twins ? "with " : "without "}${twinsText(twins)}</div>`;
  const down = () => find(ctx.root, `memory-${name}`)?.focus();
  return ui`<div class="sv-detail" onkeydown=${(e) => e.target.matches(".sv-typed") && keyed(e, { ArrowDown: down })}>
      <${Field} class="sv-typed" data-testid="spec-${name}" value=${kind.chosen ? "" : kind.text} enter=${typed}
          answer=${ctx.get("status").seq} placeholder=${kind.chosen ? `${kind.text}, chosen by the compiler` : ""}
          aria-label="PartitionSpec of ${name}; arrow down goes to its memory" />
      <span class="sv-soft">
        ${`${dtype} `}<code>${shapeText(shape)}</code>
        ${kind.shard && [" → shard ", ui`<code>${shapeText(kind.shard)}</code>`]}</span>
      <span class="sv-soft">${donated ? " · donated" : ""}${" · in "}</span>
      <${Select} class="sv-memory" tabindex="-1" id="memory-${name}" aria-label="memory of ${name}" value=${kind.memory}
          set=${store} options=${MEMORIES} />${twins.length > 0 && others}
      ${sharing.of === name && ui`<${Documented} of=${sharing.document} data-testid="wishes-${name}" />`}
      ${what === "inputs" && ui`<${RuleMaker} key=${name} name=${name} />`}</div>`;
}
