// @ts-check
// The machine that the plan is for: a button in the mesh's row, its menu, and what there is to say of the choice.
import { fill, find, focused, h } from "./dom.js";
import { refusal } from "./head.js";

/** @import { Context, MachineGroup, Machines } from "./types.d.ts" */

/**
 * Where an arrow key leads in rows of buttons of different lengths; null where it leads nowhere.
 * @template T
 * @param {T[][]} rows none of them empty
 * @param {T | null} from
 * @param {string} key
 * @returns {T | null}
 */
export function neighbour(rows, from, key) {
  const at = rows.findIndex((row) => from !== null && row.includes(from));
  const across = at < 0 || from === null ? 0 : rows[at].indexOf(from);
  if (key === "ArrowDown" || key === "ArrowUp") {
    const row = rows[key === "ArrowDown" ? at + 1 : at - 1];
    return row ? row[Math.min(across, row.length - 1)] : null;
  }
  if (key === "ArrowRight" || key === "ArrowLeft") {
    return rows[at]?.[key === "ArrowRight" ? across + 1 : across - 1] ?? null;
  }
  return null;
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el where the menu opens
 */
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
  const said = h("div");
  el.append(box);
  let open = false;
  let asked = ""; // the edit that the menu stays open for until it is answered

  /** @param {string} text */
  function choose(text) {
    ctx.edit({ op: "set_target", target: text });
    asked = "set_target";
  }

  /** @param {string} text flags, and names of sets */
  function setOptions(text) {
    ctx.edit({ op: "set_options", options: text.trim() });
    asked = "set_options";
  }

  function show() {
    open = true;
    box.hidden = false;
    button.setAttribute("aria-expanded", "true");
    fill(box, contents());
    place();
    /** @type {HTMLElement | null} */
    const now = box.querySelector("[aria-pressed=true]");
    (now || find(box, "target-text"))?.focus({ preventScroll: true });
  }

  /** @param {boolean} refocus whether the focus goes back to the button */
  function close(refocus) {
    open = false;
    asked = "";
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

  /** @param {{ target: string, label: string, title: string, on: boolean }} option */
  function choice({ target: text, label, title, on }) {
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
    const examples = data.examples.map((text, i) => [i ? ", " : "", h("code", {}, text)]);
    const cpu = { target: "cpu", label: "cpu", title: "simulated devices", on: data.target === "cpu" };
    return [
      h("div", { class: "sv-menuhead" }, `the machine of ${data.devices}`),
      h("div", { "data-row": "" }, field),
      h("div", { class: "sv-why" }, "any machine, such as ", examples, "; Enter takes it"),
      said,
      h(
        "div",
        { class: "sv-machine", "data-row": "" },
        choice(cpu),
        h("span", { class: "sv-soft sv-wide" }, "simulated devices, with no links and no speed"),
      ),
      data.groups.map(group),
      compilerOptions(data),
    ];
  }

  /** @param {Machines} data */
  function compilerOptions({ options, sets }) {
    const field = h("input", {
      type: "text",
      class: "sv-typed",
      id: "options-text",
      value: options,
      placeholder: "xla_...=true",
      spellcheck: "false",
      autocomplete: "off",
      "aria-label": "compiler options",
      onkeydown: (e) => {
        if (e.key === "Enter") setOptions(field.value);
      },
    });
    const names = sets.map(({ name, title }) =>
      h("button", {
        class: "sv-shape",
        id: `options-${name}`,
        title,
        onclick: () => setOptions(`${field.value} ${name}`),
      }, name)
    );
    return [
      h(
        "div",
        { class: "sv-sec" },
        "compiler options",
        h("span", { class: "sv-hint" }, "flags of XLA; Enter takes them"),
      ),
      h("div", { "data-row": "" }, field),
      h("div", { class: "sv-machine", "data-row": "" }, h("span", { class: "sv-shapes" }, names)),
    ];
  }

  /** @param {MachineGroup} group */
  function group({ kind, ready, missing, install, chips }) {
    const costsOnly = ["costs only; to compile for it: ", install ? h("code", {}, install) : missing];
    const hint = ready
      ? h("span", { class: "sv-hint sv-good" }, "compiled for here")
      : h("span", { class: "sv-hint", title: missing }, costsOnly);
    return [
      h("div", { class: "sv-sec", id: `target-kind-${kind}` }, kind, hint),
      chips.map((chip) => {
        const none = chip.none ? h("span", { class: "sv-soft" }, chip.none) : null;
        return h(
          "div",
          { class: "sv-machine", "data-row": "" },
          h("b", {}, chip.name),
          h("span", { class: "sv-soft sv-num", title: "memory of one device" }, chip.memory),
          h("span", { class: "sv-shapes" }, chip.options.map(choice), none),
        );
      }),
    ];
  }

  function draw() {
    const { label, words, trouble, remark, lack } = ctx.get("targets");
    const { error } = ctx.get("status");
    const refused = error?.place === "target" || error?.place === "options"
      ? refusal(ctx, error, "target-error")
      : null;
    const none = ctx.get("targets").kind === "cpu";
    button.textContent = none ? "choose a machine ▾" : `${label} ▾`;
    button.title = none
      ? "no machine is chosen, so there are no times; devices are simulated"
      : `${words}. Choose the machine`;
    button.classList.toggle("sv-missed", none);
    button.classList.toggle("sv-wrong", Boolean(trouble));
    if (open && asked && !ctx.lastAsked(asked)) {
      if (!refused) close(true);
      else asked = "";
    } else if (open && !asked) {
      fill(box, contents());
    }
    const install = lack?.install ? [" ", h("code", {}, lack.install)] : null;
    fill(said, open ? refused : null);
    fill(
      notes,
      open ? null : refused,
      trouble ? h("p", { class: "sv-warn", id: "target-trouble" }, trouble) : null,
      remark ? h("p", { class: "sv-soft", id: "target-remark" }, remark) : null,
      lack ? h("p", { class: "sv-soft", id: "target-lack", title: lack.why }, lack.text, install) : null,
    );
  }

  box.addEventListener("keydown", (e) => {
    e.stopPropagation();
    if (e.key === "Escape") {
      close(true);
      e.preventDefault();
      return;
    }
    const active = /** @type {HTMLElement | null} */ (focused(box));
    const sideways = e.key === "ArrowLeft" || e.key === "ArrowRight";
    if (sideways && active instanceof HTMLInputElement) return; // the cursor in the text moves
    const rows = [...box.querySelectorAll("[data-row]")]
      .map((row) => /** @type {HTMLElement[]} */ ([...row.querySelectorAll("button:not(:disabled), input")]))
      .filter((row) => row.length);
    const to = neighbour(rows, active, e.key);
    if (!to) return;
    to.focus();
    e.preventDefault();
  });
  el.addEventListener("pointerdown", (e) => {
    const where = /** @type {Node} */ (e.target);
    if (open && !box.contains(where) && !button.contains(where)) close(false);
  });
  ctx.chooseTarget = show;
  ctx.on("targets", draw);
  ctx.on("status", draw);
  draw();
  return { button, notes };
}
