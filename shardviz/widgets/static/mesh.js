// The mesh: every axis with its name and size to edit in place, and a grip to drag it into a slot.
import { fill, h, isFilling } from "./dom.js";
import { axisStyle } from "./chips.js";
import { notice } from "./head.js";
import { dragAxis } from "./drag.js";

export function mesh(ctx, el, machine) {
  const axes = h("div", { class: "sv-mesh" });
  const problem = h("div", {});
  const devices = h("span", { class: "sv-hint", id: "devices" });
  el.append(
    h("div", { class: "sv-sec sv-secbar" }, h("span", {}, "Mesh", devices), history(ctx)),
    axes,
    problem,
    machine.notes,
  );
  let adding = false;
  const asked = new Map(); // axis → the size it was last asked to have, and the number of that edit

  // The size that an axis has, or will have when the kernel has answered: a second click goes on from the first.
  function sizeOf(a) {
    const [size, seq] = asked.get(a.name) || [a.size, 0];
    return seq > ctx.get("status").seq ? size : a.size;
  }

  function axis(a) {
    const resize = (size) =>
      size !== sizeOf(a) && asked.set(a.name, [size, ctx.edit({ op: "resize_axis", name: a.name, size })]);
    const halve = (size) => resize(size % 2 ? Math.max(1, size - 1) : size / 2);
    const name = field(
      a.name,
      `axis-name-${a.name}`,
      `name of mesh axis ${a.name}`,
      (text) => text !== a.name && ctx.edit({ op: "rename_axis", old: a.name, new: text }),
    );
    const size = field(
      String(a.size),
      `axis-size-${a.name}`,
      `devices along ${a.name}`,
      (text) => resize(/^\d+$/.test(text) ? Number(text) : text),
    );
    const grip = h("span", { class: "sv-grip", title: `drag ${a.name} onto a dimension`, "aria-hidden": "true" }, "⠿");
    const box = h(
      "span",
      {
        class: "sv-axis",
        id: `mesh-axis-${a.name}`,
        style: axisStyle(ctx, a.name),
        role: "group",
        "aria-label": `mesh axis ${a.name}, ${a.size} devices`,
      },
      grip,
      name,
      h("button", {
        id: `axis-less-${a.name}`,
        title: "half as many",
        "aria-label": `halve ${a.name}`,
        disabled: a.size < 2,
        onclick: () => halve(sizeOf(a)),
      }, "−"),
      size,
      h("button", {
        id: `axis-more-${a.name}`,
        title: "twice as many",
        "aria-label": `double ${a.name}`,
        onclick: () => resize(sizeOf(a) * 2),
      }, "+"),
      h("button", {
        id: `axis-remove-${a.name}`,
        title: `remove ${a.name}, from every spec too`,
        "aria-label": `remove ${a.name}`,
        onclick: () => ctx.edit({ op: "remove_axis", name: a.name }),
      }, "×"),
    );
    dragAxis(grip, a.name, null, box);
    return box;
  }

  function adder() {
    if (!adding) {
      return h("button", {
        class: "sv-btn",
        id: "add-axis",
        onclick: () => {
          adding = true;
          draw();
          name().focus();
        },
      }, "+ axis");
    }
    const done = () => {
      const text = name().value.trim();
      const size = el.querySelector(".sv-newsize").value.trim();
      adding = false;
      draw();
      ctx.edit({ op: "add_axis", name: text, size: /^\d+$/.test(size) ? Number(size) : size });
    };
    const keys = (e) => {
      if (e.key === "Enter") done();
      if (e.key === "Escape") {
        adding = false;
        draw();
      }
      e.stopPropagation();
    };
    return h(
      "span",
      { class: "sv-adder" },
      h("input", {
        type: "text",
        class: "sv-newname",
        id: "new-axis-name",
        placeholder: "name",
        "aria-label": "name of the new mesh axis",
        onkeydown: keys,
        spellcheck: "false",
      }),
      "=",
      h("input", {
        type: "text",
        class: "sv-newsize",
        id: "new-axis-size",
        value: "2",
        inputmode: "numeric",
        "aria-label": "its number of devices",
        onkeydown: keys,
      }),
      h("button", { class: "sv-btn", id: "new-axis-ok", onclick: done }, "add"),
    );
  }

  const name = () => el.querySelector(".sv-newname");

  function draw() {
    const data = ctx.get("mesh");
    fill(axes, data.axes.map(axis), adder(), machine.button);
    devices.textContent = `${data.devices.toLocaleString("en")} device${data.devices === 1 ? "" : "s"}`;
    const { error } = ctx.get("status");
    fill(
      problem,
      error && error.place === "mesh" ? notice("sv-error", "mesh-error", error.message, error.detail) : null,
    );
  }
  ctx.on("mesh", draw);
  ctx.on("status", draw);
  draw();
}

function field(value, id, label, done) {
  let cancelled = false;
  const input = h("input", {
    type: "text",
    id,
    value,
    "aria-label": label,
    spellcheck: "false",
    style: { width: `${Math.max(1, value.length) + 0.6}ch` },
    oninput: () => input.style.setProperty("width", `${Math.max(1, input.value.length) + 0.6}ch`),
    onkeydown: (e) => {
      e.stopPropagation();
      if (e.key === "Enter") input.blur();
      if (e.key === "Escape") {
        cancelled = true;
        input.value = value;
        input.blur();
      }
    },
    onblur: () => {
      if (isFilling()) return;
      const text = input.value.trim();
      if (!cancelled && text !== value) done(text);
      cancelled = false;
    },
  });
  return input;
}

function history(ctx) {
  const undo = h("button", {
    class: "sv-btn",
    id: "undo",
    title: "undo (Ctrl+Z)",
    onclick: () => ctx.edit({ op: "undo" }),
  }, "↶ undo");
  const redo = h("button", {
    class: "sv-btn",
    id: "redo",
    title: "redo (Ctrl+Shift+Z)",
    onclick: () => ctx.edit({ op: "redo" }),
  }, "↷ redo");
  const draw = () => {
    undo.disabled = !ctx.get("status").undo;
    redo.disabled = !ctx.get("status").redo;
  };
  ctx.on("status", draw);
  draw();
  return h("span", {}, undo, redo);
}
