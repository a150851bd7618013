// @ts-check
// The line that answers: the program and its level, the numbers that decide, the verdict; and what went wrong.
import { Finder } from "./cards.js";
import { focused } from "./dom.js";
import { Notice, ui, useTraits } from "./parts.js";
import { Pieces } from "./pieces.js";
import { Term } from "./terms.js";
import { useLayoutEffect, useRef } from "./vendor/preact.js";
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
  const took = typeof seconds === "number" ? secondsText(1000 * seconds) : seconds ?? "";
  const expected = status.expected ?? 0;
  const about = expected < 1 ? "" : ` of ~${Math.round(expected)} s`;
  const passed = `${secondsText(performance.now() - clock.started)}${about}`;
  const said = ui`<span class="sv-clock">${busy ? passed : took}</span>`;
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

/** What came of the last button or edit, in one place below the answer: what was refused, how far a search is and what it
 * found, what was saved, what went wrong; and that no kernel is there. */
export function Outcome() {
  const ctx = useTraits("status", "gone", "presets", "mesh", "kept");
  const box = useRef(/** @type {any} */ (null));
  const { error, failure } = ctx.get("status");
  const { share, search } = ctx.get("presets");
  const last = JSON.stringify([error, failure, search.blocks.length, ctx.kept]);
  useLayoutEffect(() => { // a person who works in the page looks for it
    if (ctx.root.contains(focused(ctx.root))) box.current.scrollIntoView({ block: "nearest" });
  }, [last]);
  const dismiss = () => ctx.edit({ op: "dismiss" });
  const stopped = failure?.kind === "CompileStopped";
  const again = () => ctx.edit({ op: "recompile" });
  const words = "No kernel answers here: it was restarted, shut down, or never ran for this copy. " +
    "What is shown is its last answer; run the cell again to go on.";
  const message = stopped ? failure.message : `${failure?.kind}: ${failure?.message}`;
  const runs = share !== null;
  const far = runs &&
    ui`<span class="sv-track"><i class="sv-fill-work" style=${{ width: `${100 * share}%` }} /></span>`;
  const alternatives = (error?.alternatives ?? []).map(({ text, tip }, place) => {
    const go = () => ctx.edit({ op: "take_alternative", place });
    return ui`<button class="sv-btn sv-do" data-testid="alternative-${place}" title=${tip} onclick=${go}>${text}</button>`;
  });
  return ui`<div class="sv-outcome" data-testid="outcome" ref=${box}>
      ${ctx.gone && ui`<${Notice} kind="sv-info" id="gone" message=${words} />`}${
    error &&
    ui`<${Notice} kind="sv-error" id="${error.place}-error" message=${error.message} detail=${error.detail}
          away=${dismiss}>${alternatives}<//>`
  }${
    failure &&
    ui`<${Notice} kind=${stopped ? "sv-info" : "sv-warning"} id="failure" message=${message}
          detail=${stopped ? "" : failure.stderr}>
        <button class="sv-btn" data-testid="recompile" onclick=${again}>${
      stopped ? "compile" : "try again"
    }</button><//>`
  }${
    search.blocks.length > 0 &&
    ui`<${Notice} kind="sv-info" id="search-outcome" away=${runs ? null : dismiss}
          message=${search.blocks.flatMap(paragraph).map(({ pieces: said = [] }) => ui`<${Pieces} of=${said} />`)}>
        ${far}<//>`
  }${
    ctx.kept && ui`<${Notice} kind="sv-info" id="kept" message=${ctx.kept} away=${() => ctx.put("kept", "")} />`
  }</div>`;
}
