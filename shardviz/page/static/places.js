// @ts-check
// The centre: tabs, and behind *More* a second row of what is asked for less often. Arrows go along each row.
import { Drawer } from "./drawer.js";
import { Machine } from "./machine.js";
import { Code, Collectives, Memory, Pane, Shards, Values } from "./panes.js";
import { Tab, ui, useContextOf, useTraits } from "./parts.js";
import { Rosetta } from "./rosetta.js";
import { Rules } from "./rules.js";
import { Source } from "./source.js";
import { Stages } from "./stages.js";
import { Timeline } from "./timeline.js";
import { useLayoutEffect, useRef, useState } from "./vendor/preact.js";

/** @import { View } from "./vendor/preact.d.ts" */
/** @typedef {[key: string, title: string, view: () => View, tip?: string]} Place */

/** @type {Place[]} */
export const TABS = [
  ["source", "Source", Source],
  ["timeline", "Timeline", Timeline],
  ["memory", "Memory", Memory],
  ["collectives", "Collectives", Collectives],
  ["shards", "Shard maps", () => ui`<${Shards} />`],
  ["machine", "Machine", Machine],
];

/** @type {Place[]} */
export const MORE = [
  ["most", "Fix", () => ui`<${Pane} of="most" />`, "what costs you most, each with what was tried against it"],
  ["problems", "Findings", () => ui`<${Pane} of="problems" />`],
  ["cost", "Cost", () => ui`<${Pane} of="costs" />`],
  ["difference", "Difference", () => ui`<${Pane} of="difference" />`, "to the plan that this one is compared with"],
  ["values", "Values", Values],
  ["stages", "Raw stages", Stages, "jaxpr, StableHLO, Shardy's, and XLA's before and after its passes"],
  ["rosetta", "Notations", Rosetta, "the selected value's sharding in every notation; and any notation read"],
  ["rules", "Rules", Rules, "specs by a pattern of the arguments' names"],
  ["code", "Code", Code, "the Python that rebuilds the plan"],
];

export function Places() {
  const ctx = useTraits("tab");
  const at = ctx.get("tab");
  const [open, setOpen] = useState(""); // the tab at which the second row was asked for
  const shown = open === at || MORE.some(([key]) => key === at);
  useLayoutEffect(() => ctx.shown(at), [at]);
  const panels = [...TABS, ...MORE].map(([key, title, view]) =>
    ui`<${Panel} key=${key} name=${key} title=${title} view=${view} />`
  );
  return ui`<div class="sv-centre">
      <div class="sv-places">
        <div class="sv-tabrow">
          <${Tabs} of=${TABS} class="sv-tabs" label="views" />
          <button class="sv-tabmore" data-testid="more" aria-expanded=${shown} onclick=${() =>
    setOpen(open === at ? "" : at)}>${shown ? "More ▴" : "More ▾"}</button><${FullWindow} /></div>
        <${Tabs} of=${MORE} class="sv-views" label="more views" hidden=${!shown} /></div>
      <div class="sv-work">${panels}<${Drawer} /></div></div>`;
}

/** @param {{ of: Place[], class: string, label: string, hidden?: boolean }} props */
function Tabs({ of, class: look, label, hidden = false }) {
  const ctx = useTraits("problems");
  const [now, { said }] = [ctx.get("tab"), ctx.get("problems")];
  const tabs = of.map(([key, title, , tip], n) =>
    ui`<button role="tab" data-testid="tab-${key}" title=${key === "problems" ? said : tip ?? `key ${n + 1}`}
          aria-selected=${key === now}
          onclick=${() => ctx.set("tab", key)}>${title}${key === "problems" && ui`<${Count} />`}</button>`
  );
  return ui`<div class=${look} role="tablist" aria-label=${label} hidden=${hidden}>${tabs}</div>`;
}

/** How many findings there are. */
function Count() {
  const { problems, notes } = useContextOf().get("problems");
  return ui`${" "}<b class="sv-badge" hidden=${!problems}>${problems || ""}</b>
    ${" "}<span class="sv-notes">${notes && `${problems ? "" : "0 "}· ${notes}`}</span>`;
}

/** What a tab shows: nothing before it was gone to; as it was, while another is shown. @param {{ name: string, title: string, view: () => View }} props */
function Panel({ name, title, view }) {
  const here = useContextOf().get("tab") === name;
  const inside = useRef(/** @type {View} */ (null));
  if (here) {
    inside.current ??= ui`<${Tab.Provider} value=${name}><${view} /><//>`;
  }
  return ui`<div class="sv-panel sv-panel-${name}" role="tabpanel" data-testid="panel-${name}" aria-label=${title}
        hidden=${!here}>
      ${inside.current}</div>`;
}

/** A button that gives the explorer the whole screen, and takes it back. */
function FullWindow() {
  const { root } = useContextOf();
  const toggle = () =>
    /** @type {Document} */ (root.getRootNode()).fullscreenElement === root
      ? document.exitFullscreen()
      : root.requestFullscreen();
  return ui`<button class="sv-full" data-testid="full-window" aria-label="the whole screen" title="the whole screen (Escape leaves it)"
        onclick=${toggle}>⤢</button>`;
}
