// @ts-check
// Inputs and outputs: a tree of arrays, folded until one is looked for; what is done by the keys in it.
import { OPS } from "./arrays.js";
import { find } from "./dom.js";
import { Branch, Leaf } from "./leaf.js";
import { twinsOf } from "./choices.js";
import { Refusal, ui, useContextOf, useTraits } from "./parts.js";
import { useFlash, useRows } from "./rows.js";
import { Search, Twins } from "./search.js";
import { itemsOf } from "./tree.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { Edit, Item, What } from "./types.d.ts" */

const HEIGHTS = { leaf: 41, tall: 128, branch: 25 }; // pixels, until a row is measured
const FEW = 14; // arrays that are shown from the start
const FOLDED = 24; // leaves from which on a tree that is not the first argument's is closed at first

const FOLLOWED = ["mesh", "selected", "kin", "dimensions", "twins", "asked", "status", "air", "sought"];

/** @type {Record<What, { title: string, slot: string, place: "argument" | "output", key: "cuts" | "out_cuts" }>} */
export const WORDS = {
  inputs: { title: "Inputs", slot: "slot", place: "argument", key: "cuts" },
  outputs: { title: "Outputs", slot: "out-slot", place: "output", key: "out_cuts" },
};

/** @param {{ what: What }} props */
export function Specs({ what }) {
  const words = WORDS[what];
  const ctx = useTraits(words.key, what, ...FOLLOWED);
  const arrays = ctx.arrays(what);
  const total = arrays.leaves.length;
  const [opened, open] = useState(total <= FEW); // whether a person sees the arrays; else they are folded until one is looked for
  const [view, setView] = useState({ text: "", filter: "" });
  /** Branches that a person opened (false) or closed (true). */
  const [folded, setFolded] = useState(/** @type {Map<string, boolean>} */ (new Map()));
  const { error } = ctx.get("status");
  const wrong = error?.place === words.place ? error : null;
  const sought = Boolean(view.text || view.filter);
  const shown = opened || sought || wrong !== null;
  const find = (/** @type {Partial<typeof view>} */ change) => setView({ ...view, ...change });
  const list = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    if (what === "inputs" && ctx.sought) setView({ text: ctx.sought, filter: "" });
    ctx.sought = "";
  }, [ctx.sought]);

  /** @param {string} key @param {Item["node"]} node */
  function isClosed(key, node) {
    if (wrong?.argument?.startsWith(node.path)) return false;
    const large = node.depth === 0 && node.count > FOLDED / 6 && (what === "outputs" || node.at !== 0);
    return folded.get(key) ?? large;
  }
  const items = shown ? itemsOf(arrays, { ...view, isClosed, isOpen: (key) => folded.get(key) === false }) : [];
  const count = () => items.reduce((sum, item) => sum + (item.kind === "leaf" ? item.count : 0), 0);
  const said = sought ? `${count()} of ${total}` : "";
  const fold = (/** @type {string} */ key, /** @type {boolean} */ shut) => setFolded(new Map(folded).set(key, shut));
  const down = () => list.current?.querySelector("[tabindex='0']")?.focus();
  return ui`<div class="sv-sec sv-secbar">
      <span>
        <button class="sv-fold" data-testid="open-${what}" aria-expanded=${shown} onclick=${() => open(!opened)}>
          <span class="sv-tri" aria-hidden="true">${shown ? "▾" : "▸"}</span>${words.title}
          <span class="sv-hint">${total.toLocaleString("en")}</span></button>
        ${
    what === "outputs" && shown && ui`<span class="sv-hint">the compiler's choice, unless you set them</span>`
  }</span>
      ${what === "inputs" && ui`<${Twins} shown=${shown} />`}</div>${
    what === "inputs" &&
    ui`<${Search} view=${view} find=${find} shown=${shown && total > 4} down=${down} said=${said} />`
  }
    <div class="sv-specs" role="tree" aria-label=${words.title} hidden=${!shown} ref=${list}>
      ${
    wrong && !arrays.byName.has(wrong.argument ?? "")
      ? ui`<${Refusal} error=${wrong} id="${words.place}-error" />`
      : sought && !items.length &&
        ui`<div class="sv-empty" role="status">
            ${"No input is like that. "}<button class="sv-btn" data-testid="search-clear" onclick=${() =>
          find({ text: "", filter: "" })}>show all</button></div>`
  }
      ${shown && ui`<${Rows} what=${what} items=${items} fold=${fold} list=${list} />`}</div>`;
}

/** The rows, and what the keys do in them.
 * @param {{ what: What, items: Item[], fold: (key: string, shut: boolean) => void, list: { current: any } }} props */
function Rows({ what, items, fold, list }) {
  const ctx = useContextOf();
  const words = WORDS[what];
  const arrays = ctx.arrays(what);
  /** The row and the slot in it (below 0: its name) at which Tab enters the tree. */
  const [entered, enter] = useState({ key: "", dimension: -1 });
  const goes = useRef(false); // whether the focus goes there
  const flash = useFlash(ctx.get(words.key));
  const isSelected = (/** @type {Item} */ item) =>
    item.kind === "leaf" && arrays.leaves[item.shown ?? 0]?.path === ctx.get("selected");
  const here = items.some(({ key }) => key === entered.key)
    ? entered
    : { key: (items.find(isSelected) ?? items[0])?.key ?? "", dimension: -1 };
  const rows = useRows(items, {
    height: (item) => item.kind !== "leaf" ? HEIGHTS.branch : isSelected(item) ? HEIGHTS.tall : HEIGHTS.leaf,
    row,
    stays: here.key,
  });
  useLayoutEffect(() => {
    if (!goes.current) return;
    goes.current = false;
    const item = items.find(({ key }) => key === here.key);
    const id = item?.kind !== "leaf"
      ? `fold-${here.key}`
      : here.dimension < 0
      ? `name-${here.key}`
      : `${words.slot}-${here.key}-${here.dimension}`;
    find(list.current, id)?.focus();
  });

  /** @param {number} at @param {number} dimension */
  function go(at, dimension) {
    const item = items[at];
    if (!item) return;
    goes.current = true;
    enter({
      key: item.key,
      dimension: item.kind === "leaf" ? Math.min(dimension, (item.node.shape?.length ?? 0) - 1) : -1,
    });
    rows.reveal(item.key);
  }

  /** The next row in a direction that has slots, where one is in a slot. @param {number} at @param {number} by @param {number} dimension */
  function next(at, by, dimension) {
    for (let i = at + by; items[i]; i += by) if (dimension < 0 || items[i].node.shape?.length) return i;
    return at;
  }

  /** The branch that a row is in. @param {number} at */
  function above(at) {
    const branch = items.slice(0, at).findLastIndex(({ depth }) => depth < items[at].depth);
    return branch < 0 ? at : branch;
  }

  /** @param {Item} item @param {Edit} edit of its twins too where the person wants that, of all layers where the row is theirs */
  function change(item, edit) {
    const place = item.shown ?? 0;
    ctx.edit({ ...edit, name: arrays.leaves[place].path, ...twinsOf(ctx, what, place, item.count > 1) });
  }

  /**
   * Arrows go from row to row and from slot to slot, Delete empties a slot, Enter opens one.
   * @param {KeyboardEvent} e
   * @param {Item} item
   * @param {number} dimension
   */
  function keys(e, item, dimension) {
    const at = items.findIndex(({ key }) => key === item.key);
    const leaf = item.kind === "leaf";
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowDown: () => go(next(at, 1, dimension), dimension),
      ArrowUp: () => go(next(at, -1, dimension), dimension),
      Home: () => go(0, -1),
      End: () => go(items.length - 1, -1),
      PageDown: () => go(Math.min(at + 10, items.length - 1), dimension),
      PageUp: () => go(Math.max(at - 10, 0), dimension),
      ArrowRight: () => leaf ? go(at, dimension + 1) : item.closed ? fold(item.key, false) : go(at + 1, -1),
      ArrowLeft: () =>
        leaf && dimension >= 0 ? go(at, dimension - 1) : leaf || item.closed ? go(above(at), -1) : fold(item.key, true),
    };
    const empty = (e.key === "Delete" || e.key === "Backspace") && dimension >= 0;
    if (empty && arrays.dims(item.shown ?? 0)?.[dimension].length) {
      change(item, { op: OPS[what].dimension, dimension, axes: [] });
    } else if (!empty && !acts[e.key]) return;
    acts[e.key]?.();
    e.preventDefault();
    e.stopPropagation();
  }

  /** @param {Item} item @param {number} top */
  function row(item, top) {
    const own = {
      what,
      item,
      top,
      enters: item.key === here.key ? here.dimension : null,
      enter: (/** @type {number} */ dimension) => enter({ key: item.key, dimension }),
      keys,
      change,
    };
    return item.kind === "leaf"
      ? ui`<${Leaf} key=${item.key} ...${own} flash=${flash} />`
      : ui`<${Branch} key=${item.key} ...${own} fold=${() => fold(item.key, !item.closed)} />`;
  }
  return rows.body;
}
