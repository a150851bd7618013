// Elements made from plain calls. Text from outside only ever becomes a text node, never HTML.

export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  apply(el, props || {});
  add(el, children);
  return el;
}

export function svg(tag, props, ...children) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  apply(el, props || {});
  add(el, children);
  return el;
}

function apply(el, props) {
  for (const [key, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "style") { for (const [k, v] of Object.entries(value)) el.style.setProperty(k, v); }
    else if (key === "id") el.setAttribute("data-testid", value);
    else if (key === "value") el.value = value;
    else el.setAttribute(key, value === true ? "" : String(value));
  }
}

function add(el, children) {
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    el.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

let filling = false;

// Whether elements are being replaced right now: a field that loses the focus by that was not left by the person.
export function isFilling() {
  return filling;
}

// Puts new children into an element, and the focus back to where it was, found by its data-testid.
export function fill(el, ...children) {
  const root = el.getRootNode();
  const active = root.activeElement;
  const inside = active && el.contains(active) ? active : null;
  const id = inside && inside.getAttribute("data-testid");
  const typed = inside instanceof HTMLInputElement ? [inside.value, inside.selectionStart, inside.selectionEnd] : null;
  const top = el.scrollTop;
  filling = true;
  try {
    el.replaceChildren();
  } finally {
    filling = false;
  }
  add(el, children);
  el.scrollTop = top;
  if (!id) return;
  const again = find(el, id);
  if (!again) return;
  again.focus({ preventScroll: true });
  if (typed && again instanceof HTMLInputElement) {
    again.value = typed[0];
    if (again.type === "text" || again.type === "search") again.setSelectionRange(typed[1], typed[2]);
  }
}

// A button that copies an element's text; where the page may not (no secure context), it selects it for the person to copy.
export function copyButton(element, id, title) {
  const button = h("button", {
    class: "sv-btn",
    id,
    title,
    onclick: async () => {
      const done = await write(element);
      button.textContent = done ? "copied" : "press Ctrl+C";
      setTimeout(() => {
        button.textContent = "copy";
      }, 1500);
    },
  }, "copy");
  return button;
}

async function write(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    const range = document.createRange();
    range.selectNodeContents(element);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
    return false;
  }
}

// A place in the source as a link to it.
export function lineLink(ctx, at) {
  return at
    ? h("button", {
      class: "sv-link sv-soft",
      title: "show this line",
      onclick: (e) => {
        e.stopPropagation();
        ctx.showLine(at);
      },
    }, at)
    : null;
}

export function find(el, id) {
  for (const candidate of el.querySelectorAll("[data-testid]")) {
    if (candidate.getAttribute("data-testid") === id) return candidate;
  }
  return null;
}
