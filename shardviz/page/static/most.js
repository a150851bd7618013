// @ts-check
// What costs you most: the first rows of one ranked table below the cards; the rest when it is asked for.
import { fill, h } from "./dom.js";
import { documentView, inline, pieces, plain } from "./document.js";

/** @import { Block, Context, Row } from "./types.d.ts" */

const FIRST = 3; // rows that are shown at first
const HELPS = 2; // and so many more for which something helps
/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function most(ctx, el) {
  const head = h("div", { class: "sv-mosthead" });
  const body = h("div", { class: "sv-mostrows" });
  const more = h("button", { class: "sv-link sv-mostmore", id: "most-more", onclick: toggle });
  const view = documentView(ctx, body);
  el.append(h("section", { class: "sv-most", id: "most-pane", "aria-label": "what costs you most" }, head, body, more));
  let all = false;

  function toggle() {
    all = !all;
    draw();
  }

  function draw() {
    const { document } = ctx.get("most");
    /** @param {Block[]} blocks @returns {Row[]} */
    const inside = (blocks) =>
      blocks.flatMap((b) => b.block === "table" ? b.rows || [] : b.block === "section" ? inside(b.blocks ?? []) : []);
    const rows = inside(document.blocks);
    let helps = 0;
    const first = rows.filter(({ cells }, n) =>
      n < FIRST || (pieces(cells.at(-1) ?? []).some(({ sel }) => sel) && helps++ < HELPS)
    );
    body.classList.toggle("sv-nothing-to-try", !(all ? rows : first).some(({ cells }) => plain(cells.at(-1) ?? [])));
    /** The blocks with their first rows alone. @param {Block[]} blocks @returns {Block[]} */
    const cut = (blocks) =>
      blocks.flatMap((block) => {
        if (block.block === "table") {
          return {
            ...block,
            rows: block.rows?.filter((row) => first.includes(row)),
            more: 0,
          };
        }
        if (block.block !== "section") return block;
        return inside([block]).some((row) => first.includes(row)) ? { ...block, blocks: cut(block.blocks ?? []) } : [];
      });
    const blocks = all ? document.blocks : cut(document.blocks);
    const count = rows.length;
    const lead = (document.lead || []).map((line) => inline(ctx, line));
    fill(
      head,
      h("span", { class: "sv-sec" }, inline(ctx, document.title || [])),
      h("span", { class: "sv-soft" }, lead),
    );
    view.draw({ blocks });
    more.hidden = count <= first.length;
    more.textContent = all ? "show less" : `${count - first.length} more`;
    more.setAttribute("aria-expanded", String(all));
  }

  for (const key of ["most", "mesh", "selected"]) ctx.on(key, draw);
  draw();
}
