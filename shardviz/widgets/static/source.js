// The person's own source: on each line its heat (seconds of the step, or bytes moved where no machine is chosen), its
// value with its spec, and its collectives.
import { fill, find, h } from "./dom.js";
import { axesChips, specChips } from "./chips.js";

const PHASE = { forward: "fwd", backward: "bwd", rematerialised: "remat", update: "" };

export function source(ctx, el) {
  let placed = false;

  function collective(c) {
    return h(
      "span",
      { class: `sv-coll sv-${c.kind}` },
      h("b", {}, c.kind),
      " ",
      axesChips(ctx, c.axes),
      " ",
      c.bytes ? `${c.bytes} × ${c.count}` : `${c.count} runs`,
      h(
        "b",
        { class: "sv-total", title: `${c.total} per device in a step` },
        ` ${c.seconds || (c.bytes && c.count === "1" ? "" : c.total)}`,
      ),
      h("span", { class: "sv-soft" }, ` ${c.phases.map((p) => PHASE[p]).filter(Boolean).join(", ")}`),
    );
  }

  function heat(row) {
    const parts = [
      row.compute ? `${row.compute} of compute` : "",
      row.seconds ? `${row.seconds} of ${ctx.get("source").communication}` : "",
      row.moved ? `${row.moved} moved per device` : "",
    ].filter(Boolean);
    return parts.length ? `${parts.join(", ")} in a step` : "nothing moves here";
  }

  function line(row, dedent) {
    const selected = ctx.get("selected");
    const lit = (row.values || []).some((v) => v.name === selected);
    const at = row.at;
    return h(
      "div",
      {
        class: `sv-ln ${lit ? "sv-sel" : ""} ${row.at ? "" : "sv-quiet"}`,
        id: at ? `line-${at}` : null,
        "data-heat": (row.heat || 0) + (row.computing || 0),
      },
      h("span", { class: "sv-no" }, row.n),
      row.at
        ? h(
          "span",
          { class: "sv-heat", title: heat(row) },
          row.computing
            ? h("i", { class: "sv-computing", style: { width: `${Math.max(3, 100 * row.computing)}%` } })
            : null,
          row.heat ? h("i", { style: { width: `${Math.max(3, 100 * row.heat)}%` } }) : null,
        )
        : h("span", { class: "sv-noheat" }),
      h("code", { title: row.text.trim() }, row.text.slice(dedent)),
      h(
        "span",
        { class: "sv-ann" },
        (row.values || []).map((v) =>
          h(
            "button",
            {
              class: "sv-v",
              title: `${v.name} ${v.shape}`,
              onclick: () => ctx.select(v.name),
            },
            v.label,
            specChips(ctx, v.dims),
          )
        ),
        row.more > 0
          ? h("button", {
            class: "sv-link sv-soft",
            title: "all values of this line",
            onclick: () => {
              ctx.query({ line: at, text: "", changed: false });
              ctx.setTab("values");
            },
          }, `+${row.more}`)
          : null,
        row.compute
          ? h(
            "span",
            { class: "sv-coll", title: "matrix products of this line, forward, backward and recomputed, in a step" },
            h("b", {}, "compute "),
            h("b", { class: "sv-total" }, row.compute),
          )
          : null,
        (row.collectives || []).slice(0, 3).map(collective),
        row.collectives && row.collectives.length > 3
          ? h("button", {
            class: "sv-link",
            onclick: () => {
              ctx.query({ line: at });
              ctx.setTab("collectives");
            },
          }, `+${row.collectives.length - 3} more kinds`)
          : null,
      ),
    );
  }

  function draw() {
    const { files } = ctx.get("source");
    if (!files.length) {
      fill(el, h("p", { class: "sv-empty" }, "No source lines are known for this program."));
      return;
    }
    fill(
      el,
      files.map((file) => {
        const used = file.lines.filter((l) => l.text.trim());
        const dedent = used.length ? Math.min(...used.map((l) => l.text.match(/^ */)[0].length)) : 0;
        const rows = [];
        let last = null;
        for (const row of file.lines) {
          if (!row.text.trim()) continue;
          if (last !== null && row.n > last + 3) rows.push(h("div", { class: "sv-gap", "aria-hidden": "true" }, "⋯"));
          rows.push(line(row, dedent));
          last = row.n;
        }
        return [h("div", { class: "sv-file" }, file.file), rows];
      }),
    );
    if (!placed) requestAnimationFrame(toHottest);
  }

  // At first the hottest line is in sight; after that the person scrolls.
  function toHottest() {
    const hot = [...el.querySelectorAll(".sv-ln")].sort((a, b) => Number(b.dataset.heat) - Number(a.dataset.heat))[0];
    if (!hot || !el.clientHeight || !Number(hot.dataset.heat)) return;
    placed = true;
    el.scrollTop = hot.getBoundingClientRect().top - el.getBoundingClientRect().top - el.clientHeight / 2;
  }
  // From wherever a line is named, to the line.
  ctx.showLine = (at) => {
    ctx.setTab("source");
    requestAnimationFrame(() => {
      const row = find(el, `line-${at}`);
      if (!row) return;
      placed = true;
      el.scrollTop += row.getBoundingClientRect().top - el.getBoundingClientRect().top - el.clientHeight / 3;
      row.classList.remove("sv-changed");
      void row.offsetWidth; // so that the flash begins anew
      row.classList.add("sv-changed");
    });
  };
  for (const key of ["source", "selected", "mesh"]) ctx.on(key, () => ctx.when("source", draw));
  ctx.when("source", draw);
}
