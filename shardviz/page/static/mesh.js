// @ts-check
// The mesh: every axis with its name and size to edit in place, and a grip to drag it into a slot.
import { fill, find, h, isFilling } from "./dom.js";
import { axisStyle } from "./chips.js";
import { dragAxis } from "./drag.js";
import { rove } from "./keys.js";
import { refusal } from "./head.js";

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
 * @param {HTMLElement} help
 */
export function mesh(ctx, el, machine, help) {
  const axes = h("div", { class: "sv-mesh" });
  const problem = h("div");
  const devices = h("span", { class: "sv-hint", id: "devices" });
  const title = h(
    "div",
    { class: "sv-sec sv-secbar" },
    h("span", {}, "Mesh", devices),
    h("span", {}, history(ctx), help),
  );
  el.append(title, axes, problem, machine.notes);
  // the axes stay in reach while the rest scrolls below them: what else stays must know how high they are
  new ResizeObserver(() => el.style.setProperty("--sv-stuck", `${axes.offsetHeight}px`)).observe(axes);
  let adding = false;

  /**
   * The size that an axis has, or will have when the kernel has answered: a second click goes on from the first.
   * @param {MeshAxis} axis
   */
  function sizeOf(axis) {
    const size = ctx.lastAsked("resize_axis", axis.name)?.size;
    return typeof size === "number" ? size : axis.size;
  }

  /**
   * @param {MeshAxis} axis
   * @param {number | string} size
   */
  function resize(axis, size) {
    if (size !== sizeOf(axis)) ctx.edit({ op: "resize_axis", name: axis.name, size });
  }

  /** @param {MeshAxis} axis */
  function axisBox(axis) {
    const { name } = axis;
    const grip = h("span", { class: "sv-grip", title: `drag ${name} onto a dimension`, "aria-hidden": "true" }, "⠿");
    const attributes = {
      class: "sv-axis",
      id: `mesh-axis-${name}`,
      style: axisStyle(ctx, name),
      "data-thing": `axis ${name}`,
      role: "group",
      tabindex: "-1",
      title: "arrows: other axes · + and −: more and fewer · Enter: name and size · Delete: remove",
      "aria-label": `mesh axis ${name}, ${axis.size} devices; plus and minus change it, Enter edits, Delete removes`,
      onkeydown: (/** @type {KeyboardEvent} */ e) => axisKeys(e, axis),
    };
    const rename = field(name, `axis-name-${name}`, `name of mesh axis ${name}`, (text) => {
      ctx.edit({ op: "rename_axis", old: name, new: text });
    });
    const size = field(String(axis.size), `axis-size-${name}`, `devices along ${name}`, (text) => {
      resize(axis, parseSize(text));
    });
    /** @param {string} id @param {string} words @param {string} label @param {string} title @param {() => void} onclick */
    const button = (id, words, label, title, onclick, disabled = false) =>
      h("button", { id: `axis-${id}-${name}`, tabindex: "-1", title, "aria-label": label, disabled, onclick }, words);
    const less = button("less", "−", `halve ${name}`, "half as many", () => {
      resize(axis, halved(sizeOf(axis)));
    }, axis.size < 2);
    const more = button("more", "+", `double ${name}`, "twice as many", () => resize(axis, sizeOf(axis) * 2));
    const remove = button("remove", "×", `remove ${name}`, `remove ${name}, from every spec too`, () => {
      ctx.edit({ op: "remove_axis", name });
    });
    const box = h("span", attributes, grip, rename, less, size, more, remove);
    dragAxis(grip, name, box);
    return box;
  }

  /** What the keys do while an axis has the focus, and none of its fields. @param {KeyboardEvent} e @param {MeshAxis} axis */
  function axisKeys(e, axis) {
    if (e.target !== e.currentTarget || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "+" || e.key === "=") resize(axis, sizeOf(axis) * 2);
    else if (e.key === "-") resize(axis, halved(sizeOf(axis)));
    else if (e.key === "Delete" || e.key === "Backspace") ctx.edit({ op: "remove_axis", name: axis.name });
    else if (e.key === "Enter" || e.key === "F2") {
      const input = /** @type {HTMLInputElement | null} */ (find(axes, `axis-name-${axis.name}`));
      input?.focus();
      input?.select();
    } else return;
    e.preventDefault();
    e.stopPropagation();
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
    /** @param {import("./types.d.ts").Props} props */
    const input = (props) => h("input", { type: "text", spellcheck: "false", onkeydown, ...props });
    const label = "name of the new mesh axis";
    const name = input({ class: "sv-newname", id: "new-axis-name", placeholder: "name", "aria-label": label });
    const size = input({
      class: "sv-newsize",
      id: "new-axis-size",
      value: "2",
      inputmode: "numeric",
      "aria-label": "its number of devices",
    });
    const add = h("button", { class: "sv-btn", id: "new-axis-ok", onclick: done }, "add");
    return h("span", { class: "sv-adder" }, name, "=", size, add);
  }

  function draw() {
    const data = ctx.get("mesh");
    fill(axes, data.axes.map(axisBox), adder(), machine.button);
    rove(axes, ".sv-axis, .sv-mesh > .sv-btn, .sv-mesh > .sv-target");
    devices.textContent = `${data.devices.toLocaleString("en")} device${data.devices === 1 ? "" : "s"}`;
    const { error } = ctx.get("status");
    const here = error?.place === "mesh";
    fill(problem, here ? refusal(ctx, error, "mesh-error") : null);
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
      /** @type {HTMLElement | null} */ (input.closest(".sv-axis"))?.focus();
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
    tabindex: "-1",
    "aria-label": label,
    title: value.length > 24 ? value : null,
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
    h("button", {
      class: "sv-btn",
      id: op,
      title: `${op} (${keys})`,
      "aria-label": op,
      onclick: () => ctx.edit({ op }),
    }, text);
  const undo = button("undo", "↶", "Ctrl+Z");
  const redo = button("redo", "↷", "Ctrl+Shift+Z");
  const draw = () => {
    const status = ctx.get("status");
    undo.disabled = !status.undo;
    redo.disabled = !status.redo;
  };
  ctx.on("status", draw);
  draw();
  return h("span", {}, undo, redo);
}
