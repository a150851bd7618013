// @ts-check
// The rows of the tree that are to be seen: what is folded is left out, layers that are alike are one row that unfolds,
// and what is searched for or filtered is a flat list.

/** @import { Arrays } from "./arrays.js" */
/** @import { Item, TreeNode, View } from "./types.d.ts" */

/** By which a tree is filtered. @type {[key: string, words: string][]} */
export const FILTERS = [
  ["", "show: all"],
  ["replicated", "replicated"],
  ["largest", "largest first"],
  ["changed", "changed"],
];

/**
 * @param {Arrays} arrays
 * @param {View} view
 * @returns {Item[]}
 */
export function itemsOf(arrays, view) {
  const words = view.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length || view.filter) return found(arrays, words, view.filter);
  /** @type {Item[]} */
  const items = [];
  walk(arrays, view, 0, arrays.nodes.length, [0], 0, items);
  return items;
}

/**
 * @param {Arrays} arrays
 * @param {View} view
 * @param {number} from
 * @param {number} to
 * @param {number[]} deltas from a row to the rows that it stands for
 * @param {number} deeper
 * @param {Item[]} items
 */
function walk(arrays, view, from, to, deltas, deeper, items) {
  const { nodes } = arrays;
  for (let i = from; i < to;) {
    const node = nodes[i];
    const several = deltas.length > 1;
    if (node.place !== undefined) {
      items.push(leaf(arrays, node, deltas.map((d) => nodes[i + d].place ?? 0), node.depth + deeper, ""));
      i += 1;
      continue;
    }
    const alike = layersFrom(nodes, i, to);
    const key = several || alike.length > 1 ? `${node.own}*${several}` : node.path;
    const closed = view.isClosed(key, node);
    if (alike.length > 1) {
      const [first, last] = [nodes[alike[0]].label, nodes[alike[alike.length - 1]].label];
      const label = `all ${alike.length} · ${first} … ${last}`;
      items.push({ kind: "stack", key, label, depth: node.depth + deeper, closed, node, count: alike.length });
      const inside = deltas.flatMap((d) => alike.map((at) => d + at - i));
      if (!closed) walk(arrays, view, i + 1, node.end, inside, deeper, items);
      if (!several) {
        const each = `${key}each`;
        const shut = !view.isOpen(each);
        const words = `each of the ${alike.length}`;
        items.push({ kind: "each", key: each, label: words, depth: node.depth + deeper, closed: shut, node, count: 0 });
        if (!shut) { for (const at of alike) branch(arrays, view, nodes[at], deeper + 1, items); }
      }
      i = nodes[alike[alike.length - 1]].end;
      continue;
    }
    items.push({ kind: "branch", key, label: node.label, depth: node.depth + deeper, closed, node, count: node.count });
    if (!closed) walk(arrays, view, i + 1, node.end, deltas, deeper, items);
    i = node.end;
  }
}

/**
 * One layer, and what is below it.
 * @param {Arrays} arrays
 * @param {View} view
 * @param {TreeNode} node
 * @param {number} deeper
 * @param {Item[]} items
 */
function branch(arrays, view, node, deeper, items) {
  const closed = !view.isOpen(node.path);
  const { path: key, label, count } = node;
  items.push({ kind: "branch", key, label, depth: node.depth + deeper, closed, node, count });
  if (!closed) walk(arrays, view, node.at + 1, node.end, [0], deeper, items);
}

/**
 * A layer and those behind it that are like it.
 * @param {TreeNode[]} nodes
 * @param {number} from
 * @param {number} to
 */
function layersFrom(nodes, from, to) {
  const alike = [from];
  const { like, depth } = nodes[from];
  if (like === undefined) return alike;
  for (let j = nodes[from].end; j < to && nodes[j].depth === depth && nodes[j].like === like; j = nodes[j].end) {
    alike.push(j);
  }
  return alike;
}

/**
 * A row of one array, or of those at the same place of several layers: as most of them are cut.
 * @param {Arrays} arrays
 * @param {TreeNode} node
 * @param {number[]} places
 * @param {number} depth
 * @param {string} above what is said of where it stands
 * @returns {Item}
 */
function leaf(arrays, node, places, depth, above) {
  let shown = places[0];
  let odd = 0;
  if (places.length > 1) {
    /** @type {Map<string, number[]>} */
    const ways = new Map();
    for (const place of places) {
      const said = JSON.stringify(arrays.dims(place));
      ways.set(said, [...(ways.get(said) ?? []), place]);
    }
    const most = [...ways.values()].reduce((a, b) => (b.length > a.length ? b : a));
    shown = most[0];
    odd = places.length - most.length;
  }
  const key = places.length > 1 ? node.own : node.path;
  return { kind: "leaf", key, label: node.label, depth, closed: false, node, count: places.length, shown, odd, above };
}

/**
 * What is searched for, the same array of several layers once.
 * @param {Arrays} arrays
 * @param {string[]} words
 * @param {string} filter
 */
function found(arrays, words, filter) {
  /** @type {Map<string, TreeNode[]>} */
  const rows = new Map();
  for (const node of arrays.leaves) {
    if (!isMeant(arrays, node, words, filter)) continue;
    const key = `${node.own} ${node.shape}`;
    const there = rows.get(key);
    if (there) there.push(node);
    else rows.set(key, [node]);
  }
  const items = [...rows.values()].map((nodes) => {
    const [first] = nodes;
    return leaf(arrays, first, nodes.map(({ place = 0 }) => place), 0, first.above);
  });
  const size = (/** @type {Item} */ item) => arrays.kind(item.shown ?? 0).size;
  return filter === "largest" ? items.sort((a, b) => size(b) - size(a)) : items;
}

/**
 * @param {Arrays} arrays
 * @param {TreeNode} node
 * @param {string[]} words
 * @param {string} filter
 */
function isMeant(arrays, node, words, filter) {
  const place = node.place ?? 0;
  const kind = arrays.kind(place);
  const path = node.path.toLowerCase();
  if (!words.every((word) => path.includes(word))) return false;
  if (filter === "replicated") {
    return node.shape?.length !== 0 && !arrays.dims(place)?.some((axes) => axes.length);
  }
  if (filter === "changed") return Boolean(kind.changed);
  if (filter.startsWith("=")) return Boolean(arrays.kin?.dimensions?.[place]?.includes(Number(filter.slice(1))));
  return true;
}
