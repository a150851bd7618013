// @ts-check
// The pieces of a Document's cells and lines, each with its look, and what a click on one does.
import { Axes, axisName, axisStyle, Chip, SpecChips } from "./chips.js";
import { LineLink, ui, useContextOf } from "./parts.js";
import { Term } from "./terms.js";
import { pieces, spaced } from "./words.js";

/** @import { Bar as Stretch, Context, Inline, Piece, Query, Selects } from "./types.d.ts" */

const THINGS = ["value", "line", "device", "moved", "letter"]; // what is lit wherever it stands
const OFFERED = ["fix", "preset"];
const HATCHES = 4; // second cues of bars, by the axis's place in the mesh

/** What a click on a thing of each kind does. @type {Record<string, (ctx: Context, id: string) => void>} */
const ACTS = {
  value: (ctx, id) => ctx.select(id),
  line: (ctx, id) => ctx.showLine(id),
  device: (ctx, id) => ctx.set("device", Number(id)),
  tab: (ctx, id) => ctx.set("tab", id),
  choose: (ctx) => ctx.chooseTarget(),
  why: (ctx, name) => ctx.askWhy(name),
  step: (ctx, step) => ctx.goStep(step),
  card: (ctx, card) => ctx.edit({ op: "open_card", card }),
  fix: (ctx, action) => ctx.edit({ op: "take_fix", action }),
  "values of": (ctx, line) => look(ctx, "values", { line, text: "", changed: false }),
  "collectives of": (ctx, line) => look(ctx, "collectives", { line }),
  changed: (ctx) => look(ctx, "values", { changed: true }),
};

/** Shows what is asked for in a tab. @param {Context} ctx @param {string} tab @param {Query} query */
function look(ctx, tab, query) {
  ctx.query(query);
  ctx.set("tab", tab);
}

/** What a click on a thing does; nothing for what there is nothing to do with. @param {Context} ctx @param {Selects | undefined} sel */
export function actOf(ctx, sel) {
  const act = sel && ACTS[sel[0]];
  return act && sel ? () => act(ctx, sel[1]) : null;
}

/** The test id of what selects something, or of what it selects. @param {Selects | undefined} sel */
export const nameOf = (sel) => sel && `${sel[0]}-${sel[1]}`;

/** What lights up with it, and what a look at it shows beforehand. @param {Selects | undefined} sel */
export function things(sel) {
  if (!sel) return {};
  const name = `${sel[0]} ${sel[1]}`;
  return OFFERED.includes(sel[0]) ? { "data-choice": name } : THINGS.includes(sel[0]) ? { "data-thing": name } : {};
}

/** @param {Context} ctx @param {Selects | undefined} sel */
export function isSelected(ctx, sel) {
  if (sel?.[0] === "value") return ctx.get("selected") === sel[1];
  return sel?.[0] === "device" && String(ctx.get("device")) === sel[1];
}

/** @param {Piece} found */
function classOf({ b, q, tone }) {
  return [b && "sv-strong", q && "sv-soft", tone && `sv-is-${tone}`].filter(Boolean).join(" ") || null;
}

/** The pieces of a cell or a line. @param {{ of: Inline }} props */
export function Pieces({ of }) {
  const all = pieces(of);
  return spaced(all, all.map((each) => ui`<${One} of=${each} />`));
}

/** @param {{ of: Piece }} props */
function One({ of }) {
  const ctx = useContextOf();
  const { t, k, v, tip, sel } = of;
  if (k === "line") return ui`<${Place} of=${of} />`;
  if (k === "bar") return ui`<${Bar} of=${v} />`;
  if (k === "term" && tip) return ui`<${Term} text=${t} means=${tip} class=${classOf(of)} ...${things(sel)} />`;
  const attributes = { class: classOf(of), title: tip, ...things(sel) };
  if (k === "axes" && v?.length) return ui`<span ...${attributes}><${Axes} axes=${v} /></span>`;
  if (k === "mesh" && v?.length) {
    const chips = v.map((/** @type {[string, number]} */ [name, size]) =>
      ui`<${Chip} axis=${name} text="${name}=${size}" />`
    );
    return ui`<span ...${attributes} class="sv-axes">${chips}</span>`;
  }
  if (k === "spec") {
    const name = sel?.[0] === "why" ? sel[1] : "";
    return ui`<span ...${attributes}>
        <${SpecChips} dims=${v.dims || []} unreduced=${v.sum} kind=${v.kind} name=${name} /></span>`;
  }
  const act = actOf(ctx, sel);
  if (!act || !sel) {
    return k === "code" ? ui`<code ...${attributes}>${t}</code>` : ui`<span ...${attributes}>${t}</span>`;
  }
  const pressed = ["value", "device"].includes(sel[0]) ? isSelected(ctx, sel) : null;
  const onclick = (/** @type {Event} */ e) => {
    e.stopPropagation();
    act();
  };
  return ui`<button ...${attributes} class=${["sv-link", classOf(of)].filter(Boolean).join(" ")}
        data-testid="pick-${nameOf(sel)}" aria-pressed=${pressed} onclick=${onclick}>
      ${t}</button>`;
}

/** A place in the source, and the text of its line. @param {{ of: Piece }} props */
function Place({ of: { t, v, tip } }) {
  return ui`<span class="sv-clip" title=${tip || `${t} ${v || ""}`}>
      <${LineLink} at=${t} />${v && [" ", ui`<code class="sv-soft">${v}</code>`]}</span>`;
}

/** @param {{ of: Stretch[] }} props */
export function Bar({ of }) {
  const ctx = useContextOf();
  const names = ctx.get("mesh").axes.map(({ name }) => name);
  const label = of.map(({ tip }) => tip).filter(Boolean).join("; ");
  const stretches = of.map(({ share, axes, role, tip }) => {
    const hatch = axes?.length === 1 ? `sv-hatch-${names.indexOf(axisName(axes[0])) % HATCHES}` : "";
    const look = axes?.length ? `sv-fillaxis ${axes.length > 1 ? "sv-many" : hatch}` : `sv-fill-${role || "work"}`;
    const style = { ...(axes?.length ? axisStyle(ctx, axes[0]) : {}), width: `${100 * share}%` };
    return ui`<i class=${look} style=${style} title=${tip} />`;
  });
  return ui`<span class="sv-track" role=${label ? "img" : null} aria-label=${label || null}>${stretches}</span>`;
}
