// @ts-check
// The mesh: every axis with its name and size to edit in place; it is dragged into a slot.
import { axisStyle } from "./chips.js";
import { find, keyed } from "./dom.js";
import { dragged } from "./drag.js";
import { rove } from "./keys.js";
import { Field, Form } from "./fields.js";
import { ui, useContextOf, useTraits } from "./parts.js";
import { TargetButton, TargetNotes } from "./target.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { MeshAxis } from "./types.d.ts" */

/**
 * What a person typed as a size: a number, or the text as it is, which the kernel refuses with its reason.
 * @param {string} text
 */
export function parseSize(text) {
  return /^\d+$/.test(text) ? Number(text) : text;
}

/**
 * Half as many devices; of an odd number, one less.
 * @param {number} size
 */
export function halved(size) {
  return size % 2 ? Math.max(1, size - 1) : size / 2;
}

/** @param {{ tour: () => void }} props what begins the tour */
export function Mesh({ tour }) {
  const ctx = useTraits("mesh", "status");
  const axes = useRef(/** @type {any} */ (null));
  const { axes: all, devices } = ctx.get("mesh");
  const { undo, redo } = ctx.get("status");
  useLayoutEffect(() => rove(axes.current, ".sv-axis, .sv-mesh > .sv-btn, .sv-mesh > .sv-target"));
  useLayoutEffect(() => {
    // the axes stay in reach while the rest scrolls below them: what else stays must know how high they are
    const left = axes.current.closest(".sv-left");
    const watch = new ResizeObserver(() => left.style.setProperty("--sv-stuck", `${axes.current?.offsetHeight}px`));
    watch.observe(axes.current);
    return () => watch.disconnect();
  }, []);
  const count = `${devices.toLocaleString("en")} device${devices === 1 ? "" : "s"}`;
  return ui`<div class="sv-sec sv-secbar">
      <span>Mesh<span class="sv-hint" data-testid="devices">${count}</span></span>
      <span>
        <span>
          <${Past} op="undo" sign="↶" keys="Ctrl+Z" any=${undo} />
          <${Past} op="redo" sign="↷" keys="Ctrl+Shift+Z" any=${redo} /></span>
        <button class="sv-btn" data-testid="tour-open" title="a tour of two minutes" aria-label="tour" onclick=${tour}>?</button></span></div>
    <div class="sv-mesh" ref=${axes}>
      ${
    all.map((axis) => ui`<${Axis} key=${axis.name} axis=${axis} />`)
  }<${Adder} /><${TargetButton} /></div><${TargetNotes} />`;
}

/** @param {{ op: "undo" | "redo", sign: string, keys: string, any: number }} props */
function Past({ op, sign, keys, any }) {
  const ctx = useContextOf();
  return ui`<button class="sv-btn" data-testid=${op} title="${op} (${keys})" aria-label=${op} disabled=${!any}
        onclick=${() => ctx.edit({ op })}>${sign}</button>`;
}

/** @param {{ axis: MeshAxis }} props */
function Axis({ axis: { name, size } }) {
  const ctx = useContextOf();
  const box = useRef(/** @type {any} */ (null));
  /** The size that it has, or will have when the kernel has answered: a second click goes on from the first. */
  function now() {
    const asked = ctx.lastAsked("resize_axis", name)?.size;
    return typeof asked === "number" ? asked : size;
  }
  /** @param {number | string} to */
  const resize = (to) => to !== now() && ctx.edit({ op: "resize_axis", name, size: to });
  const remove = () => ctx.edit({ op: "remove_axis", name });

  /** What the keys do while it has the focus, and none of its fields. @param {KeyboardEvent} e */
  function keys(e) {
    if (e.target !== e.currentTarget || e.ctrlKey || e.metaKey || e.altKey) return;
    const edit = () => {
      const input = /** @type {HTMLInputElement | null} */ (find(box.current, `axis-name-${name}`));
      input?.focus();
      input?.select();
    };
    const more = () => resize(now() * 2);
    const acts = { "+": more, "=": more, "-": () => resize(halved(now())), Delete: remove, Backspace: remove };
    keyed(e, { ...acts, Enter: edit, F2: edit });
  }

  const more = { answer: ctx.get("status").seq, escape: () => box.current.focus() };
  const rename = (/** @type {string} */ text) => ctx.edit({ op: "rename_axis", old: name, new: text.trim() });
  const set = (/** @type {string} */ text) => resize(parseSize(text.trim()));
  const drag = dragged(ctx, name);
  const dragstart = (/** @type {DragEvent} */ e) =>
    box.current.querySelector("input:focus") ? e.preventDefault() : drag.ondragstart(e); // text is being selected
  /** @param {string} id @param {string} words @param {string} label @param {string} title @param {() => void} onclick */
  const button = (id, words, label, title, onclick, disabled = false) =>
    ui`<button data-testid="axis-${id}-${name}" tabindex="-1" title=${title} aria-label=${label} disabled=${disabled}
          onclick=${onclick}>${words}</button>`;
  return ui`<span class="sv-axis" data-testid="mesh-axis-${name}" style=${axisStyle(ctx, name)}
        data-thing="axis ${name}" role="group" tabindex="-1" ...${drag} ondragstart=${dragstart}
        title="drag it onto a dimension · arrows: other axes · + and −: more and fewer · Enter: name and size · Delete: remove"
        aria-label="mesh axis ${name}, ${size} devices; plus and minus change it, Enter edits, Delete removes"
        onkeydown=${keys} ref=${box}>
      <span class="sv-grip" aria-hidden="true">⠿</span>
      <${Sized} value=${name} data-testid="axis-name-${name}" aria-label="name of mesh axis ${name}" leave=${rename}
          ...${more} />
      ${button("less", "−", `halve ${name}`, "half as many", () => resize(halved(now())), size < 2)}
      <${Sized} value=${String(size)} data-testid="axis-size-${name}" aria-label="devices along ${name}" leave=${set}
          ...${more} />
      ${button("more", "+", `double ${name}`, "twice as many", () => resize(now() * 2))}
      ${button("remove", "×", `remove ${name}`, `remove ${name}, from every spec too`, remove)}</span>`;
}

/** A field as wide as its text: where a browser cannot see to it, as what it had. The label takes the mouse until the
 * field has the focus, so that the field can be dragged with its axis. @param {{ value: string, [attribute: string]: unknown }} props */
function Sized({ value, ...more }) {
  return ui`<label title=${value.length > 24 ? value : null}>
      <${Field} value=${value} ...${more} tabindex="-1" size=${Math.max(1, value.length)} /></label>`;
}

/** A button, and once it is pressed the name and the size of another axis. */
function Adder() {
  const ctx = useContextOf();
  const [shown, show] = useState(false);
  if (!shown) return ui`<button class="sv-btn" data-testid="add-axis" onclick=${() => show(true)}>+ axis</button>`;
  const escape = () => show(false);
  const name = { "data-testid": "new-axis-name", placeholder: "name", "aria-label": "name of the new mesh axis" };
  const size = { "data-testid": "new-axis-size", inputmode: "numeric", "aria-label": "its number of devices" };
  const fields = [{ ...name, class: "sv-newname", grab: true, escape }, {
    ...size,
    class: "sv-newsize",
    value: "2",
    escape,
  }];
  const done = (/** @type {string} */ called, /** @type {string} */ many) => {
    show(false);
    ctx.edit({ op: "add_axis", name: called.trim(), size: parseSize(many.trim()) });
  };
  return ui`<${Form} class="sv-adder" fields=${fields} between="=" take=${done} id="new-axis-ok" words="add" />`;
}
