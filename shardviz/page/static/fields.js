// @ts-check
// What a person types, ticks or chooses.
import { ui } from "./parts.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";

/** @import { View } from "./vendor/preact.d.ts" */

/**
 * A field that shows a value until something else is typed: Enter takes what was typed, Escape takes it back.
 * @param {{ value?: string, enter?: (text: string) => void, leave?: (text: string) => void, escape?: (input: HTMLInputElement) => void,
 *   grab?: boolean, answer?: number, [attribute: string]: unknown }} props `leave` is given what was typed, if it is
 *   something else, once the field is left; `grab`: it has the focus, and its text is selected, when it comes; `answer`: the
 *   number of the kernel's answer, with which what was typed is gone
 */
export function Field({ value = "", enter, leave, escape, grab, answer, ...more }) {
  const input = useRef(/** @type {any} */ (null));
  const done = useRef(false); // what was typed is taken or taken back
  useLayoutEffect(() => {
    if (input.current.getRootNode().activeElement !== input.current) input.current.value = value;
  }, [value, answer]);
  useLayoutEffect(() => {
    if (!grab) return;
    input.current.focus();
    input.current.select();
  }, []);
  const onkeydown = (/** @type {KeyboardEvent} */ e) => {
    if (e.key !== "Enter" && e.key !== "Escape") return;
    e.stopPropagation();
    e.preventDefault(); // else the same key does something to what has the focus then
    const blur = () => input.current.blur();
    done.current = e.key === "Escape" || Boolean(enter);
    if (e.key === "Enter") enter ? enter(input.current.value) : blur();
    else {
      input.current.value = value;
      (escape ?? blur)(input.current);
    }
  };
  const onblur = () => {
    const text = input.current?.value;
    if (leave && !done.current && input.current?.isConnected && text !== value) leave(text);
    done.current = false;
  };
  return ui`<input type="text" spellcheck=${false} autocomplete="off" ...${more} ref=${input} onkeydown=${onkeydown}
        onblur=${onblur} />`;
}

const PAUSE = 120; // milliseconds without a key before it is said what was typed

/** What says a text when no other has come for a moment. @param {(text: string) => void} say */
function useLater(say) {
  const timer = useRef(/** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined));
  return (/** @type {string} */ text) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => say(text), PAUSE);
  };
}

/** A field to search with. @param {{ value: string, say: (text: string) => void, [attribute: string]: unknown }} props */
export function SearchField({ say, ...more }) {
  const later = useLater(say);
  return ui`<${Field} type="search" class="sv-filter" enter=${() => {}} ...${more}
        oninput=${({ target }) => later(target.value)} />`;
}

/**
 * Fields with a button that takes what is in them, as Enter does.
 * @param {{ fields: object[], take: (...texts: string[]) => void, words: string, id: string, title?: string, between?: View,
 *   button?: string, children?: View, [attribute: string]: unknown }} props `button`: its further class
 */
export function Form({ fields, take, words, id, title, between, button = "", children, ...more }) {
  const box = useRef(/** @type {any} */ (null));
  const inputs = () => /** @type {HTMLInputElement[]} */ ([...box.current.querySelectorAll("input")]);
  const go = () => take(...inputs().map(({ value }) => value));
  return ui`<div ...${more} ref=${box}>${
    fields.map((each, n) => [n ? between : null, ui`<${Field} enter=${go} ...${each} />`])
  }<button class="sv-btn ${button}" data-testid=${id} title=${title} onclick=${go}>${words}</button>${children}</div>`;
}

/** A box to tick. @param {{ id: string, on: boolean, set: (on: boolean) => void, children?: View, [attribute: string]: unknown }} props */
export function Check({ id, on, set, children, ...more }) {
  return ui`<label ...${more}>
      <input type="checkbox" data-testid=${id} checked=${on} onchange=${({ target }) => set(target.checked)} />
      ${" "}${children}</label>`;
}

/**
 * One of several.
 * @param {{ id: string, value: string, set: (value: string) => void, options: [value: string, words: string][],
 *   [attribute: string]: unknown }} props
 */
export function Select({ id, set, options, ...more }) {
  return ui`<select data-testid=${id} ...${more} onchange=${({ target }) => set(target.value)}>
      ${options.map(([each, words]) => ui`<option value=${each}>${words}</option>`)}</select>`;
}
