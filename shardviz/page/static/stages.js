// @ts-check
// The texts that a program goes through, one at a time: which, searched, held against the one before or another plan's.
import { Documented } from "./document.js";
import { LineFilter, SearchField, ui, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";

/** @import { Query, Stages as Told } from "./types.d.ts" */

/** @type {Record<string, string>} */
const GROUPS = { jaxpr: "JAX", mlir: "StableHLO and Shardy", hlo: "XLA" };
const EDITORS = { stage: { widths: [9, 100, 14] } };

export function Stages() {
  const ctx = useTraits("stages", "mesh", "gone");
  const told = useLast(ctx.get("stages"));
  const box = useRef(/** @type {any} */ (null));
  useLayoutEffect(() => {
    box.current.closest(".sv-panel").scrollTop = 0;
  }, [told.at]);
  return ui`<div ref=${box}>${
    told.document
      ? ui`<${Tools} of=${told} /><${Passes} of=${told} /><${Documented} of=${told.document} editors=${EDITORS} />
        <${Pages} of=${told} />`
      : ui`<${Waiting} />`
  }</div>`;
}

/** @param {{ of: Told }} props */
function Tools({ of: { names, name, could, other, found, against } }) {
  const ctx = useContextOf();
  const query = ctx.get("query");
  const ask = (/** @type {Query} */ change) => ctx.query({ at: 0, ...change }); // from the first row
  const place = names.findIndex(([own]) => own === name);
  /** @param {number} by @param {string} id @param {string} title @param {string} sign */
  const step = (by, id, title, sign) =>
    ui`<button class="sv-btn" data-testid=${id} title=${title} aria-label=${title} disabled=${!names[
      place + by
    ]} onclick=${() => ask({ stage: names[place + by][0] })}>${sign}</button>`;
  /** @type {[string, string][]} */
  const held = [["", "as it is"], ["stage", "against the text before"], ["card", `against ${other}`]];
  const hold = (/** @type {any} */ { target }) => ask({ against: target.value, only: Boolean(target.value) });
  return ui`<div class="sv-tools" hidden=${!names.length}>
      ${step(-1, "stage-before", "the text before it", "◂")}
      <select data-testid="stage-name" aria-label="which text" value=${name}
          onchange=${(/** @type {any} */ { target }) => ask({ stage: target.value })}>${
    Object.entries(GROUPS).map(([kind, label]) =>
      ui`<optgroup label=${label}>${
        names.filter((each) => each[2] === kind).map(([own, title]) =>
          ui`<option value=${own}>${title}</option>`
        )
      }</optgroup>`
    )
  }</select>${step(1, "stage-next", "the text after it", "▸")}
      <select data-testid="stage-against" aria-label="compared with" value=${against} onchange=${hold}>${
    held.filter(([key]) => !key || could.includes(/** @type {"stage"} */ (key))).map(([key, words]) =>
      ui`<option value=${key}>${words}</option>`
    )
  }</select>
      <label hidden=${!against}>
        <input type="checkbox" data-testid="stage-only" checked=${Boolean(query.only)}
            onchange=${(/** @type {any} */ { target }) =>
    ask({ only: target.checked })} />${" only what differs"}</label>
      <${SearchField} data-testid="stage-find" value=${query.find || ""}
          placeholder="search: all-reduce, model.py:20, dot_general …" aria-label="search the text" say=${(
    /** @type {string} */ text,
  ) =>
    ask({
      find: text,
    })} /><span><${LineFilter} id="stage-line" words="only " /></span>
      <span class="sv-soft" data-testid="stage-found" role="status">
        ${`${found.toLocaleString("en")} line${found === 1 ? "" : "s"}`}</span></div>`;
}

/** Which texts there are of XLA, and what gives more. @param {{ of: Told }} props */
function Passes({ of: { passes: { count, busy, trouble } } }) {
  const ctx = useContextOf();
  const few = "Three snapshots of the HLO are kept: before the partitioner, after it, and the final one. ";
  const every = ui`<button class="sv-link" data-testid="show-passes" onclick=${() =>
    ctx.edit({
      op: "show_passes",
    })}
    title="takes about twice as long as a compile, and is done only when it is asked for">compile once more, with every pass</button>`;
  return ui`<p class="sv-soft sv-passes" data-testid="stage-passes" role="status">${
    busy
      ? "It is being compiled once more, with every pass …"
      : count
      ? `The list has the program after each of XLA's passes that changed it: ${count} texts.`
      : [trouble ? `${trouble} ` : few, every]
  }</p>`;
}

/** @param {{ of: Told }} props */
function Pages({ of: { at, found, most } }) {
  const ctx = useContextOf();
  const said = (/** @type {number} */ n) => n.toLocaleString("en");
  /** @param {number} place @param {string} id @param {string} words */
  const to = (place, id, words) =>
    ui`<button class="sv-btn" data-testid=${id} disabled=${place < 0 || place >= found} onclick=${() =>
      ctx.query({ at: place })}>${words}</button>`;
  return ui`<div class="sv-pages">${
    found > most && [
      to(at - most, "stage-earlier", "◂ earlier"),
      ui`<span class="sv-soft">${`${said(at + 1)} to ${said(Math.min(at + most, found))} of ${said(found)}`}</span>`,
      to(at + most, "stage-later", "later ▸"),
    ]
  }</div>`;
}
