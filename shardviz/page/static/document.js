// @ts-check
// Any Document of the kernel: its blocks one below the other, each piece with its look. What a person has opened stays
// open, and the focus stays where it is, when the document is drawn again.
import { fill, h, keeper, lineLink } from "./dom.js";
import { legend, picture } from "./picture.js";
import { axesChips, axisName, axisStyle, chip, specChips } from "./chips.js";

/** @import { Bar, Block, Child, Column, Context, Document, Editors, Figure, Inline, Kept, Piece, Query, Row, Section, Selects, Table } from "./types.d.ts" */

const THINGS = ["value", "line", "device", "moved"]; // what is lit wherever it stands
const OFFERED = ["remedy", "offer"];
const CLOSING = /^[,;:.)]/;
const BAR = 18; // characters that a bar is as wide as
const SAMPLE = 60; // rows by which a table's columns are made as wide as they are
const HATCHES = 4; // second cues of bars, by the axis's place in the mesh
const SHORT = 10; // characters of a number that is never broken over two lines
const NAME = 14; // and of a name
const WHOLE = 4; // characters that a column of names gets more than they have, since it cannot be narrower

/** What a click on a thing of each kind does. @type {Record<string, (ctx: Context, id: string) => void>} */
const ACTS = {
  value: (ctx, id) => ctx.select(id),
  line: (ctx, id) => ctx.showLine(id),
  device: (ctx, id) => ctx.pickDevice(Number(id)),
  tab: (ctx, id) => ctx.setTab(id),
  choose: (ctx) => ctx.chooseTarget(),
  why: (ctx, name) => ctx.askWhy(name),
  without: (ctx, cause) => ctx.edit({ op: "ask_without", cause: Number(cause) }),
  step: (ctx, step) => ctx.goStep(step),
  remedy: (ctx, action) => ctx.edit({ op: "take_remedy", action }),
  "values of": (ctx, line) => look(ctx, "values", { line, text: "", changed: false }),
  "collectives of": (ctx, line) => look(ctx, "collectives", { line }),
  changed: (ctx) => look(ctx, "values", { changed: true }),
};

/** Shows what is asked for in a tab. @param {Context} ctx @param {string} tab @param {Query} query */
function look(ctx, tab, query) {
  ctx.query(query);
  ctx.setTab(tab);
}

/**
 * The pieces of a cell or a line.
 * @param {Inline} inline
 * @returns {Piece[]}
 */
export function pieces(inline) {
  const found = Array.isArray(inline) ? inline : [inline];
  return found.map((piece) => (typeof piece === "string" ? { t: piece } : { t: "", ...piece }));
}

/**
 * Things with a space between them, but before a comma, a colon or the like.
 * @template T
 * @param {Piece[]} found
 * @param {T[]} made what was made of each
 * @returns {(T | string)[]}
 */
export function spaced(found, made) {
  return made.flatMap((part, i) => (i && found[i].t && !CLOSING.test(found[i].t) ? [" ", part] : [part]));
}

/**
 * Pieces in plain text, as the kernel's painter of text writes them.
 * @param {Inline} inline
 */
export function plain(inline) {
  const found = pieces(inline);
  return spaced(found, found.map(({ t, k, v }) => (k === "line" && v ? `${t} ${v}` : t))).join("").trim();
}

/**
 * The first piece of a row's first cell if it is the strong one, and the quieter ones that go below it.
 * @param {Inline} cell
 */
export function stacked(cell) {
  const found = pieces(cell);
  const stacks = found.length > 1 && found[0].b && found.slice(1).every(({ q, k }) => q || k === "line");
  return stacks ? { main: found.slice(0, 1), below: found.slice(1) } : { main: found, below: [] };
}

/**
 * The rows of all tables of a document, those in sections too.
 * @param {Block[]} blocks
 * @returns {Row[]}
 */
export function rowsOf(blocks) {
  return blocks.flatMap((block) =>
    block.block === "table" ? block.rows || [] : block.block === "section" ? rowsOf(block.blocks || []) : []
  );
}

/**
 * How wide each column of a table is, in characters: as its longest cell, within reason.
 * @param {{ columns: Column[], rows: Row[] }} table
 */
export function widths({ columns, rows }) {
  return columns.map(({ title = "", right, wrap }, i) => {
    const longest = Math.max(0, ...rows.slice(0, SAMPLE).map(({ cells }) => wide(cells[i], i === 0)));
    const whole = i && !right && rows.length && rows.slice(0, SAMPLE).every(({ cells }) => isName(cells[i]))
      ? WHOLE
      : 0;
    return Math.min(right ? 20 : wrap ? 52 : i ? 36 : 46, Math.max(right ? 12 : 6, title.length, longest + whole));
  });
}

/** Whether a cell is one short word, which is never broken over two lines. @param {Inline} cell */
const isName = (cell) => /^\S+$/.test(plain(cell)) && plain(cell).length <= NAME && pieces(cell).every(({ k }) => !k);

/** @param {Inline} cell @param {boolean} first */
function wide(cell, first) {
  const { main, below } = first ? stacked(cell) : { main: pieces(cell), below: [] };
  if (main.some(({ k }) => k === "bar")) return BAR;
  return Math.max(plain(main).length + 3, plain(below).length);
}

/**
 * The test id of what selects something, or of what it selects.
 * @param {Selects | undefined} sel
 */
const nameOf = (sel) => sel && `${sel[0]}-${sel[1]}`;

/** What lights up with it, and what a look at it shows beforehand. @param {Selects | undefined} sel */
function things(sel) {
  if (!sel) return {};
  const name = `${sel[0]} ${sel[1]}`;
  return OFFERED.includes(sel[0]) ? { "data-offer": name } : THINGS.includes(sel[0]) ? { "data-thing": name } : {};
}

/** @param {Context} ctx @param {Selects | undefined} sel */
function isSelected(ctx, sel) {
  if (sel?.[0] === "value") return ctx.get("selected") === sel[1];
  return sel?.[0] === "device" && String(ctx.get("device")) === sel[1];
}

/** @param {Piece} found */
function classOf({ b, q, tone }) {
  return [b && "sv-strong", q && "sv-soft", tone && `sv-is-${tone}`].filter(Boolean).join(" ") || null;
}

/** @param {Context} ctx @param {Piece} found @returns {Child} */
function piece(ctx, found) {
  const { t, k, v, tip, sel } = found;
  if (k === "line") return place(ctx, found);
  if (k === "bar") return bar(ctx, v);
  const attributes = { class: classOf(found), title: tip, ...things(sel) };
  if (k === "axes" && v?.length) return h("span", attributes, axesChips(ctx, v));
  if (k === "mesh" && v?.length) {
    return h(
      "span",
      { ...attributes, class: "sv-axes" },
      v.map((/** @type {[string, number]} */ [name, size]) => chip(ctx, name, {}, `${name}=${size}`)),
    );
  }
  if (k === "spec") {
    return h("span", attributes, specChips(ctx, v.dims || [], v.sum, v.kind, sel?.[0] === "why" ? sel[1] : ""));
  }
  const act = sel && ACTS[sel[0]];
  if (!act) return h(k === "code" ? "code" : "span", attributes, t);
  const button = {
    ...things(sel),
    class: ["sv-link", classOf(found)].filter(Boolean).join(" "),
    title: tip,
    id: `pick-${nameOf(sel)}`,
    "aria-pressed": ["value", "device"].includes(sel[0]) ? String(isSelected(ctx, sel)) : null,
    onclick: (/** @type {Event} */ e) => {
      e.stopPropagation();
      act(ctx, sel[1]);
    },
  };
  return h("button", button, t);
}

/** A place in the source, and the text of its line. @param {Context} ctx @param {Piece} found */
function place(ctx, { t, v, tip }) {
  return h(
    "span",
    { class: "sv-clip", title: tip || `${t} ${v || ""}` },
    lineLink(ctx, t),
    v ? [" ", code(v)] : null,
  );
}

/** @param {string} text */
const code = (text) => h("code", { class: "sv-soft" }, text);

/** @param {Context} ctx @param {Bar[]} parts */
export function bar(ctx, parts) {
  const names = ctx.get("mesh").axes.map(({ name }) => name);
  const told = parts.map(({ tip }) => tip).filter(Boolean).join("; ");
  const stretches = parts.map(({ share, axes, role, tip }) => {
    const hatch = axes?.length === 1 ? `sv-hatch-${names.indexOf(axisName(axes[0])) % HATCHES}` : "";
    const look = axes?.length ? `sv-fillaxis ${axes.length > 1 ? "sv-many" : hatch}` : `sv-fill-${role || "work"}`;
    const style = { ...(axes?.length ? axisStyle(ctx, axes[0]) : {}), width: `${100 * share}%` };
    return h("i", { class: look, style, title: tip });
  });
  return h("span", { class: "sv-track", role: told ? "img" : null, "aria-label": told || null }, stretches);
}

/**
 * The pieces of a cell or a line, each with its look.
 * @param {Context} ctx
 * @param {Inline} found
 */
export function inline(ctx, found) {
  const all = pieces(found);
  return spaced(all, all.map((each) => piece(ctx, each)));
}

/**
 * What draws documents into an element.
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {Editors} [editors] by the name of a table: what of it a person can change
 */
export function documentView(ctx, el, editors = {}) {
  /** By fold or row, whether it is open. @type {Map<string, boolean>} */
  const opened = new Map();
  /** @type {Document} */
  let shown = { blocks: [] };
  let fresh = false;
  let wide = 0; // pixels; not known before it was shown
  let turn = 0; // how often it was drawn
  /** @type {ReturnType<typeof keeper<Child>>} */
  const keep = keeper();
  const edited = Object.values(editors).some(({ cell, end }) => cell || end); // they show more than the document says

  /** What belongs to a row's first cell but is quieter, on a line of its own. @param {Piece[]} below */
  function small(below) {
    const parts = below.map((found) =>
      found.k === "line" ? [lineLink(ctx, found.t), " ", code(found.v || "")] : found.t
    );
    const title = below.map((found) => found.tip || plain(found)).join(" · ");
    return h("small", { class: "sv-clip", title }, parts.map((part, i) => [i ? " · " : null, part]));
  }

  /** @param {string} key */
  function toggle(key, before = false) {
    opened.set(key, !(opened.get(key) ?? before));
    draw(shown);
  }

  /**
   * A row's first cell; a button where the row can be opened or selected.
   * @param {Row} row
   * @param {string} key
   * @param {string} id
   * @param {boolean} [right]
   * @param {boolean} [folds]
   * @param {Child} [own] what stands there instead
   */
  function headCell({ cells, detail, sel, marked }, key, id, right = false, folds = false, own) {
    const { main, below } = stacked(cells[0]);
    const act = sel && ACTS[sel[0]];
    const open = opened.get(key) ?? false;
    const text = { class: below.length ? "sv-clip" : null, title: below.length ? main[0].tip || main[0].t : null };
    const mark = marked ? h("span", { class: "sv-mark", title: "changed by the last edit" }, "● ") : null;
    let content = /** @type {Child} */ (inline(ctx, below.length ? main.map((part) => ({ ...part, tip: "" })) : main));
    if (own) content = own;
    else if (detail && folds) {
      const attributes = { class: "sv-link sv-plain", id: `open-${id}`, "aria-expanded": String(open) };
      const onclick = () => toggle(key);
      content = h("button", { ...attributes, title: "more of it", onclick }, content, open ? " ▾" : " ▸");
    } else if (act) {
      const attributes = { class: "sv-link sv-plain", id: `pick-${id}`, "aria-pressed": String(isSelected(ctx, sel)) };
      content = h("button", attributes, content);
    }
    return h(
      "th",
      { scope: "row", class: right ? "sv-num" : null },
      h(
        "div",
        plain(main).length <= NAME ? { ...text, class: `${text.class || ""} sv-short`.trim() } : text,
        mark,
        content,
      ),
      below.length ? small(below) : null,
    );
  }

  /**
   * @param {Row} row
   * @param {Table} table
   * @param {string} path
   * @param {number} n
   */
  function rowOf(row, { columns, name, folds }, path, n) {
    const { cells, detail, sel, marked } = row;
    const { cell: editor, end, inside } = editors[name || ""] || {};
    const id = nameOf(sel) || `${name || path}-${n}`;
    const key = `${path}/${id}/${n}`;
    const act = detail ? null : sel && ACTS[sel[0]];
    const looks = [isSelected(ctx, sel) && "sv-sel", act && "sv-act", marked && fresh && "sv-changed"].filter(Boolean);
    const open = detail && (!folds || opened.get(key));
    const rest = cells.slice(1).map((cell, i) => {
      const { title = "", right } = columns[i + 1];
      const short = right ? plain(cell).length <= SHORT : isName(cell);
      const looks = [right && "sv-num", short && "sv-short"].filter(Boolean);
      const content = editor?.(row, n, i + 1) ?? inline(ctx, cell);
      const more = open && inside === i + 1 ? h("div", { id: `detail-${id}` }, blocks(detail, key)) : null;
      return h("td", { class: looks.join(" ") || null, "data-head": title || null }, content, more);
    });
    const first = h(
      "tr",
      {
        ...things(sel),
        class: looks.join(" ") || null,
        id: nameOf(sel),
        onclick: act && sel ? () => act(ctx, sel[1]) : undefined,
      },
      headCell(row, key, id, columns[0].right, folds, editor?.(row, n, 0)),
      rest,
      end ? h("td", { class: "sv-end" }, end(row, n)) : null,
    );
    if (!open || inside) return first;
    const more = h("td", { colspan: columns.length + (end ? 1 : 0), id: `detail-${id}` }, blocks(detail, key));
    return [first, h("tr", { class: "sv-more-of" }, more)];
  }

  /** @param {Table} block @param {string} path */
  function table(block, path) {
    const { columns, rows = [], caption, more, noun, name } = block;
    const end = editors[name || ""]?.end;
    const chars = [...(editors[name || ""]?.widths || widths({ columns, rows })), ...(end ? [14] : [])];
    const total = chars.reduce((sum, n) => sum + n, 0);
    const least = columns.length > 7 ? 780 : columns.length > 5 ? 640 : columns.length > 3 ? 520 : 160;
    const heads = columns.map(({ title = "", right }) =>
      h("th", { scope: "col", class: right ? "sv-num" : null }, title)
    );
    return [
      caption ? h("h3", { class: "sv-sec" }, caption) : null,
      h(
        "table",
        {
          class: "sv-table sv-doctable",
          id: name,
          "data-least": least,
          style: { "max-width": `${Math.max(48, 1.5 * total)}ch` },
        },
        h("colgroup", {}, chars.map((n) => h("col", { style: { width: `${100 * n / total}%` } }))),
        columns.some(({ title }) => title) ? h("thead", {}, h("tr", {}, heads, end ? h("th") : null)) : null,
        h("tbody", {}, rows.map((row, n) => rowOf(row, block, path, n))),
      ),
      more
        ? h("p", { class: "sv-soft" }, `… and ${more.toLocaleString("en")} more ${noun}${more === 1 ? "" : "s"}`)
        : null,
    ];
  }

  /** @param {Section} block @param {string} path */
  function section({ title, lead, blocks: inner = [], fold, name }, path) {
    const first = lead ? h("p", { class: "sv-lead" }, inline(ctx, lead)) : null;
    if (!fold) return h("section", { id: name }, h("h3", { class: "sv-sec" }, title), first, blocks(inner, path));
    const key = name || path;
    const before = fold === "open";
    const open = opened.get(key) ?? before;
    const onclick = (/** @type {Event} */ e) => {
      e.preventDefault();
      toggle(key, before);
    };
    const summary = h("summary", { class: "sv-sec", id: `fold-${key}`, onclick }, title);
    return h("details", { id: name, open }, summary, first, open ? blocks(inner, path) : null);
  }

  /** @param {Figure} block */
  function figure({ of, caption, name = "figure" }) {
    if (of.lines) return h("pre", { class: "sv-code" }, of.lines);
    if (!of.shapes) return h("figure", {}, caption, h("p", { class: "sv-soft" }, of.alt));
    const hint = "point at a cell, or walk with the arrow keys";
    const device = ctx.get("device");
    const pick = (/** @type {number[]} */ keys) => ctx.pickDevice(keys.includes(device) ? -1 : keys[0]);
    const view = picture(ctx, of, { id: name, said: `${name}-said`, hint, pick });
    view.press(device);
    const size = { "--most": `${of.width}px`, "--ratio": of.width / of.height };
    const said = of.title && of.shapes.some((/** @type {{ told?: unknown }} */ { told }) => told)
      ? of.alt.slice(of.title.length)
      : "";
    return h(
      "figure",
      { class: said ? "sv-docfigure sv-pointed" : "sv-docfigure", style: size },
      h("figcaption", {}, caption, h("b", {}, said && of.title), h("span", { class: "sv-soft" }, said)),
      view.element,
      of.keys.length ? legend(ctx, of, view, `${name}-legend`) : null,
      of.notes.map((/** @type {string} */ text) => h("p", { class: "sv-soft" }, text)),
    );
  }

  /** @param {Block} block @param {string} path @returns {Child} */
  function one(block, path) {
    if (block.block === "table") return table(block, path);
    if (block.block === "section") return section(block, path);
    if (block.block === "beside") {
      const inner = block.blocks.map((each, i) => h("div", {}, one(each, `${path}.${i}`)));
      return h("div", { class: "sv-beside" }, inner);
    }
    if (block.block === "figure") return figure(block);
    const label = block.label ? `${block.label}: ` : "";
    return h("p", { class: block.quiet ? "sv-soft" : null, id: block.name }, label, inline(ctx, block.pieces || []));
  }

  /** @param {Block[]} found @param {string} path @returns {Child[]} */
  function blocks(found, path) {
    return found.map((block, i) => one(block, `${path}.${i}`));
  }

  /**
   * @param {Document} data
   * @param {boolean} [changed] whether it is another one than before: what the last edit changed is lit
   */
  function draw(data, changed = false) {
    shown = data;
    fresh = changed;
    const title = data.title ? h("h2", {}, inline(ctx, data.title)) : null;
    const lead = (data.lead || []).map((line) => h("p", { class: "sv-lead" }, inline(ctx, line)));
    turn += 1;
    const around = JSON.stringify([...opened, ctx.get("selected"), ctx.get("device"), ctx.get("mesh").axes]);
    /** A block with all that it shows. @param {Block} block @param {number} i @returns {Kept<Child>} */
    const kept = (block, i) => {
      const said = JSON.stringify(block);
      const anew = edited || (fresh && said.includes('"marked"')) ? turn : 0;
      return [`b.${i}`, `${anew} ${around} ${said}`, () => one(block, `b.${i}`)];
    };
    fill(el, title, lead, keep(data.blocks.map(kept)));
    if (wide) fit();
  }

  /** A table that is too wide shows each of its rows as a card. */
  function fit() {
    /** @type {NodeListOf<HTMLElement>} */
    const tables = el.querySelectorAll("[data-least]");
    for (const each of tables) each.classList.toggle("sv-cards", wide <= Number(each.dataset.least));
  }

  el.classList.add("sv-doc");
  new ResizeObserver(() => { // it is told before anything is painted; asking for the width costs a layout each time
    wide = el.clientWidth;
    fit();
  }).observe(el);
  return { draw };
}
