// @ts-check
// The logical dimensions: a row each, into which axes go, and every array that has it is sharded along them. What disagrees says so.
import { fill, find, focused, h, isFilling, keeper } from "./dom.js";
import { chip, cutText } from "./chips.js";
import { dragAxis, dropAxis } from "./drag.js";
import { isLegal } from "./menu.js";
import { refusal } from "./head.js";

/** @import { Child, Context, DimensionRow, Kept } from "./types.d.ts" */

const NAMED = 2; // arrays that disagree and are named
const FIRST = 6; // rows that are shown at first, besides those of which there is something to see

/**
 * The arrays that are cut otherwise, those that are cut alike together, each name once.
 * @param {DimensionRow["otherwise"]} otherwise
 * @returns {{ name: string, labels: string[], words: string }[]}
 */
export function differing(otherwise) {
  /** @type {Map<string, { name: string, labels: string[], words: string }>} */
  const found = new Map();
  for (const { name, label, words } of otherwise) {
    const group = found.get(words) ?? { name, labels: [], words };
    if (!group.labels.includes(label)) group.labels.push(label);
    found.set(words, group);
  }
  return [...found.values()];
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function dimensions(ctx, el) {
  const list = h("div", { class: "sv-dimensions", role: "grid", "aria-label": "Dimensions" });
  const hint = h("span", { class: "sv-hint" }, "an axis shards every array");
  const title = h("div", { class: "sv-sec" }, "Dimensions", hint);
  const box = h("div", { class: "sv-dimbox" }, title, list);
  const more = h("button", { class: "sv-link sv-dimmore", id: "dimensions-more", onclick: () => unfold(!all) });
  let all = false;
  box.append(more);
  el.append(box);
  /** What each slot would take. @type {WeakMap<Element, (axis: string) => boolean>} */
  const takes = new WeakMap();
  let at = 0; // the row at which Tab enters
  /** The dimension that is being given another name. */
  let naming = "";

  /** Whether a row can wait until all are asked for. @param {DimensionRow} row @param {number} place */
  const waiting = (row, place) => place >= FIRST && place !== at && !row.axes.length && !row.otherwise.length;

  /** @param {boolean} open */
  function unfold(open) {
    all = open;
    list.classList.toggle("sv-all", all);
    const rest = ctx.get("dimensions").rows.filter(waiting).length;
    more.hidden = !rest;
    more.textContent = all ? "show less" : `${rest} more`;
    more.setAttribute("aria-expanded", String(all));
  }

  /** @type {ReturnType<typeof keeper<Child>>} */
  const keep = keeper();

  /** A row, with all that it shows. @param {DimensionRow} row @param {number} place @returns {Kept<Child>} */
  function kept(row, place) {
    const looks = [row, place, place === at, naming === row.name, ctx.lastAsked("cut_dimension", row.name)?.axes];
    return [row.name, JSON.stringify([looks, ctx.get("mesh").axes, ctx.get("status").error]), () => line(row, place)];
  }

  /** @param {DimensionRow} row @param {number} place */
  function line(row, place) {
    const waits = ctx.lastAsked("cut_dimension", row.name)?.axes;
    const axes = waits ?? row.axes;
    const id = `dim-${row.name}`;
    const names = ctx.get("mesh").axes.map(({ name }) => name);
    const may = (/** @type {string} */ axis) => isLegal(row.choices[names.indexOf(axis)]);
    const chips = axes.map((axis) => {
      const shown = chip(ctx, axis);
      if (typeof axis === "string") dragAxis(shown, axis);
      return shown;
    });
    const slot = h("button", {
      class: `sv-slot ${axes.length ? "sv-cut" : ""}`,
      id,
      tabindex: place === at ? "0" : "-1",
      "aria-haspopup": "dialog",
      "aria-expanded": "false",
      "aria-label": `dimension ${row.name} of size ${row.size}, ${row.arrays}: ${cutText(axes)}`,
      onclick: () => {
        at = place;
        ctx.openMenu({ what: "dimensions", name: row.name, id });
      },
      onkeydown: (e) => keys(e, row, place),
    }, chips.length ? chips : h("em", {}, "drop an axis"));
    takes.set(slot, may);
    dropAxis(slot, may, (axis) => ctx.edit({ op: "cut_dimension", name: row.name, axes: [...axes, axis] }));
    const { error } = ctx.get("status");
    const mine = error?.place === "dimension" && error.subject === row.name;
    return [
      h(
        "div",
        {
          class: `sv-dimrow ${row.otherwise.length && row.grave ? "sv-odd" : ""} ${
            waiting(row, place) ? "sv-rest" : ""
          }`,
          role: "row",
          "data-thing": `dimension ${row.name}`,
          id: `dimension-${row.name}`,
        },
        h(
          "span",
          { class: "sv-dimname", role: "rowheader", title: [row.arrays, ...row.several].join("\n") },
          naming === row.name ? field(row.name) : named(row.name),
          h("small", {}, row.said),
        ),
        h("span", { class: "sv-dimslot", role: "gridcell" }, slot, waits ? null : odd(row)),
        h("span", { class: "sv-mem", role: "gridcell" }, row.size),
      ),
      mine ? refusal(ctx, error, "dimension-error") : null,
    ];
  }

  /** @param {string} name */
  function named(name) {
    return h("button", {
      class: "sv-dimtitle",
      id: `rename-${name}`,
      tabindex: "-1",
      title: `${name}: click to call it otherwise (F2)`,
      onclick: () => rename(name),
    }, name);
  }

  /** @param {string} name */
  function rename(name) {
    naming = name;
    at = ctx.get("dimensions").rows.findIndex((row) => row.name === name);
    draw();
    const input = /** @type {HTMLInputElement | null} */ (find(list, `new-${name}`));
    input?.focus();
    input?.select();
  }

  /** @param {string} name */
  function field(name) {
    /** @param {boolean} take */
    function done(take) {
      if (naming !== name) return;
      naming = "";
      const text = input.value.trim();
      if (take && text && text !== name) ctx.edit({ op: "rename_dimension", old: name, new: text });
      draw();
    }
    const input = h("input", {
      type: "text",
      class: "sv-newdim",
      id: `new-${name}`,
      value: name,
      "aria-label": `another name for dimension ${name}`,
      spellcheck: "false",
      onkeydown: (e) => {
        e.stopPropagation();
        if (e.key === "Enter" || e.key === "Escape") {
          e.preventDefault(); // else the same key opens the slot's menu
          done(e.key === "Enter");
          find(list, `dim-${name}`)?.focus();
        }
      },
      onblur: () => isFilling() || done(true),
    });
    return input;
  }

  /** The arrays that are cut otherwise than the rest. @param {DimensionRow} row */
  function odd({ otherwise, grave }) {
    if (!otherwise.length) return null;
    const groups = differing(otherwise);
    const rest = groups.length - NAMED;
    const title = otherwise.map(({ name, words }) => `${name}: ${words}`).join("\n");
    return h(
      "span",
      { class: `sv-but ${grave ? "" : "sv-little"}`, title },
      "but ",
      groups.slice(0, NAMED).map(({ name, labels, words }, i) => [
        i ? "; " : "",
        h("button", {
          class: "sv-link",
          tabindex: "-1",
          "data-thing": `value ${name}`,
          onclick: () => ctx.select(name),
        }, labels.join(", ")),
        ` ${words}`,
      ]),
      rest > 0 ? `; ${rest} more` : "",
    );
  }

  /**
   * @param {KeyboardEvent} e
   * @param {DimensionRow} row
   * @param {number} place
   */
  function keys(e, row, place) {
    const { rows } = ctx.get("dimensions");
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: rows.length - 1 }[e.key];
    if (to !== undefined) {
      if (!rows[to]) return;
      at = to;
      if (to >= FIRST) unfold(true);
      for (const other of list.querySelectorAll(".sv-slot")) other.setAttribute("tabindex", "-1");
      const target = find(list, `dim-${rows[to].name}`);
      target?.setAttribute("tabindex", "0");
      target?.focus();
    } else if (e.key === "Delete" || e.key === "Backspace") {
      if (row.axes.length) ctx.edit({ op: "cut_dimension", name: row.name, axes: [] });
    } else if (e.key === "F2") rename(row.name);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  function words() {
    const { state, trouble, unasked } = ctx.get("dimensions");
    if (state === "busy") return "looking for the dimensions that arrays share …";
    if (state === "failed") return `no dimensions: ${trouble}`;
    if (state || unasked) return "";
    const ask = h(
      "button",
      { class: "sv-btn", id: "find-dimensions", onclick: () => ctx.want("dimensions") },
      "find them",
    );
    return ["which dimensions arrays share: a program this large takes minutes ", ask];
  }

  function draw() {
    const { rows, state } = ctx.get("dimensions");
    at = Math.min(at, Math.max(0, rows.length - 1));
    hint.hidden = !rows.length;
    const { error } = ctx.get("status");
    const lost = error?.place === "dimension" && !rows.some(({ name }) => name === error.subject);
    const said = words();
    const inside = list.contains(focused(list));
    fill(
      list,
      lost ? refusal(ctx, error, "dimension-error") : null,
      said ? h("div", { class: "sv-empty", id: "dimensions-state", role: "status" }, said) : null,
      keep(rows.map(kept)),
    );
    if (inside && !list.contains(focused(list))) { // the row that had the focus is called otherwise now
      find(list, `dim-${rows[at]?.name}`)?.focus({ preventScroll: true });
    }
    unfold(all);
    box.hidden = state === "found" && !rows.length;
  }

  el.closest(".shardviz")?.addEventListener("sv-drag", (e) => {
    const axis = /** @type {CustomEvent<string | null>} */ (e).detail;
    list.classList.toggle("sv-all", all || axis !== null); // it may be dropped on any
    for (const slot of list.querySelectorAll(".sv-slot")) {
      const may = axis !== null && takes.get(slot)?.(axis);
      slot.classList.toggle("sv-may", axis !== null && may === true);
      slot.classList.toggle("sv-maynot", axis !== null && may === false);
    }
  });
  let lastError = "";
  for (const key of ["dimensions", "mesh", "asked"]) ctx.on(key, draw);
  ctx.on("status", () => {
    const error = JSON.stringify(ctx.get("status").error);
    if (error !== lastError) draw();
    lastError = error;
  });
  draw();
  const { state, unasked } = ctx.get("dimensions");
  if (!state && unasked) ctx.want("dimensions");
}
