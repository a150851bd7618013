// @ts-check
// The person's own source as the kernel tells it: on each line its share of the step, and what happens there.
import { fill, find, h, keeper } from "./dom.js";
import { inline, pieces, plain } from "./document.js";
import { waiting } from "./head.js";

/** @import { Context, Inline, Kept, Line } from "./types.d.ts" */

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

  /**
   * A line: its number, its share, its text, what it costs more than elsewhere, and what happens on it.
   * @param {Line} line
   * @param {Inline} text
   */
  function lineOf(line, text) {
    const { n, at, bar = [], more, on = [] } = line;
    const [code] = pieces(text);
    const [number, words] = [at ? raw(at, n) : h("span", { class: "sv-no" }, n), code.tip || code.t.trim()];
    const attributes = {
      class: `sv-ln ${at ? "" : "sv-quiet"} ${isAbout(line) ? "sv-sel" : ""}`,
      id: at && `line-${at}`,
      "data-thing": at && `line ${at}`,
      "data-heat": heatOf(line),
    };
    const shares = bar.map(({ tip }) => tip).join("; ") || "nothing moves here";
    return h(
      "div",
      attributes,
      number,
      h("span", at ? { class: "sv-heat", title: shares } : {}, bars(line)),
      h("code", { title: words }, code.t),
      h("span", { class: at ? "sv-more" : null }, more ? inline(ctx, more) : null),
      h("span", { class: "sv-ann" }, on.map(event)),
    );
  }

  /** A line's share of the step. @param {Line} line */
  function bars({ bar = [] }) {
    return bar.filter(({ share }) => share).map(({ share, role }) =>
      h("i", { class: `sv-fill-${role}`, style: { width: `${Math.max(3, 100 * share)}%` } })
    );
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
    const around = JSON.stringify([ctx.get("mesh").axes, ctx.get("selected")]);
    /** @param {Line} line @param {number} n of its file @param {number} i in it @returns {Kept<HTMLElement>} */
    const kept = (line, n, i) => {
      const text = texts?.[n]?.[i] ?? "";
      return [`${n} ${line.n}`, `${around} ${JSON.stringify([line, text])}`, () => lineOf(line, text)];
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

  // At first the hottest line is in sight; after that the person scrolls.
  function toHottest() {
    /** @type {NodeListOf<HTMLElement>} */
    const rows = el.querySelectorAll(".sv-ln");
    const heat = (/** @type {HTMLElement} */ row) => Number(row.dataset.heat || 0); // a line without a bar says nothing
    const hottest = [...rows].sort((a, b) => heat(b) - heat(a))[0];
    if (!hottest || !el.clientHeight || !heat(hottest)) return;
    placed = true;
    el.scrollTop = offset(hottest) - el.clientHeight / 2;
  }

  // From wherever a line is named, to the line.
  ctx.showLine = (at) => {
    wanted = at;
    ctx.setTab("source");
    requestAnimationFrame(toWanted);
  };
  ctx.on("lit", () => {
    light();
    requestAnimationFrame(toLit);
  });
  const update = () => ctx.when("source", draw);
  for (const key of ["source", "texts", "selected", "mesh"]) ctx.on(key, update);
  update();
}
