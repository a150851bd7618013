// The menu of one dimension: the axes that cut it, in order, and those that may be added, or why they may not.
import { find, h } from "./dom.js";
import { axisName, axisText, chip } from "./chips.js";

export function menu(ctx, el) {
  let open = null;
  const box = h("div", { class: "sv-menu", id: "menu", role: "dialog", hidden: true });
  el.append(box);

  function close(refocus) {
    if (!open) return;
    const { id } = open;
    open = null;
    box.hidden = true;
    box.replaceChildren();
    const slot = find(el, id);
    if (slot) {
      slot.setAttribute("aria-expanded", "false");
      if (refocus) slot.focus({ preventScroll: true });
    }
  }

  function draw() {
    if (!open) return;
    const row = ctx.get(open.what).rows.find((r) => r.name === open.name);
    const slot = find(el, open.id);
    if (!row || !slot || !row.dims) {
      close(false);
      return;
    }
    const focused = box.contains(box.getRootNode().activeElement)
      ? box.getRootNode().activeElement.getAttribute("data-testid")
      : null;
    const d = open.dimension;
    const axes = row.dims[d];
    const ops = open.what === "inputs" ? ["set_dim", "move_axis"] : ["set_out_dim", "move_out_axis"];
    const setAxes = (next) => ctx.edit({ op: ops[0], name: row.name, dimension: d, axes: next, ...twins });
    const twins = open.what === "inputs" && row.twins.length ? { twins: ctx.twins } : {};
    const act = (fn, stay) => () => {
      fn();
      if (!stay) close(true);
    };
    const now = axes.map((axis, i) => {
      const text = axisText(axis);
      const swap = (j) => {
        const next = [...axes];
        [next[i], next[j]] = [next[j], next[i]];
        setAxes(next);
      };
      return h(
        "div",
        { class: "sv-menurow" },
        chip(ctx, axis),
        h("span", { class: "sv-grow" }),
        axes.length > 1
          ? [
            h("button", {
              id: `menu-left-${text}`,
              title: "more major",
              "aria-label": `move ${text} left`,
              disabled: i === 0,
              onclick: act(() => swap(i - 1), true),
            }, "←"),
            h("button", {
              id: `menu-right-${text}`,
              title: "more minor",
              "aria-label": `move ${text} right`,
              disabled: i === axes.length - 1,
              onclick: act(() => swap(i + 1), true),
            }, "→"),
          ]
          : null,
        h("button", {
          id: `menu-remove-${text}`,
          title: "remove",
          "aria-label": `remove ${text}`,
          onclick: act(() => setAxes(axes.filter((_, j) => j !== i)), true),
        }, "×"),
      );
    });
    const offers = ctx.get("mesh").axes.map((axis, i) => {
      const answer = row.choices[d][i];
      if (axes.some((a) => axisName(a) === axis.name)) return null;
      const moves = Array.isArray(answer);
      const ok = answer === 1 || moves;
      const act1 = moves
        ? () => ctx.edit({ op: ops[1], name: row.name, axis: axis.name, dimension: d, ...twins })
        : () => setAxes([...axes, axis.name]);
      return h(
        "button",
        {
          class: "sv-offer",
          id: `menu-axis-${axis.name}`,
          role: "menuitem",
          "aria-disabled": ok ? null : "true",
          title: ok ? "" : answer,
          onclick: ok ? act(act1) : (e) => e.preventDefault(),
        },
        chip(ctx, axis.name),
        h(
          "span",
          { class: ok && !moves ? "sv-soft" : "sv-why" },
          answer === 1 ? `cut ${axis.size} ways` : moves ? `move it here: it ${answer[0]}` : answer,
        ),
      );
    });
    box.replaceChildren(...[
      h("div", { class: "sv-menuhead" }, h("code", {}, row.name), ` dimension ${d} · ${row.shape[d]}`),
      ...now,
      h("div", { class: "sv-offers", role: "menu", "aria-label": "axes to add" }, offers),
      open.what === "inputs" && row.twins.length
        ? h(
          "label",
          { class: "sv-twins", title: row.twins.join("\n") },
          h("input", {
            type: "checkbox",
            id: "menu-twins",
            checked: ctx.twins,
            onchange: (e) => {
              ctx.twins = e.target.checked;
              draw();
            },
          }),
          ` and ${row.twins.length === 1 ? row.twins[0] : `its ${row.twins.length} twins, such as ${row.twins[0]}`}`,
        )
        : null,
      h(
        "div",
        { class: "sv-menufoot" },
        axes.length
          ? h("button", { class: "sv-btn", id: "menu-clear", onclick: act(() => setAxes([])) }, "clear")
          : null,
        open.what === "outputs" && !row.chosen
          ? h("button", {
            class: "sv-btn",
            id: "menu-choose",
            onclick: act(() => ctx.edit({ op: "set_out_spec", name: row.name, spec: null })),
          }, "let the compiler choose")
          : null,
        h("button", { class: "sv-btn", id: "menu-close", onclick: () => close(true) }, "close"),
      ),
    ].filter(Boolean));
    box.hidden = false;
    place(slot);
    const target = (focused && find(box, focused)) || box.querySelector(".sv-offer:not([aria-disabled])") ||
      box.querySelector("button");
    if (target) target.focus({ preventScroll: true });
  }

  function place(slot) {
    const a = slot.getBoundingClientRect();
    const b = el.getBoundingClientRect();
    const left = Math.max(4, Math.min(a.left - b.left - 8, b.width - box.offsetWidth - 4));
    const below = a.bottom - b.top + 4;
    const fits = below + box.offsetHeight < b.height || a.top - b.top < box.offsetHeight;
    box.style.left = `${left}px`;
    box.style.top = `${fits ? below : a.top - b.top - box.offsetHeight - 4}px`;
  }

  box.addEventListener("keydown", (e) => {
    e.stopPropagation();
    const buttons = [...box.querySelectorAll("button:not(:disabled), input")];
    const at = buttons.indexOf(box.getRootNode().activeElement);
    if (e.key === "Escape") close(true);
    else if (e.key === "ArrowDown") buttons[(at + 1) % buttons.length].focus();
    else if (e.key === "ArrowUp") buttons[(at + buttons.length - 1) % buttons.length].focus();
    else return;
    e.preventDefault();
  });
  el.addEventListener("pointerdown", (e) => {
    if (open && !box.contains(e.target)) close(false);
  });
  ctx.on("inputs", draw);
  ctx.on("outputs", draw);
  ctx.openMenu = (what, name, dimension, id) => {
    if (open && open.id === id) {
      close(true);
      return;
    }
    close(false);
    open = { what, name, dimension, id };
    draw();
    const slot = find(el, id);
    if (slot) slot.setAttribute("aria-expanded", "true");
  };
}
