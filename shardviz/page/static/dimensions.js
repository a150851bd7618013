// @ts-check
// The logical dimensions: a row each, into which axes go, and every array that has it is sharded along them. What disagrees says so.
import { Chip, cutText } from "./chips.js";
import { find, focused } from "./dom.js";
import { dragged, dropped, marking } from "./drag.js";
import { isLegal } from "./choices.js";
import { Field, Refusal, ui, useContextOf, useTraits } from "./parts.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { DimensionRow } from "./types.d.ts" */

const NAMED = 2; // arrays that disagree and are named
const FIRST = 6; // rows that are shown at first, besides those of which there is something to see

/**
 * The arrays that are cut otherwise, those that are cut alike together, each name once.
 * @param {DimensionRow["otherwise"]} otherwise
 * @returns {{ name: string, labels: string[], words: string }[]}
 */
export function differing(otherwise) {
  /** @type {Map<string, { name: string, labels: string[], words: string }>} */
  const found = new Map();
  for (const { name, label, words } of otherwise) {
    const group = found.get(words) ?? { name, labels: [], words };
    if (!group.labels.includes(label)) group.labels.push(label);
    found.set(words, group);
  }
  return [...found.values()];
}

export function Dimensions() {
  const ctx = useTraits("dimensions", "mesh", "asked", "status", "air");
  const { rows, state, unasked } = ctx.get("dimensions");
  const [all, unfold] = useState(false);
  const [entered, enter] = useState(0); // the row at which Tab enters
  const [naming, setNaming] = useState(""); // the dimension that is being given another name
  const list = useRef(/** @type {any} */ (null));
  const goes = useRef(false); // whether the focus goes to that row
  const at = Math.min(entered, Math.max(0, rows.length - 1));
  const { error } = ctx.get("status");
  const lost = error?.place === "dimension" && !rows.some(({ name }) => name === error.subject);
  /** Whether a row can wait until all are asked for. @param {DimensionRow} row @param {number} place */
  const waits = (row, place) => place >= FIRST && place !== at && !row.axes.length && !row.otherwise.length;
  const rest = rows.filter(waits).length;
  useLayoutEffect(() => {
    if (!state && unasked) ctx.want("dimensions");
  }, []);
  useLayoutEffect(() => {
    if (goes.current) find(list.current, `dim-${rows[at]?.name}`)?.focus();
    goes.current = false;
  });
  // the row that has the focus may be called otherwise now
  if (list.current?.contains(focused(list.current)) && !rows.some(({ name }) => isIn(list.current, name))) {
    goes.current = !naming;
  }

  /** @param {number} place */
  function go(place) {
    goes.current = true;
    enter(place);
    if (place >= FIRST) unfold(true);
  }

  /** @param {KeyboardEvent} e @param {number} place */
  function keys(e, place) {
    const { name, axes } = rows[place];
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: rows.length - 1 }[e.key];
    if (to !== undefined) rows[to] && go(to);
    else if (e.key === "Delete" || e.key === "Backspace") {
      axes.length && ctx.edit({ op: "cut_dimension", name, axes: [] });
    } else if (e.key === "F2") rename(name);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** @param {string} name @param {string} text @param {boolean} refocus */
  function named(name, text, refocus) {
    setNaming("");
    if (text.trim() && text.trim() !== name) ctx.edit({ op: "rename_dimension", old: name, new: text.trim() });
    goes.current = refocus;
  }
  /** @param {string} name */
  function rename(name) {
    enter(rows.findIndex((row) => row.name === name));
    setNaming(name);
  }
  const deck = { keys, named, rename, enter };

  return ui`<div class="sv-dimbox" hidden=${state === "found" && !rows.length}>
      <div class="sv-sec">Dimensions<span class="sv-hint" hidden=${!rows
    .length}>an axis shards every array</span></div>
      <div class="sv-dimensions ${all || ctx.air ? "sv-all" : ""}" role="grid" aria-label="Dimensions" ref=${list}>
        ${lost && ui`<${Refusal} error=${error} id="dimension-error" />`}<${State} />${
    rows.map((row, place) =>
      ui`<${Line} key=${row.name} row=${row} place=${place} tabs=${place === at} naming=${naming === row.name}
            rest=${waits(row, place)} deck=${deck} />`
    )
  }</div>
      <button class="sv-link sv-dimmore" data-testid="dimensions-more" hidden=${!rest} aria-expanded=${all}
          onclick=${() => unfold(!all)}>
        ${all ? "show less" : `${rest} more`}</button></div>`;
}

/** Whether the focus is in the row of a dimension. @param {HTMLElement} list @param {string} name */
const isIn = (list, name) => find(list, `dimension-${name}`)?.contains(focused(list));

/** How far the search for dimensions is. */
function State() {
  const ctx = useContextOf();
  const { state, trouble, unasked } = ctx.get("dimensions");
  if (state === "found" || (!state && unasked)) return null;
  const words = state === "busy"
    ? "looking for the dimensions that arrays share …"
    : state === "failed"
    ? `no dimensions: ${trouble}`
    : ui`which dimensions arrays share: a program this large takes minutes <button class="sv-btn"
          data-testid="find-dimensions" onclick=${() => ctx.want("dimensions")}>find them</button>`;
  return ui`<div class="sv-empty" data-testid="dimensions-state" role="status">${words}</div>`;
}

/** @typedef {{ keys: (e: KeyboardEvent, place: number) => void, enter: (place: number) => void,
 *   named: (name: string, text: string, refocus: boolean) => void, rename: (name: string) => void }} Deck */

/** @param {{ row: DimensionRow, place: number, tabs: boolean, naming: boolean, rest: boolean, deck: Deck }} props */
function Line({ row, place, tabs, naming, rest, deck }) {
  const ctx = useContextOf();
  const { name } = row;
  const asked = ctx.lastAsked("cut_dimension", name)?.axes;
  const axes = asked ?? row.axes;
  const names = ctx.get("mesh").axes.map((axis) => axis.name);
  const may = (/** @type {string} */ axis) => isLegal(row.choices[names.indexOf(axis)]);
  const take = (/** @type {string} */ axis) => ctx.edit({ op: "cut_dimension", name, axes: [...axes, axis] });
  const chips = axes.map((axis) =>
    ui`<${Chip} axis=${axis} ...${typeof axis === "string" ? dragged(ctx, axis) : {}} />`
  );
  const open = () => {
    deck.enter(place);
    ctx.openMenu({ what: "dimensions", name, id: `dim-${name}` });
  };
  const { error } = ctx.get("status");
  const said = ui`<${Field} class="sv-newdim" data-testid="new-${name}" value=${name} grab
        aria-label="another name for dimension ${name}" enter=${(
    /** @type {string} */ text,
  ) => deck.named(name, text, true)} leave=${(/** @type {string} */ text) =>
    deck.named(name, text, false)} escape=${() => deck.named(name, "", true)} />`;
  return ui`<div class="sv-dimrow ${row.otherwise.length && row.grave ? "sv-odd" : ""} ${rest ? "sv-rest" : ""}"
        role="row" data-thing="dimension ${name}" data-testid="dimension-${name}">
      <span class="sv-dimname" role="rowheader" title=${[row.arrays, ...row.several].join("\n")}>
        ${
    naming ? said : ui`<button class="sv-dimtitle" data-testid="rename-${name}" tabindex="-1"
              title="${name}: click to call it otherwise (F2)" onclick=${() => deck.rename(name)}>
            ${name}</button>`
  }
        <small>${row.said}</small></span>
      <span class="sv-dimslot" role="gridcell">
        <button class="sv-slot ${axes.length ? "sv-cut" : ""} ${marking(ctx.air, may)}" data-testid="dim-${name}"
            tabindex=${tabs ? "0" : "-1"} aria-haspopup="dialog" aria-expanded="false"
            aria-label="dimension ${name} of size ${row.size}, ${row.arrays}: ${cutText(axes)}" onclick=${open}
            onkeydown=${(/** @type {KeyboardEvent} */ e) => deck.keys(e, place)} ...${dropped(ctx, may, take)}>
          ${chips.length ? chips : ui`<em>drop an axis</em>`}</button>
        ${!asked && row.otherwise.length > 0 && ui`<${Odd} row=${row} />`}</span>
      <span class="sv-mem" role="gridcell">${row.size}</span></div>
    ${
    error?.place === "dimension" && error.subject === name &&
    ui`<${Refusal} error=${error} id="dimension-error" />`
  }`;
}

/** The arrays that are cut otherwise than the rest. @param {{ row: DimensionRow }} props */
function Odd({ row: { otherwise, grave } }) {
  const ctx = useContextOf();
  const groups = differing(otherwise);
  const rest = groups.length - NAMED;
  return ui`<span class="sv-but ${grave ? "" : "sv-little"}"
        title=${otherwise.map(({ name, words }) => `${name}: ${words}`).join("\n")}>
      ${"but "}${
    groups.slice(0, NAMED).map(
      ({ name, labels, words }, i) => [
        i ? "; " : "",
        ui`<button class="sv-link" tabindex="-1" data-thing="value ${name}" onclick=${() => ctx.select(name)}>
            ${labels.join(", ")}</button>`,
        ` ${words}`,
      ],
    )
  }${rest > 0 ? `; ${rest} more` : ""}</span>`;
}
