// @ts-check
// The programs of a dry run in their order, each as wide as its calls take and with a bar as high as what a device
// needs during them. A click, or Enter, opens one.

/**
 * @typedef {{name: string, label: string, tip: string, share: number, height: number, over: boolean, opens: boolean}} Block
 * @typedef {{get: (name: string) => any, set: (name: string, value: any) => void, save_changes: () => void,
 *   on: (event: string, react: () => void) => void, off: (event: string, react: () => void) => void}} Model
 */

/** @param {{model: Model, el: HTMLElement}} view */
function render({ model, el }) {
  const strip = document.createElement("div");
  strip.className = "shardviz-strip";
  strip.setAttribute("role", "tablist");
  strip.setAttribute("aria-label", "Programs of the run");
  const moves = document.createElement("p");
  moves.className = "shardviz-moves";
  const legend = document.createElement("small");
  legend.textContent = "width: seconds of all calls · bar: bytes that a device needs · level propagated";
  el.append(strip, moves);

  function draw() {
    /** @type {Block[]} */
    const blocks = model.get("blocks");
    strip.style.setProperty("--limit", String(model.get("limit")));
    strip.dataset.limit = model.get("limit_words");
    strip.replaceChildren(...blocks.map((block, number) => button(block, number)));
    /** @type {{text: string, tip: string}[]} */
    const moved = model.get("moves");
    const [note, held] = [model.get("note"), model.get("held")];
    moves.replaceChildren(
      ...(note ? [move({ text: note, tip: "" })] : []),
      ...(held ? ["memory at the peak", move({ text: held, tip: "Bytes on one device, level propagated" })] : []),
      ...(moved.length ? ["moved", ...moved.map(move)] : []),
      legend,
    );
  }

  /** @param {{text: string, tip: string}} one */
  function move({ text, tip }) {
    const it = document.createElement("span");
    it.textContent = text;
    it.title = tip;
    return it;
  }

  /** @param {Block} block @param {number} number */
  function button(block, number) {
    const it = document.createElement("button");
    const [bar, name, label] = ["span", "b", "small"].map((tag) => document.createElement(tag));
    it.setAttribute("role", "tab");
    it.setAttribute("aria-selected", String(model.get("at") === number));
    it.tabIndex = model.get("at") === number ? 0 : -1;
    it.disabled = !block.opens;
    it.title = block.tip;
    it.style.flexGrow = String(block.share);
    bar.className = block.over ? "bar over" : "bar";
    bar.style.setProperty("--height", String(block.height));
    name.textContent = block.name;
    label.textContent = block.label;
    it.append(bar, name, label);
    it.onclick = () => open(number);
    return it;
  }

  /** @param {number} number */
  function open(number) {
    model.set("at", number);
    model.save_changes();
  }

  /** @param {KeyboardEvent} e */
  function keys(e) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const tabs = /** @type {HTMLButtonElement[]} */ ([...strip.children]);
    let next = tabs.indexOf(/** @type {HTMLButtonElement} */ (e.target)) + step;
    while (tabs[next]?.disabled) next += step;
    tabs[next]?.focus();
  }

  strip.addEventListener("keydown", keys);
  const drawn = ["change:at", "change:blocks", "change:limit", "change:limit_words", "change:note"];
  for (const event of drawn) model.on(event, draw);
  draw();
  return () => drawn.forEach((event) => model.off(event, draw));
}

export default { render };
