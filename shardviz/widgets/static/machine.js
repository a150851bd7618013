// The machine with the mesh on it: chips and links where the kernel has put them, one device's company, the devices' order.
import { h, fill, svg, find } from "./dom.js";
import { axisStyle, chip } from "./chips.js";
import { notice, waiting } from "./head.js";

const DASHES = ["", "5 2.5", "1.5 2.5", "8 2.5 1.5 2.5"]; // of the links of the first, second, third and fourth axis

export function machine(ctx, el) {
  let tiles = [];
  let lit = null; // the layer of one device's ways, under the tiles
  let names = null; // what is written over them
  let hovered = null;
  const picture = h("div", { class: "sv-picture" });
  const facts = h("div", { class: "sv-facts", id: "company" });
  const order = h("div", {});
  const rides = h("div", {});
  const why = h("div", {});
  const inside = h("div", {}, h("p", { class: "sv-lead", id: "machine-title" }), h("div", { class: "sv-machinebox" }, picture, h("div", { class: "sv-machineside" }, facts, order)), rides);
  el.append(why, inside);

  const dash = (axis) => DASHES[Math.max(0, ctx.get("mesh").axes.findIndex((a) => a.name === axis)) % DASHES.length];
  const key = (axis) => svg("svg", { width: 26, height: 8, class: "sv-dashkey", "aria-hidden": "true" }, svg("path", { d: "M0 4H26", class: "sv-way", style: axisStyle(ctx, axis), "stroke-dasharray": dash(axis) }));

  function coordinates(place) {
    const parts = [];
    let at = place;
    for (const axis of [...ctx.get("mesh").axes].reverse()) {
      parts.unshift(`${axis.name} ${at % axis.size}`);
      at = Math.floor(at / axis.size);
    }
    return parts.join(", ");
  }

  function sayNode(data, n) {
    const { place, text, holds } = data.nodes;
    return holds ? `devices ${holds[n]}: ${text[n]}` : `device ${place[n]}: ${coordinates(place[n])} · ${text[n]}`;
  }

  const segments = (data, pairs) => {
    const { x, y } = data.nodes;
    let d = "";
    for (let i = 0; i < pairs.length; i += 2) d += `M${x[pairs[i]]} ${y[pairs[i]]}L${x[pairs[i + 1]]} ${y[pairs[i + 1]]}`;
    return d;
  };

  function wires(data) {
    const { x, y } = data.nodes;
    const stub = Math.max(...data.tile) / 2 + 7;
    return [
      data.links.map((l) => svg("path", { d: segments(data, l.pairs), class: `sv-chipwire ${l.axis ? "" : "sv-none"}`, style: l.axis ? axisStyle(ctx, l.axis) : null, "stroke-dasharray": l.axis ? dash(l.axis) : null })),
      data.wraps.map((w) => {
        const ends = w.stubs.map(([n, dx, dy]) => [x[n], y[n], dx * stub, dy * (data.tile[1] < data.tile[0] * 0.8 && dx ? stub : data.tile[1] / 2 + 6)]);
        return svg("g", { style: w.axis ? axisStyle(ctx, w.axis) : null },
          svg("path", { d: ends.map(([a, b, dx, dy]) => `M${a} ${b}l${dx} ${dy}`).join(""), class: "sv-chipwire" }),
          svg("path", { d: ends.map(([a, b, dx, dy]) => `M${a + dx - 1.8} ${b + dy}a1.8 1.8 0 1 0 3.6 0a1.8 1.8 0 1 0 -3.6 0`).join(""), class: "sv-openend" }));
      }),
    ];
  }

  function node(data, n) {
    const [w, height] = data.tile;
    const { x, y, place, shade } = data.nodes;
    const label = data.nodes.holds ? (data.nodes.all[n].length <= 2 ? data.nodes.all[n].join(" ") : "") : String(place[n]);
    return svg("g", { class: `sv-node ${shade[n] ? "sv-shade" : ""}`, "data-node": n, id: `node-${n}`, tabindex: n ? "-1" : "0", role: "button", "aria-label": sayNode(data, n), "aria-pressed": "false", transform: `translate(${x[n]},${y[n]})` },
      height < 12 ? svg("path", { class: "sv-hit", d: `M${-w / 2 - 3}-5h${w + 6}v10h${-w - 6}z` }) : null,
      svg("rect", { x: -w / 2, y: -height / 2, width: w, height, rx: Math.min(3, height / 5) }),
      label && height >= 11 && label.length * 5.8 <= w ? svg("text", { y: 3.3 }, label) : null);
  }

  function drawPicture(data) {
    tiles = data.nodes.x.map((_, n) => node(data, n));
    lit = svg("g", {});
    names = svg("g", {});
    hovered = h("p", { class: "sv-hovered", id: "hovered" }, "point at a tile, or click one; with the arrows from tile to tile");
    const at = (e) => { const g = e.target.closest("[data-node]"); return g ? Number(g.dataset.node) : null; };
    const box = svg("svg", { viewBox: `0 0 ${data.width} ${data.height}`, class: `sv-torus ${data.dense ? "sv-dense" : ""}`, role: "group", "aria-label": data.text, id: "machine-picture", tabindex: "-1", style: { "max-width": `${Math.round(data.width * 1.15)}px` },
      onclick: (e) => { const n = at(e); if (n !== null) pick(n); },
      onmouseover: (e) => { const n = at(e); if (n !== null) hovered.textContent = sayNode(data, n); },
      onfocusin: (e) => { const n = at(e); if (n !== null) hovered.textContent = sayNode(data, n); },
      onkeydown: (e) => keys(e, at(e)) },
    data.frames.map((f) => svg("polygon", { points: f.points, class: `sv-frame sv-${f.kind}` })), wires(data), lit, tiles, data.frames.map(frameName), names);
    picture.style.setProperty("--w", `${data.width}px`);
    fill(picture, box, hovered, data.notes.map((text) => h("p", { class: "sv-soft" }, text)));
  }

  function frameName(f) {
    const at = { plane: { x: f.x - 4, y: f.y + 9, class: "sv-framename sv-end" }, slice: { x: f.x + 5, y: f.y + 12 }, domain: { x: f.x + 6, y: f.y + 12 }, host: { x: f.x + 4, y: f.y + 10 } }[f.kind];
    return svg("text", { class: "sv-framename", ...at }, f.text);
  }

  // A tile's device; once more for the next on the same tile, and at last for none.
  function pick(n) {
    const { place, all } = ctx.get("machine").nodes;
    const on = all ? all[n] : [place[n]];
    const now = on.indexOf(ctx.get("device"));
    ctx.pickDevice(now < 0 ? on[0] : now + 1 < on.length ? on[now + 1] : -1);
    mark(n);
  }

  // To the nearest tile in the arrow's direction.
  function keys(e, n) {
    if (n === null) return;
    const { x, y } = ctx.get("machine").nodes;
    const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[e.key];
    if (way) {
      let best = null;
      let least = Infinity;
      for (let m = 0; m < x.length; m += 1) {
        const dx = x[m] - x[n];
        const dy = y[m] - y[n];
        const ahead = dx * way[0] + dy * way[1];
        const far = ahead + 2.5 * Math.abs(dx * way[1] + dy * way[0]);
        if (ahead > 0.5 && far < least) { best = m; least = far; }
      }
      if (best !== null) { tiles[n].setAttribute("tabindex", "-1"); tiles[best].setAttribute("tabindex", "0"); tiles[best].focus(); }
    } else if (e.key === "Enter" || e.key === " ") pick(n);
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  function mark(n) {
    for (const tile of tiles) {
      const on = Number(tile.dataset.node) === n;
      tile.classList.toggle("sv-on", on);
      tile.setAttribute("aria-pressed", String(on));
      if (n !== null) tile.setAttribute("tabindex", on ? "0" : "-1");
    }
  }

  // The ways of one device's groups over the picture, and its facts beside it.
  function drawCompany() {
    const data = ctx.get("machine");
    if (!data.nodes || !lit) return;
    const found = ctx.get("company");
    lit.replaceChildren();
    names.replaceChildren();
    const named = new Set();
    for (const tile of tiles) { tile.classList.remove("sv-member"); tile.removeAttribute("style"); }
    mark(found.groups ? found.node : null);
    const { x, y } = data.nodes;
    for (const group of [...(found.groups || [])].reverse()) {
      const style = axisStyle(ctx, group.axis);
      for (const n of group.nodes) {
        tiles[n].classList.add("sv-member");
        for (const [k, v] of Object.entries(style)) tiles[n].style.setProperty(k, v);
      }
      const line = { class: "sv-way", style, "stroke-dasharray": dash(group.axis) };
      lit.append(...[
        group.hops.length ? svg("path", { ...line, d: segments(data, group.hops) }) : null,
        group.arcs.length ? svg("path", { ...line, d: group.arcs.map((a) => a.d).join("") }) : null,
        group.drops.length ? svg("path", { ...line, d: drops(data, group.drops) }) : null,
        group.far.length && group.far.length <= 128 ? svg("path", { ...line, class: "sv-way sv-far", d: segments(data, group.far) }) : null,
      ].filter(Boolean));
      for (const a of group.arcs) {
        if (named.has(a.text)) continue; // one of them is enough to say it
        named.add(a.text);
        names.append(svg("text", { x: a.x, y: a.y + 3, class: "sv-wayname" }, a.text));
      }
    }
    if (found.groups) lit.setAttribute("data-device", found.device);
    drawFacts(data, found, x.length);
  }

  // From each member to the bar of its domain's switch.
  function drops(data, list) {
    const { x, y } = data.nodes;
    const bars = new Map();
    let d = "";
    for (const [n, to] of list) {
      d += `M${x[n]} ${y[n]}V${to}`;
      const [least, most] = bars.get(to) || [x[n], x[n]];
      bars.set(to, [Math.min(least, x[n]), Math.max(most, x[n])]);
    }
    for (const [to, [least, most]] of bars) d += `M${least} ${to}H${most}`;
    return d;
  }

  function drawFacts(data, found) {
    const devices = ctx.get("mesh").devices;
    const field = h("input", { type: "text", inputmode: "numeric", class: "sv-pickdevice", id: "pick-device", value: found.groups ? String(found.device) : "", placeholder: "number", "aria-label": `a device, 0 to ${devices - 1}`,
      onkeydown: (e) => { e.stopPropagation(); if (e.key === "Enter") go(); }, onchange: () => go() });
    function go() {
      const n = Number(field.value.trim());
      if (/^\d+$/.test(field.value.trim()) && n < devices) { if (n !== ctx.get("device")) ctx.pickDevice(n); } else if (!field.value.trim()) ctx.pickDevice(-1);
      else field.value = found.groups ? String(found.device) : "";
    }
    const name = ctx.get("shards");
    fill(facts, h("div", { class: "sv-sec" }, "device ", field),
      found.groups ? [h("h3", { id: "device-title" }, found.title), h("p", {}, h("span", { class: "sv-axes" }, ctx.get("mesh").axes.map((a, i) => h("span", { class: "sv-coord" }, chip(ctx, a.name), ` ${found.at[i]}`)))),
        h("p", { id: "device-where" }, found.where),
        found.holds ? h("p", { id: "device-holds" }, "holds ", h("code", {}, found.holds), " ", h("button", { class: "sv-link", onclick: () => ctx.setTab("shards") }, "shard map"))
          : name.name ? null : h("p", { class: "sv-soft" }, "select a value to see what of it this device holds"),
        h("div", { class: "sv-groups", id: "device-groups" }, found.groups.map((g) => h("div", {}, key(g.axis), chip(ctx, g.axis), " ", g.text)))]
        : h("p", { class: "sv-soft" }, "Click a tile: its company along each mesh axis is lit, with the links between them."));
  }

  // The order of the devices: which there are, what the collectives take in each, and what the present one changes.
  function drawOrder(data) {
    const { options, changes, words, listed } = data.order;
    const { error } = ctx.get("status");
    const own = h("input", { type: "text", id: "order-text", spellcheck: "false", autocomplete: "off", value: listed, placeholder: "0,1,3,2 or [2,4]T(1,0)", "aria-label": "the order of the devices: their ids, or a transposed count",
      onkeydown: (e) => { e.stopPropagation(); if (e.key === "Enter") set(); } });
    const set = () => ctx.edit({ op: "set_order", order: own.value });
    const choose = (o) => (typeof o.key === "string" ? o.key !== "own" && ctx.edit({ op: "set_order", order: o.key }) : ctx.edit({ op: "exchange_axes", one: o.key[0], other: o.key[1] }));
    fill(order, h("div", { class: "sv-sec" }, "order of the devices", h("span", { class: "sv-hint" }, "what all collectives take in it")),
      h("div", { class: "sv-orders", role: "radiogroup", "aria-label": "order of the devices", id: "orders" }, options.map((o) => h("label", {},
        h("input", { type: "radio", name: "sv-order", id: `order-${typeof o.key === "string" ? o.key : o.key.join("-")}`, checked: o.now, onchange: () => choose(o) }),
        h("span", {}, o.words), h("span", { class: "sv-num" }, h("b", {}, o.time), o.ratio ? h("span", { class: "sv-soft" }, ` ${o.ratio}`) : null)))),
      h("div", { class: "sv-ownorder" }, own, h("button", { class: "sv-btn", id: "order-set", title: "put the devices in this order", onclick: set }, "set")),
      error && error.place === "order" ? notice("sv-error", "order-error", error.message, error.detail) : null,
      h("p", { class: "sv-soft", id: "order-words" }, words),
      changes.length ? h("div", { class: "sv-changes", id: "order-changes" }, changes.map((c) => h("p", {}, chip(ctx, c.axis), " ", h("b", {}, c.now), h("span", { class: "sv-soft" }, ` – by mesh_utils: ${c.before}`)))) : null);
  }

  function drawRides(data) {
    fill(rides, h("div", { class: "sv-sec" }, "what each mesh axis rides on"), data.axes.length ? h("table", { class: "sv-table sv-rides", id: "axis-rides" }, h("thead", {}, h("tr", {},
      h("th", {}, "axis"), h("th", {}, "rides on"), h("th", { class: "sv-num" }, "a device gathers at"), h("th", {}, "1 GB gathered along it"))),
    h("tbody", {}, data.axes.map((a) => h("tr", {}, h("th", { scope: "row" }, data.kind === "tpu" ? key(a.name) : null, chip(ctx, a.name), ` ${a.size}`),
      h("td", {}, a.rides, h("div", {}, a.tags.map((t, i) => [i ? h("span", { class: "sv-soft" }, " · ") : null, h("span", { class: `sv-tag ${/not|DCN|network/.test(t) ? "sv-caution" : ""}` }, t)]))),
      h("td", { class: "sv-num" }, a.width), h("td", { class: "sv-arith" }, a.formula)))))
      : h("p", { class: "sv-soft" }, "The mesh has no axis of more than one device."));
  }

  let drawn = null;
  function draw() {
    const data = ctx.get("machine");
    why.hidden = Boolean(data.nodes);
    inside.hidden = !data.nodes;
    if (!data.nodes) {
      fill(why, data.why ? h("p", { class: "sv-empty", id: "machine-why" }, data.why, " Choose a target above, such as tpu v5p:4x4x4 or gpu h100:8x8.") : waiting(ctx));
      return;
    }
    fill(find(inside, "machine-title"), h("b", {}, data.title));
    drawPicture(data);
    drawCompany();
    drawOrder(data);
    drawRides(data);
    drawn = data;
  }

  for (const name of ["machine", "gone"]) ctx.on(name, () => ctx.when("machine", draw));
  for (const name of ["company", "shards"]) ctx.on(name, () => ctx.when("machine", drawCompany));
  ctx.on("status", () => ctx.when("machine", () => { if (drawn && ctx.get("machine").nodes) drawOrder(ctx.get("machine")); }));
  ctx.when("machine", draw);
}
