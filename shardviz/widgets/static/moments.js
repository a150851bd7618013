// @ts-check
// What was answered before is shown at once when a person comes back to it, by an undo, a redo or another card, until
// the kernel says the same. It says itself to which moment an edit leads; see widgets/moments.py.
import { unpacked } from "./packed.js";

/** @import { Edit, Model, Status, Traits } from "./types.d.ts" */

const MOST = 32; // moments that are kept
/** Where somebody is in the page: what is shown there only is not known elsewhere. */
const WHERE = /** @type {const} */ (["tab", "selected", "device", "query", "reading"]);
/** What the kernel says of a plan, and of its place among the cards. */
const SAID = /** @type {const} */ ([
  ...["mesh", "targets", "inputs", "outputs", "kin", "dimensions", "cuts", "out_cuts", "cards", "most", "head"],
  ...["texts", "source", "problems", "shards", "constraints", "plan_code", "codes", "rules", "values", "collectives"],
  ...["rosetta", "memory", "costs", "machine", "company", "difference", "status"],
]);

/** @param {unknown} a @param {unknown} b */
const same = (a, b) => a === b || JSON.stringify(a) === JSON.stringify(b);

/**
 * @param {Model} model
 * @param {(key: keyof Traits) => void} tell called with each trait that shows something else from now on
 */
export function moments(model, tell) {
  /** By name what was said, and where somebody was; those that were seen last at the end. @type {Map<string, { said: Partial<Traits>, where: string }>} */
  const seen = new Map();
  /** What is shown in place of what the model has, until the edit of this number is answered. @type {{ said: Partial<Traits>, seq: number } | null} */
  let back = null;

  const where = () => JSON.stringify(WHERE.map((key) => model.get(key)));

  /** @param {Partial<Traits>} said */
  function turn(said) {
    for (const key of SAID) if (!same(said[key], model.get(key))) tell(key);
  }

  function leave() {
    if (!back) return;
    const { said } = back;
    back = null;
    turn(said);
  }

  return {
    /** Whether what is shown is not the kernel's last answer. */
    isBack: () => back !== null,
    /**
     * A trait as it is shown.
     * @template {keyof Traits} K
     * @param {K} key
     * @returns {Traits[K]}
     */
    get(key) {
      const own = model.get(key);
      if (!back || !(key in back.said)) return unpacked(own);
      const then = unpacked(/** @type {Traits[K]} */ (back.said[key]));
      if (key !== "status") return then;
      const { seq, undo, redo } = /** @type {Status} */ (own); // which of the edits are answered is as it is
      return /** @type {Traits[K]} */ ({ .../** @type {Status} */ (then), seq, undo, redo });
    },
    /** Keeps what is shown, as far as the kernel has said it. */
    keep() {
      const { now } = model.get("moments") ?? {};
      if (!now || back || model.get("status").error) return;
      if (unpacked(model.get("shards"))?.name !== model.get("selected")) return; // it is not answered yet
      seen.delete(now);
      seen.set(now, { said: Object.fromEntries(SAID.map((key) => [key, model.get(key)])), where: where() });
      if (seen.size > MOST) seen.delete([...seen.keys()][0]);
    },
    /**
     * Goes back to the moment that an edit leads to, if it was seen, and from where somebody is now.
     * @param {Edit} edit
     * @param {number} seq its number
     */
    goTo({ op, card }, seq) {
      const { back: undo, ahead, cards = {} } = model.get("moments") ?? {};
      const name = op === "undo" ? undo : op === "redo" ? ahead : op === "open_card" ? cards[String(card)] : "";
      const found = seen.get(name || "");
      if (!found || back || found.where !== where()) return;
      back = { said: found.said, seq };
      turn(found.said);
    },
    /** Shows what the kernel says, where that is an answer to the edit that led back. */
    settle() {
      if (back && model.get("status").seq >= back.seq) leave();
    },
    /** Shows what the kernel said last. */
    leave,
  };
}
