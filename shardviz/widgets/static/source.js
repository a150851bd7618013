// @ts-check
// The person's own source: on each line its heat (seconds of the step, or bytes moved where no machine is chosen), its
// values with their specs, and its collectives.
import { fill, find, h } from "./dom.js";
import { axesChips, specChips } from "./chips.js";

/** @import { Collective, Context, SourceLine } from "./types.d.ts" */

/** @type {Record<string, string>} */
const PHASE = { forward: "fwd", backward: "bwd", rematerialised: "remat", update: "" };
const MOST_KINDS = 3; // collectives shown on a line
const GAP = 3; // lines left out before a gap is shown

/**
 * The lines that have text, without the spaces that all of them begin with; `gap` where lines before one are left out.
 * @param {SourceLine[]} lines
 */
export function shownLines(lines) {
  const used = lines.filter((line) => line.text.trim());
  const dedent = Math.min(...used.map((line) => line.text.length - line.text.trimStart().length));
  return used.map((line, i) => ({
    line,
    code: line.text.slice(dedent),
    gap: i > 0 && line.n > used[i - 1].n + GAP,
  }));
}

/**
 * What a line costs in a step, in words.
 * @param {SourceLine} line
 * @param {string} communication what its seconds are of
 */
export function heatText({ compute, seconds, moved }, communication) {
  const parts = [
    compute ? `${compute} of compute` : "",
    seconds ? `${seconds} of ${communication}` : "",
    moved ? `${moved} moved per device` : "",
  ].filter(Boolean);
  return parts.length ? `${parts.join(", ")} in a step` : "nothing moves here";
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function source(ctx, el) {
  let placed = false; // whether the hottest line, or one that was asked for, has been brought into sight

  /** @param {Collective} c */
  function collective(c) {
    const sizes = c.bytes ? `${c.bytes} × ${c.count}` : `${c.count} runs`;
    const total = c.seconds || (c.bytes && c.count === "1" ? "" : c.total);
    return h(
      "span",
      { class: `sv-coll sv-${c.kind}` },
      h("b", {}, c.kind),
      " ",
      axesChips(ctx, c.axes),
      ` ${sizes}`,
      h("b", { class: "sv-total", title: `${c.total} per device in a step` }, ` ${total}`),
      h("span", { class: "sv-soft" }, ` ${c.phases.map((phase) => PHASE[phase]).filter(Boolean).join(", ")}`),
    );
  }

  /** @param {SourceLine} row */
  function heat(row) {
    if (!row.at) return h("span", { class: "sv-noheat" });
    /**
     * @param {number | undefined} share
     * @param {string} [kind]
     */
    const bar = (share, kind) =>
      share ? h("i", { class: kind, style: { width: `${Math.max(3, 100 * share)}%` } }) : null;
    const title = heatText(row, ctx.get("source").communication);
    return h("span", { class: "sv-heat", title }, bar(row.computing, "sv-computing"), bar(row.heat));
  }

  /** @param {SourceLine} row */
  function values(row) {
    const shown = (row.values || []).map(({ name, label, dims, shape }) => {
      const attributes = { class: "sv-v", title: `${name} ${shape}`, onclick: () => ctx.select(name) };
      return h("button", attributes, label, specChips(ctx, dims));
    });
    const all = () => {
      ctx.query({ line: row.at, text: "", changed: false });
      ctx.setTab("values");
    };
    const attributes = { class: "sv-link sv-soft", title: "all values of this line", onclick: all };
    return [shown, row.more ? h("button", attributes, `+${row.more}`) : null];
  }

  /** @param {SourceLine} row */
  function compute(row) {
    if (!row.compute) return null;
    const title = "matrix products of this line, forward, backward and recomputed, in a step";
    return h(
      "span",
      { class: "sv-coll", title },
      h("b", {}, "compute "),
      h("b", { class: "sv-total" }, row.compute),
    );
  }

  /** @param {SourceLine} row */
  function collectives(row) {
    const all = row.collectives || [];
    const more = all.length - MOST_KINDS;
    const onclick = () => {
      ctx.query({ line: row.at });
      ctx.setTab("collectives");
    };
    return [
      all.slice(0, MOST_KINDS).map(collective),
      more > 0 ? h("button", { class: "sv-link", onclick }, `+${more} more kinds`) : null,
    ];
  }

  /**
   * @param {SourceLine} row
   * @param {string} code
   */
  function line(row, code) {
    const selected = row.values?.some((value) => value.name === ctx.get("selected"));
    return h(
      "div",
      {
        class: `sv-ln ${selected ? "sv-sel" : ""} ${row.at ? "" : "sv-quiet"}`,
        id: row.at ? `line-${row.at}` : null,
        "data-heat": (row.heat || 0) + (row.computing || 0),
      },
      h("span", { class: "sv-no" }, row.n),
      heat(row),
      h("code", { title: row.text.trim() }, code),
      h("span", { class: "sv-ann" }, values(row), compute(row), collectives(row)),
    );
  }

  function draw() {
    const { files } = ctx.get("source");
    if (!files.length) return fill(el, h("p", { class: "sv-empty" }, "No source lines are known for this program."));
    const parts = files.map(({ file, lines }) => [
      h("div", { class: "sv-file" }, file),
      shownLines(lines).map(({ line: row, code, gap }) => [
        gap ? h("div", { class: "sv-gap", "aria-hidden": "true" }, "⋯") : null,
        line(row, code),
      ]),
    ]);
    fill(el, parts);
    if (!placed) requestAnimationFrame(toHottest);
  }

  /** Pixels from the top of the pane to a line. @param {HTMLElement} row */
  const offset = (row) => row.getBoundingClientRect().top - el.getBoundingClientRect().top;

  // At first the hottest line is in sight; after that the person scrolls.
  function toHottest() {
    /** @type {NodeListOf<HTMLElement>} */
    const rows = el.querySelectorAll(".sv-ln");
    const heatOf = (/** @type {HTMLElement} */ row) => Number(row.dataset.heat);
    const hottest = [...rows].sort((a, b) => heatOf(b) - heatOf(a))[0];
    if (!hottest || !el.clientHeight || !heatOf(hottest)) return;
    placed = true;
    el.scrollTop = offset(hottest) - el.clientHeight / 2;
  }

  // From wherever a line is named, to the line.
  ctx.showLine = (at) => {
    ctx.setTab("source");
    requestAnimationFrame(() => {
      const row = find(el, `line-${at}`);
      if (!row) return;
      placed = true;
      el.scrollTop += offset(row) - el.clientHeight / 3;
      row.classList.remove("sv-changed");
      void row.offsetWidth; // so that the flash begins anew
      row.classList.add("sv-changed");
    });
  };
  for (const key of ["source", "selected", "mesh"]) ctx.on(key, () => ctx.when("source", draw));
  ctx.when("source", draw);
}
