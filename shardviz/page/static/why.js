// @ts-check
// Why a value is sharded as it is, or a collective is there: in the drawer, with a scrubber that goes along the
// chain from the cause to the value and lights up the lines.
import { axisStyle } from "./chips.js";
import { fill, find, focused, h } from "./dom.js";
import { documentView, inline, pieces, plain } from "./document.js";

/** @import { Block, Context, Document, Row } from "./types.d.ts" */

/** What stands in each cell of a chain's row; `view/why.py` has the same order. */
const AT = { step: 0, words: 1, value: 2, cut: 3, rule: 4 };

/** @typedef {{ axis: string, rows: Row[] }} Chain */

/**
 * The chains of an answer, one for each mesh axis.
 * @param {Document | undefined} document
 * @returns {Chain[]}
 */
export function chainsOf(document) {
  /** @type {Chain[]} */
  const found = [];
  /** @param {Block[]} blocks */
  function visit(blocks) {
    for (const block of blocks) {
      if (block.block === "section") visit(block.blocks || []);
      else if (block.block === "table" && block.name === "why-chain" && block.rows?.length) {
        found.push({ axis: stepOf(block.rows[0]).axis, rows: block.rows });
      }
    }
  }
  visit(document?.blocks || []);
  return found;
}

/** The axis and the place of a step. @param {Row} row */
function stepOf({ sel }) {
  const text = sel?.[1] || "";
  const at = text.lastIndexOf(":");
  return { axis: text.slice(0, at), place: Number(text.slice(at + 1)) };
}

/** The line of a step, `model.py:20`; empty where it has none. @param {Row} row */
export function lineOf({ cells }) {
  return pieces(cells[AT.step]).find(({ k }) => k === "line")?.t || "";
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el where the answer is put
 * @param {HTMLElement} other what it takes the place of
 */
export function why(ctx, el, other) {
  const title = h("div", { class: "sv-whytitle" });
  const close = h("button", {
    class: "sv-link sv-whyclose",
    id: "why-close",
    title: "close the answer (Escape)",
    onclick: () => end(),
  }, "‹ back");
  const along = h("div", { class: "sv-scrub", hidden: true });
  const told = h("div", { class: "sv-whytold" });
  const body = h("div", { class: "sv-whybody" });
  const box = h(
    "div",
    { class: "sv-whybox", id: "why", role: "region", "aria-label": "why", tabindex: "-1", hidden: true },
    h("div", { class: "sv-whyhead" }, close, title),
    along,
    h("div", { class: "sv-whyrest" }, told, body),
  );
  const view = documentView(ctx, body);
  /** @type {Chain[]} */
  let chains = [];
  let which = 0;
  let step = 0;
  /** The test id of what the answer was asked from, to which the focus goes back. */
  let asker = "";
  let entering = false; // whether the focus is to go into the answer when it is there

  /** @type {HTMLInputElement} */
  const range = h("input", {
    type: "range",
    id: "why-step",
    min: "0",
    step: "1",
    "aria-label": "step of the chain, from the cause to the value",
    oninput: () => go(which, Number(range.value)),
    onkeydown: (/** @type {KeyboardEvent} */ e) => e.key !== "Escape" && e.key !== "Tab" && e.stopPropagation(),
  });
  /** @param {string} id @param {string} label @param {string} words @param {number} by */
  const stepper = (id, label, words, by) =>
    h("button", { class: "sv-btn", id, "aria-label": label, onclick: () => go(which, step + by) }, words);
  const [back, on] = [stepper("why-back", "a step back", "◂", -1), stepper("why-on", "a step on", "▸", 1)];
  const count = h("span", { class: "sv-soft sv-whycount" });
  const axes = h("span", { class: "sv-whyaxes", role: "group", "aria-label": "the chain of which axis" });
  const now = h("div", { class: "sv-whynow", id: "why-now", role: "status" });
  along.append(h("div", { class: "sv-scrubbar" }, axes, back, range, on, count), now);
  el.append(box);

  /** Takes the answer away; the focus goes back to where it was asked. */
  function end() {
    const inside = box.contains(focused(box));
    ctx.edit({ op: "close_why" });
    const root = box.closest(".shardviz");
    if (inside && root) /** @type {HTMLElement | null} */ (find(root, asker))?.focus({ preventScroll: true });
  }

  /** @param {number} chain @param {number} at */
  function go(chain, at) {
    const rows = chains[chain]?.rows || [];
    which = chain;
    step = Math.max(0, Math.min(at, rows.length - 1));
    scrub();
  }

  /** The step in words: what hands the axis on, from what to what. */
  function scrub() {
    const chain = chains[which];
    along.hidden = !chain;
    if (!chain) return ctx.light(ctx.get("why").line ? [ctx.get("why").line] : [], "");
    const { rows } = chain;
    const row = rows[step];
    range.max = String(rows.length - 1);
    range.value = String(step);
    range.setAttribute(
      "aria-valuetext",
      `${step + 1} of ${rows.length}: ${row.cells.slice(0, 4).map(plain).join(" ")}`,
    );
    back.disabled = step === 0;
    on.disabled = step === rows.length - 1;
    count.textContent = `${step + 1} / ${rows.length}`;
    fill(axes, chains.length > 1 ? chains.map((each, n) => axisButton(each.axis, n)) : null);
    const value = (
      /** @type {Row} */ each,
    ) => [inline(ctx, each.cells[AT.value]), " ", inline(ctx, each.cells[AT.cut])];
    const before = step ? rows[step - 1] : null;
    fill(
      now,
      h("span", { class: "sv-whyends" }, before ? [value(before), h("b", {}, " → ")] : "begins at ", value(row)),
      h("span", {}, inline(ctx, row.cells[AT.step]), " ", before ? inline(ctx, row.cells[AT.words]) : null),
      h("span", { class: "sv-soft" }, inline(ctx, row.cells[AT.rule])),
    );
    for (const each of body.querySelectorAll("tr.sv-now")) each.classList.remove("sv-now");
    if (row.sel) find(body, `step-${row.sel[1]}`)?.classList.add("sv-now");
    ctx.light(rows.map(lineOf).filter(Boolean), lineOf(row) || lineBefore(rows));
  }

  /** The line of the last step before this one that has one, else of the next. @param {Row[]} rows */
  function lineBefore(rows) {
    const near = [...rows.slice(0, step).reverse(), ...rows.slice(step + 1)];
    return near.map(lineOf).find(Boolean) || "";
  }

  /** @param {string} axis @param {number} n */
  function axisButton(axis, n) {
    const attributes = { class: "sv-chip", style: axisStyle(ctx, axis), "aria-pressed": String(n === which) };
    return h("button", { ...attributes, id: `why-axis-${axis}`, onclick: () => go(n, 0) }, axis);
  }

  function draw() {
    const { document, name, busy, tried, trouble } = ctx.get("why");
    const open = Boolean(name);
    const fresh = box.hidden || box.dataset.of !== JSON.stringify([name, ctx.get("why").axis, Boolean(document)]);
    box.hidden = !open;
    other.hidden = open;
    if (!open) {
      chains = [];
      ctx.light([], "");
      return;
    }
    box.dataset.of = JSON.stringify([name, ctx.get("why").axis, Boolean(document)]);
    fill(title, document?.title ? inline(ctx, document.title) : ["why ", h("code", {}, name)]);
    const waiting = `Taking specs away, one after the other, to see …${tried ? ` ${tried} tried` : ""}`;
    fill(
      told,
      !document && busy ? h("p", { class: "sv-soft", role: "status" }, waiting) : null,
      trouble ? h("p", { class: "sv-warn", role: "alert" }, trouble) : null,
    );
    body.hidden = !document;
    chains = chainsOf(document);
    if (document) view.draw({ ...document, title: undefined });
    if (fresh) [which, step] = [0, Math.max(0, (chains[0]?.rows.length ?? 1) - 1)];
    go(which, step);
    if (fresh && document && entering) {
      entering = false;
      (along.hidden ? close : range).focus({ preventScroll: true });
    }
  }

  box.addEventListener("keydown", (e) => {
    if (e.key !== "Escape") return;
    end();
    e.preventDefault();
    e.stopPropagation();
  });
  ctx.askWhy = (name, axis = "") => {
    const root = box.closest(".shardviz");
    const active = root && focused(root);
    if (active && !box.contains(active)) asker = active.getAttribute("data-testid") || "";
    entering = true;
    ctx.openDrawer();
    ctx.edit({ op: "ask_why", name, axis });
  };
  ctx.goStep = (name) => {
    const { axis, place } = stepOf(/** @type {Row} */ ({ cells: [], sel: ["step", name] }));
    const chain = chains.findIndex((each) => each.axis === axis);
    if (chain >= 0) go(chain, place);
  };
  for (const key of ["why", "mesh"]) ctx.on(key, draw);
  draw();
}
