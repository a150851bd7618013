// @ts-check
// What every part of the page is given: the kernel's traits, and what a person may do. `Context` in types.d.ts says
// what each of its functions is for.

/** @import { Cell, Context, Edit, Model } from "./types.d.ts" */

/**
 * The edits to send, the new one last. An edit is repeated with the next one until the kernel has answered it, because
 * only a trait's newest value is sent while the kernel is busy.
 * @template {{ seq: number }} E
 * @param {E[]} sent
 * @param {number} done the number of the last edit that is answered
 * @param {Edit} edit
 */
export function queued(sent, done, edit) {
  const waiting = sent.filter(({ seq }) => seq > done);
  const seq = Math.max(done, ...waiting.map((e) => e.seq)) + 1;
  return [...waiting, { ...edit, seq }];
}

/**
 * @param {Model} model
 * @returns {Context}
 */
export function context(model) {
  /** What is to be taken off the model in the end. @type {[event: string, listener: () => void][]} */
  const listening = [];
  /** Who follows what is the page's own. @type {Record<string, (() => void)[]>} */
  const local = { cell: [], gone: [] };
  /** By tab: what is to be drawn when it is shown. @type {Map<string, Set<() => void>>} */
  const stale = new Map();
  /** @type {(Cell & { name: string }) | null} */
  let cell = null;

  /** @type {Model["on"]} */
  function follow(event, listener) {
    model.on(event, listener);
    listening.push([event, listener]);
  }

  /** @type {Model["set"]} */
  function save(key, value) {
    model.set(key, value);
    model.save_changes();
  }

  /** @type {Context} */
  const ctx = {
    gone: false,
    twins: false,
    get: (key) => model.get(key),
    on: (key, listener) => {
      if (key in local) local[key].push(listener);
      else follow(`change:${key}`, listener);
    },
    when(tab, draw) {
      if (model.get("tab") === tab) draw();
      else stale.set(tab, (stale.get(tab) || new Set()).add(draw));
    },
    shown(tab) {
      const draws = stale.get(tab) || [];
      stale.delete(tab);
      for (const draw of draws) draw();
    },
    edit(edit) {
      const edits = queued(model.get("edits"), model.get("status").seq, edit);
      save("edits", edits);
      return edits[edits.length - 1].seq;
    },
    select(name) {
      if (model.get("selected") === name) return;
      model.set("selected_at", model.get("status").level); // an intermediate has its name at one level only
      save("selected", name);
    },
    query: (change) => save("query", { ...model.get("query"), ...change }),
    read: (text) => save("reading", text),
    setTab: (tab) => save("tab", tab),
    pickDevice: (place) => save("device", place),
    pickCell(name, at) {
      cell = at && { name, ...at };
      for (const listener of local.cell) listener();
    },
    pickedCell: (name) => (cell?.name === name ? cell : null),
    openMenu: () => {}, // menu.js
    showLine: () => {}, // source.js
    watchKernel() {
      const ask = async () => {
        const gone = !(await isAlive(model));
        if (gone === ctx.gone) return;
        ctx.gone = gone;
        for (const listener of local.gone) listener();
      };
      follow("comm_live_update", ask);
      follow("comm:close", ask);
      ask();
    },
    close() {
      for (const [event, listener] of listening) model.off(event, listener);
    },
  };
  return ctx;
}

/**
 * Whether the model still has its comm. Where nobody can say (no ipywidgets around the page) it is taken to have it.
 * @param {Model} model
 */
async function isAlive(model) {
  const manager = model.widget_manager;
  if (!manager || !model.get("comm_id")) return true;
  try {
    return (await manager.get_model(model.get("comm_id"))).comm_live !== false;
  } catch {
    return false; // the manager has forgotten it
  }
}
