// @ts-check
// One sharding in every notation, as the kernel tells it, its pieces marked; and a field in which any is read.
import { copyButton, fill, h } from "./dom.js";
import { axisStyle } from "./chips.js";
import { documentView, pieces, plain } from "./document.js";
import { notice, waiting } from "./head.js";
import { twinsText } from "./menu.js";

/** @import { Child, Context, Reading, Row, Table } from "./types.d.ts" */

const EXAMPLE = "{devices=[2,4]<=[8]}  ·  #sdy.sharding<@mesh, [{\"data\"}, {}]>  ·  P('data', None)  ·  [data, ·]";
const MARKED = 4000; // characters of a text whose pieces are marked
const SCROLLED = 120; // characters of a text that the arrow keys can scroll

/**
 * The mesh axis that a piece names and nothing else: 'data', "data", data, I_data, or a part of it; null for none.
 * @param {string} piece
 * @param {string} notation
 * @param {string[]} names of the mesh axes
 */
export function axisOf(piece, notation, names) {
  const bare = piece.replace(/:\(\d+\)\d+$/, "").replace(/^(['"])(.*)\1$/, "$2");
  const name = notation === "book" ? bare.replace(/^\p{Lu}_/u, "") : bare;
  return names.includes(name) ? name : null;
}

/**
 * A text in stretches, each with the number of the letter that it is: -1 for none, null where several are the same and
 * which of them stands here is not known.
 * @param {string} text
 * @param {string[]} letters
 * @returns {{ part: string, letter: number | null }[]}
 */
export function marked(text, letters) {
  /** @type {Map<string, number[]>} */
  const places = new Map();
  letters.forEach((piece, i) => places.set(piece, [...(places.get(piece) || []), i]));
  const known = [...places.keys()].filter((piece) => piece && !piece.endsWith("…")).sort((a, b) => b.length - a.length);
  const inWord = (/** @type {string | undefined} */ a, /** @type {string | undefined} */ b) =>
    Boolean(a && b && /[\p{L}\p{N}_]/u.test(a) && /[\p{L}\p{N}_]/u.test(b));
  /** @type {{ part: string, places: number[] }[]} */
  const parts = [];
  let before = 0;
  for (let at = 0; at < text.length;) {
    const end = (/** @type {string} */ piece) => at + piece.length;
    const piece = known.find((each) =>
      text.startsWith(each, at) && !inWord(text[at - 1], each[0]) && !inWord(each.at(-1), text[end(each)])
    );
    if (piece === undefined) {
      at += 1;
      continue;
    }
    if (at > before) parts.push({ part: text.slice(before, at), places: [] });
    parts.push({ part: piece, places: places.get(piece) || [] });
    before = at = end(piece);
  }
  if (before < text.length) parts.push({ part: text.slice(before), places: [] });
  /** @type {Map<string, number>} */
  const seen = new Map();
  return parts.map(({ part, places: own }) => {
    if (own.length < 2) return { part, letter: own.length ? own[0] : -1 };
    const nth = seen.get(part) || 0;
    seen.set(part, nth + 1);
    return { part, letter: own.length === parts.filter((other) => other.part === part).length ? own[nth] : null };
  });
}

/** A line may end after a comma, and not within a number. @param {string} text @returns {Child[]} */
function breaks(text) {
  return text.split(/(?<=,)/).flatMap((part) => [part, h("wbr")]).slice(0, -1);
}

/** The letters of a notation's row: each piece, and what it means. @param {Row} row */
function lettersOf({ detail }) {
  const table = /** @type {Table | undefined} */ (detail?.[0]);
  return (table?.rows || []).map(({ cells }) => ({ piece: plain(cells[0]), meaning: plain(cells[1]) }));
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function rosetta(ctx, el) {
  let showOwn = false; // the value's own notations, though something else was read
  /** The text that was answered last. @type {string | null} */
  let answered = null;
  /** @type {HTMLInputElement} */
  const input = h("input", {
    type: "text",
    class: "sv-typed",
    id: "read",
    value: ctx.get("reading"),
    spellcheck: "false",
    autocomplete: "off",
    placeholder: EXAMPLE,
    "aria-label": "a sharding in any notation, to be read on this mesh",
    onkeydown: (e) => {
      e.stopPropagation();
      if (e.key === "Enter") read();
    },
    onpaste: () => setTimeout(read),
    oninput: () => button.disabled = input.value === ctx.get("reading"),
  });
  const button = h("button", { class: "sv-btn", id: "read-go", disabled: true, onclick: read }, "read");
  const empty = () => {
    input.value = "";
    read();
    input.focus();
  };
  const clear = h("button", { class: "sv-btn", id: "read-clear", onclick: empty }, "clear");
  const words = h("div", {});
  const more = h("div", {});
  const answer = h("div", { class: "sv-answer", id: "read-answer", role: "status" }, words, more);
  const tools = h("div", { class: "sv-rostools" });
  const body = h("div", { class: "sv-ros" });
  const hint = h("span", { class: "sv-hint" }, "paste one, or type it and press Enter");
  const title = h("div", { class: "sv-sec" }, "read any notation", hint);
  el.append(
    h("div", { class: "sv-reader" }, title, h("div", { class: "sv-readrow" }, input, button, clear), answer),
    tools,
    body,
  );
  const meanings = h("input", { type: "checkbox", id: "meanings", checked: true });
  meanings.addEventListener("change", () => body.classList.toggle("sv-bare", !meanings.checked));
  const answerView = documentView(ctx, words);
  const view = documentView(ctx, body, { rosetta: { cell: text, end: copying, inside: 1, widths: [17, 60] } });

  function read() {
    button.disabled = true;
    showOwn = false;
    ctx.read(input.value);
  }

  /** What gives what was read to the selected value. @param {Reading} found */
  function applying({ apply }) {
    const { name = "", label, role } = ctx.get("rosetta");
    const output = role === "output";
    const arrays = ctx.arrays(output ? "outputs" : "inputs");
    const place = arrays.byName.get(name)?.place ?? -1;
    const twins = output || place < 0 || !ctx.twins ? [] : arrays.twins(place).map((at) => arrays.leaves[at].path);
    const edit = {
      op: output ? "set_out_spec" : "set_spec",
      name,
      spec: apply,
      ...(twins.length ? { twins: true } : {}),
    };
    const attributes = { class: "sv-btn sv-do", id: "read-apply", title: twins.join("\n") || null };
    const also = twins.length ? ` and ${twinsText(twins)}` : "";
    return h("button", { ...attributes, onclick: () => ctx.edit(edit) }, "apply to ", h("code", {}, label), also);
  }

  function drawAnswer() {
    const { read: found, name } = ctx.get("rosetta");
    clear.hidden = !input.value && !found;
    answerView.draw(found?.answer || { blocks: [] });
    const { error } = ctx.get("status");
    const here = error && name && error.argument === name && ["argument", "output"].includes(error.place);
    fill(
      more,
      found?.error ? notice("sv-error", "read-error", found.error) : null,
      found?.apply ? h("p", {}, applying(found)) : null,
      found && here ? notice("sv-error", "read-refused", error.message, error.detail) : null,
    );
  }

  /** A notation's text with its pieces marked: underlined in an axis's colour, lit when its meaning is pointed at.
   * @param {Row} row @param {number} _ @param {number} column */
  function text(row, _, column) {
    const [named] = pieces(row.cells[0]);
    if (column === 0) return [h("b", {}, named.t), h("small", {}, named.tip)];
    const [found, rest] = pieces(row.cells[1]);
    if (found.k !== "code") return undefined;
    const notation = row.sel?.[1] || "";
    const letters = lettersOf(row);
    const names = ctx.get("mesh").axes.map(({ name }) => name);
    const parts = found.t.length > MARKED
      ? [{ part: found.t, letter: -1 }]
      : marked(found.t, letters.map((l) => l.piece));
    const shown = parts.map(({ part, letter }) => {
      if (letter === -1) return breaks(part);
      const axis = axisOf(part, notation, names);
      return h("span", {
        "data-i": letter,
        title: letter === null ? null : letters[letter].meaning,
        class: `sv-piece ${axis ? "sv-onaxis" : ""}`,
        style: axis ? axisStyle(ctx, axis) : null,
      }, breaks(part));
    });
    const tabindex = found.t.length > SCROLLED ? "0" : null;
    const code = h("code", { class: "sv-rostext", id: `text-${notation}`, tabindex }, shown);
    return [code, rest ? h("p", { class: "sv-soft" }, rest.t) : null];
  }

  /** What copies a row's text; none where there is none, or not all of it. @param {Row} row */
  function copying(row) {
    const [found, ...rest] = pieces(row.cells[1]);
    const notation = row.sel?.[1] || "";
    const title = `copy it in this notation: ${plain(row.cells[0])}`;
    const code = () => /** @type {HTMLElement} */ (body.querySelector(`[data-testid="text-${notation}"]`));
    return found.k === "code" && !rest.length ? copyButton(code, `copy-${notation}`, title) : null;
  }

  /** Lights the piece whose meaning is pointed at. @param {MouseEvent} e */
  function light(e) {
    for (const old of body.querySelectorAll(".sv-lit")) old.classList.remove("sv-lit");
    const line = e.target instanceof Element && e.target.closest("[data-testid^=letters-] > tbody > tr");
    if (!line || !line.parentElement) return;
    const number = [...line.parentElement.children].indexOf(line);
    const found = line.closest("td:has(> .sv-rostext)")?.querySelectorAll(`[data-i="${number}"]`) || [];
    for (const piece of found) piece.classList.add("sv-lit");
  }
  body.addEventListener("mouseover", light);
  body.addEventListener("mouseleave", light);

  function draw() {
    const { document: own, read: found, name, label } = ctx.get("rosetta");
    if (!own) return fill(body, waiting(ctx));
    if (found && found.text !== answered) showOwn = false;
    answered = found?.text ?? null;
    drawAnswer();
    const other = found?.document && !found.same ? found.document : null;
    const choose = (/** @type {string} */ id, /** @type {Child} */ what, /** @type {boolean} */ toOwn) =>
      h("button", {
        class: "sv-btn",
        id,
        "aria-pressed": String(showOwn === toOwn),
        onclick: () => {
          showOwn = toOwn;
          draw();
        },
      }, what);
    fill(
      tools,
      other && name
        ? h(
          "span",
          { class: "sv-choice", role: "group", "aria-label": "which sharding" },
          choose("show-read", "what was read", false),
          choose("show-own", label, true),
        )
        : null,
      h("label", {}, meanings, " what each piece means"),
    );
    view.draw(other && !(showOwn && name) ? other : own);
  }

  const update = () => ctx.when("rosetta", draw);
  for (const key of ["rosetta", "mesh", "gone"]) ctx.on(key, update);
  ctx.on("status", () => ctx.when("rosetta", () => ctx.get("rosetta").document && drawAnswer()));
  update();
}
