// @ts-check
// A word of the glossary: underlined with dots, it says what it means while it is pointed at or has the focus.
import { ui } from "./parts.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

const WIDE = 300; // pixels of the box, as its style has it

/** @param {{ text: string, means: string, class?: string | null, [attribute: string]: unknown }} props */
export function Term({ text, means, class: look, ...more }) {
  return ui`<span ...${more} class="sv-term ${look || ""}" tabindex="-1" aria-description=${means}>${text}</span>`;
}

/** What the word that is pointed at means; one for the whole page. */
export function Meaning() {
  const box = useRef(/** @type {any} */ (null));
  const [shown, show] = useState({ means: "", left: 0, top: 0 });
  useLayoutEffect(() => {
    const root = box.current.closest(".shardviz");
    const tell = (/** @type {Event} */ e) => {
      const target = e.composedPath()[0];
      const term = target instanceof Element ? target.closest(".sv-term") : null;
      const means = term?.getAttribute("aria-description") || "";
      if (!term || !means) return show((before) => before.means ? { ...before, means } : before);
      const [all, one] = [root, term].map((el) => el.getBoundingClientRect());
      const left = Math.max(0, Math.min(one.left - all.left, all.width - WIDE - 8));
      show({ means, left, top: one.bottom - all.top + 4 });
    };
    const hide = () => show((before) => before.means ? { ...before, means: "" } : before);
    const events = { mouseover: tell, focusin: tell, mouseleave: hide, focusout: hide, keydown: hide };
    for (const [name, listener] of Object.entries(events)) root.addEventListener(name, listener);
    return () => {
      for (const [name, listener] of Object.entries(events)) root.removeEventListener(name, listener);
    };
  }, []);
  return ui`<div class="sv-meaning" data-testid="meaning" role="tooltip" hidden=${!shown.means} ref=${box}
        style=${{ left: `${shown.left}px`, top: `${shown.top}px` }}>
      ${shown.means}</div>`;
}
