// @ts-check
// The explorer's page. The model's traits are all that it shows; what a person does goes back as edits.
import { h } from "./dom.js";
import { context } from "./context.js";
import { pieces, plain } from "./document.js";
import { head } from "./head.js";
import { followTheme, keep, numbered, seen, withoutKernel } from "./host.js";
import { cards, watchOffers } from "./cards.js";
import { mesh } from "./mesh.js";
import { target } from "./target.js";
import { lighting } from "./lit.js";
import { menu } from "./menu.js";
import { specs } from "./specs.js";
import { source } from "./source.js";
import { code, lineFilter, memory, pane, shards, values } from "./panes.js";
import { machine } from "./machine.js";
import { rosetta } from "./rosetta.js";
import { ruleMaker, rules } from "./rules.js";
import { dimensions } from "./dimensions.js";
import { drawer } from "./drawer.js";
import { keys, roveIn } from "./keys.js";
import { stages } from "./stages.js";
import { timeline } from "./timeline.js";
import { waits } from "./waits.js";
import { places } from "./places.js";

/** @import { Model } from "./types.d.ts" */

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
  const top = h("div", { class: "sv-top" });
  const left = h("div", { class: "sv-left" });
  const side = h("div", { class: "sv-side" }, left);
  const centre = h("div", { class: "sv-centre" });
  const strip = h("div", { class: "sv-strip" });
  const inner = h("div", { class: "sv-body" }, top, side, centre, strip);
  root.append(inner);
  const { actions, end: endHead } = head(ctx, top);
  actions.append(cards(ctx, strip));
  watchOffers(ctx, inner);
  menu(ctx, inner);
  const { help } = keys(ctx, root);
  mesh(ctx, left, target(ctx, inner), help);
  dimensions(ctx, left);
  specs(ctx, left, "inputs", { detail: ruleMaker(ctx) });
  specs(ctx, left, "outputs");
  const endKeeping = keep(model, side);
  const endWaiting = waits(ctx, root);
  const { panels, work, show } = places(ctx, centre);
  drawer(ctx, work);
  source(ctx, panels.source);
  shards(ctx, panels.shards, { small: false });
  rosetta(ctx, panels.rosetta);
  values(ctx, panels.values);
  pane(ctx, panels.collectives, "collectives", { above: () => lineFilter(ctx, "collectives-line", "only ") });
  memory(ctx, panels.memory);
  pane(ctx, panels.cost, "costs", { tab: "cost" });
  machine(ctx, panels.machine);
  const endTimeline = timeline(ctx, panels.timeline);
  rules(ctx, panels.rules);
  pane(ctx, panels.most, "most");
  pane(ctx, panels.problems, "problems");
  stages(ctx, panels.stages);
  pane(ctx, panels.difference, "difference");
  code(ctx, panels.code);
  show();
  ctx.watchKernel();
  withoutKernel(ctx, root, [actions, side, strip]);
  const endTheme = followTheme(root);
  const endLight = lighting(root);
  const endRoving = roveIn([
    [
      inner,
      ".sv-top button, .sv-secbar :is(button, input), .sv-dimmore, [data-testid=make-rule-open], .sv-foot button",
    ],
    [centre, ".sv-places button"],
    [work, "button, a[href]"],
    [strip, ".sv-card, button:not(.sv-cardtool)"],
  ]);
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
