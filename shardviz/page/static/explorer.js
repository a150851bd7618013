// @ts-check
// The explorer's page. The model's traits are all that it shows; what a person does goes back as edits.
import { Cards } from "./cards.js";
import { context } from "./context.js";
import { Dimensions } from "./dimensions.js";
import { keepFocus } from "./dom.js";
import { Head, Outcome } from "./head.js";
import { Keep, numbered, seen, useDark } from "./host.js";
import { Help, pageKeys, roveIn } from "./keys.js";
import { lighting } from "./lit.js";
import { Menu } from "./menu.js";
import { Mesh } from "./mesh.js";
import { Palette } from "./palette.js";
import { Explorer, ui, useTraits } from "./parts.js";
import { Places } from "./places.js";
import { Specs } from "./specs.js";
import { TargetMenu } from "./target.js";
import { Meaning } from "./terms.js";
import { Tour } from "./tour.js";
import { render, useLayoutEffect, useMemo, useState } from "./vendor/preact.js";
import { Asking, useAsking } from "./waits.js";
import { pieces, plain } from "./words.js";

/** @import { Model } from "./types.d.ts" */

/** The parts that are one stop of Tab each, and what of them can have the focus. @type {[part: string, selector: string][]} */
const STOPS = [
  [
    ".sv-body",
    ".sv-top :is(button, .sv-term), .sv-secbar :is(button, input), .sv-dimmore, .sv-but button, [data-testid=make-rule-open], .sv-foot button",
  ],
  [".sv-centre", ".sv-places button"],
  [".sv-panel, .sv-drawer", "button, a[href], .sv-term"],
  [".sv-strip", ".sv-card, button:not(.sv-cardtool)"],
];

/** @param {{ model: Model }} props */
function Page({ model }) {
  const ctx = useTraits("head", "gone");
  const keep = (/** @type {HTMLElement | null} */ el) => ctx.root = el ?? ctx.root; // what ends still needs it
  const [over, open] = useState(/** @type {import("./keys.js").Over} */ (""));
  const dark = useDark();
  const asking = useAsking().shown;
  useLayoutEffect(() => {
    ctx.watchKernel();
    const parts = STOPS.flatMap(([part, selector]) =>
      [...ctx.root.querySelectorAll(part)].map((el) => /** @type {[HTMLElement, string]} */ ([el, selector]))
    );
    const ends = [keepFocus(ctx.root), roveIn(parts), lighting(ctx.root)];
    return () => ends.forEach((end) => end());
  }, []);
  const tour = () => open("tour");
  const body = useMemo(
    () =>
      ui`<div class="sv-top"><${Head} /><${Outcome} /></div>
        <${Side} tour=${tour} model=${model} /><${Places} /><${Cards} />
        <${Menu} /><${TargetMenu} />`,
    [],
  );
  const name = `explorer${ctx.number > 1 ? ` (${ctx.number})` : ""} of ${plain(ctx.get("head").document.title || [])}`;
  const looks = ["shardviz", dark && "sv-dark", ctx.gone && "sv-gone", asking && "sv-asked"].filter(Boolean).join(" ");
  const shown = over && { help: Help, palette: Palette, tour: Tour }[over];
  return ui`<div class=${looks} data-testid="shardviz" role="region" tabindex="-1" aria-label=${name} ref=${keep}
        onkeydown=${(e) => pageKeys(ctx, e, over, open)}>
      <div class="sv-body">${body}</div>
      ${shown && ui`<${shown} key=${over} close=${() => open("")} tour=${tour} keys=${() => open("help")} />`}
      <${Meaning} /><${Asking} /></div>`;
}

/** What is set: the mesh, the machine, the dimensions, the arrays. @param {{ tour: () => void, model: Model }} props */
function Side({ tour, model }) {
  const ctx = useTraits("gone");
  return ui`<div class="sv-left" inert=${ctx.gone}>
      <${Mesh} tour=${tour} /><${Dimensions} /><${Specs} what="inputs" /><${Specs} what="outputs" />
      <${Keep} model=${model} /></div>`;
}

/** @param {{ model: Model, el: HTMLElement }} view */
function show({ model, el }) {
  const ctx = context(model);
  const endSeeing = seen(model);
  const [number, endNumber] = numbered(pieces(ctx.get("head").document.title || [])[0]?.t || "");
  ctx.number = number;
  const host = document.createElement("div");
  el.append(host);
  render(ui`<${Explorer.Provider} value=${ctx}><${Page} model=${model} /><//>`, host);
  return () => {
    render(null, host);
    ctx.close();
    endNumber();
    endSeeing();
  };
}

export default { render: show };
