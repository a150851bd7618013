// @ts-check
// Inputs and outputs: a tree of arrays, folded until one is looked for; what is done by the keys in it.
import { OPS, WORDS } from "./arrays.js";
import { find, keyed } from "./dom.js";
import { Check, Field, Select } from "./fields.js";
import { Branch, Leaf } from "./leaf.js";
import { twinsOf, twinsWords } from "./choices.js";
import { ui, useContextOf, useFlash, useTraits } from "./parts.js";
import { FILTERS, itemsOf } from "./tree.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { Edit, Item, What } from "./types.d.ts" */

const SEEN = 4; // arrays among which nobody searches
const FEW = 14; // arrays that are shown from the start
const MOST = 100; // rows that are shown at once: more are asked for, or looked for
const FOLDED = 24; // leaves from which on a tree that is not the first argument's is closed at first

const FOLLOWED = ["mesh", "selected", "array_groups", "dimensions", "twins", "asked", "status", "air", "sought"];

const TWINS =
  "what is done to an array is done to its twins too: the same leaf of momentum, of other optimizer state and " +
  "of every layer, where it is sharded alike";

/** @param {{ what: What }} props */
export function Specs({ what }) {
  const words = WORDS[what];
  const ctx = useTraits(words.key, what, "sharing", ...FOLLOWED);
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
  const look = (/** @type {Partial<typeof view>} */ change) => setView({ ...view, ...change });
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
  const hint = ui`<span class="sv-hint">the compiler's choice, unless you set them</span>`;
  const reached = what === "inputs" && shown && twinsWords(arrays);
  const twins = reached &&
    ui`<${Check} class="sv-twinscheck" title=${TWINS} id="twins" on=${ctx.twins}
        set=${(on) => ctx.put("twins", on)}>${reached}<//>`;
  const none = ui`<div class="sv-empty" role="status">
      ${"No input is like that. "}
      <button class="sv-btn" data-testid="search-clear" onclick=${() =>
    look({ text: "", filter: "" })}>show all</button></div>`;
  const search = ui`<${Search} view=${view} find=${look} shown=${shown} down=${down} said=${said} />`;
  return ui`<div class="sv-sec sv-secbar">
      <span>
        <button class="sv-fold" data-testid="open-${what}" aria-expanded=${shown} onclick=${() => open(!opened)}>
          <span class="sv-tri" aria-hidden="true">${shown ? "▾" : "▸"}</span>${words.title}
          <span class="sv-hint">${total.toLocaleString("en")}</span></button>
        ${what === "outputs" && shown && hint}</span>${twins}</div>
    ${what === "inputs" && (total > SEEN || sought) && search}
    <div class="sv-specs" role="tree" aria-label=${words.title} hidden=${!shown} ref=${list}>
      ${!wrong && sought && !items.length && none}
      ${shown && ui`<${Rows} what=${what} items=${items} fold=${fold} list=${list} />`}</div>`;
}

/**
 * @param {{ view: { text: string, filter: string }, find: (change: { text?: string, filter?: string }) => void,
 *   shown: boolean, down: () => void, said: string }} props `shown`: whether the arrays are; `down` goes to them
 */
function Search({ view, find: look, shown, down, said }) {
  const ctx = useContextOf();
  const dimensions = ctx.get("dimensions").rows.map(({ name }) => [`=${name}`, `with ${name}`]);
  const clear = (/** @type {HTMLInputElement} */ input) => look({ text: input.value = "" });
  return ui`<div class="sv-searchbar" onkeydown=${(e) => keyed(e, { ArrowDown: down })}>
      <${Field} type="search" class="sv-filter" data-testid="search" value=${view.text} placeholder="search the inputs"
          aria-label="search the inputs by path; arrow down goes to them" enter=${() => {}} escape=${clear}
          oninput=${({ target }) => look({ text: target.value })} />
      <${Select} id="filter" aria-label="which inputs are shown" hidden=${!shown} value=${view.filter}
          set=${(filter) => look({ filter })} options=${[...FILTERS, ...dimensions]} />
      <span class="sv-soft sv-found" data-testid="search-found" role="status">${said}</span></div>`;
}

/** The rows, and what the keys do in them.
 * @param {{ what: What, items: Item[], fold: (key: string, shut: boolean) => void, list: { current: any } }} props */
function Rows({ what, items, fold, list }) {
  const ctx = useContextOf();
  const words = WORDS[what];
  const arrays = ctx.arrays(what);
  /** The row and the slot in it (below 0: its name) at which Tab enters the tree. */
  const [entered, enter] = useState({ key: "", dimension: -1 });
  const [most, show] = useState(MOST);
  const goes = useRef(false); // whether the focus goes there
  const flash = useFlash(ctx.get(words.key));
  const shown = items.slice(0, most);
  const isSelected = (/** @type {Item} */ item) =>
    item.kind === "leaf" && arrays.leaves[item.shown ?? 0]?.path === ctx.get("selected");
  const here = shown.some(({ key }) => key === entered.key)
    ? entered
    : { key: (shown.find(isSelected) ?? items[0])?.key ?? "", dimension: -1 };
  useLayoutEffect(() => {
    if (!goes.current) return;
    goes.current = false;
    const { key, dimension } = here;
    const leaf = items.find((item) => item.key === key)?.kind === "leaf";
    find(list.current, !leaf ? `fold-${key}` : dimension < 0 ? `name-${key}` : `${words.slot}-${key}-${dimension}`)
      ?.focus();
  });

  /** @param {number} at @param {number} dimension */
  function go(at, dimension) {
    const item = items[at];
    if (!item) return;
    goes.current = true;
    if (at >= most) show(at + MOST);
    const last = item.kind === "leaf" ? (item.node.shape?.length ?? 0) - 1 : -1;
    enter({ key: item.key, dimension: Math.min(dimension, last) });
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
    const empty = () =>
      dimension >= 0 && Boolean(arrays.dims(item.shown ?? 0)?.[dimension].length) &&
      change(item, { ...OPS.dim[what], dimension, axes: [] });
    keyed(e, {
      ArrowDown: () => go(next(at, 1, dimension), dimension),
      ArrowUp: () => go(next(at, -1, dimension), dimension),
      Home: () => go(0, -1),
      End: () => go(shown.length - 1, -1),
      PageDown: () => go(Math.min(at + 10, items.length - 1), dimension),
      PageUp: () => go(Math.max(at - 10, 0), dimension),
      ArrowRight: () => leaf ? go(at, dimension + 1) : item.closed ? fold(item.key, false) : go(at + 1, -1),
      ArrowLeft: () =>
        leaf && dimension >= 0 ? go(at, dimension - 1) : leaf || item.closed ? go(above(at), -1) : fold(item.key, true),
      Delete: empty,
      Backspace: empty,
    });
  }
  const rows = shown.map((item) => {
    const enters = item.key === here.key ? here.dimension : null;
    const own = { key: item.key, what, item, enters, keys, change };
    const at = (/** @type {number} */ dimension) => enter({ key: item.key, dimension });
    return item.kind === "leaf"
      ? ui`<${Leaf} ...${own} enter=${at} flash=${flash} />`
      : ui`<${Branch} ...${own} enter=${at} fold=${() => fold(item.key, !item.closed)} />`;
  });
  const rest = ui`<button class="sv-link sv-dimmore" data-testid="more-${what}" onclick=${() => show(most + MOST)}>
      ${(items.length - most).toLocaleString("en")} more rows</button>`;
  return ui`<div class="sv-rows" role="presentation">${rows}${items.length > most && rest}</div>`;
}
