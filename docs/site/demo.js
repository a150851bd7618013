// What stands in the recorded explorer for its kernel: a model that answers edits from the record of docs/demo.py, and
// says of every other that it was not recorded. `page` is the explorer's own module, which stands before this one.

/**
 * A model as anywidget gives one, on a record.
 * @param {{ pool: any[], states: { shown: any, edits: Record<string, number> }[], ofSelection: string[], words: Record<string, string> }} record
 * @param {(words: string) => void} say told where the page is in the record
 */
function recorded({ pool, states, ofSelection, words }, say) {
  /** The values of the pool that were read, by their number. @type {any[]} */
  const read = [];
  /** A value with what it has of the pool. @param {any} of @returns {any} */
  const value = (of) => {
    if (of === null || typeof of !== "object") return of;
    if (Array.isArray(of)) return of.map(value);
    if ("$" in of) return read[of.$] ??= value(pool[of.$]);
    return Object.fromEntries(Object.entries(of).map(([key, each]) => [key, value(each)]));
  };
  /** What a state shows: its traits, as they stand in the pool. @param {number} place */
  const traits = (place) => states[place].shown.$ === undefined ? states[place].shown : pool[states[place].shown.$];
  const deep = (/** @type {any} */ of) => of?.$ === undefined ? of : pool[of.$];

  /** @type {Record<string, Set<(message?: any) => void>>} */
  const listeners = {};
  const fire = (/** @type {string} */ event, /** @type {any} */ message = undefined) => {
    for (const listener of [...listeners[event] ?? []]) listener(message);
  };
  let at = 0;
  /** @type {number[]} */
  let past = [];
  /** @type {number[]} */
  let ahead = [];
  let offered = false;
  /** What the page itself sets. @type {Record<string, any>} */
  const own = {
    ...{ tab: "source", opened: [], selected: value(traits(0).selected), selected_at: "", wants: "" },
    ...{ query: {}, span: [0, 1], device: -1, reading: "" }, // of these only what they are at first was recorded
    ...{ comm_id: "", stilled: 0, status: null },
  };

  /** @param {string} key */
  function get(key) {
    const state = traits(at);
    if (key in own) return own[key];
    if (key === "presets") return value(deep(state.presets)[Number(offered)]);
    if (key === "lines") {
      return Object.fromEntries(
        own.opened.map((/** @type {string} */ line) => [line, value(deep(state.lines)[line])]).filter((
          /** @type {any[]} */ [, of],
        ) => of),
      );
    }
    if (ofSelection.includes(key)) return value(deep(deep(deep(state.bySelection)[own.selected])[key]));
    return value(state[key]);
  }

  /** Tells what the answer to an edit is, or why there is none. @param {number} [seq] @param {string} [kind] */
  function answer(seq = own.status?.seq ?? 0, kind = "") {
    const error = kind ? { place: "recording", subject: null, dimension: null, message: words[kind], alternatives: [] } : null;
    own.status = { ...value(traits(at).status), seq, undo: past.length, redo: ahead.length, error };
    say(kind ? "Not recorded." : `State ${at + 1} of ${states.length}, level ${own.status.level}.`);
    fire("change:status");
  }

  /** @param {number} to */
  function move(to) {
    const [before, now] = [traits(at), traits(to)];
    [at, offered] = [to, false];
    const same = (/** @type {string} */ key) => JSON.stringify(before[key]) === JSON.stringify(now[key]);
    for (const key of Object.keys(now).filter((each) => !same(each) && !(each in own))) fire(`change:${key}`);
    fire("change:presets");
    for (const key of same("bySelection") ? [] : ofSelection) fire(`change:${key}`);
  }

  /** @type {Record<string, () => boolean | void>} */
  const ACTS = {
    undo: () => void (past.length && (ahead.unshift(at), move(/** @type {number} */ (past.pop())))),
    redo: () => void (ahead.length && (past.push(at), move(/** @type {number} */ (ahead.shift())))),
    dismiss: () => {},
    stop: () => {},
    close_why: () => {},
    try_presets: () => void (offered = true, fire("change:presets")),
    close_presets: () => void (offered = false, fire("change:presets")),
  };

  /** @param {any} edit @param {number} seq */
  function take(edit, seq) {
    const to = states[at].edits[JSON.stringify(edit, Object.keys(edit).sort())];
    if (ACTS[edit.op]) ACTS[edit.op]();
    else if (to === undefined) return answer(seq, "edit");
    else {
      [past, ahead] = [[...past, at], []];
      move(to);
    }
    answer(seq);
  }

  /** @param {string} key @param {any} wanted */
  function set(key, wanted) {
    if (JSON.stringify(own[key]) === JSON.stringify(wanted)) return;
    const all = deep(traits(at).bySelection);
    const narrowed = key === "query"
      ? Object.values(wanted).some(Boolean)
      : ["span", "device", "reading"].includes(key);
    if (narrowed || (key === "selected" && !(wanted in all))) return answer(undefined, "look");
    own[key] = wanted;
    fire(`change:${key}`);
    if (key === "opened") fire("change:lines");
    for (const each of key === "selected" ? ofSelection : []) fire(`change:${each}`);
  }

  answer();
  return {
    get,
    set,
    save_changes() {},
    on: (/** @type {string} */ event, /** @type {() => void} */ listener) =>
      void (listeners[event] ??= new Set()).add(listener),
    off: (/** @type {string} */ event, /** @type {() => void} */ listener) => void listeners[event]?.delete(listener),
    send(/** @type {any} */ message) {
      if (message.edit) queueMicrotask(() => take(message.edit, message.seq));
      else if (["html", "json"].includes(message.ask)) {
        fire("msg:custom", { file: { name: "", text: "", why: words.file } });
      }
    },
  };
}

const packed = Uint8Array.from(atob(document.getElementById("record").textContent), (letter) => letter.charCodeAt(0));
const text = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
const model = recorded(JSON.parse(text), (words) => document.getElementById("said").textContent = words);
page.render({ model, el: document.getElementById("app") });
