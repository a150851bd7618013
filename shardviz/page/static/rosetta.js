// @ts-check
// One sharding in every notation, as the kernel tells it, its pieces marked; and a field in which any is read.
import { OPS } from "./arrays.js";
import { Documented } from "./document.js";
import { Text } from "./marked.js";
import { twinsText } from "./choices.js";
import { Check, Field } from "./fields.js";
import { CopyButton, Notice, ui, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { useRef, useState } from "./vendor/preact.js";
import { pieces, plain } from "./words.js";

/** @import { Reading, Row } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

const EXAMPLE = "{devices=[2,4]<=[8]}  ·  #sdy.sharding<@mesh, [{\"data\"}, {}]>  ·  P('data', None)  ·  [data, ·]";

export function Rosetta() {
  const ctx = useTraits("rosetta", "mesh", "status", "gone");
  const content = useLast(ctx.get("rosetta"));
  const [own, showOwn] = useState(""); // the text that was read, where the value's own notations are shown all the same
  const [meanings, showMeanings] = useState(true);
  const { document, read, name, label } = content;
  const other = document && read?.document && !read.same ? read.document : null;
  const ownShown = Boolean(read) && own === read?.text;
  const choose = (/** @type {string} */ id, /** @type {View} */ words, /** @type {boolean} */ toOwn) =>
    ui`<button class="sv-btn" data-testid=${id} aria-pressed=${ownShown === toOwn} onclick=${() =>
      showOwn(toOwn ? read?.text ?? "" : "")}>${words}</button>`;

  const both = ui`<span class="sv-choice" role="group" aria-label="which sharding">
      ${choose("show-read", "what was read", false)}${choose("show-own", label, true)}</span>`;
  const shown = other && !(ownShown && name) ? other : document;
  const body = shown
    ? ui`<${Documented} class="sv-ros ${meanings ? "" : "sv-bare"}" of=${shown} editors=${EDITORS} />`
    : ui`<${Waiting} />`;
  const go = (/** @type {string} */ text) => (showOwn(""), ctx.set("reading", text));
  return ui`<div class="sv-reader">
      <div class="sv-sec">read any notation<span class="sv-hint">paste one, or type it and press Enter</span></div>
      <${Reader} read=${go} clears=${Boolean(read)} />
      <div class="sv-answer" data-testid="read-answer" role="status"><${Answer} of=${read} /></div></div>
    <div class="sv-rostools">
      ${other && name && both}<${Check} id="meanings" on=${meanings} set=${showMeanings}>what each piece means<//></div>
    <div>${body}</div>`;
}

/** The field in which a notation is read. @param {{ read: (text: string) => void, clears: boolean }} props */
function Reader({ read, clears }) {
  const ctx = useContextOf();
  const box = useRef(/** @type {any} */ (null));
  const [text, type] = useState(ctx.get("reading"));
  const input = () => box.current.querySelector("input");
  const go = () => {
    type(input().value);
    read(input().value);
  };
  const clear = () => {
    input().value = "";
    go();
    input().focus();
  };
  return ui`<div class="sv-readrow" ref=${box}>
      <${Field} class="sv-typed" data-testid="read" value=${ctx.get("reading")} placeholder=${EXAMPLE} enter=${go}
          aria-label="a sharding in any notation, to be read on this mesh" onpaste=${() => setTimeout(go)}
          oninput=${({ target }) => type(target.value)} />
      <button class="sv-btn" data-testid="read-go" disabled=${text === ctx.get("reading")} onclick=${go}>read</button>
      <button class="sv-btn" data-testid="read-clear" hidden=${!text && !clears} onclick=${clear}>clear</button></div>`;
}

/** What was read, and what gives it to the selected value. @param {{ of?: Reading | null }} props */
function Answer({ of }) {
  const ctx = useContextOf();
  const { name = "", label, role } = ctx.get("rosetta");
  const output = role === "output";
  const arrays = ctx.arrays(output ? "outputs" : "inputs");
  const place = arrays.byName.get(name)?.place ?? -1;
  const twins = output || place < 0 || !ctx.twins ? [] : arrays.twins(place).map((at) => arrays.leaves[at].path);
  const apply = () =>
    ctx.edit({
      ...OPS.spec[output ? "outputs" : "inputs"],
      name,
      spec: of?.apply,
      ...(twins.length ? { twins: true } : {}),
    });
  return ui`<${Documented} of=${of?.answer} />
    ${of?.error && ui`<${Notice} kind="sv-error" id="read-error" message=${of.error} />`}${
    of?.apply &&
    ui`<p>
        <button class="sv-btn sv-do" data-testid="read-apply" title=${twins.join("\n") || null} onclick=${apply}>
          ${"apply to "}<code>${label}</code>${twins.length ? ` and ${twinsText(twins)}` : ""}</button></p>`
  }
`;
}

const EDITORS = {
  rosetta: {
    inside: 1,
    widths: [17, 60],
    /** @param {Row} row @param {number} _ @param {number} column */
    cell(row, _, column) {
      const [{ t, tip }] = pieces(row.cells[0]);
      if (column === 0) return ui`<b>${t}</b><small>${tip}</small>`;
      return pieces(row.cells[1])[0].k === "code" ? ui`<${Text} row=${row} />` : undefined;
    },
    /** What copies a row's text; none where there is none, or not all of it. @param {Row} row */
    end(row) {
      const [found, ...rest] = pieces(row.cells[1]);
      const notation = row.sel?.[1] || "";
      const title = `copy it in this notation: ${plain(row.cells[0])}`;
      return found.k === "code" && !rest.length &&
        ui`<${CopyButton} of="text-${notation}" id="copy-${notation}" title=${title} />`;
    },
  },
};
