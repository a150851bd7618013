// The shard map of the selected value: a grid of slices, device numbers in it, a bar for each axis along its sides.
import { fill, h, svg } from "./dom.js";
import { axisStyle, axisText, chip, specChips } from "./chips.js";

export function shards(ctx, el, { small }) {
  let picked = null;
  let pickedFor = "";

  function index(data, cell) {
    const parts = [...data.panels[cell.panel].index];
    for (const [side, at] of [[data.rows, cell.row], [data.columns, cell.column]]) {
      if (side.dimension !== null && side.cut) parts[side.dimension] = side.slices[at];
    }
    return parts.join(", ");
  }

  function grid(data, panel, cell) {
    const labels = data.labels[panel];
    const rows = labels.length;
    const columns = labels[0].length;
    const bar = 14;
    const left = data.rows.bars.length * bar + 2;
    const top = data.columns.bars.length * bar + 2;
    const longest = Math.max(...labels.flat().map((t) => t.length));
    const width = Math.max(cell, columns < 9 ? Math.min(110, longest * 6.6 + 8) : 0);
    const height = cell;
    const picture = svg("svg", {
      width: left + columns * width + 1,
      height: top + rows * height + 1,
      role: "group",
      "aria-label": data.text,
      class: "sv-map",
    });
    bars(
      data.columns,
      (level, start, span) => [left + start * width, level * bar, span * width - 1.5, bar - 4],
      picture,
    );
    bars(data.rows, (level, start, span) => [level * bar, top + start * height, bar - 4, span * height - 1.5], picture);
    for (let r = 0; r < rows; r += 1) {
      for (let c = 0; c < columns; c += 1) {
        const on = picked && picked.panel === panel && picked.row === r && picked.column === c;
        const g = svg(
          "g",
          {
            class: `sv-cell ${on ? "sv-on" : ""}`,
            transform: `translate(${left + c * width},${top + r * height})`,
            id: `cell-${panel}-${r}-${c}`,
            tabindex: on || (!picked && !r && !c && !panel) ? "0" : "-1",
            role: "button",
            "aria-label": `devices ${labels[r][c]}`,
            "aria-pressed": String(Boolean(on)),
            onclick: () => pick(panel, r, c),
            onkeydown: (e) => keys(e, panel, r, c, rows, columns),
          },
          svg("rect", { width: width - 1.5, height: height - 1.5, rx: Math.min(3, height / 6) }),
          height >= 14 && labels[r][c].length * 6.3 < width + 4
            ? svg("text", { x: (width - 1.5) / 2, y: height / 2 + 3 }, labels[r][c])
            : null,
          svg("title", {}, `devices ${labels[r][c]} hold [${index(data, { panel, row: r, column: c })}]`),
        );
        picture.append(g);
      }
    }
    return picture;
  }

  function bars(side, box, picture) {
    side.bars.forEach(({ axis, spans }, level) => {
      let at = 0;
      for (const [text, span] of spans) {
        const [x, y, w, hh] = box(level, at, span);
        picture.append(
          svg(
            "g",
            { class: "sv-bar", style: axisStyle(ctx, axis) },
            svg("rect", { x, y, width: Math.max(1, w), height: Math.max(1, hh), rx: 2 }),
            w >= 9 && hh >= 9 ? svg("text", { x: x + w / 2, y: y + hh / 2 + 3 }, text) : null,
            svg("title", {}, `${axisText(axis)} = ${text}`),
          ),
        );
        at += span;
      }
    });
  }

  function pick(panel, row, column) {
    picked = picked && picked.panel === panel && picked.row === row && picked.column === column
      ? null
      : { panel, row, column };
    const { cells, labels } = ctx.get("shards");
    if (!cells || !cells.length) ctx.pickCell(pickedFor, picked);
    else ctx.pickDevice(picked ? cells.indexOf((panel * labels[0].length + row) * labels[0][0].length + column) : -1);
  }

  function keys(e, panel, r, c, rows, columns) {
    const to = { ArrowRight: [r, c + 1], ArrowLeft: [r, c - 1], ArrowDown: [r + 1, c], ArrowUp: [r - 1, c] }[e.key];
    if (to) {
      if (to[0] >= 0 && to[0] < rows && to[1] >= 0 && to[1] < columns) {
        picked = null;
        pick(panel, to[0], to[1]);
      }
    } else if (e.key === "Enter" || e.key === " ") pick(panel, r, c);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  function place(device) {
    const data = ctx.get("mesh");
    let at = data.ids.length ? data.ids.indexOf(device) : device;
    const parts = [];
    for (const axis of [...data.axes].reverse()) {
      parts.unshift(h("span", { class: "sv-coord" }, chip(ctx, axis.name), ` ${at % axis.size}`));
      at = Math.floor(at / axis.size);
    }
    return parts;
  }

  // The cell of the device that is picked, here or on the machine.
  function ofDevice(data, device) {
    const at = device >= 0 && device < data.cells.length ? data.cells[device] : -1;
    if (at < 0) return null;
    const [rows, columns] = [data.labels[0].length, data.labels[0][0].length];
    return { panel: Math.floor(at / (rows * columns)), row: Math.floor(at / columns) % rows, column: at % columns };
  }

  function holds(data) {
    if (!picked) return h("p", { class: "sv-soft" }, "Click a device to see its slice.");
    const label = data.labels[picked.panel][picked.row][picked.column];
    const one = /^\d+$/.test(label);
    return [
      h("p", { id: "device" }, one ? `device ${label}` : `devices ${label}`, one ? place(Number(label)) : null),
      h(
        "p",
        { id: "device-slice" },
        one ? "holds " : "hold ",
        h("code", {}, `${data.label || data.name}[${index(data, picked)}]`),
      ),
      h(
        "p",
        { class: "sv-soft" },
        `${data.bytes} of ${data.dtype}${data.shard}`,
        data.replicas > 1 ? `; ${data.replicas} copies of it in the mesh` : "",
      ),
    ];
  }

  function draw() {
    const data = ctx.get("shards");
    if (data.name !== pickedFor) {
      picked = null;
      pickedFor = data.name;
    }
    const shared = data.cells && data.cells.length ? ofDevice(data, ctx.get("device")) : ctx.pickedCell(data.name);
    picked = shared && data.labels && data.labels[shared.panel] && data.labels[shared.panel][shared.row] &&
        data.labels[shared.panel][shared.row][shared.column] !== undefined
      ? shared
      : null;
    if (!data.name) {
      fill(
        el,
        h(
          "p",
          { class: "sv-empty", id: "nothing-selected" },
          data.remark || "Select a value to see which device holds which slice.",
        ),
      );
      return;
    }
    if (data.missing) {
      fill(el, h("p", { class: "sv-empty" }, `${data.name} does not occur at this level; select another value.`));
      return;
    }
    const title = h(
      "div",
      { class: "sv-maptitle" },
      h("code", {}, data.label || data.name),
      " ",
      specChips(ctx, data.dims),
      h(
        "span",
        { class: "sv-soft" },
        ` ${data.dtype}${data.shape}`,
        data.shard ? ` → ${data.shard} · ${data.bytes} per device` : "",
      ),
      " ",
      h("button", {
        class: "sv-link",
        id: small ? "to-rosetta-small" : "to-rosetta",
        title: "this sharding in every notation",
        onclick: () => ctx.setTab("rosetta"),
      }, "in every notation"),
      data.remark ? h("p", { class: "sv-soft sv-remark" }, data.remark) : null,
    );
    if (!data.labels) {
      fill(el, title, h("p", { class: "sv-soft" }, data.sharding || "its sharding is not known at this level"));
      return;
    }
    const panels = data.labels.length;
    const most = Math.max(data.labels[0].length, data.labels[0][0].length);
    const room = (small ? 244 : 480) / (panels > 1 ? 2 : 1);
    const cell = Math.max(8, Math.min(small ? 34 : 46, Math.floor(room / most)));
    const maps = data.labels.map((_, p) =>
      h("figure", {}, panels > 1 ? h("figcaption", {}, data.panels[p].text) : null, grid(data, p, cell))
    );
    const sides = [data.rows, data.columns].map((s) => s.text).filter(Boolean);
    fill(
      el,
      title,
      h(
        "div",
        { class: "sv-mapbox" },
        h("div", { class: "sv-maps", id: small ? "map-small" : "map" }, maps),
        h(
          "div",
          { class: "sv-mapnotes" },
          holds(data),
          sides.map((t) => h("p", { class: "sv-soft" }, t)),
          data.notes.map((t) => h("p", { class: "sv-soft" }, t)),
        ),
      ),
    );
  }
  const tab = small ? "source" : "shards";
  for (const key of ["shards", "mesh", "cell", "device"]) ctx.on(key, () => ctx.when(tab, draw));
  ctx.when(tab, draw);
}

export function memory(ctx, el) {
  const bar = (part, i) =>
    h(
      "tr",
      { title: part.title },
      h("th", {}, part.label),
      h("td", { class: "sv-num" }, part.text),
      h("td", {}, h("i", { class: `sv-m${i}`, style: { width: `${Math.round(34 * part.share)}px` } })),
    );
  function draw() {
    const { memory: plan, fit, flops } = ctx.get("head");
    fill(
      el,
      h("div", { class: "sv-sec" }, "memory, per device"),
      plan
        ? [
          h(
            "table",
            { class: "sv-mm", id: "memory-table" },
            h("tbody", {}, plan.parts.map(bar)),
            h(
              "tbody",
              { class: "sv-sum" },
              h("tr", {}, h("th", {}, "set aside in all"), h("td", { class: "sv-num" }, h("b", {}, plan.total))),
            ),
          ),
          plan.room
            ? h(
              "p",
              { id: "memory-room" },
              h("button", {
                class: `sv-link sv-plain sv-is-${plan.room.fits ? "yes" : "no"}`,
                onclick: () => ctx.setTab("memory"),
              }, plan.room.text),
            )
            : null,
          h(
            "p",
            { class: "sv-soft", id: "memory-peak", title: plan.peak_title },
            `alive at once, at most: ${plan.peak}`,
          ),
          plan.caution ? h("p", { class: "sv-soft", id: "memory-caution", title: plan.detail }, plan.caution) : null,
        ]
        : fit
        ? h(
          "p",
          { id: "memory-room" },
          h("button", {
            class: `sv-link sv-plain sv-is-${fit.verdict}`,
            title: fit.title,
            onclick: () => ctx.setTab("memory"),
          }, fit.text),
          h(
            "span",
            { class: "sv-soft" },
            fit.verdict === "no" ? ` ${fit.over}` : "; more is known once it is compiled",
          ),
        )
        : h("p", { class: "sv-soft" }, "known once the program is compiled"),
      flops ? h("p", { class: "sv-soft" }, `matrix products: ${flops} per device and step`) : null,
    );
  }
  ctx.on("head", draw);
  draw();
}
