// @ts-check
// The person's own source as the kernel tells it: beside each line what it takes of the step. A click opens a line: its
// values, its collectives, what it costs and why, and the fixes that were tried.
import { Documented } from "./document.js";
import { find } from "./dom.js";
import { ui, useAgain, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { Bar, Pieces } from "./pieces.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";
import { pieces, plain } from "./words.js";

/** @import { Document, Inline, Line } from "./types.d.ts" */

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

export function Source() {
  const ctx = useTraits("source", "texts", "selected", "mesh", "lines", "lit", "gone");
  const again = useAgain();
  const [open, setOpen] = useState(/** @type {string[] | null} */ (null)); // the lines that are open; at first the hottest
  const [flash, light] = useState({ at: "", turn: 0 }); // the line that was asked for, and how often one was
  const box = useRef(/** @type {any} */ (null));
  const wants = useRef(""); // the line that is to be brought into sight
  const placed = useRef(false); // whether the hottest line, or one that was asked for, has been brought into sight
  const source = useLast(ctx.get("source"), "files");
  const { files: texts } = useLast(ctx.get("texts"), "files");
  const costs = useRef(ctx.get("lines"));
  if (ctx.get("source").files) costs.current = ctx.get("lines");
  const files = source.files;
  const pane = () => box.current.closest(".sv-panel");

  /** @param {string[]} next */
  function show(next) {
    setOpen(next);
    ctx.set("opened", next);
  }

  // From wherever a line is named, to the line.
  ctx.showLine = (at) => {
    wants.current = at;
    light({ at, turn: flash.turn + 1 });
    show([...new Set([...open || [], at])]);
    ctx.set("tab", "source");
    again();
  };

  useLayoutEffect(() => { // at first the line that takes most is open
    if (!files || open) return;
    const hottest = files.flatMap(({ lines }) => lines).reduce((a, b) => heatOf(b) > heatOf(a) ? b : a, { n: "" });
    if (hottest.at && heatOf(hottest)) show([hottest.at]);
  });
  useLayoutEffect(() => { // and in sight; after that the person scrolls
    const at = wants.current || (!placed.current && open?.[0]) || "";
    const row = at && find(box.current, `line-${at}`);
    if (!row || !pane()?.clientHeight) return;
    const part = wants.current ? 3 : 4;
    requestAnimationFrame(() => {
      if (row.isConnected) pane().scrollTop += offset(row) - pane().clientHeight / part;
    });
    placed.current = true;
    wants.current = "";
  });
  useLayoutEffect(() => { // the line where a chain is now comes into sight
    const row = ctx.lit.now && find(box.current, `line-${ctx.lit.now}`);
    if (!row || !pane()?.clientHeight) return;
    placed.current = true;
    const top = offset(row);
    if (top < 0 || top + row.clientHeight > pane().clientHeight) pane().scrollTop += top - pane().clientHeight / 3;
  }, [ctx.lit]);

  /** Pixels from the top of the pane to a line. @param {HTMLElement} row */
  const offset = (row) => row.getBoundingClientRect().top - pane().getBoundingClientRect().top;

  if (!files) {
    return ui`<div ref=${box}><${Waiting} /></div>`;
  }
  ctx.source = { files, texts };
  const toggle = (/** @type {string} */ at) =>
    show(open?.includes(at) ? open.filter((each) => each !== at) : [...open || [], at]);
  const all = files.map(({ title, lines }, n) => {
    const left = gaps(lines.map((line) => Number(line.n)));
    const rows = lines.map((line, i) => {
      const { at = "" } = line;
      const more = { costs: costs.current[at], flash: flash.at === at && flash.turn, open: open?.includes(at) };
      return [
        left[i] && ui`<div class="sv-gap" aria-hidden="true" key="gap ${line.n}">⋯</div>`,
        ui`<${One} key=${line.n} line=${line} text=${texts?.[n]?.[i] ?? ""} toggle=${toggle} ...${more} />`,
      ];
    });
    return ui`<div class="sv-file">${title}</div>${rows}`;
  });
  return ui`<div ref=${box}>
      ${files.length ? null : ui`<p class="sv-empty">${plain(source.none || [])}</p>`}
      ${all}</div>`;
}

/**
 * A line: its number, its share, its text and what it takes; open, also what happens on it, why, and what helps.
 * @param {{ line: Line, text: Inline, costs?: Document, open?: boolean, flash: number | false, toggle: (at: string) => void }} props
 */
function One({ line, text, costs, open, flash, toggle }) {
  const ctx = useContextOf();
  const { n, at, bar = [], amount, on = [] } = line;
  const [code] = pieces(text);
  const words = code.tip || code.t.trim();
  const about = on.some((said) =>
    pieces(said).some(({ sel }) => sel?.[0] === "value" && sel[1] === ctx.get("selected"))
  );
  const { lines, now } = ctx.lit;
  const looks = [
    !at && "sv-quiet",
    about ? "sv-sel" : open && "sv-shown",
    at && lines.includes(at) && "sv-lit",
    at && at === now && "sv-now",
    at && flash && `sv-changed sv-turn${flash % 2}`,
  ];
  const raw = (/** @type {Event} */ e) => {
    e.stopPropagation();
    ctx.query({ line: at, find: "", at: 0 });
    ctx.set("tab", "stages");
  };
  const label = `${at} in the raw stages`;
  const said = ui`<code title=${words}>${code.t}</code>`;
  const number = at
    ? ui`<button class="sv-no sv-link" data-testid="raw-${at}" title=${label} aria-label=${label} onclick=${raw}>${n}</button>`
    : ui`<span class="sv-no">${n}</span>`;
  const opener =
    ui`<button class="sv-opens" data-testid="open-line-${at}" aria-expanded=${open} title=${words}>${said}</button>`;
  const row = ui`<div class="sv-ln ${looks.filter(Boolean).join(" ")}" data-testid=${at && `line-${at}`}
        data-thing=${at && `line ${at}`} data-heat=${heatOf(line)} onclick=${at ? () => toggle(at) : null}>
      ${number}${bar.length ? ui`<${Bar} of=${bar} />` : ui`<span />`}${at ? opener : said}
      <span class="sv-amount">${amount && ui`<${Pieces} of=${amount} />`}</span></div>`;
  const inside = open && ui`<div class="sv-in" data-testid="in-${at}">
      ${on.map((each) => ui`<span class="sv-coll sv-${pieces(each)[0]?.t}"><${Pieces} of=${each} /></span>`)}
      ${costs && ui`<${Documented} of=${costs} />`}</div>`;
  return ui`<div>${row}${inside}</div>`;
}
