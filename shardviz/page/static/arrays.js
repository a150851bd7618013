// @ts-check
// The arrays of the program as the page has them: the tree, sent once; how each is sharded, sent with every answer; and
// over it what a person has just done and no kernel has answered yet.
import { axisName } from "./chips.js";

/** @import { Axis, Context, Shardings, Dims, Edit, Kind, ArrayGroups, GroupsOf, TreeNode, Tree, What } from "./types.d.ts" */

/** What differs between the two: a title, the test ids of a slot and a row, and the trait with their shardings.
 * @type {Record<What, { title: string, slot: string, place: "argument" | "output", key: "shardings" | "out_shardings" }>} */
export const WORDS = {
  inputs: { title: "Inputs", slot: "slot", place: "argument", key: "shardings" },
  outputs: { title: "Outputs", slot: "out-slot", place: "output", key: "out_shardings" },
};

/** What an edit of a dimension is about. @typedef {{ dimension: number, axis: string, axes: Axis[], place?: number }} Aimed */

const edit = (/** @type {string} */ op) => ({ inputs: { op }, outputs: { op, output: true } });
/** The edits that an argument or an output takes. */
export const OPS = {
  spec: edit("set_spec"),
  dim: edit("set_dim"),
  move: edit("move_axis"),
  memory: edit("set_memory"),
};

/**
 * The rows of a tree, each with its path, where its subtree ends, and its path without the numbers of layers.
 * @param {Tree} tree
 * @returns {TreeNode[]}
 */
export function nodesOf(tree) {
  /** @type {TreeNode[]} */
  const nodes = [];
  /** @type {TreeNode[]} */
  const open = [];
  let leaves = 0;
  let branches = 0;
  for (const [depth, segment, label, more, dtype, donated] of tree.rows) {
    for (const done of open.splice(depth)) done.end = nodes.length;
    const above = open[depth - 1];
    const path = (above?.path ?? "") + segment;
    const like = typeof more === "number" ? more : undefined;
    const own = (above?.own ?? "") + (like === undefined ? segment : segment.replace(/\d+/g, "*"));
    const shape = Array.isArray(more) ? more : undefined;
    const names = above ? [above.above, above.label].filter(Boolean).join(".") : "";
    /** @type {TreeNode} */
    const node = { path, own, label, above: names, depth, like, end: nodes.length + 1, at: nodes.length, count: 0 };
    if (shape) {
      Object.assign(node, { shape, dtype, donated, place: leaves++, count: 1 });
      for (const up of open) up.count += 1;
    } else {
      node.branch = branches++;
      open.push(node);
    }
    nodes.push(node);
  }
  for (const done of open) done.end = nodes.length;
  return nodes;
}

/**
 * A spec with an axis taken from wherever it is and put on a dimension, last or at a place.
 * @param {Dims} dims
 * @param {string} axis
 * @param {number} dimension
 * @param {number | null} [place]
 * @returns {Dims}
 */
export function moved(dims, axis, dimension, place) {
  const next = dims.map((axes) => axes.filter((a) => axisName(a) !== axis));
  next[dimension]?.splice(place ?? next[dimension].length, 0, axis);
  return next;
}

/**
 * A spec with other axes on one dimension.
 * @param {Dims} dims
 * @param {number} dimension
 * @param {Axis[]} axes
 * @returns {Dims}
 */
export function withDim(dims, dimension, axes) {
  return dims.map((old, d) => (d === dimension ? axes : old));
}

/** One side of the program: its arguments or its outputs. */
export class Arrays {
  /**
   * @param {TreeNode[]} nodes
   * @param {Shardings} shardings
   * @param {GroupsOf | undefined} groups
   */
  constructor(nodes, shardings, groups) {
    this.nodes = nodes;
    this.leaves = nodes.filter((node) => node.place !== undefined);
    this.shardings = shardings;
    this.groups = groups;
    /** What was done and is not answered yet: place → the sharding of the array then, or null where that is not known. */
    this.asked = /** @type {Map<number, Dims | null>} */ (new Map());
    this.byName = new Map(this.leaves.map((node) => [node.path, node]));
  }

  /** @param {number} place @returns {Kind} */
  kind(place) {
    return this.shardings.kinds[this.shardings.at[place]];
  }

  /** The sharding of an array, now or after the pending edits. @param {number} place @returns {Dims | null} */
  dims(place) {
    return this.asked.get(place) ?? this.kind(place)?.dims ?? null;
  }

  /**
   * The places of an array's twins with equal sharding.
   * @param {number} place
   * @param {boolean} [layers] only those of other layers
   */
  twins(place, layers) {
    const group = this.groups?.twins[place] ?? -1;
    if (group < 0) return [];
    const own = JSON.stringify(this.dims(place));
    return this.leaves.filter(({ place: p = -1, own: path }) =>
      p !== place && this.groups?.twins[p] === group && (!layers || path === this.leaves[place].own) &&
      JSON.stringify(this.dims(p)) === own
    ).map(({ place: p = -1 }) => p);
  }

  /**
   * Does to the page's copy what an edit asks of the kernel, as far as the page can tell.
   * @param {Edit} edit
   * @param {What} what
   */
  ask(edit, what) {
    if (edit.op === "shard_dimension") return this.askDimension(edit);
    const place = this.byName.get(String(edit.name))?.place;
    const own = place !== undefined && (what === "outputs") === Boolean(edit.output);
    if (!own || !Object.values(OPS).some(({ inputs }) => inputs.op === edit.op)) return;
    const before = this.dims(place);
    const { dimension, axis, axes, place: at } = /** @type {Aimed} */ (/** @type {unknown} */ (edit));
    const after = !before
      ? null
      : edit.op === "move_axis"
      ? moved(before, axis, dimension, at)
      : edit.op === "set_dim"
      ? withDim(before, dimension, axes)
      : null;
    const others = edit.op !== "set_memory" && (edit.twins || edit.layers) ? this.twins(place, !edit.twins) : [];
    for (const each of [place, ...others]) this.asked.set(each, after);
  }

  /** Of an array that has the dimension several times, the one that is sharded, as in the kernel. @param {Edit} edit */
  askDimension(edit) {
    const axes = /** @type {Axis[]} */ (edit.axes);
    const names = axes.map(axisName);
    this.groups?.dimensions?.forEach((of, place) => {
      const before = this.dims(place);
      const has = of.flatMap((name, d) => name === edit.name ? [d] : []);
      const d = has.find((each) => before?.[each].length) ?? has[0];
      if (d === undefined || !before || this.kind(place).chosen) return;
      const without = before.map((old) => old.filter((a) => !names.includes(axisName(a))));
      this.asked.set(place, withDim(without, d, axes));
    });
  }
}

/**
 * Gives the arguments or outputs as they are now; what is the same as the last time is not made again.
 * @param {Context} ctx
 * @returns {(what: What) => Arrays}
 */
export function arrays(ctx) {
  /** @type {Record<string, { tree?: Tree, nodes: TreeNode[], shardings?: Shardings, groups?: ArrayGroups, asked?: unknown, made?: Arrays }>} */
  const kept = { inputs: { nodes: [] }, outputs: { nodes: [] } };
  return (what) => {
    const old = kept[what];
    const tree = ctx.get(what);
    const shardings = ctx.get(what === "inputs" ? "shardings" : "out_shardings");
    const groups = ctx.get("array_groups");
    const asked = ctx.asked();
    if (tree !== old.tree) Object.assign(old, { tree, nodes: nodesOf(tree), made: undefined });
    if (!old.made || shardings !== old.shardings || groups !== old.groups) {
      Object.assign(old, { shardings, groups, made: new Arrays(old.nodes, shardings, groups[what]), asked: null });
    }
    const made = /** @type {Arrays} */ (old.made);
    if (asked !== old.asked) {
      old.asked = asked;
      made.asked.clear();
      for (const edit of asked) made.ask(edit, what);
    }
    return made;
  };
}
