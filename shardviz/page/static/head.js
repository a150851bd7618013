// @ts-check
// Above the cards: the program, and at which level of truth its answer is, how fresh; and what went wrong.
import { fill, h } from "./dom.js";
import { inline, pieces, plain } from "./document.js";
import { secondsText, TICK } from "./waits.js";

/** @import { Block, Child, Context, EditError, Status } from "./types.d.ts" */

/** @type {Record<string, string>} */
const LEVELS = {
  propagated: "Shardy's propagation: shardings are sure, collectives are a prediction",
  partitioned: "XLA's partitioner: the collectives as it makes them",
  compiled: "the whole compiler: collectives and memory plan",
};

/**
 * The line that answers: the program and its level, the numbers that decide, the verdict, and what can be done.
 * @param {Context} ctx
 * @param {HTMLElement} el
 * @returns {{ actions: HTMLElement, end: () => void }} where buttons go; what is to be called when the page goes
 */
export function head(ctx, el) {
  const names = h("div", { class: "sv-title" });
  const level = h("div", { class: "sv-level", id: "level", role: "status", "aria-live": "polite" });
  const facts = h("div", { class: "sv-facts" });
  const verdict = h("div", { class: "sv-verdict", id: "verdict" });
  const fix = h("button", { class: "sv-btn", id: "fix", onclick: () => ctx.setTab("most") });
  const actions = h("div", { class: "sv-actions" }, fix);
  const banner = h("div", { class: "sv-banners" });
  el.append(h("div", { class: "sv-head" }, h("div", { class: "sv-program" }, names, level), facts, verdict, actions));
  el.append(banner);
  let started = performance.now();
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let timer;

  function drawTitle() {
    const { document, verdict: said } = ctx.get("head");
    const [program] = pieces(document.title || []);
    const number = ctx.number > 1 ? h("span", { class: "sv-soft" }, ` (${ctx.number})`) : null;
    fill(names, h("h1", { title: plain(document.title || []), id: "where" }, program.t, number));
    const paragraphs = said.blocks.flatMap(paragraph);
    const sentence = paragraphs.find(({ name }) => name === "verdict")?.pieces || [];
    fill(facts, paragraphs.filter(({ name }) => name !== "verdict").map(fact));
    fill(verdict, inline(ctx, sentence), document.blocks.flatMap(paragraph).map(changed));
    verdict.title = plain(sentence);
  }

  /** An amount, and below it what it is. @param {Said} said */
  const fact = ({ name, label, pieces = [] }) =>
    h("div", { class: "sv-fact", id: name }, h("div", {}, inline(ctx, pieces)), h("small", {}, label));

  /** What the last edit changed. @param {Said} said */
  const changed = ({ name, label, pieces = [] }) =>
    h("span", { class: "sv-kpi", id: name }, ` ${label} `, inline(ctx, pieces));

  function drawFix() {
    const { mends: count = 0 } = ctx.get("most");
    fix.textContent = `Fix (${count})`;
    fix.title = `what costs you most${count ? ", and what was tried and helps" : "; nothing that was tried helps yet"}`;
  }

  function clockText() {
    const status = ctx.get("status");
    if (status.busy) return secondsText(performance.now() - started);
    return status.seconds === null || status.seconds === undefined ? "" : secondsText(1000 * status.seconds);
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
    if (status.busy) timer = setInterval(() => clock.textContent = clockText(), TICK);
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
  for (const key of /** @type {const} */ (["head", "mesh"])) ctx.on(key, drawTitle);
  ctx.on("most", drawFix);
  ctx.on("status", () => {
    const { busy, status } = ctx.get("status");
    if (busy && (!wasBusy || status === "propagating")) started = performance.now();
    wasBusy = busy;
    drawLevel();
    drawBanner();
  });
  drawTitle();
  drawFix();
  drawLevel();
  drawBanner();
  ctx.on("gone", drawBanner);
  return { actions, end: () => clearInterval(timer) };
}

/** @typedef {Extract<Block, { block: "p" }>} Said */

/** @param {Block} block @returns {Said[]} */
const paragraph = (block) => block.block === "p" ? [block] : [];

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

/**
 * A change that was refused: why, the ways on that were tried, and how to be rid of the words.
 * @param {Context} ctx
 * @param {EditError} error
 * @param {string} id
 */
export function refusal(ctx, error, id) {
  const ways = (error.ways ?? []).map(({ text, tip, take }, place) =>
    take
      ? h("button", {
        class: "sv-btn sv-do",
        id: `way-${place}`,
        title: tip,
        onclick: () => ctx.edit({ op: "take_way", place }),
      }, text)
      : h("span", { class: "sv-soft", title: tip }, text)
  );
  const away = h("button", {
    class: "sv-away",
    id: `${id}-away`,
    title: "leave it as it was",
    "aria-label": "dismiss",
    onclick: () => ctx.edit({ op: "dismiss" }),
  }, "×");
  return notice("sv-error", id, error.message, error.detail, h("span", { class: "sv-ways" }, ways), away);
}
