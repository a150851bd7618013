// @ts-check
// A change that was refused: why, the ways on that were tried, and how to be rid of the words.
import { h } from "./dom.js";
import { notice } from "./head.js";

/** @import { Context, EditError } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {EditError} error
 * @param {string} id
 */
export function refusal(ctx, error, id) {
  const ways = (error.ways ?? []).map(({ text, tip, take }, place) =>
    take
      ? h("button", {
        class: "sv-btn sv-do",
        id: `way-${place}`,
        title: tip,
        onclick: () => ctx.edit({ op: "take_way", place }),
      }, text)
      : h("span", { class: "sv-soft", title: tip }, text)
  );
  const away = h("button", {
    class: "sv-away",
    id: `${id}-away`,
    title: "leave it as it was",
    "aria-label": "dismiss",
    onclick: () => ctx.edit({ op: "dismiss" }),
  }, "×");
  return notice("sv-error", id, error.message, error.detail, h("span", { class: "sv-ways" }, ways), away);
}
