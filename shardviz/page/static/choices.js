// @ts-check
// What may be done with a dimension, in words: an axis to be added, axes in another order, the array's twins.

/** @import { Arrays } from "./arrays.js" */
/** @import { Choice, Context, MeshAxis, What } from "./types.d.ts" */

/**
 * Whether an axis may go into a dimension, from elsewhere in the spec or anew.
 * @param {Choice | undefined} choice
 */
export function isLegal(choice) {
  return choice === 1 || Array.isArray(choice);
}

/**
 * What the menu says of an axis.
 * @param {Choice} choice
 * @param {MeshAxis} axis
 */
export function choiceText(choice, axis) {
  if (choice === 1) return axis.size === 1 ? "of size 1: changes nothing" : `sharded ${axis.size} ways`;
  return Array.isArray(choice) ? `move it here: it ${choice[0]}` : choice;
}

/**
 * A list with the items at two places exchanged.
 * @template T
 * @param {T[]} items
 * @param {number} i
 * @param {number} j
 */
export function swapped(items, i, j) {
  return items.map((item, at) => (at === i ? items[j] : at === j ? items[i] : item));
}

/**
 * What an edit of an array says of its twins; nothing if it has none.
 * @param {Context} ctx
 * @param {What} what
 * @param {number} place
 * @param {boolean} layers whether it is done to all layers whatever the person said of twins
 * @returns {{ twins?: boolean, layers?: boolean }}
 */
export function twinsOf(ctx, what, place, layers) {
  if (what !== "inputs" || !ctx.arrays(what).twins(place).length) return {};
  return layers && !ctx.twins ? { twins: false, layers: true } : { twins: ctx.twins };
}

/**
 * To which twins an edit of an input may be made too; empty where no input has one.
 * @param {Arrays} inputs
 */
export function twinsWords({ leaves, groups }) {
  const all = [...Map.groupBy(leaves, ({ place = -1 }) => groups?.twins[place] ?? -1)];
  const twins = all.filter(([group, of]) => group >= 0 && of.length > 1).map(([, of]) => of);
  if (!twins.length) return "";
  return twins.some((of) => of.some(({ own }) => own !== of[0].own)) ? "optimizer state too" : "other layers too";
}

/** Twins in a few words. @param {string[]} names */
export function twinsText(names) {
  return names.length === 1 ? `its twin ${names[0]}` : `its ${names.length} twins, such as ${names[0]}`;
}
