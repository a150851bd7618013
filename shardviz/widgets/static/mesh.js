// @ts-check
// The mesh: every axis with its name and size to edit in place, and a grip to drag it into a slot.
import { fill, h, isFilling } from "./dom.js";
import { axisStyle } from "./chips.js";
import { notice } from "./head.js";
import { dragAxis } from "./drag.js";

/** @import { Context, MeshAxis } from "./types.d.ts" */

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

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @param {{ button: HTMLElement, notes: HTMLElement }} machine the choice of a machine, which stands with the axes
 */
export function mesh(ctx, el, machine) {
  const axes = h("div", { class: "sv-mesh" });
  const problem = h("div");
  const devices = h("span", { class: "sv-hint", id: "devices" });
  const title = h("div", { class: "sv-sec sv-secbar" }, h("span", {}, "Mesh", devices), history(ctx));
  el.append(title, axes, problem, machine.notes);
  let adding = false;
  /**
   * By axis: the size it was last asked to have, and the number of that edit.
   * @type {Map<string, { size: number | string, seq: number }>}
   */
  const asked = new Map();

  /**
   * The size that an axis has, or will have when the kernel has answered: a second click goes on from the first.
   * @param {MeshAxis} axis
   */
  function sizeOf(axis) {
    const last = asked.get(axis.name);
    return last && last.seq > ctx.get("status").seq && typeof last.size === "number" ? last.size : axis.size;
  }

  /**
   * @param {MeshAxis} axis
   * @param {number | string} size
   */
  function resize(axis, size) {
    if (size === sizeOf(axis)) return;
    asked.set(axis.name, { size, seq: ctx.edit({ op: "resize_axis", name: axis.name, size }) });
  }

  /** @param {MeshAxis} axis */
  function axisBox(axis) {
    const { name } = axis;
    const grip = h("span", { class: "sv-grip", title: `drag ${name} onto a dimension`, "aria-hidden": "true" }, "⠿");
    const attributes = {
      class: "sv-axis",
      id: `mesh-axis-${name}`,
      style: axisStyle(ctx, name),
      role: "group",
      "aria-label": `mesh axis ${name}, ${axis.size} devices`,
    };
    const rename = field(name, `axis-name-${name}`, `name of mesh axis ${name}`, (text) => {
      ctx.edit({ op: "rename_axis", old: name, new: text });
    });
    const less = h("button", {
      id: `axis-less-${name}`,
      title: "half as many",
      "aria-label": `halve ${name}`,
      disabled: axis.size < 2,
      onclick: () => resize(axis, halved(sizeOf(axis))),
    }, "−");
    const size = field(String(axis.size), `axis-size-${name}`, `devices along ${name}`, (text) => {
      resize(axis, parseSize(text));
    });
    const more = h("button", {
      id: `axis-more-${name}`,
      title: "twice as many",
      "aria-label": `double ${name}`,
      onclick: () => resize(axis, sizeOf(axis) * 2),
    }, "+");
    const remove = h("button", {
      id: `axis-remove-${name}`,
      title: `remove ${name}, from every spec too`,
      "aria-label": `remove ${name}`,
      onclick: () => ctx.edit({ op: "remove_axis", name }),
    }, "×");
    const box = h("span", attributes, grip, rename, less, size, more, remove);
    dragAxis(grip, name, box);
    return box;
  }

  function adder() {
    return adding
      ? newAxis()
      : h("button", { class: "sv-btn", id: "add-axis", onclick: () => showAdder(true) }, "+ axis");
  }

  /** @param {boolean} shown */
  function showAdder(shown) {
    adding = shown;
    draw();
    if (shown) /** @type {HTMLElement} */ (axes.querySelector(".sv-newname")).focus();
  }

  function newAxis() {
    function done() {
      showAdder(false);
      ctx.edit({ op: "add_axis", name: name.value.trim(), size: parseSize(size.value.trim()) });
    }
    /** @param {KeyboardEvent} e */
    function onkeydown(e) {
      if (e.key === "Enter") done();
      if (e.key === "Escape") showAdder(false);
      e.stopPropagation();
    }
    const name = h("input", {
      type: "text",
      class: "sv-newname",
      id: "new-axis-name",
      placeholder: "name",
      "aria-label": "name of the new mesh axis",
      spellcheck: "false",
      onkeydown,
    });
    const size = h("input", {
      type: "text",
      class: "sv-newsize",
      id: "new-axis-size",
      value: "2",
      inputmode: "numeric",
      "aria-label": "its number of devices",
      onkeydown,
    });
    const add = h("button", { class: "sv-btn", id: "new-axis-ok", onclick: done }, "add");
    return h("span", { class: "sv-adder" }, name, "=", size, add);
  }

  function draw() {
    const data = ctx.get("mesh");
    fill(axes, data.axes.map(axisBox), adder(), machine.button);
    devices.textContent = `${data.devices.toLocaleString("en")} device${data.devices === 1 ? "" : "s"}`;
    const { error } = ctx.get("status");
    const here = error?.place === "mesh";
    fill(problem, here ? notice("sv-error", "mesh-error", error.message, error.detail) : null);
  }
  ctx.on("mesh", draw);
  ctx.on("status", draw);
  draw();
}

/**
 * A field as wide as its text. Enter or leaving it takes a change, Escape takes it back.
 * @param {string} value
 * @param {string} id
 * @param {string} label
 * @param {(text: string) => void} done is given what was typed, if it is something else
 */
function field(value, id, label, done) {
  let cancelled = false;
  /** @param {string} text */
  const width = (text) => `${Math.max(1, text.length) + 0.6}ch`;
  /** @param {KeyboardEvent} e */
  function onkeydown(e) {
    e.stopPropagation();
    if (e.key === "Enter") input.blur();
    if (e.key === "Escape") {
      cancelled = true;
      input.value = value;
      input.blur();
    }
  }
  function onblur() {
    if (isFilling()) return;
    const text = input.value.trim();
    if (!cancelled && text !== value) done(text);
    cancelled = false;
  }
  const input = h("input", {
    type: "text",
    id,
    value,
    "aria-label": label,
    spellcheck: "false",
    style: { width: width(value) },
    oninput: () => {
      input.style.setProperty("width", width(input.value));
    },
    onkeydown,
    onblur,
  });
  return input;
}

/** @param {Context} ctx */
function history(ctx) {
  /**
   * @param {"undo" | "redo"} op
   * @param {string} text
   * @param {string} keys
   */
  const button = (op, text, keys) =>
    h("button", { class: "sv-btn", id: op, title: `${op} (${keys})`, onclick: () => ctx.edit({ op }) }, text);
  const undo = button("undo", "↶ undo", "Ctrl+Z");
  const redo = button("redo", "↷ redo", "Ctrl+Shift+Z");
  const draw = () => {
    const status = ctx.get("status");
    undo.disabled = !status.undo;
    redo.disabled = !status.redo;
  };
  ctx.on("status", draw);
  draw();
  return h("span", {}, undo, redo);
}
