// @ts-check
// The copies of an explorer that its notebook keeps (see stills.py). The kernel brings them up to date by messages that
// a page which was loaded anew does not know to belong to any output, and drops. Such a page asks for the newest copy and
// puts it into the notebook itself, where it is let, as in JupyterLab and Notebook; elsewhere it says that a copy is old.

/** @import { Message, Model, Outputs } from "./types.d.ts" */

const SETTLED = 2500; // milliseconds after which a copy that is on its way has come
const AT = /data-shardviz-at="(\d+)"/;

/** @param {Model} model */
const mark = (model) => `data-shardviz-still="${model.get("comm_id")}"`;

/**
 * The copies among a notebook's outputs, each with its number; none where the host shows no notebook.
 * @param {Model} model
 * @returns {{ outputs: Outputs, at: number, number: number }[]}
 */
export function copiesOf(model) {
  const cells = model.widget_manager?.context?.model?.cells;
  const found = [];
  for (let n = 0; n < (cells?.length ?? 0); n++) {
    const outputs = cells?.get(n).outputs;
    for (let at = 0; at < (outputs?.length ?? 0); at++) {
      const html = String(outputs?.get(at).data["text/html"] ?? "");
      if (outputs && html.includes(mark(model))) found.push({ outputs, at, number: Number(AT.exec(html)?.[1]) });
    }
  }
  return found;
}

/**
 * Puts the kernel's newest copy in the place of older ones.
 * @param {Model} model
 * @param {NonNullable<Message["still"]>} newest
 */
export function renew(model, { number, data }) {
  for (const { outputs, at, number: old } of copiesOf(model)) {
    if (old < number) outputs.set(at, { ...outputs.get(at).toJSON(), data });
  }
}

/**
 * Keeps the notebook's copies as new as the explorer, or says that they are older; returns how to stop that.
 * @param {Model} model
 * @param {(words: string) => void} say
 */
export function watchCopies(model, say) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  function draw() {
    const newest = model.get("stilled");
    if (copiesOf(model).some(({ number }) => number < newest)) model.send({ ask: "still" });
    const stills = document.querySelectorAll(`[data-shardviz-still="${CSS.escape(model.get("comm_id"))}"]`);
    const old = [...stills].some((still) => Number(still.getAttribute("data-shardviz-at")) < newest);
    say(old ? "The copy that this notebook keeps is older than this: run the cell again." : "");
  }
  function soon() {
    clearTimeout(timer);
    timer = setTimeout(draw, SETTLED);
  }
  /** @param {Message} [message] */
  function hear(message) {
    if (!message?.still) return;
    renew(model, message.still);
    soon();
  }
  model.on("change:stilled", soon);
  model.on("msg:custom", hear);
  soon();
  return () => {
    clearTimeout(timer);
    model.off("change:stilled", soon);
    model.off("msg:custom", hear);
  };
}
