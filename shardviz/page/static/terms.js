// @ts-check
// A word of the glossary: underlined with dots, it says what it means while it is pointed at or has the focus.
import { pointedAt } from "./dom.js";
import { ui, useContextOf } from "./parts.js";
import { useLayoutEffect, useState } from "./vendor/preact.js";

const WIDE = 300; // pixels of the box, as its style has it

/** @param {{ text: string, means: string, class?: string | null, [attribute: string]: unknown }} props */
export function Term({ text, means, class: look, ...more }) {
  return ui`<span ...${more} class="sv-term ${look || ""}" tabindex="-1" aria-description=${means}>${text}</span>`;
}

/** What the word that is pointed at means; one for the whole page. */
export function Meaning() {
  const ctx = useContextOf();
  const [{ means, left, top }, show] = useState({ means: "", left: 0, top: 0 });
  useLayoutEffect(() => {
    const end = pointedAt(ctx.root, ".sv-term", (term) => {
      if (!term) return hide();
      const [all, one] = [ctx.root, term].map((el) => el.getBoundingClientRect());
      const x = Math.max(0, Math.min(one.left - all.left, all.width - WIDE - 8));
      show({ means: term.getAttribute("aria-description") || "", left: x, top: one.bottom - all.top + 4 });
    });
    ctx.root.addEventListener("keydown", hide);
    return () => {
      end();
      ctx.root.removeEventListener("keydown", hide);
    };
  }, []);
  const hide = () => show((before) => before.means ? { ...before, means: "" } : before);
  return ui`<div class="sv-meaning" data-testid="meaning" role="tooltip" hidden=${!means}
        style=${{ left: `${left}px`, top: `${top}px` }}>${means}</div>`;
}
