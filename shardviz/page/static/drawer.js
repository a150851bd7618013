// @ts-check
// The drawer beside the views, closed until a person selects something: its shard map, its notations, why.
import { h } from "./dom.js";
import { constrain } from "./constrain.js";
import { shards } from "./panes.js";
import { why } from "./why.js";

/** @import { Context } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function drawer(ctx, el) {
  const close = h("button", {
    class: "sv-drawerclose",
    id: "drawer-close",
    title: "close (Escape)",
    "aria-label": "close",
    onclick: () => open(false),
  }, "✕");
  const map = h("div", { id: "map-small" });
  const chosen = h("div", { class: "sv-drawerbody" });
  constrain(ctx, chosen);
  chosen.append(map);
  const box = h(
    "aside",
    { class: "sv-drawer", id: "drawer", "aria-label": "what is selected", hidden: true },
    close,
    chosen,
  );
  el.append(box);
  why(ctx, box, chosen);
  shards(ctx, map, { small: true });

  /** @param {boolean} shown */
  function open(shown) {
    if (!shown && ctx.get("why").name) ctx.edit({ op: "close_why" });
    box.hidden = !shown;
    if (!shown) /** @type {HTMLElement} */ (box.closest(".shardviz"))?.focus({ preventScroll: true });
  }

  box.addEventListener("keydown", (e) => {
    if (e.key !== "Escape" || e.defaultPrevented) return;
    open(false);
    e.preventDefault();
    e.stopPropagation();
  });
  ctx.openDrawer = () => open(true);
  ctx.on("why", () => ctx.get("why").name && open(true));
}
