// @ts-check
// The line that answers: the program and its level, the numbers that decide, the verdict; and what went wrong.
import { Finder } from "./cards.js";
import { Notice, ui, useTraits } from "./parts.js";
import { Pieces } from "./pieces.js";
import { Term } from "./terms.js";
import { useRef } from "./vendor/preact.js";
import { secondsText, useTicks } from "./waits.js";
import { pieces, plain } from "./words.js";

/** @import { Block, Status } from "./types.d.ts" */
/** @typedef {Extract<Block, { block: "p" }>} Said */

/** @type {Record<string, string>} */
const LEVELS = {
  propagated: "Shardy's propagation: shardings are sure, collectives are a prediction",
  partitioned: "XLA's partitioner: the collectives as it makes them",
  compiled: "the whole compiler: collectives and memory plan",
};

/** @param {Block} block @returns {Said[]} */
const paragraph = (block) => block.block === "p" ? [block] : [];

export function Head() {
  const ctx = useTraits("head", "mesh", "most", "gone");
  const { document, verdict } = ctx.get("head");
  const [program] = pieces(document.title || []);
  const all = verdict.blocks.flatMap(paragraph);
  const sentence = all.find(({ name }) => name === "verdict")?.pieces || [];
  const { mends = 0, tried } = ctx.get("most");
  return ui`<div class="sv-head">
      <div class="sv-program">
        <div class="sv-title">
          <h1 title=${plain(document.title || [])} data-testid="where">
            ${program.t}${ctx.number > 1 && ui`<span class="sv-soft">${` (${ctx.number})`}</span>`}</h1></div>
        <${Level} /></div>
      <div class="sv-facts">${
    all.filter(({ name }) => name !== "verdict").map(({ name, label, pieces: said = [] }) =>
      ui`<div class="sv-fact" data-testid=${name}><div><${Pieces} of=${said} /></div><small>${label}</small></div>`
    )
  }</div>
      <div class="sv-verdict" data-testid="verdict" title=${plain(sentence)}><${Pieces} of=${sentence} />${
    document
      .blocks.flatMap(paragraph).map(({ name, label, pieces: said = [] }) =>
        ui`<span class="sv-kpi" data-testid=${name}>${` ${label} `}<${Pieces} of=${said} /></span>`
      )
  }</div><div class="sv-actions" inert=${ctx.gone}><button class="sv-btn" data-testid="fix" onclick=${() =>
    ctx.setTab("most")} title="what costs you most${
    mends ? ", and what was tried and helps" : tried ? "; nothing that was tried helps" : "; what helps is being tried"
  }">${mends || tried ? `Fix (${mends})` : "Fix"}</button><${Finder} /></div></div>`;
}

/** At which level of truth the answer is, and how fresh. */
function Level() {
  const ctx = useTraits("status", "targets");
  const status = ctx.get("status");
  const { busy, level } = status;
  const clock = useRef({ status: /** @type {Status | null} */ (null), busy: false, started: performance.now() });
  const { current } = clock;
  if (status !== current.status) {
    if (busy && (!current.busy || status.status === "propagating")) current.started = performance.now();
    Object.assign(current, { status, busy });
  }
  useTicks(busy);
  const { seconds } = status;
  const time = busy
    ? secondsText(performance.now() - current.started)
    : seconds === null || seconds === undefined
    ? ""
    : secondsText(1000 * seconds);
  const said = ui`<span class="sv-clock">${time}</span>`;
  const bad = status.status === "stopped" || status.status === "failed";
  const stop = () => ctx.edit({ op: "stop" });
  return ui`<div class="sv-level ${ctx.get("targets").kind === "cpu" ? "" : "sv-onmachine"}" data-testid="level"
        role="status" aria-live="polite">
      <div class="sv-levelname" data-level=${level} data-busy=${
    String(
      busy,
    )
  } data-seq=${status.seq}><span class="sv-dot sv-${level} ${
    busy ? "sv-busy" : ""
  }" aria-hidden="true" /><${Term} text=${level} means=${LEVELS[level] || ""} /></div>
      <small>${
    busy
      ? ui`<${Doing} of=${status} />${" "}${said}${" "}
        <button class="sv-stop" data-testid="stop" onclick=${stop}
        title="stop the compile; what is known stays">■ stop</button>`
      : bad
      ? ui`<span class="sv-warn">${status.status} after ${said}</span>`
      : said
  }</small></div>`;
}

/** `compiling for tpu v5p:4x4x4`; where there is little room the machine is in the title only. @param {{ of: Status }} props */
function Doing({ of: { doing, message } }) {
  const [what, machine] = doing.split(" for ");
  return ui`<span title=${message}>
      ${what}${machine && ui`<span class="sv-formachine">${` for ${machine}`}</span>`}</span>`;
}

/** What went wrong, or that no kernel is there. */
export function Banners() {
  const ctx = useTraits("status", "gone");
  const { error, failure } = ctx.get("status");
  const stopped = failure?.kind === "CompileStopped";
  const again = () => ctx.edit({ op: "recompile" });
  const words = "No kernel answers here: it was restarted, shut down, or never ran for this copy. " +
    "What is shown is its last answer; run the cell again to go on.";
  return ui`<div class="sv-banners">
      ${ctx.gone && ui`<${Notice} kind="sv-info" id="gone" message=${words} />`}
      ${
    error && ["internal", "plan"].includes(error.place) &&
    ui`<${Notice} kind="sv-error" id="error" message=${error.message} detail=${error.detail} />`
  }${
    failure &&
    ui`<${Notice} kind=${stopped ? "sv-info" : "sv-warning"} id="failure"
          message=${stopped ? failure.message : `${failure.kind}: ${failure.message}`}
          detail=${stopped ? "" : failure.stderr}>
        <button class="sv-btn" data-testid="recompile" onclick=${again}>${
      stopped ? "compile" : "try again"
    }</button><//>`
  }</div>`;
}
