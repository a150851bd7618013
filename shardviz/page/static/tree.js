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
  const sought = view.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (sought.length || view.filter) return found(arrays, sought, view.filter);
  const { nodes } = arrays;
  /** @type {Item[]} */
  const items = [];

  /** Adds a row that can be unfolded; returns whether it is. @param {Item["kind"]} kind @param {string} key @param {string} label
   * @param {TreeNode} node @param {number} deeper @param {boolean} closed */
  function add(kind, key, label, node, deeper, closed, count = node.count) {
    items.push({ kind, key, label, depth: node.depth + deeper, closed, node, count });
    return !closed;
  }

  /** @param {number} from @param {number} to @param {number[]} deltas from a row to the rows that it stands for @param {number} deeper */
  function walk(from, to, deltas, deeper) {
    for (let i = from; i < to;) {
      const node = nodes[i];
      const alike = layersFrom(nodes, i, to);
      const last = nodes[alike[alike.length - 1]];
      const several = deltas.length > 1;
      const key = several || alike.length > 1 ? `${node.own}*${several}` : node.path;
      i = last.end;
      if (node.place !== undefined) {
        items.push(leaf(arrays, node, deltas.map((d) => nodes[node.at + d].place ?? 0), node.depth + deeper, ""));
      } else if (alike.length === 1) {
        const open = add("branch", key, node.label, node, deeper, view.isClosed(key, node));
        if (open) walk(node.at + 1, node.end, deltas, deeper);
      } else {
        const label = `all ${alike.length} · ${node.label} … ${last.label}`;
        const open = add("stack", key, label, node, deeper, view.isClosed(key, node), alike.length);
        if (open) walk(node.at + 1, node.end, deltas.flatMap((d) => alike.map((at) => d + at - node.at)), deeper);
        if (!several) each(alike, `${key}each`, node, deeper);
      }
    }
  }

  /** The layers one by one, once they are unfolded. @param {number[]} alike @param {string} key @param {TreeNode} first @param {number} deeper */
  function each(alike, key, first, deeper) {
    if (!add("each", key, `each of the ${alike.length}`, first, deeper, !view.isOpen(key), 0)) return;
    for (const node of alike.map((at) => nodes[at])) {
      const open = add("branch", node.path, node.label, node, deeper + 1, !view.isOpen(node.path));
      if (open) walk(node.at + 1, node.end, [0], deeper + 1);
    }
  }
  walk(0, nodes.length, [0], 0);
  return items;
}

/** A layer and those behind it that are like it. @param {TreeNode[]} nodes @param {number} from @param {number} to */
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
 * A row of one array, or of those at the same place of several layers: with the sharding of most of them.
 * @param {Arrays} arrays
 * @param {TreeNode} node
 * @param {number[]} places
 * @param {number} depth
 * @param {string} above what is said of where it stands
 * @returns {Item}
 */
function leaf(arrays, node, places, depth, above) {
  const kinds = Object.values(Object.groupBy(places, (place) => JSON.stringify(arrays.dims(place))));
  const most = kinds.reduce((a = [], b = []) => (b.length > a.length ? b : a)) ?? [];
  const key = places.length > 1 ? node.own : node.path;
  const odd = places.length - most.length;
  const [shown] = most;
  return { kind: "leaf", key, label: node.label, depth, closed: false, node, count: places.length, shown, odd, above };
}

/** What is searched for, the same array of several layers once. @param {Arrays} arrays @param {string[]} words @param {string} filter */
function found(arrays, words, filter) {
  const meant = arrays.leaves.filter((node) => isMeant(arrays, node, words, filter));
  const items = Object.values(Object.groupBy(meant, ({ own, shape }) => `${own} ${shape}`)).map((nodes = []) =>
    leaf(arrays, nodes[0], nodes.map(({ place = 0 }) => place), 0, nodes[0].above)
  );
  const size = (/** @type {Item} */ item) => arrays.kind(item.shown ?? 0).size;
  return filter === "largest" ? items.sort((a, b) => size(b) - size(a)) : items;
}

/** @param {Arrays} arrays @param {TreeNode} node @param {string[]} words @param {string} filter */
function isMeant(arrays, { path, shape, place = 0 }, words, filter) {
  if (!words.every((word) => path.toLowerCase().includes(word))) return false;
  if (filter === "replicated") return shape?.length !== 0 && !arrays.dims(place)?.some((axes) => axes.length);
  if (filter === "changed") return Boolean(arrays.kind(place).changed);
  if (filter.startsWith("=")) return Boolean(arrays.groups?.dimensions?.[place]?.includes(filter.slice(1)));
  return true;
}
