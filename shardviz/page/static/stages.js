// @ts-check
// The texts that a program goes through, one at a time: which, and searched.
import { Documented } from "./document.js";
import { SearchField } from "./fields.js";
import { LineFilter, ui, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";

/** @import { Query, Stages as Content } from "./types.d.ts" */

/** @type {Record<string, string>} */
const GROUPS = { jaxpr: "JAX", mlir: "StableHLO and Shardy", hlo: "XLA" };
const EDITORS = { stage: { widths: [9, 100, 14] } };

export function Stages() {
  const ctx = useTraits("stages", "mesh", "gone");
  const content = useLast(ctx.get("stages"));
  const box = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    box.current.closest(".sv-panel").scrollTop = 0;
  }, [content.at]);
  if (!content.document) return ui`<div ref=${box}><${Waiting} /></div>`;
  return ui`<div ref=${box}><${Tools} of=${content} />
      <${Documented} of=${content.document} editors=${EDITORS} /><${Pages} of=${content} /></div>`;
}

/** @param {{ of: Content }} props */
function Tools({ of: { names, name, found } }) {
  const ctx = useContextOf();
  const query = ctx.get("query");
  const ask = (/** @type {Query} */ change) => ctx.query({ at: 0, ...change }); // from the first row
  const place = names.findIndex(([own]) => own === name);
  /** @param {number} by @param {string} id @param {string} title @param {string} sign */
  const step = (by, id, title, sign) =>
    ui`<button class="sv-btn" data-testid=${id} title=${title} aria-label=${title} disabled=${!names[
      place + by
    ]} onclick=${() => ask({ stage: names[place + by][0] })}>${sign}</button>`;
  const groups = Object.entries(GROUPS).map(([kind, label]) => {
    const own = names.filter((each) => each[2] === kind);
    return ui`<optgroup label=${label}>${
      own.map(([id, title]) => ui`<option value=${id}>${title}</option>`)
    }</optgroup>`;
  });
  const search = (/** @type {string} */ text) => ask({ find: text });
  return ui`<div class="sv-tools" hidden=${!names.length}>
      ${step(-1, "stage-before", "the text before it", "◂")}
      <select data-testid="stage-name" aria-label="which text" value=${name}
          onchange=${({ target }) => ask({ stage: target.value })}>${groups}</select>
      ${step(1, "stage-next", "the text after it", "▸")}
      <${SearchField} data-testid="stage-find" value=${query.find || ""}
          placeholder="search: all-reduce, model.py:20, dot_general …" aria-label="search the text" say=${search} />
      <span><${LineFilter} id="stage-line" words="only " /></span>
      <span class="sv-soft" data-testid="stage-found" role="status">
        ${`${found.toLocaleString("en")} line${found === 1 ? "" : "s"}`}</span></div>`;
}

/** @param {{ of: Content }} props */
function Pages({ of: { at, found, most } }) {
  const ctx = useContextOf();
  const said = (/** @type {number} */ n) => n.toLocaleString("en");
  /** @param {number} place @param {string} id @param {string} words */
  const to = (place, id, words) =>
    ui`<button class="sv-btn" data-testid=${id} disabled=${place < 0 || place >= found} onclick=${() =>
      ctx.query({ at: place })}>${words}</button>`;
  const range = `${said(at + 1)} to ${said(Math.min(at + most, found))} of ${said(found)}`;
  return found > most && ui`<div class="sv-pages">${to(at - most, "stage-earlier", "◂ earlier")}
      <span class="sv-soft">${range}</span>${to(at + most, "stage-later", "later ▸")}</div>`;
}
