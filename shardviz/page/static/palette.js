// @ts-check
// The palette (/): finds what can be done, set or gone to by a few letters: the page's buttons, dimensions, arrays, lines.
import { find } from "./dom.js";
import { Over } from "./over.js";
import { ui, useContextOf } from "./parts.js";
import { useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact.js";
import { pieces } from "./words.js";

/** @import { Context, What } from "./types.d.ts" */
/** @typedef {{ kind: string, words: string, more: string, act: () => unknown }} Found */

const MOST = 7; // of each kind
const BUTTONS =
  ".sv-top button, .sv-places button, .sv-left button:not(.sv-specs *, .sv-dimensions *), .sv-strip button, .sv-card, .sv-searchbar input";

/**
 * Those that have all the words, those whose name begins with the first one before others, so many of each kind.
 * @template {{ kind: string, words: string, more: string }} T
 * @param {T[]} all
 * @param {string} text
 * @returns {T[]}
 */
export function matching(all, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = all.filter(({ words: name, more }) => {
    const own = `${name} ${more}`.toLowerCase();
    return words.every((word) => own.includes(word));
  });
  const first = (/** @type {T} */ { words: name }) =>
    Number(words.length > 0 && name.toLowerCase().startsWith(words[0]));
  const kinds = [...new Set(hits.map(({ kind }) => kind))];
  return kinds.flatMap((kind) =>
    hits.filter((hit) => hit.kind === kind).sort((a, b) => first(b) - first(a)).slice(0, MOST)
  );
}

/** What can be done: whatever has a button. @param {Element} root @returns {Found[]} */
function actions(root) {
  const all = /** @type {HTMLElement[]} */ ([...root.querySelectorAll(BUTTONS)]);
  const free = all.filter((each) => !each.matches(":disabled, [hidden], .sv-away") && !each.closest("[inert]"));
  const found = free.map((each) => {
    const text = (each.querySelector(".sv-cardname") ?? each).textContent?.trim().replace(/\s*[▾▴▸]$/, "") ?? "";
    const name = each.getAttribute("aria-label") ?? text;
    const [words, more] = /^[\p{L}\d■(]/u.test(text)
      ? [text, each.title]
      : [name, each.title === name ? "" : each.title];
    const kind = each.matches(".sv-card") ? "plan" : each.matches("[role=tab]") ? "view" : "action";
    return { kind, words, more, act: () => (each.click(), each.focus()) };
  });
  return found.filter(({ words }, n) => words && found.findIndex((other) => other.words === words) === n);
}

/** What can be gone to: dimensions, arrays, lines. @param {Context} ctx @returns {Found[]} */
function places(ctx) {
  const dimensions = ctx.get("dimensions").rows.map(({ name, size, said }) => ({
    kind: "dimension",
    words: name,
    more: `${size} · ${said}`,
    act: () => find(ctx.root, `dim-${name}`)?.click(),
  }));
  const arrays = /** @type {What[]} */ (["inputs", "outputs"]).flatMap((what) => {
    const all = ctx.arrays(what);
    return all.leaves.map(({ path, place = 0 }) => ({
      kind: what === "inputs" ? "input" : "output",
      words: path,
      more: all.kind(place).text,
      act() {
        if (what === "inputs") ctx.put("sought", path);
        ctx.select(path);
      },
    }));
  });
  const { files = [], texts = [] } = ctx.source;
  const lines = files.flatMap(({ lines: own }, n) =>
    own.map(({ at = "" }, i) => {
      const more = pieces(texts[n]?.[i] ?? "")[0].t.trim();
      return { kind: "line", words: at, more, act: () => ctx.showLine(at) };
    }).filter(({ words }) => words)
  );
  return [...dimensions, ...arrays, ...lines];
}

/** @param {{ close: () => void }} props */
export function Palette({ close }) {
  const ctx = useContextOf();
  const box = useRef(/** @type {any} */ (null));
  const all = useMemo(() => [...actions(ctx.root), ...places(ctx)], []);
  const [text, type] = useState("");
  const [at, go] = useState(0);
  const found = useMemo(() => matching(all, text), [text]);
  useLayoutEffect(() => find(box.current, `hit-${at}`)?.scrollIntoView({ block: "nearest" }), [at, text]);

  /** @param {Found | undefined} of */
  function take(of) {
    if (!of) return;
    close();
    of.act();
  }
  const step = (/** @type {number} */ by) => go((at + by + found.length) % (found.length || 1));
  const keys = { ArrowDown: () => step(1), ArrowUp: () => step(-1), Enter: () => take(found[at]) };
  const id = (/** @type {number} */ n) => `sv-palette-${ctx.number}-${n}`;
  const oninput = (/** @type {any} */ { target }) => {
    type(target.value);
    go(0);
  };
  const away = (/** @type {any} */ { relatedTarget }) => box.current?.parentElement.contains(relatedTarget) || close();
  const hits = found.map((each, n) => {
    const { kind, words, more } = each;
    return ui`<div class="sv-hit" role="option" id=${id(n)} key="${kind} ${words}" aria-selected=${n === at}
          data-testid="hit-${n}" onmousedown=${(e) => e.preventDefault()} onclick=${() => take(each)}>
        <small>${kind}</small><b>${words}</b><span>${more}</span></div>`;
  });
  return ui`<${Over} class="sv-palette" data-testid="palette" aria-label="find" close=${close} keys=${keys}
        first=${["input"]} onfocusout=${away}>
      <input type="search" class="sv-filter" data-testid="palette-text" role="combobox" aria-expanded="true"
          aria-controls=${id(-1)} aria-activedescendant=${found.length ? id(at) : null} aria-label="what to find or do"
          placeholder="an array, a line, an action, a setting …" spellcheck=${false} autocomplete="off"
          oninput=${oninput} />
      <div class="sv-palettelist" role="listbox" id=${id(-1)} aria-label="what was found" ref=${box}>${hits}${
    !found.length && ui`<p class="sv-soft">Nothing is called that.</p>`
  }</div><//>`;
}
