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

/** @param {Block} block @returns {Extract<Block, { block: "p" }>[]} */
const paragraph = (block) => block.block === "p" ? [block] : [];

export function Head() {
  const ctx = useTraits("head", "mesh", "most", "gone");
  const { document, verdict } = ctx.get("head");
  const [program] = pieces(document.title || []);
  const all = verdict.blocks.flatMap(paragraph);
  const sentence = all.find(({ name }) => name === "verdict")?.pieces || [];
  const { fix = "Fix", said: title } = ctx.get("most");
  const facts = all.filter(({ name }) => name !== "verdict").map(({ name, label, pieces: said = [] }) =>
    ui`<div class="sv-fact" data-testid=${name}><div><${Pieces} of=${said} /></div><small>${label}</small></div>`
  );
  const more = document.blocks.flatMap(paragraph).map(({ name, label, pieces: said = [] }) =>
    ui`<span class="sv-kpi" data-testid=${name}>${` ${label} `}<${Pieces} of=${said} /></span>`
  );
  return ui`<div class="sv-head">
      <div class="sv-program">
        <div class="sv-title">
          <h1 title=${plain(document.title || [])} data-testid="where">
            ${program.t}${ctx.number > 1 && ui`<span class="sv-soft">${` (${ctx.number})`}</span>`}</h1></div>
        <${Level} /></div>
      <div class="sv-facts">${facts}</div>
      <div class="sv-verdict" data-testid="verdict" title=${plain(sentence)}><${Pieces} of=${sentence} />${more}</div>
      <div class="sv-actions" inert=${ctx.gone}>
        <button class="sv-btn" data-testid="fix" onclick=${() => ctx.set("tab", "most")} title=${title}>${fix}</button>
        <${Finder} /></div></div>`;
}

/** At which level of truth the answer is, and how fresh. */
function Level() {
  const ctx = useTraits("status", "targets");
  const status = ctx.get("status");
  const { busy, level, means, seconds } = status;
  const clock =
    useRef({ status: /** @type {Status | null} */ (null), busy: false, started: performance.now() }).current;
  if (status !== clock.status) {
    if (busy && (!clock.busy || status.status === "propagating")) clock.started = performance.now();
    Object.assign(clock, { status, busy });
  }
  useTicks(busy);
  const took = typeof seconds === "number" ? secondsText(1000 * seconds) : "";
  const said = ui`<span class="sv-clock">${busy ? secondsText(performance.now() - clock.started) : took}</span>`;
  const bad = status.status === "stopped" || status.status === "failed";
  const stop = ui`<button class="sv-stop" data-testid="stop" title="stop the compile; what is known stays"
        onclick=${() => ctx.edit({ op: "stop" })}>■ stop</button>`;
  const dot = ui`<span class="sv-dot sv-${level} ${busy ? "sv-busy" : ""}" aria-hidden="true" />`;
  const now = bad ? ui`<span class="sv-warn">${status.status} after ${said}</span>` : said;
  const doing = [ui`<span title=${status.message}>${status.doing}</span>`, " ", said, " ", stop];
  return ui`<div class="sv-level ${ctx.get("targets").kind === "cpu" ? "" : "sv-onmachine"}" data-testid="level"
        role="status" aria-live="polite">
      <div class="sv-levelname" data-level=${level} data-busy=${`${busy}`} data-seq=${status.seq}>
        ${dot}<${Term} text=${level} means=${means} /></div>
      <small>${busy ? doing : now}</small></div>`;
}

/** What went wrong, or that no kernel is there. */
export function Banners() {
  const ctx = useTraits("status", "gone");
  const { error, failure } = ctx.get("status");
  const stopped = failure?.kind === "CompileStopped";
  const again = () => ctx.edit({ op: "recompile" });
  const words = "No kernel answers here: it was restarted, shut down, or never ran for this copy. " +
    "What is shown is its last answer; run the cell again to go on.";
  const wrong = error && ["internal", "plan"].includes(error.place) &&
    ui`<${Notice} kind="sv-error" id="error" message=${error.message} detail=${error.detail} />`;
  const message = stopped ? failure.message : `${failure?.kind}: ${failure?.message}`;
  return ui`<div class="sv-banners">
      ${ctx.gone && ui`<${Notice} kind="sv-info" id="gone" message=${words} />`}${wrong}${
    failure &&
    ui`<${Notice} kind=${stopped ? "sv-info" : "sv-warning"} id="failure" message=${message}
          detail=${stopped ? "" : failure.stderr}>
        <button class="sv-btn" data-testid="recompile" onclick=${again}>${
      stopped ? "compile" : "try again"
    }</button><//>`
  }</div>`;
}
