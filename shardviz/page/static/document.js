// @ts-check
// Any Document of the kernel: its blocks one below the other. What a person has opened stays open when it changes.
import { LineLink, ui, useAgain, useFlash, useTraits } from "./parts.js";
import { Figure } from "./picture.js";
import { actOf, isSelected, nameOf, Pieces, things } from "./pieces.js";
import { Term } from "./terms.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { fitted, isEmpty, isName, isShort, plain, stacked, widths } from "./words.js";

/** @import { Block, Context, Document, Editors, Piece, Row, Section as Part, Table as Rows } from "./types.d.ts" */
/** @import { View } from "./vendor/preact.d.ts" */

const FOLD = 3; // characters of the sign that a row can be opened
const SHORT = 10; // characters of a number that is never broken over two lines
const MOST = 28; // characters of a column of words where there is little room
const LEAST = [160, 520, 640, 780]; // pixels below which tables of more and more columns show their rows as cards

/** What a document's parts know of it: what is open, what can be changed, its width, and the class that lights a change.
 * @typedef {{ ctx: Context, opened: Map<string, boolean>, toggle: (key: string, before?: boolean) => void,
 *   editors: Editors, wide: number, flash: string }} Doc */

/**
 * @param {{ of?: Document | null, editors?: Editors, flashes?: boolean, class?: string, [attribute: string]: unknown }} props
 *   `editors`: by the name of a table, what of it a person can change; `flashes`: what the last edit changed is lit
 */
export function Documented({ of, editors = {}, flashes = false, class: look = "", ...more }) {
  const ctx = useTraits("mesh", "selected", "device", "printing");
  const again = useAgain();
  const box = useRef(/** @type {any} */ (null));
  const opened = useRef(/** @type {Map<string, boolean>} */ (new Map())).current;
  const [wide, setWide] = useState(Infinity); // a width of LEAST
  useLayoutEffect(() => { // it is called before anything is painted; asking for the width costs a layout each time
    const watch = new ResizeObserver(() => {
      const now = box.current?.clientWidth;
      if (now) setWide(LEAST.find((each) => now <= each) ?? Infinity);
    });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const flash = useFlash(flashes ? of : null);
  const toggle = (/** @type {string} */ key, before = false) => {
    opened.set(key, !(opened.get(key) ?? before));
    again();
  };
  const doc = { ctx, opened, toggle, editors, wide, flash };
  return ui`<div ...${more} class="sv-doc ${look}" ref=${box}>
      ${of?.title && ui`<h2><${Pieces} of=${of.title} /></h2>`}
      ${(of?.lead || []).map((line) => ui`<p class="sv-lead"><${Pieces} of=${line} /></p>`)}
      <${Blocks} doc=${doc} of=${of?.blocks || []} path="b" /></div>`;
}

/** @param {{ doc: Doc, of: Block[], path: string }} props */
function Blocks({ doc, of, path }) {
  return of.map((block, i) => ui`<${One} key=${i} doc=${doc} of=${block} path="${path}.${i}" />`);
}

/** @param {{ doc: Doc, of: Block, path: string }} props */
function One({ doc, of, path }) {
  if (of.block === "table") return ui`<${Table} doc=${doc} of=${of} path=${path} />`;
  if (of.block === "section") return ui`<${Section} doc=${doc} of=${of} path=${path} />`;
  if (of.block === "figure") return ui`<${Figure} of=${of} />`;
  if (of.block === "beside") {
    return ui`<div class="sv-beside">
        ${of.blocks.map((each, i) => ui`<div><${One} doc=${doc} of=${each} path="${path}.${i}" /></div>`)}</div>`;
  }
  return ui`<p class=${of.quiet ? "sv-soft" : null} data-testid=${of.name}>
      ${of.label ? `${of.label}: ` : ""}<${Pieces} of=${of.pieces || []} /></p>`;
}

/** @param {{ doc: Doc, of: Part, path: string }} props */
function Section({ doc, of: { title, lead, blocks = [], fold, name }, path }) {
  const first = lead && ui`<p class="sv-lead"><${Pieces} of=${lead} /></p>`;
  const inner = ui`<${Blocks} doc=${doc} of=${blocks} path=${path} />`;
  if (!fold) return ui`<section data-testid=${name}><h3 class="sv-sec">${title}</h3>${first}${inner}</section>`;
  const key = name || path;
  const open = doc.ctx.printing || (doc.opened.get(key) ?? fold === "open");
  const onclick = (/** @type {Event} */ e) => {
    e.preventDefault();
    doc.toggle(key, fold === "open");
  };
  return ui`<details data-testid=${name} open=${open}>
      <summary class="sv-sec" data-testid="fold-${key}" onclick=${onclick}>${title}</summary>${first}
      ${open && inner}</details>`;
}

/** @param {{ doc: Doc, of: Rows, path: string }} props */
function Table({ doc, of, path }) {
  const { columns, rows = [], caption, more, noun, name } = of;
  const { end, widths: own } = doc.editors[name || ""] || {};
  const folds = of.folds && rows.some(({ detail }) => detail) ? FOLD : 0;
  const narrow = doc.wide <= LEAST[2]; // then words take more lines, and numbers keep their room
  const room = doc.wide === Infinity ? LEAST[3] : LEAST[Math.max(0, LEAST.indexOf(doc.wide) - 1)];
  const wanted = [...(own || widths({ columns, rows })), ...(end ? [14] : [])].map((n, i) =>
    (narrow ? columns[i]?.right ? n + 3 : Math.min(n, MOST) : n) + (i ? 0 : folds)
  );
  const chars = columns.length > 3 ? fitted(wanted, columns, room) : wanted; // fewer have room for their heads
  const total = chars.reduce((sum, n) => sum + n, 0);
  const least = LEAST[columns.length > 6 ? 3 : columns.length > 5 ? 2 : columns.length > 3 ? 1 : 0];
  const heads = columns.map(({ title = "", right, tip }) =>
    ui`<th scope="col" class=${right && "sv-num"}>${tip ? ui`<${Term} text=${title} means=${tip} />` : title}</th>`
  );
  const lines = rows.map((row, n) => ui`<${Line} key=${n} doc=${doc} table=${of} row=${row} n=${n} path=${path} />`);
  const rest = `… and ${more?.toLocaleString("en")} more ${noun}${more === 1 ? "" : "s"}`;
  return ui`${caption && ui`<h3 class="sv-sec">${caption}</h3>`}
    <table class="sv-table sv-doctable ${doc.wide <= least ? "sv-cards" : ""}" data-testid=${name}
        style=${{ "max-width": `${Math.max(48, 1.5 * total)}ch` }}>
      <colgroup>${chars.map((n) => ui`<col style=${{ width: `${100 * n / total}%` }} />`)}</colgroup>
      ${columns.some(({ title }) => title) && ui`<thead><tr>${heads}${end && ui`<th />`}</tr></thead>`}
      <tbody>${lines}</tbody></table>${more ? ui`<p class="sv-soft">${rest}</p>` : null}`;
}

/** A row, and what belongs to it below. @param {{ doc: Doc, table: Rows, row: Row, n: number, path: string }} props */
function Line({ doc, table: { columns, name, folds }, row, n, path }) {
  const { cells, detail, sel, marked } = row;
  const { cell: editor, end, inside } = doc.editors[name || ""] || {};
  const id = nameOf(sel) || `${name || path}-${n}`;
  const key = `${path}/${id}/${n}`;
  const act = detail ? null : actOf(doc.ctx, sel);
  const looks = [isSelected(doc.ctx, sel) && "sv-sel", act && "sv-act", marked && doc.flash].filter(Boolean).join(" ");
  const open = detail && (!folds || doc.ctx.printing || doc.opened.get(key));
  const below = () => ui`<${Blocks} doc=${doc} of=${detail} path=${key} />`;
  const rest = cells.slice(1).map((cell, i) => {
    const { title = "", right } = columns[i + 1];
    const short = right ? plain(cell).length <= SHORT : isName(cell);
    const own = editor?.(row, n, i + 1);
    const more = open && inside === i + 1 && ui`<div data-testid="detail-${id}">${below()}</div>`;
    const none = !own && !more && isEmpty(cell);
    const looks = [right && "sv-num", short && "sv-short", none && "sv-none"];
    return ui`<td class=${looks.filter(Boolean).join(" ") || null} data-head=${title || null}>
        ${own ?? ui`<${Pieces} of=${cell} />`}${more}</td>`;
  });
  const own = editor?.(row, n, 0);
  return ui`<tr ...${things(sel)} class=${looks || null} data-testid=${nameOf(sel)} onclick=${act}>
      <${Head} doc=${doc} row=${row} id=${id} key_=${key} right=${columns[0].right} folds=${folds} own=${own} />${rest}
      ${end && ui`<td class="sv-end">${end(row, n)}</td>`}</tr>${
    open && !inside &&
    ui`<tr class="sv-more-of">
        <td colspan=${columns.length + (end ? 1 : 0)} data-testid="detail-${id}">${below()}</td></tr>`
  }`;
}

/**
 * A row's first cell; a button where the row can be opened or selected.
 * @param {{ doc: Doc, row: Row, id: string, key_: string, right?: boolean, folds?: boolean, own?: View }} props `own`: what
 *   stands there instead
 */
function Head({ doc, row: { cells, detail, sel, marked }, id, key_, right, folds, own }) {
  const { main, below } = stacked(cells[0]);
  const open = doc.opened.get(key_) ?? false;
  const look = [below.length && "sv-clip", isShort(main) && "sv-short"].filter(Boolean).join(" ");
  const title = below.length ? main[0].tip || main[0].t : null;
  let content = own || ui`<${Pieces} of=${below.length ? main.map((part) => ({ ...part, tip: "" })) : main} />`;
  if (!own && detail && folds) {
    content = ui`<button class="sv-link sv-plain" data-testid="open-${id}" aria-expanded=${open} title="more of it"
          onclick=${() => doc.toggle(key_)}>
        ${content}${open ? " ▾" : " ▸"}</button>`;
  } else if (!own && actOf(doc.ctx, sel)) {
    content = ui`<button class="sv-link sv-plain" data-testid="pick-${id}" aria-pressed=${isSelected(doc.ctx, sel)}>
        ${content}</button>`;
  }
  return ui`<th scope="row" class=${right && "sv-num"}>
      <div class=${look || null} title=${title}>
        ${marked && ui`<span class="sv-mark" title="changed by the last edit">${"● "}</span>`}${content}</div>
      ${below.length ? ui`<${Small} of=${below} />` : null}</th>`;
}

/** What belongs to a row's first cell but is quieter, on a line of its own. @param {{ of: Piece[] }} props */
function Small({ of }) {
  const title = of.map((found) => found.tip || plain(found)).join(" · ");
  const parts = of.map((found) =>
    found.k === "line"
      ? [ui`<${LineLink} at=${found.t} />`, " ", ui`<code class="sv-soft">${found.v || ""}</code>`]
      : found.t
  );
  return ui`<small class="sv-clip" title=${title}>${parts.map((part, i) => [i ? " · " : null, part])}</small>`;
}
