// @ts-check
// What anywidget loads, and all of the page's code that a saved notebook keeps: it takes the page from the kernel. The
// page is far larger than what it shows, so it is not to be saved with it: the kernel sends it as the trait `_page`,
// which is emptied once it is read, or when it is asked for it.

/** @import { Message, Page, Starting } from "./types.d.ts" */

const PATIENCE = 1200; // milliseconds before it is said what is waited for

/** The page, once for all views of this model. @type {Promise<Page> | undefined} */
let page;

/**
 * The text of the page's module: as it came with the model, else as the kernel sends it.
 * @param {Starting} model
 * @returns {Promise<string>}
 */
export function text(model) {
  const found = model.get("_page");
  if (found) {
    model.set("_page", ""); // goes to the kernel with whatever is said to it next
    return Promise.resolve(found);
  }
  return new Promise((resolve) => {
    /** @param {Message} [message] */
    function hear(message) {
      if (typeof message?.page !== "string") return;
      model.off("msg:custom", hear);
      resolve(message.page);
    }
    model.on("msg:custom", hear);
    model.send({ ask: "page" });
  });
}

/**
 * @param {Starting} model
 * @returns {Promise<Page>}
 */
async function load(model) {
  const url = URL.createObjectURL(new Blob([await text(model)], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** By their text: the style sheets on this page, and how many views need each; every view has modules of its own. */
const SHEETS = Symbol.for("shardviz.sheets");

/**
 * Gives a view its version's style sheet, whatever another version has left in the page: one for all views, since a
 * browser matches every element with every sheet. Returns what takes it away.
 * @param {HTMLElement} el
 * @param {string} styles
 */
function dress(el, styles) {
  /** @type {Record<symbol, Map<string, { sheet: CSSStyleSheet, views: number }>>} */
  const page = /** @type {any} */ (globalThis);
  const all = page[SHEETS] ||= new Map();
  const found = all.get(styles) || { sheet: new CSSStyleSheet(), views: 0 };
  if (!found.views++) {
    all.set(styles, found);
    found.sheet.replaceSync(styles);
    document.adoptedStyleSheets.push(found.sheet);
  }
  const watch = new ResizeObserver(() => { // a view that has no place yet may come into a shadow root
    const root = el.getRootNode();
    if (root instanceof ShadowRoot && !root.adoptedStyleSheets.includes(found.sheet)) {
      root.adoptedStyleSheets.push(found.sheet);
    }
  });
  watch.observe(el);
  return () => {
    watch.disconnect();
    if (--found.views) return;
    all.delete(styles);
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== found.sheet);
  };
}

/** @param {{ model: Starting, el: HTMLElement }} view */
async function render({ model, el }) {
  const words = document.createElement("div");
  words.style.opacity = "0.75";
  words.textContent = "The explorer waits for its kernel: where none runs, run the cell again.";
  const timer = setTimeout(() => el.append(words), PATIENCE);
  try {
    page ||= load(model);
    const { default: explorer, styles } = await page;
    const undress = dress(el, styles);
    // What a saved notebook shows in place of the explorer (see stills.py) stands below it, not to be seen beside it.
    const style = document.createElement("style");
    const still = `[data-shardviz-still="${CSS.escape(model.get("comm_id"))}"]`;
    style.textContent = `${still}, .jp-OutputArea-child:has(> * > ${still}) { display: none }`;
    el.append(style);
    try {
      const end = explorer.render({ model, el });
      return () => {
        try {
          end();
        } finally {
          undress();
        }
      };
    } catch (error) {
      undress();
      throw error;
    }
  } finally {
    clearTimeout(timer);
    words.remove();
  }
}

export default { render };
