// @ts-check
// The headline: what moves, how often, memory, problems; and at which level of truth, how fresh.
import { fill, h } from "./dom.js";
import { axesChips, axisText } from "./chips.js";

/** @import { Child, Context, Fit, Head, Status } from "./types.d.ts" */

/** @type {Record<string, string>} */
const LEVELS = {
  propagated: "Shardy's propagation: shardings are sure, collectives are a prediction",
  partitioned: "XLA's partitioner: the collectives as it makes them",
  compiled: "the whole compiler: collectives and memory plan",
};

const TWO_ROWS = 100; // pixels
const NARROW = 880; // pixels of the page, below which the panes stand one above the other

/**
 * `1 problem`, `2 problems`.
 * @param {number} n
 * @param {string} word
 */
export function plural(n, word) {
  return `${n} ${word}${n === 1 ? "" : "s"}`;
}

/**
 * `3 problems · 6 notes`.
 * @param {number} problems
 * @param {number} notes
 */
export function counts(problems, notes) {
  return plural(problems, "problem") + (notes ? ` · ${plural(notes, "note")}` : "");
}

/**
 * What moves and is not shown in the headline, a line each.
 * @param {Head} data
 * @param {number} hidden how many of `data.moved`, from the last, had no room
 */
export function restTexts(data, hidden) {
  const left = data.moved.slice(data.moved.length - hidden);
  const texts = left.map(({ axes, text }) => `${axes ? axes.map(axisText).join(", ") : "no product of axes"}: ${text}`);
  return [...texts, ...data.moved_rest];
}

/**
 * One number of the headline with its name.
 * @param {string} label
 * @param {string} id
 * @param {Child[]} value
 */
function kpi(label, id, ...value) {
  return h("div", { class: "sv-kpi", id }, h("small", {}, label), h("div", {}, value));
}

/**
 * Marks what goes first (1), second, ... where the row is too narrow for everything.
 * @param {number} order
 * @param {Child[]} inside
 */
function drop(order, ...inside) {
  return h("span", { "data-drop": order }, inside);
}

/**
 * Returns what is to be called when the page goes.
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function head(ctx, el) {
  const numbers = h("div", { class: "sv-kpis" });
  const level = h("div", { class: "sv-level", id: "level", role: "status", "aria-live": "polite" });
  const banner = h("div", { class: "sv-banners" });
  const row = h("div", { class: "sv-head" }, numbers, level);
  el.append(row, banner);
  let started = performance.now();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;
  let sayRest = () => {}; // says how many axes are not shown

  /** @param {Head} data */
  function moved(data) {
    const shown = data.moved.map(({ axes, text, title }, i) => {
      const attributes = { class: "sv-moved", title: `${text}: ${title}`, "data-drop": [null, 8, 4, 3][i] };
      return h("span", attributes, axesChips(ctx, axes), " ", h("b", {}, text), " ");
    });
    const more = h("span", { class: "sv-soft", hidden: true });
    sayRest = () => {
      const rest = restTexts(data, shown.filter((part) => part.hidden).length);
      more.textContent = `+${rest.length}`;
      more.title = rest.join("\n");
      more.hidden = !rest.length;
    };
    return kpi("moved per device", "kpi-moved", shown.length ? shown : h("b", {}, "nothing"), more);
  }

  /** @param {Head} data */
  function memory({ fit: fits, memory: plan, arguments: size }) {
    if (fits) return fitted(fits);
    if (!plan) return kpi("arguments", "kpi-memory", h("b", {}, size), h("span", { class: "sv-soft" }, " per device"));
    const total = h("b", { title: `${plan.caution} ${plan.detail}` }, plan.total);
    return kpi(`memory per device, ${plan.target} plan`, "kpi-memory", total);
  }

  /**
   * Whether it fits the machine: a thin bar, the amounts, and the verdict in words.
   * @param {Fit} fits
   */
  function fitted({ label, text, over, share, title, verdict }) {
    const width = `${Math.min(100, Math.max(1, 100 * share))}%`;
    const button = h(
      "button",
      { class: "sv-link sv-plain sv-fit", title, onclick: () => ctx.setTab("memory") },
      h("b", {}, text),
      over ? drop(9, h("span", { class: "sv-over" }, ` ${over}`)) : null,
      h("span", { class: "sv-fitbar", "aria-hidden": "true" }, h("i", { style: { width } })),
    );
    const part = kpi(label, "kpi-memory", button);
    part.classList.add(`sv-is-${verdict}`);
    return part;
  }

  /** @param {Head} data */
  function step({ step: time, trouble, target }) {
    if (time) return kpi(time.label, "kpi-step", h("b", { title: time.title }, time.text));
    return trouble ? kpi(target, "kpi-step", h("b", { class: "sv-warn", title: trouble }, "no cost")) : null;
  }

  /** @param {Head} data */
  function bound({ bound: by }) {
    if (!by) return null;
    const first = h("b", {}, by.what, drop(8.5, by.over));
    const then = by.then ? drop(5.5, `, then ${by.then}`) : null;
    return kpi("bound by", "kpi-bound", h("span", { title: by.title }, first, then));
  }

  /** @param {Head} data */
  function collectives({ collectives: count, runs }) {
    const times = runs ? drop(5, h("span", { class: "sv-soft" }, ` · ${runs}`)) : null;
    const part = kpi("collectives", "kpi-collectives", h("b", {}, count), times);
    part.dataset.drop = "6";
    return part;
  }

  /** @param {Head} data */
  function problems({ problems: count, notes }) {
    const attributes = {
      class: `sv-link ${count ? "sv-warn" : "sv-plain"}`,
      title: counts(count, notes),
      onclick: () => ctx.setTab("problems"),
    };
    const more = notes ? h("span", { class: "sv-soft" }, ` · ${plural(notes, "note")}`) : null;
    return kpi("problems", "kpi-problems", h("button", attributes, h("b", {}, count), more));
  }

  /** @param {Head} data */
  function changed({ changed: count, values }) {
    if (!count) return null;
    const onclick = () => {
      ctx.query({ changed: true });
      ctx.setTab("values");
    };
    const attributes = { class: "sv-link", title: "show these values", onclick };
    const button = h("button", attributes, h("b", {}, count), drop(2, ` of ${values}`), " values");
    const part = kpi("last edit changed", "kpi-changed", button);
    part.dataset.drop = "7";
    return part;
  }

  function drawNumbers() {
    const data = ctx.get("head");
    const title = h(
      "div",
      { class: "sv-title", title: `${data.program} on ${data.mesh}` },
      h("h1", {}, data.program),
      h("small", {}, drop(1, `${data.mesh} · `), data.devices),
    );
    fill(
      numbers,
      title,
      data.fit ? [memory(data), step(data), bound(data)] : null,
      moved(data),
      collectives(data),
      data.fit ? null : [memory(data), step(data)],
      problems(data),
      changed(data),
    );
    fit();
  }

  // One row if it can be: the least important goes first, and comes back if what went after it made room enough. What
  // is still too long goes on a second row, where there is room for the more important things that went.
  function fit() {
    /** @type {NodeListOf<HTMLElement>} */
    const marked = numbers.querySelectorAll("[data-drop]");
    const order = (/** @type {HTMLElement} */ part) => Number(part.dataset.drop);
    const parts = [...marked].sort((a, b) => order(a) - order(b));
    const fits = () => numbers.scrollWidth <= numbers.clientWidth;
    const narrow = row.clientWidth < NARROW;
    for (const part of parts) part.hidden = false;
    numbers.classList.remove("sv-wrap");
    sayRest();
    const gone = [];
    for (const part of parts) {
      if (narrow || fits()) break;
      part.hidden = true;
      sayRest();
      gone.unshift(part);
    }
    const wrap = !fits();
    numbers.classList.toggle("sv-wrap", wrap);
    for (const part of gone) {
      part.hidden = wrap && order(part) < 5;
      sayRest();
      if (wrap ? numbers.clientHeight > TWO_ROWS : !fits()) part.hidden = true;
    }
    sayRest();
  }

  function clockText() {
    const status = ctx.get("status");
    const seconds = status.busy ? (performance.now() - started) / 1000 : status.seconds;
    return seconds === null || seconds === undefined ? "" : `${seconds.toFixed(1)} s`;
  }

  /**
   * `compiling for tpu v5p:4x4x4`; where there is little room the machine is in the title only.
   * @param {Status} status
   */
  function doing({ doing: words, message }) {
    const [what, machine] = words.split(" for ");
    const on = machine ? h("span", { class: "sv-formachine" }, ` for ${machine}`) : null;
    return h("span", { title: message }, what, on);
  }

  function drawLevel() {
    const status = ctx.get("status");
    level.classList.toggle("sv-onmachine", ctx.get("targets").kind !== "cpu");
    const clock = h("span", { class: "sv-clock" }, clockText());
    const attributes = {
      class: "sv-levelname",
      title: LEVELS[status.level] || "",
      "data-level": status.level,
      "data-busy": String(status.busy),
      "data-seq": status.seq,
    };
    const dot = `sv-dot sv-${status.level} ${status.busy ? "sv-busy" : ""}`;
    const name = h("div", attributes, h("span", { class: dot, "aria-hidden": "true" }), status.level);
    fill(level, name, h("small", {}, course(status, clock)));
    clearInterval(timer);
    if (status.busy) timer = setInterval(() => clock.textContent = clockText(), 100);
  }

  /**
   * What the kernel does now, or how it ended.
   * @param {Status} status
   * @param {HTMLElement} clock
   * @returns {Child}
   */
  function course(status, clock) {
    if (status.busy) {
      const stop = h("button", {
        class: "sv-stop",
        id: "stop",
        title: "stop the compile; what is known stays",
        onclick: () => ctx.edit({ op: "stop" }),
      }, "■ stop");
      return [doing(status), " ", clock, " ", stop];
    }
    const bad = status.status === "stopped" || status.status === "failed";
    return bad ? h("span", { class: "sv-warn" }, status.status, " after ", clock) : clock;
  }

  function drawBanner() {
    const { error, failure } = ctx.get("status");
    /** @param {string} text */
    const again = (text) => {
      const onclick = () => ctx.edit({ op: "recompile" });
      return h("button", { class: "sv-btn", id: "recompile", onclick }, text);
    };
    const parts = [];
    if (ctx.gone) {
      const words = "No kernel answers here: it was restarted, shut down, or never ran for this copy. " +
        "What is shown is its last answer; run the cell again to go on.";
      parts.push(notice("sv-info", "gone", words));
    }
    if (error?.place === "internal" || error?.place === "plan") {
      parts.push(notice("sv-error", "error", error.message, error.detail));
    }
    if (failure?.kind === "CompileStopped") {
      parts.push(notice("sv-info", "failure", failure.message, "", again("compile")));
    } else if (failure) {
      const words = `${failure.kind}: ${failure.message}`;
      parts.push(notice("sv-warning", "failure", words, failure.stderr, again("try again")));
    }
    fill(banner, parts);
  }

  let wasBusy = false;
  ctx.on("head", drawNumbers);
  ctx.on("mesh", drawNumbers);
  ctx.on("status", () => {
    const { busy, status } = ctx.get("status");
    if (busy && (!wasBusy || status === "propagating")) started = performance.now();
    wasBusy = busy;
    drawLevel();
    drawBanner();
  });
  drawNumbers();
  drawLevel();
  drawBanner();
  ctx.on("gone", drawBanner);
  const watch = new ResizeObserver(fit);
  watch.observe(row);
  return () => {
    clearInterval(timer);
    watch.disconnect();
  };
}

/**
 * Something that a person is told: a sentence, and what can be done about it.
 * @param {"sv-error" | "sv-warning" | "sv-info"} kind
 * @param {string} id
 * @param {string} message
 * @param {string} [detail] shown when it is asked for
 * @param {Child[]} more
 */
export function notice(kind, id, message, detail, ...more) {
  const details = detail ? h("details", {}, h("summary", {}, "details"), h("pre", {}, detail)) : null;
  return h("div", { class: `sv-notice ${kind}`, id, role: "alert" }, h("span", {}, message), more, details);
}

/**
 * What stands where the kernel has not said anything yet.
 * @param {Context} ctx
 */
export function waiting(ctx) {
  const words = ctx.gone
    ? "No kernel answers here, and this was not on the screen when one did; run the cell again."
    : "The kernel is asked; it answers when it has ended what it is doing.";
  return h("p", { class: "sv-empty" }, words);
}
