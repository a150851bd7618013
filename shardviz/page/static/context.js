// @ts-check
// What every part of the page is given: the kernel's traits, and what a person may do. `Context` in types.d.ts says
// what each of its functions is for.

import { arrays } from "./arrays.js";
/** @import { Context, Model, Sent } from "./types.d.ts" */

/**
 * @param {Model} model
 * @returns {Context}
 */
export function context(model) {
  /** What is to be taken off the model in the end. @type {Set<[event: string, listener: () => void]>} */
  const listening = new Set();
  /** Who follows what is the page's own. @type {Record<string, (() => void)[]>} */
  const local = { gone: [], asked: [], twins: [], lit: [], air: [], choosing: [], sought: [], printing: [], kept: [] };
  /** By tab: what is to be drawn when it is shown. @type {Map<string, Set<() => void>>} */
  const stale = new Map();
  /** Who is to hear that something has changed. @type {Set<() => void>} */
  const due = new Set();

  /**
   * Calls a listener once when all of what the kernel said at once is there: an answer changes a dozen traits, most of
   * which the same part of the page shows.
   * @param {() => void} listener
   */
  function soon(listener) {
    if (!due.size) queueMicrotask(tell);
    due.add(listener);
  }

  function tell() {
    for (const listener of due) {
      due.delete(listener);
      try {
        listener();
      } catch (error) {
        reportError(error); // the others are still notified
      }
    }
  }

  /** @type {(event: string, listener: () => void) => () => void} */
  function follow(event, listener) {
    model.on(event, listener);
    const one = /** @type {[string, () => void]} */ ([event, listener]);
    listening.add(one);
    return () => {
      model.off(event, listener);
      listening.delete(one);
    };
  }

  /** The edits that wait for the kernel's answer, in order. @type {Sent[]} */
  let sent = [];

  /** What still waits: the kernel's status has the number of the last edit that it has answered. */
  function waiting() {
    const { seq } = model.get("status");
    if (sent.length && sent[0].seq <= seq) sent = sent.filter((edit) => edit.seq > seq);
    return sent;
  }

  /** @type {Context} */
  const ctx = {
    number: 1,
    root: /** @type {any} */ (null), // until the page is there
    gone: false,
    twins: true,
    since: 0,
    lit: { lines: [], now: "" },
    air: "",
    choosing: false,
    printing: false,
    sought: "",
    kept: "",
    source: {},
    arrays: () => {
      throw new Error("the page is not there yet"); // it is below
    },
    put(key, value) {
      ctx[key] = value;
      local[key].forEach(soon);
    },
    get: (key) => model.get(key),
    set(key, value) {
      model.set(key, value);
      model.save_changes();
    },
    on(key, listener) {
      if (key in local) {
        local[key].push(listener);
        return () => void (local[key] = local[key].filter((other) => other !== listener));
      }
      return follow(`change:${key}`, () => soon(listener));
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
      if (ctx.gone) return;
      const before = waiting();
      if (!before.length) ctx.since = performance.now();
      const seq = (before.at(-1)?.seq ?? model.get("status").seq) + 1;
      sent = [...before, { ...edit, seq }];
      model.send({ edit, seq });
      local.asked.forEach(soon);
    },
    select(name, look = true) {
      if (look) ctx.openDrawer();
      if (model.get("selected") === name) return;
      model.set("selected_at", model.get("status").level); // an intermediate has its name at one level only
      ctx.set("selected", name);
    },
    query: (change) => ctx.set("query", { ...model.get("query"), ...change }),
    openMenu: () => {}, // menu.js
    chooseTarget: () => {}, // target.js
    showLine: () => {}, // source.js
    askWhy: () => {}, // why.js
    goStep: () => {}, // why.js
    openDrawer: () => {}, // drawer.js
    asked: waiting,
    lastAsked: (op, name) => waiting().findLast((edit) => edit.op === op && (!name || edit.name === name)),
    watchKernel() {
      const ask = async () => {
        const gone = !(await isAlive(model));
        if (gone === ctx.gone) return;
        ctx.gone = gone;
        sent = []; // what is shown then is said to be the kernel's last answer
        local.gone.forEach(soon);
      };
      follow("comm_live_update", ask);
      follow("comm:close", ask);
      ask();
    },
    close() {
      for (const [event, listener] of listening) model.off(event, listener);
      due.clear();
    },
  };
  ctx.arrays = arrays(ctx);
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
