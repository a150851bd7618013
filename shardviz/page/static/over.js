// @ts-check
// What lies over the page, as a menu at its slot or the palette: it has the focus when it comes, arrows go through it,
// Escape closes it, and the focus goes back.
import { find, focused, keyed } from "./dom.js";
import { ui, useContextOf } from "./parts.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";

/** @import { View } from "./vendor/preact.d.ts" */

/**
 * Where an arrow key leads in rows of different lengths; null where it leads nowhere.
 * @template T
 * @param {T[][]} rows none of them empty
 * @param {T} from
 * @param {string} key
 * @returns {T | null}
 */
export function neighbour(rows, from, key) {
  const at = rows.findIndex((row) => row.includes(from));
  const across = Math.max(0, rows[at]?.indexOf(from) ?? 0);
  const [right, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key] ?? [0, 0];
  const row = rows[at + down];
  return row && (right || down) ? row[down ? Math.min(across, row.length - 1) : across + right] ?? null : null;
}

/**
 * @param {{ close: () => void, first: string[], at?: string, keys?: Record<string, () => unknown>, children?: View,
 *   [attribute: string]: unknown }} props `first` selects what has the focus when it comes, the best first; `at` is the test id of what it
 *   was opened from, below which it stands and with which a click elsewhere closes it; `keys` are its own, in place of the
 *   arrows, which go through its buttons and fields: those in one `data-row` side by side
 */
export function Over({ close, first, at = "", keys, children, ...more }) {
  const ctx = useContextOf();
  const box = useRef(/** @type {any} */ (null));
  const last = useRef(""); // the test id of what had the focus in it
  const opener = () => at ? find(ctx.root, at) : null;
  const follow = () => {
    const from = opener();
    if (from && box.current) place(box.current, from);
  };
  const start = () => first.map((each) => box.current.querySelector(each)).find(Boolean);
  useLayoutEffect(() => {
    const own = box.current;
    const before = /** @type {HTMLElement | null} */ (opener() ?? focused(own));
    const away = (/** @type {any} */ { target }) => own.contains(target) || opener()?.contains(target) || close();
    if (at) {
      ctx.root.addEventListener("pointerdown", away);
      ctx.root.addEventListener("scroll", follow, true);
    }
    opener()?.setAttribute("aria-expanded", "true");
    start()?.focus({ preventScroll: true });
    return () => {
      ctx.root.removeEventListener("pointerdown", away);
      ctx.root.removeEventListener("scroll", follow, true);
      opener()?.setAttribute("aria-expanded", "false");
      if (isLost(own) || own.contains(focused(own))) before?.focus({ preventScroll: true });
    };
  }, []);
  useLayoutEffect(() => {
    const from = opener();
    if (at && !from) return close(); // what it is about is gone
    if (from) {
      follow();
      requestAnimationFrame(follow); // rows above it may fold with the same answer
    }
    if (!isLost(box.current)) return;
    (find(box.current, last.current) ?? start())?.focus({ preventScroll: true });
  });

  /** @param {string} key */
  function go(key) {
    const all = [...box.current.querySelectorAll("button:not(:disabled), input")];
    const rows = Map.groupBy(all, (each) => each.closest("[data-row]") ?? each);
    neighbour([...rows.values()], focused(box.current), key)?.focus();
  }

  /** @param {KeyboardEvent} e */
  function pressed(e) {
    const typing = e.target instanceof HTMLInputElement && /Left|Right/.test(e.key); // the cursor in the text moves
    const arrows = ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"].map((key) => [key, () => !typing && go(key)]);
    keyed(e, { Escape: close, ...keys ?? Object.fromEntries(arrows) });
    if (at) e.stopPropagation();
  }
  return ui`<div role="dialog" ...${more} ref=${box} onkeydown=${pressed} onfocusin=${({ target }) =>
    last.current = target.dataset.testid ?? ""}>${children}</div>`;
}

/** Whether nothing has the focus: what had it is gone. @param {HTMLElement} el */
const isLost = (el) => [null, document.body].includes(/** @type {any} */ (focused(el)));

/** Puts a box below the row of what opened it; where it has no room there, above or beside it, in what is seen of the page.
 * @param {HTMLElement} box @param {HTMLElement} opener */
function place(box, opener) {
  const row = opener.closest(".sv-leafline, .sv-dimrow") ?? opener;
  const [a, r, b] = [opener, row, box.offsetParent ?? box].map((each) => each.getBoundingClientRect());
  let [top, bottom] = [0, innerHeight];
  for (let around = box.parentElement; around; around = around.parentElement) {
    if (getComputedStyle(around).overflowY === "visible") continue;
    const seen = around.getBoundingClientRect();
    [top, bottom] = [Math.max(top, seen.top), Math.min(bottom, seen.bottom)];
  }
  box.style.setProperty("--sv-room", `${bottom - r.bottom - 12}px`);
  const [high, wide] = [box.offsetHeight, box.offsetWidth];
  const [below, above] = [r.bottom + 4, r.top - high - 4];
  const beside = below + high > bottom && above < top;
  const y = !beside ? below + high <= bottom ? below : above : Math.max(top, bottom - high - 4);
  const x = (beside ? a.right + 8 : a.left - 8) - b.left;
  box.style.left = `${Math.max(4, Math.min(x, b.width - wide - 4))}px`;
  box.style.top = `${y - b.top}px`;
}
