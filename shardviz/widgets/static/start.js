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

/** @param {{ model: Starting, el: HTMLElement }} view */
async function render({ model, el }) {
  const words = document.createElement("div");
  words.style.opacity = "0.75";
  words.textContent = "The explorer waits for its kernel: where none runs, run the cell again.";
  const timer = setTimeout(() => el.append(words), PATIENCE);
  try {
    page ||= load(model);
    const { default: explorer, styles } = await page;
    // A notebook saved by another version brings that version's style sheet, and a page keeps one of each widget: the
    // last that came. So each view has its own with it.
    const style = document.createElement("style");
    style.textContent = styles;
    // What a saved notebook shows in place of the explorer (see stills.py) stands below it, not to be seen beside it.
    const still = `[data-shardviz-still="${CSS.escape(model.get("comm_id"))}"]`;
    style.textContent += `\n${still}, .jp-OutputArea-child:has(> * > ${still}) { display: none }`;
    el.append(style);
    return explorer.render({ model, el });
  } finally {
    clearTimeout(timer);
    words.remove();
  }
}

export default { render };
