// @ts-check
// What stands above the arrays: a search, which of them are shown, and whether twins are changed with them.
import { Field, ui, useContextOf } from "./parts.js";
import { FILTERS } from "./tree.js";

/** Whether what is done to an array is done to its twins too. @param {{ shown: boolean }} props */
export function Twins({ shown }) {
  const ctx = useContextOf();
  const title = "what is done to an array is done to its twins too: the same leaf of momentum, of other optimizer " +
    "state and of every layer, where it is sharded alike";
  return ui`<label class="sv-twinscheck" title=${title} hidden=${!shown}>
      <input type="checkbox" data-testid="twins" checked=${ctx.twins} onchange=${(
    /** @type {any} */ { target },
  ) => ctx.put("twins", target.checked)} />${" optimizer state too"}</label>`;
}

/**
 * @param {{ view: { text: string, filter: string }, find: (change: { text?: string, filter?: string }) => void,
 *   shown: boolean, down: () => void, said: string }} props `shown`: whether there are enough to choose; `down` goes to them
 */
export function Search({ view, find, shown, down, said }) {
  const ctx = useContextOf();
  const dimensions = ctx.get("dimensions").rows.map(({ name }, i) => [`=${i}`, `with ${name}`]);
  const onkeydown = (/** @type {KeyboardEvent} */ e) => {
    if (e.key !== "ArrowDown") return;
    down();
    e.preventDefault();
  };
  const clear = (/** @type {HTMLInputElement} */ input) => find({ text: input.value = "" });
  return ui`<div class="sv-searchbar" onkeydown=${onkeydown}>
      <${Field} type="search" class="sv-filter" data-testid="search" value=${view.text} placeholder="search the inputs"
          aria-label="search the inputs by path; arrow down goes to them" enter=${() => {}} escape=${clear} oninput=${(
    /** @type {any} */ { target },
  ) =>
    find({
      text: target.value,
    })} />
      <select data-testid="filter" aria-label="which inputs are shown" hidden=${!shown} value=${view.filter}
          onchange=${(
    /** @type {any} */ { target },
  ) => find({ filter: target.value })}>
        ${[...FILTERS, ...dimensions].map(([value, text]) => ui`<option value=${value}>${text}</option>`)}</select>
      <span class="sv-soft sv-found" data-testid="search-found" role="status">${said}</span></div>`;
}
