// @ts-check
// Several views of one explorer on one page: the first lives on the model's traits; every other one has a place and a
// selection of its own. It says to the kernel where it is, and is sent what differs for it; see widgets/asides.py.

/** @import { Look, Message, Model, Traits } from "./types.d.ts" */

/** What each view has for itself. */
const OWN = /** @type {const} */ (["tab", "selected", "selected_at", "query", "reading", "device"]);

/** The models, by their comm, whose first view is there. @type {Set<string>} */
const taken = new Set();

/**
 * The model as a new view has it, and what is to be called when the view is closed.
 * @param {Model} model
 * @returns {{ model: Model, end: () => void }}
 */
export function viewed(model) {
  const id = model.get("comm_id");
  if (taken.has(id)) return aside(model);
  taken.add(id);
  model.send({ look: null }); // what other views the kernel knows were of a page before this, or say so
  const end = () => {
    taken.delete(id);
    model.send({ leave: "" });
  };
  return { model, end };
}

/**
 * A view that is not the first.
 * @param {Model} whole
 * @returns {{ model: Model, end: () => void }}
 */
export function aside(whole) {
  const id = Math.random().toString(36).slice(2) + Date.now().toString(36);
  /** What it has for itself; at first where the first view is. @type {Record<string, unknown>} */
  const own = Object.fromEntries(OWN.map((key) => [key, whole.get(key)]));
  /** What the kernel has sent for it; until then it shows what the first view does. @type {Record<string, unknown>} */
  let shown = {};
  /** @type {Map<string, Set<(message?: Message) => void>>} */
  const listeners = new Map();
  /** @type {Map<string, (message?: Message) => void>} */
  const relays = new Map();
  let moved = false;

  /** @param {string} key */
  const mine = (key) => key in own || key in shown;

  /** @param {string} event @param {Message} [message] */
  function tell(event, message) {
    for (const listener of [...listeners.get(event) || []]) listener(message);
  }

  function look() {
    whole.send({ look: /** @type {Look} */ ({ id, ...own }) });
  }

  /** @param {Message} [message] */
  function hear(message) {
    if (message?.aside === "") look(); // a page is new, and the kernel asks who is there
    if (message?.aside !== id || !message.shown) return;
    const { selected, ...rest } = message.shown;
    if (selected !== undefined) own.selected = selected;
    shown = { ...shown, ...rest };
    for (const key in message.shown) tell(`change:${key}`);
  }

  /** @type {Model} */
  const model = {
    get: (
      key,
    ) => /** @type {Traits[typeof key]} */ (key in own ? own[key] : key in shown ? shown[key] : whole.get(key)),
    set(key, value) {
      if (!(key in own)) return whole.set(key, value);
      if (own[key] === value) return;
      own[key] = value;
      moved = true;
      tell(`change:${key}`);
    },
    save_changes() {
      if (moved) look();
      moved = false;
      whole.save_changes();
    },
    on(event, listener) {
      listeners.set(event, (listeners.get(event) || new Set()).add(listener));
      if (relays.has(event)) return;
      const relay = (/** @type {Message | undefined} */ message) =>
        event.startsWith("change:") && mine(event.slice(7)) ? undefined : tell(event, message);
      relays.set(event, relay);
      whole.on(event, relay);
    },
    off: (event, listener) => void listeners.get(event)?.delete(listener),
    send: (message) => whole.send(message),
    widget_manager: whole.widget_manager,
  };
  whole.on("msg:custom", hear);
  look();
  return {
    model,
    end() {
      whole.off("msg:custom", hear);
      for (const [event, relay] of relays) whole.off(event, relay);
      whole.send({ leave: id });
    },
  };
}
