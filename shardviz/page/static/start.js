// @ts-check
// What anywidget loads, and all of the page's code that a saved notebook keeps: it takes the page from the kernel. The
// page is far larger than what it shows, so it is not to be saved with it: the kernel sends it as the trait `_page`,
// which is emptied once it is read, or when it is asked for it.

/** @import { Message, Page, Starting } from "./types.d.ts" */

const PATIENCE = 1200; // milliseconds before it is said what is waited for

/**
 * What a version of the page has on this browser page: its module, which a browser keeps for good once it is loaded;
 * and its style sheet, one for all views, since a browser matches every element with every sheet.
 * @typedef {{ page: Promise<Page>, sheet: CSSStyleSheet, views: number }} Version
 */
/** By their text, for every explorer has a module of its own to start it. */
const VERSIONS = Symbol.for("shardviz.versions");

/** This explorer's version. @type {Promise<Version> | undefined} */
let version;

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
 * @returns {Promise<Version>}
 */
async function load(model) {
  const code = await text(model);
  /** @type {Record<symbol, Map<string, Version>>} */
  const shared = /** @type {any} */ (globalThis);
  const versions = shared[VERSIONS] ||= new Map();
  const known = versions.get(code) || { page: imported(code), sheet: new CSSStyleSheet(), views: 0 };
  versions.set(code, known);
  return known;
}

/** @param {string} code */
async function imported(code) {
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  try {
    return await import(url);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/**
 * Gives a view its version's style sheet, whatever another version has left in the page. Returns what takes it away.
 * @param {HTMLElement} el
 * @param {Version} version
 * @param {string} styles
 */
function dress(el, version, styles) {
  const { sheet } = version;
  if (!version.views++) {
    sheet.replaceSync(styles);
    document.adoptedStyleSheets.push(sheet);
  }
  const watch = new ResizeObserver(() => { // a view that has no place yet may come into a shadow root
    const root = el.getRootNode();
    if (root instanceof ShadowRoot && !root.adoptedStyleSheets.includes(sheet)) root.adoptedStyleSheets.push(sheet);
  });
  watch.observe(el);
  return () => {
    watch.disconnect();
    if (!--version.views) document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
  };
}

/** @param {{ model: Starting, el: HTMLElement }} view */
async function render({ model, el }) {
  const words = document.createElement("div");
  words.style.opacity = "0.75";
  words.textContent = "The explorer waits for its kernel: where none runs, run the cell again.";
  const timer = setTimeout(() => el.append(words), PATIENCE);
  try {
    version ||= load(model);
    const known = await version;
    const { default: explorer, styles } = await known.page;
    // What a saved notebook shows in place of the explorer (see stills.py) stands below it, not to be seen beside it.
    const style = document.createElement("style");
    const still = `[data-shardviz-still="${CSS.escape(model.get("comm_id"))}"]`;
    style.textContent = `${still}, .jp-OutputArea-child:has(> * > ${still}) { display: none }`;
    el.append(style);
    /** What a host keeps of a view that it has closed, which JupyterLab does as long as the kernel keeps the explorer,
     * must not keep all that the view was. @type {(() => void)[]} */
    const ends = [dress(el, known, styles)];
    const end = () => {
      try {
        for (const each of ends.splice(0).reverse()) each();
      } finally {
        el.replaceChildren();
      }
    };
    try {
      ends.push(explorer.render({ model, el }));
    } catch (error) {
      end();
      throw error;
    }
    return end;
  } finally {
    clearTimeout(timer);
    words.remove();
  }
}

export default { render };
