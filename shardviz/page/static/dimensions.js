// @ts-check
// The logical dimensions: a row each, into which axes go, and every array that has it is sharded along them. What disagrees says so.
import { shardingText } from "./chips.js";
import { find, keyed } from "./dom.js";
import { AxisSlot } from "./drag.js";
import { ui, useContextOf, useTraits } from "./parts.js";
import { Pieces } from "./pieces.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { DimensionRow } from "./types.d.ts" */

const FIRST = 6; // rows that are shown at first, besides those of which there is something to see

export function Dimensions() {
  const ctx = useTraits("dimensions", "mesh", "asked", "status", "air");
  const { rows, state, message } = ctx.get("dimensions");
  const [all, unfold] = useState(false);
  const [entered, enter] = useState(0); // the row at which Tab enters
  const list = useRef(/** @type {any} */ (null));
  const goes = useRef(false); // whether the focus goes to that row
  const at = Math.min(entered, Math.max(0, rows.length - 1));
  /** Whether a row can wait until all are asked for. @param {DimensionRow} row @param {number} place */
  const waits = (row, place) => place >= FIRST && place !== at && !row.axes.length && !row.otherwise.length;
  const rest = rows.filter(waits).length;
  useLayoutEffect(() => {
    if (!state) ctx.set("wants", "dimensions");
  }, []);
  useLayoutEffect(() => {
    if (goes.current) find(list.current, `dim-${rows[at]?.name}`)?.focus();
    goes.current = false;
  });
  /** @param {number} place */
  function go(place) {
    goes.current = true;
    enter(place);
    if (place >= FIRST) unfold(true);
  }

  /** @param {KeyboardEvent} e @param {number} place */
  function keys(e, place) {
    const { name, axes } = rows[place];
    const empty = () => axes.length && ctx.edit({ op: "shard_dimension", name, axes: [] });
    keyed(e, {
      ArrowDown: () => rows[place + 1] && go(place + 1),
      ArrowUp: () => place && go(place - 1),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      Delete: empty,
      Backspace: empty,
    });
  }

  const deck = { keys, enter };

  const lines = rows.map((row, place) =>
    ui`<${Line} key=${row.name} row=${row} place=${place} tabs=${place === at}
          rest=${waits(row, place)} deck=${deck} />`
  );
  return ui`<div class="sv-dimbox" hidden=${state === "found" && !rows.length}>
      <div class="sv-sec">Dimensions<span class="sv-hint" hidden=${!rows
    .length}>an axis shards every array</span></div>
      <div class="sv-dimensions ${all ? "sv-all" : ""}" role="grid" aria-label="Dimensions" ref=${list}>
        ${
    message &&
    ui`<div class="sv-empty" data-testid="dimensions-state" role="status">${message}</div>`
  }${lines}</div>
      <button class="sv-link sv-dimmore" data-testid="dimensions-more" hidden=${!rest} aria-expanded=${all}
          onclick=${() => unfold(!all)}>
        ${all ? "show less" : `${rest} more`}</button></div>`;
}

/** @typedef {{ keys: (e: KeyboardEvent, place: number) => void, enter: (place: number) => void }} Deck */

/** @param {{ row: DimensionRow, place: number, tabs: boolean, rest: boolean, deck: Deck }} props */
function Line({ row, place, tabs, rest, deck }) {
  const ctx = useContextOf();
  const { name } = row;
  const asked = ctx.lastAsked("shard_dimension", name)?.axes;
  const axes = asked ?? row.axes;
  const take = (/** @type {string} */ axis) => ctx.edit({ op: "shard_dimension", name, axes: [...axes, axis] });
  const open = () => {
    deck.enter(place);
    ctx.openMenu({ what: "dimensions", name, id: `dim-${name}` });
  };
  const { error } = ctx.get("status");
  const look = `sv-but ${row.grave ? "" : "sv-little"}`;
  const but = !asked && row.otherwise.length > 0 &&
    ui`<span class=${look} title=${row.otherwise.join("\n")}><${Pieces} of=${row.but} /></span>`;
  const wrong = error?.place === "dimension" && error.subject === name;
  return ui`<div class="sv-dimrow ${row.otherwise.length && row.grave ? "sv-odd" : ""} ${rest ? "sv-rest" : ""}"
        role="row" data-thing="dimension ${name}" data-testid="dimension-${name}">
      <span class="sv-dimname" role="rowheader" title=${[row.arrays, ...row.several].join("\n")}>
        <span class="sv-dimtitle">${name}</span>
        <small>${row.said}</small></span>
      <span class="sv-dimslot" role="gridcell">
        <${AxisSlot} axes=${axes} choices=${row.choices} take=${take} empty="drop an axis" data-testid="dim-${name}"
            class="${wrong ? "sv-wrong" : ""}" aria-invalid=${wrong ? "true" : null} tabindex=${
    tabs ? "0" : "-1"
  } onclick=${open} onkeydown=${(e) => deck.keys(e, place)}
            aria-label="dimension ${name} of size ${row.size}, ${row.arrays}: ${shardingText(axes)}" />
        ${but}</span>
      <span class="sv-mem" role="gridcell">${row.size}</span></div>`;
}
