// @ts-check
// The explorer's page. The model's traits are all that it shows; what a person does goes back as edits.
import { h } from "./dom.js";
import { context } from "./context.js";
import { pieces, plain } from "./document.js";
import { head } from "./head.js";
import { followTheme, keep, numbered, seen, withoutKernel } from "./host.js";
import { cards } from "./cards.js";
import { constrain } from "./constrain.js";
import { most } from "./most.js";
import { mesh } from "./mesh.js";
import { target } from "./target.js";
import { lighting } from "./lit.js";
import { menu } from "./menu.js";
import { specs } from "./specs.js";
import { source } from "./source.js";
import { code, lineFilter, memory, memoryBrief, pane, shards, values } from "./panes.js";
import { machine } from "./machine.js";
import { rosetta } from "./rosetta.js";
import { ruleMaker, rules } from "./rules.js";
import { dimensions } from "./dimensions.js";
import { keys, roveIn } from "./keys.js";
import { stages } from "./stages.js";
import { timeline } from "./timeline.js";
import { waits } from "./waits.js";
import { why } from "./why.js";
import { places } from "./places.js";

/** @import { Context, Model } from "./types.d.ts" */

/** What can be read without a kernel, or has it inside. */
const READ = ".sv-banners, :has(> .sv-banners), .sv-main";

/**
 * @param {{ model: Model, el: HTMLElement }} view
 */
function render({ model, el }) {
  const ctx = context(model);
  const endSeeing = seen(model);
  const root = h("div", { class: "shardviz", id: "shardviz", role: "region", tabindex: "-1" });
  el.append(root);
  const title = () => ctx.get("head").document.title || [];
  const [number, endNumber] = numbered(pieces(title())[0]?.t || "");
  ctx.number = number;
  const which = number > 1 ? ` (${number})` : "";
  const entitle = () => root.setAttribute("aria-label", `explorer${which} of ${plain(title())}`);
  ctx.on("head", entitle);
  entitle();
  const top = h("div");
  const left = h("div", { class: "sv-left" });
  const right = h("div", { class: "sv-right" });
  const inner = h("div", { class: "sv-body" }, top, h("div", { class: "sv-main" }, left, right));
  root.append(inner);
  const endHead = head(ctx, top);
  cards(ctx, top);
  most(ctx, top);
  menu(ctx, inner);
  const { help } = keys(ctx, root);
  mesh(ctx, left, target(ctx, inner), help);
  dimensions(ctx, left);
  specs(ctx, left, "inputs", { detail: ruleMaker(ctx) });
  specs(ctx, left, "outputs");
  const endWaiting = waits(ctx, root);
  const { panels, show } = places(ctx, right);
  const lines = h("div", { class: "sv-src" });
  const map = h("div", { id: "map-small" });
  const plan = h("div");
  const chosen = h("div");
  const low = h("div", { class: "sv-low" }, chosen, plan);
  constrain(ctx, chosen);
  chosen.append(map);
  panels.source.append(lines, low);
  source(ctx, lines);
  why(ctx, panels.source, low);
  shards(ctx, map, { small: true });
  memoryBrief(ctx, plan);
  shards(ctx, panels.shards, { small: false });
  rosetta(ctx, panels.rosetta);
  values(ctx, panels.values);
  pane(ctx, panels.collectives, "collectives", { above: () => lineFilter(ctx, "collectives-line", "only ") });
  memory(ctx, panels.memory);
  pane(ctx, panels.cost, "costs", { tab: "cost" });
  machine(ctx, panels.machine);
  const endTimeline = timeline(ctx, panels.timeline);
  rules(ctx, panels.rules);
  pane(ctx, panels.problems, "problems");
  stages(ctx, panels.stages);
  pane(ctx, panels.difference, "difference");
  code(ctx, panels.code);
  show();
  ctx.watchKernel();
  const endKeeping = keep(model, inner);
  const asking = [...top.children, left, ...inner.children].filter((part) => !part.matches(READ));
  withoutKernel(ctx, root, /** @type {HTMLElement[]} */ (asking));
  const endTheme = followTheme(root);
  const endLight = lighting(root);
  /** @type {NodeListOf<HTMLElement>} */
  const bars = inner.querySelectorAll(".sv-sheets, .sv-secbar > span:last-child");
  const endRoving = roveIn([top, ...bars, ...Object.values(panels)], "button, a[href]");
  return () => {
    endRoving();
    endTimeline();
    endTheme();
    endLight();
    endWaiting();
    endKeeping();
    endHead();
    ctx.close();
    endNumber();
    endSeeing();
  };
}

export default { render };
