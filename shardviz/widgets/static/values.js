// Every value with its spec. The kernel sends a page of them; the filter is answered there.
import { fill, h, lineLink } from "./dom.js";
import { shapeText, specChips } from "./chips.js";

/** @import { Context } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function values(ctx, el) {
  const filter = h("input", {
    type: "search",
    class: "sv-filter",
    id: "values-filter",
    placeholder: "filter: a name, an operation, model.py:20, an axis …",
    "aria-label": "filter the values",
    spellcheck: "false",
    onkeydown: (e) => e.stopPropagation(),
  });
  let timer = null;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => ctx.query({ text: filter.value }), 120);
  });
  const changed = h("input", {
    type: "checkbox",
    id: "values-changed",
    onchange: () => ctx.query({ changed: changed.checked }),
  });
  const sort = h(
    "select",
    {
      id: "values-sort",
      "aria-label": "order",
      onchange: () => ctx.query({ sort: sort.value }),
    },
    h("option", { value: "program" }, "in program order"),
    h("option", { value: "bytes" }, "largest shard first"),
  );
  const found = h("span", { class: "sv-soft", id: "values-found", role: "status" });
  const line = h("span", {});
  const body = h("tbody", {});
  el.append(
    h("div", { class: "sv-tools" }, filter, h("label", {}, changed, " changed by the last edit"), sort, line, found),
    h(
      "table",
      { class: "sv-table sv-values", id: "values-table" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", {}, "value"),
          h("th", {}, "spec"),
          h("th", {}, "shape, → on one device"),
          h("th", { class: "sv-num" }, "per device"),
        ),
      ),
      body,
    ),
  );
  let fresh = false;

  function row(v) {
    const selected = ctx.get("selected") === v.name;
    const cut = v.shard && v.shard.some((n, i) => n !== v.shape[i]);
    const made = v.role === "intermediate" ? v.op || v.role : v.role;
    const shape = `${v.dtype}${shapeText(v.shape)}`;
    return h(
      "tr",
      {
        class: `${selected ? "sv-sel" : ""} ${v.changed && fresh ? "sv-changed" : ""}`,
        onclick: () => ctx.select(v.name),
        id: `value-${v.name}`,
      },
      h(
        "th",
        {},
        h(
          "div",
          { class: "sv-clip", title: v.label ? `${v.label} (${v.name})` : v.name },
          v.changed ? h("span", { class: "sv-mark", title: "changed by the last edit" }, "● ") : null,
          h("button", { class: "sv-link", "aria-pressed": String(selected) }, v.label || v.name),
        ),
        h(
          "small",
          { class: "sv-clip", title: `${v.name}, ${made}${v.count ? ` × ${v.count}` : ""}` },
          lineLink(ctx, v.source),
          v.source ? " · " : "",
          made,
          v.count ? ` × ${v.count}` : "",
          v.label ? ` · ${v.name}` : "",
        ),
      ),
      h(
        "td",
        {},
        v.dims
          ? specChips(ctx, v.dims, v.unreduced)
          : h("code", { class: "sv-soft sv-clip", title: v.sharding || "" }, v.sharding || "not known"),
      ),
      h(
        "td",
        { title: cut ? `${shape} → ${shapeText(v.shard)}` : shape },
        h("code", { class: "sv-clip" }, h("span", { class: "sv-soft" }, v.dtype), shapeText(v.shape)),
        cut
          ? h(
            "code",
            { class: "sv-clip sv-shard" },
            "→ ",
            v.shard.map((n, i) => [i ? ", " : "[", n === v.shape[i] ? n : h("b", {}, n)]),
            "]",
          )
          : null,
      ),
      h("td", { class: "sv-num" }, v.bytes),
    );
  }

  function draw() {
    const data = ctx.get("values");
    const query = ctx.get("query");
    const active = filter.getRootNode().activeElement === filter;
    if (!active) filter.value = query.text || "";
    changed.checked = Boolean(query.changed);
    sort.value = query.sort || "program";
    fill(
      line,
      query.line
        ? h("button", { class: "sv-btn", id: "values-line", onclick: () => ctx.query({ line: "" }) }, `${query.line} ×`)
        : null,
    );
    found.textContent = data.rows.length < data.found
      ? `showing ${data.rows.length} of ${data.found.toLocaleString("en")}${
        data.found < data.total ? ` found in ${data.total.toLocaleString("en")}` : ""
      }`
      : data.found < data.total
      ? `${data.found.toLocaleString("en")} of ${data.total.toLocaleString("en")}`
      : `${data.total.toLocaleString("en")} values`;
    fill(body, data.rows.map(row));
  }
  ctx.on("values", () => {
    fresh = true;
    ctx.when("values", draw);
    fresh = false;
  });
  for (const key of ["mesh", "selected"]) ctx.on(key, () => ctx.when("values", draw));
  ctx.when("values", draw);
}
