// The machine that the plan is for: a button in the mesh's row, its menu, and what is to be said of the choice.
import { fill, find, h } from "./dom.js";
import { notice } from "./head.js";

export function target(ctx, el) {
  const button = h("button", {
    class: "sv-target",
    id: "target",
    "aria-haspopup": "dialog",
    "aria-expanded": "false",
    onclick: () => (open ? close(true) : show()),
  });
  const notes = h("div", { class: "sv-targetnotes", id: "target-notes", role: "status" });
  const box = h("div", {
    class: "sv-menu sv-machines",
    id: "target-menu",
    role: "dialog",
    "aria-label": "the machine",
    hidden: true,
  });
  const refusal = h("div", {});
  el.append(box);
  let open = false;
  let asked = null; // the number of the edit that has not been answered

  function choose(text) {
    asked = ctx.edit({ op: "set_target", target: text });
    draw(); // where the answer has come already
  }

  function show() {
    open = true;
    box.hidden = false;
    button.setAttribute("aria-expanded", "true");
    fill(box, contents());
    place();
    const now = box.querySelector("[aria-pressed=true]") || find(box, "target-text");
    now.focus({ preventScroll: true });
  }

  function close(refocus) {
    open = false;
    asked = null;
    box.hidden = true;
    box.replaceChildren();
    button.setAttribute("aria-expanded", "false");
    if (refocus) button.focus({ preventScroll: true });
  }

  function place() {
    const a = button.getBoundingClientRect();
    const b = el.getBoundingClientRect();
    box.style.left = `${Math.max(4, Math.min(a.left - b.left, b.width - box.offsetWidth - 4))}px`;
    box.style.top = `${a.bottom - b.top + 4}px`;
    box.style.maxHeight = `${Math.max(220, b.height - (a.bottom - b.top) - 12)}px`;
  }

  function option(text, label, title, on) {
    return h("button", {
      class: "sv-shape",
      id: `target-${text}`,
      title,
      "aria-pressed": String(on),
      disabled: !text,
      onclick: () => choose(text),
    }, label);
  }

  function contents() {
    const data = ctx.get("targets");
    const field = h("input", {
      type: "text",
      class: "sv-typed",
      id: "target-text",
      value: data.target,
      spellcheck: "false",
      autocomplete: "off",
      "aria-label": "a machine",
      onkeydown: (e) => {
        if (e.key === "Enter") choose(field.value.trim());
      },
    });
    return [
      h("div", { class: "sv-menuhead" }, `the machine of ${data.devices}`),
      h("div", { "data-row": "" }, field),
      h(
        "div",
        { class: "sv-why" },
        "any machine, such as ",
        data.examples.map((text, i) => [i ? ", " : "", h("code", {}, text)]),
        "; Enter takes it",
      ),
      refusal,
      h(
        "div",
        { class: "sv-machine", "data-row": "" },
        option("cpu", "cpu", "simulated devices", data.target === "cpu"),
        h("span", { class: "sv-soft sv-wide" }, "simulated devices, with no links and no speed"),
      ),
      ...data.groups.flatMap(group),
    ];
  }

  function group(g) {
    return [
      h(
        "div",
        { class: "sv-sec", id: `target-kind-${g.kind}` },
        g.kind,
        g.ready ? h("span", { class: "sv-hint sv-good" }, "compiled for here") : h(
          "span",
          { class: "sv-hint", title: g.missing },
          "costs only; to compile for it: ",
          g.install ? h("code", {}, g.install) : g.missing,
        ),
      ),
      ...g.chips.map((c) =>
        h(
          "div",
          { class: "sv-machine", "data-row": "" },
          h("b", {}, c.name),
          h("span", { class: "sv-soft sv-num", title: "memory of one device" }, c.memory),
          h(
            "span",
            { class: "sv-shapes" },
            c.options.map((o) => option(o.target, o.label, o.title, o.on)),
            c.none ? h("span", { class: "sv-soft" }, c.none) : null,
          ),
        )
      ),
    ];
  }

  function draw() {
    const data = ctx.get("targets");
    const { error, seq } = ctx.get("status");
    const refused = error && error.place === "target"
      ? notice("sv-error", "target-error", error.message, error.detail)
      : null;
    button.textContent = `${data.label} ▾`;
    button.title = `${data.words}. Choose the machine`;
    button.classList.toggle("sv-wrong", Boolean(data.trouble));
    if (open && asked !== null && seq >= asked) {
      if (!refused) close(true);
      else asked = null;
    } else if (open && asked === null) {
      fill(box, contents());
    }
    fill(refusal, open ? refused : null);
    fill(
      notes,
      open ? null : refused,
      data.trouble ? h("p", { class: "sv-warn", id: "target-trouble" }, data.trouble) : null,
      data.remark ? h("p", { class: "sv-soft", id: "target-remark" }, data.remark) : null,
      data.lack
        ? h(
          "p",
          { class: "sv-soft", id: "target-lack", title: data.lack.why },
          data.lack.text,
          data.lack.install ? [" ", h("code", {}, data.lack.install)] : null,
        )
        : null,
    );
  }

  box.addEventListener("keydown", (e) => {
    e.stopPropagation();
    const active = box.getRootNode().activeElement;
    const rows = [...box.querySelectorAll("[data-row]")].map((
      row,
    ) => [...row.querySelectorAll("button:not(:disabled), input")]).filter((row) => row.length);
    const at = rows.findIndex((row) => row.includes(active));
    const across = at < 0 ? 0 : rows[at].indexOf(active);
    const typing = active instanceof HTMLInputElement;
    const to = { ArrowDown: rows[at + 1], ArrowUp: rows[at - 1] }[e.key];
    if (e.key === "Escape") close(true);
    else if (to) to[Math.min(across, to.length - 1)].focus();
    else if (e.key === "ArrowRight" && !typing && rows[at] && rows[at][across + 1]) rows[at][across + 1].focus();
    else if (e.key === "ArrowLeft" && !typing && across > 0) rows[at][across - 1].focus();
    else return;
    e.preventDefault();
  });
  el.addEventListener("pointerdown", (e) => {
    if (open && !box.contains(e.target) && !button.contains(e.target)) close(false);
  });
  ctx.on("targets", draw);
  ctx.on("status", draw);
  draw();
  return { button, notes };
}
