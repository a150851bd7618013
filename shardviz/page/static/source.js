// @ts-check
// The person's own source as the kernel tells it: beside each line what it takes of the step. A click opens a line: its
// values, its collectives, what it costs and why, and the mends that were tried.
import { fill, find, h, keeper } from "./dom.js";
import { bar, documentView, inline, pieces, plain } from "./document.js";
import { waiting } from "./head.js";

/** @import { Context, Document, Inline, Kept, Line } from "./types.d.ts" */

const FLASH = 1500; // milliseconds in which a line that was asked for is lit up, also where it is drawn anew
const GAP = 3; // lines left out before a gap is shown

/**
 * Whether lines are left out before each.
 * @param {number[]} numbers
 */
export function gaps(numbers) {
  return numbers.map((n, i) => i > 0 && n > numbers[i - 1] + GAP);
}

/** How much of the longest line's share a line has. @param {Line} line */
export const heatOf = ({ bar = [] }) => bar.reduce((sum, { share }) => sum + share, 0);

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function source(ctx, el) {
  /** The line that is to be shown as soon as it is there. @type {string | null} */
  let wanted = null;
  let flash = { at: "", end: 0 };
  let placed = false; // whether the hottest line, or one that was asked for, has been brought into sight
  /** The lines that are open. @type {Set<string>} */
  const open = new Set();

  /** What happens on a line: a value, what is computed, a collective. @param {Inline} said */
  function event(said) {
    const found = pieces(said);
    return h("span", { class: `sv-coll sv-${found[0]?.t}` }, inline(ctx, found));
  }

  /** A line's number, which leads to what JAX, Shardy and XLA make of it. @param {string} at @param {string} words */
  function raw(at, words) {
    const onclick = () => {
      ctx.query({ line: at, find: "", only: false, at: 0 });
      ctx.setTab("stages");
    };
    const title = `${at} in the raw stages`;
    return h("button", { class: "sv-no sv-link", id: `raw-${at}`, title, "aria-label": title, onclick }, words);
  }

  /** @param {string} at */
  function toggle(at) {
    if (!open.delete(at)) open.add(at);
    ctx.openLines([...open]);
    draw();
  }

  /**
   * A line: its number, its share, its text and what it takes; open, also what happens on it, why, and what helps.
   * @param {Line} line
   * @param {Inline} text
   * @param {Document} [costs]
   */
  function lineOf(line, text, costs) {
    const { n, at, bar: parts = [], amount, more, on = [] } = line;
    const [code] = pieces(text);
    const [number, words] = [at ? raw(at, n) : h("span", { class: "sv-no" }, n), code.tip || code.t.trim()];
    const shown = at !== undefined && open.has(at);
    const attributes = {
      class: `sv-ln ${at ? "" : "sv-quiet"} ${isAbout(line) ? "sv-sel" : shown ? "sv-shown" : ""}`,
      id: at && `line-${at}`,
      "data-thing": at && `line ${at}`,
      "data-heat": heatOf(line),
      onclick: at ? () => toggle(at) : undefined,
    };
    const said = h("code", { title: words }, code.t);
    const row = h(
      "div",
      attributes,
      number,
      parts.length ? bar(ctx, parts) : h("span"),
      at
        ? h("button", { class: "sv-opens", id: `open-line-${at}`, "aria-expanded": String(shown), title: words }, said)
        : said,
      h("span", { class: "sv-more" }, more ? inline(ctx, more) : null),
      h("span", { class: "sv-amount" }, amount ? inline(ctx, amount) : null),
    );
    if (!shown) return row;
    const below = h("div", {});
    if (costs) documentView(ctx, below).draw(costs);
    return h("div", {}, row, h("div", { class: "sv-in", id: `in-${at}` }, on.map(event), below));
  }

  /** Whether the selected value is on a line. @param {Line} line */
  function isAbout({ on = [] }) {
    return on.some((said) => pieces(said).some((p) => p.sel?.[0] === "value" && p.sel[1] === ctx.get("selected")));
  }

  /** @type {ReturnType<typeof keeper<HTMLElement>>} */
  const keep = keeper();

  /** The space where lines are left out. */
  const gap = () => h("div", { class: "sv-gap", "aria-hidden": "true" }, "⋯");

  function draw() {
    const { files, none = [] } = ctx.get("source");
    if (!files) { // the kernel says it when the place is gone to; until then the last answer stays
      if (!el.childElementCount) fill(el, waiting(ctx));
      return;
    }
    const { files: texts } = ctx.get("texts");
    if (!placed && !open.size) openHottest(files.flatMap(({ lines }) => lines));
    const around = JSON.stringify([ctx.get("mesh").axes, ctx.get("selected")]);
    /** @param {Line} line @param {number} n of its file @param {number} i in it @returns {Kept<HTMLElement>} */
    const kept = (line, n, i) => {
      const text = texts?.[n]?.[i] ?? "";
      const shown = Boolean(line.at && open.has(line.at));
      const costs = shown ? ctx.get("lines")[line.at ?? ""] : undefined;
      const looks = JSON.stringify([line, text, shown, costs]);
      return [`${n} ${line.n}`, `${around} ${looks}`, () => lineOf(line, text, costs)];
    };
    const made = keep(files.flatMap(({ lines }, n) => lines.map((line, i) => kept(line, n, i))));
    let at = 0;
    const shown = files.map(({ title, lines }) => {
      const left = gaps(lines.map(({ n }) => Number(n)));
      const rows = lines.map((_, i) => [left[i] ? gap() : null, made[at++]]);
      return [h("div", { class: "sv-file" }, title), rows];
    });
    fill(el, files.length ? null : h("p", { class: "sv-empty" }, plain(none)), shown);
    light();
    if (performance.now() < flash.end) find(el, `line-${flash.at}`)?.classList.add("sv-changed");
    if (wanted) requestAnimationFrame(toWanted);
    else if (!placed) requestAnimationFrame(toHottest);
  }

  /** To the line that was asked for, and lights it up for a moment. */
  function toWanted() {
    const row = wanted && find(el, `line-${wanted}`);
    if (!wanted || !row) return;
    flash = { at: wanted, end: performance.now() + FLASH };
    wanted = null;
    placed = true;
    el.scrollTop += offset(row) - el.clientHeight / 3;
    row.classList.remove("sv-changed");
    void row.offsetWidth; // so that the flash begins anew
    row.classList.add("sv-changed");
  }

  /** Lights up the lines that a chain goes through, the one where it is now the most. */
  function light() {
    const { lines, now } = ctx.lit;
    for (const row of el.querySelectorAll(".sv-lit, .sv-now")) row.classList.remove("sv-lit", "sv-now");
    for (const at of lines) find(el, `line-${at}`)?.classList.add("sv-lit");
    find(el, `line-${now}`)?.classList.add("sv-now");
  }

  /** Brings the line where a chain is now into sight. */
  function toLit() {
    const row = ctx.lit.now && find(el, `line-${ctx.lit.now}`);
    if (!row || !el.clientHeight) return;
    placed = true;
    const top = offset(row);
    if (top < 0 || top + row.clientHeight > el.clientHeight) el.scrollTop += top - el.clientHeight / 3;
  }

  /** Pixels from the top of the pane to a line. @param {HTMLElement} row */
  const offset = (row) => row.getBoundingClientRect().top - el.getBoundingClientRect().top;

  /** At first the line that takes most is open. @param {Line[]} lines */
  function openHottest(lines) {
    const hottest = lines.reduce((a, b) => heatOf(b) > heatOf(a) ? b : a, { n: "" });
    if (!hottest.at || !heatOf(hottest)) return;
    open.add(hottest.at);
    ctx.openLines([...open]);
  }

  /** At first the line that takes most is in sight; after that the person scrolls. */
  function toHottest() {
    const row = find(el, `line-${[...open][0]}`);
    if (!row || !el.clientHeight) return;
    placed = true;
    el.scrollTop = offset(row) - el.clientHeight / 4;
  }

  // From wherever a line is named, to the line.
  ctx.showLine = (at) => {
    wanted = at;
    open.add(at);
    ctx.openLines([...open]);
    ctx.setTab("source");
    ctx.when("source", draw);
    requestAnimationFrame(toWanted);
  };
  ctx.on("lit", () => {
    light();
    requestAnimationFrame(toLit);
  });
  const update = () => ctx.when("source", draw);
  for (const key of ["source", "texts", "selected", "mesh", "lines"]) ctx.on(key, update);
  update();
}
