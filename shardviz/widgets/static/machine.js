// @ts-check
// The machine with the mesh on it, one device's company, and the order of the devices.
import { fill, h } from "./dom.js";
import { chip } from "./chips.js";
import { notice, waiting } from "./head.js";
import { picture, sample } from "./picture.js";

/** @import { Context, Untyped } from "./types.d.ts" */

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function machine(ctx, el) {
  /** @type {any} */
  let view = null;
  const box = h("div", { class: "sv-picture" });
  const title = h("p", { class: "sv-lead", id: "machine-title" });
  const facts = h("div", { class: "sv-facts", id: "company" });
  const order = h("div", {});
  const rides = h("div", {});
  const why = h("div", {});
  const inside = h(
    "div",
    {},
    title,
    h("div", { class: "sv-machinebox" }, box, h("div", { class: "sv-machineside" }, facts, order)),
    rides,
  );
  el.append(why, inside);

  /** The sample of an axis: its colour and its dash. @param {string} axis */
  function key(axis) {
    const { axes, keys } = ctx.get("machine").picture;
    return sample(ctx, axes, keys[axes.indexOf(axis)]);
  }

  /** The picture of the machine; a click on a tile picks its device, once more the next on it, and at last none.
   * @param {Untyped} data */
  function drawPicture(data) {
    view = picture(ctx, data.picture, {
      id: "machine-picture",
      said: "hovered",
      hint: "point at a tile, or click one; with the arrows from tile to tile",
      pick: (devices) => {
        const next = devices[devices.indexOf(ctx.get("device")) + 1];
        ctx.pickDevice(next === undefined ? -1 : next);
        view.press(next === undefined ? -1 : next);
      },
    });
    const { width, notes } = data.picture;
    box.style.setProperty("--w", `${width}px`);
    box.style.setProperty("--most", `${Math.round(width * 1.15)}px`);
    fill(box, view.element, notes.map((/** @type {string} */ text) => h("p", { class: "sv-soft" }, text)));
  }

  /** The ways of one device's groups over the picture, and its facts beside it. */
  function drawCompany() {
    const data = ctx.get("machine");
    if (!data.picture || !view) return;
    const found = ctx.get("company");
    view.over(found.picture || null);
    view.press(found.groups ? found.device : -1);
    drawFacts(found);
  }

  /** @param {Untyped} found */
  function drawFacts(found) {
    const devices = ctx.get("mesh").devices;
    const field = h("input", {
      type: "text",
      inputmode: "numeric",
      class: "sv-pickdevice",
      id: "pick-device",
      value: found.groups ? String(found.device) : "",
      placeholder: "number",
      "aria-label": `a device, 0 to ${devices - 1}`,
      onkeydown: (e) => {
        e.stopPropagation();
        if (e.key === "Enter") go();
      },
      onchange: () => go(),
    });
    function go() {
      const n = Number(field.value.trim());
      if (/^\d+$/.test(field.value.trim()) && n < devices) { if (n !== ctx.get("device")) ctx.pickDevice(n); }
      else if (!field.value.trim()) ctx.pickDevice(-1);
      else field.value = found.groups ? String(found.device) : "";
    }
    const name = ctx.get("shards");
    fill(
      facts,
      h("div", { class: "sv-sec" }, "device ", field),
      found.groups
        ? [
          h("h3", { id: "device-title" }, found.title),
          h(
            "p",
            {},
            h(
              "span",
              { class: "sv-axes" },
              ctx.get("mesh").axes.map((a, i) =>
                h("span", { class: "sv-coord" }, chip(ctx, a.name), ` ${found.at[i]}`)
              ),
            ),
          ),
          h("p", { id: "device-where" }, found.where),
          found.holds
            ? h(
              "p",
              { id: "device-holds" },
              "holds ",
              h("code", {}, found.holds),
              " ",
              h("button", { class: "sv-link", onclick: () => ctx.setTab("shards") }, "shard map"),
            )
            : name.name
            ? null
            : h("p", { class: "sv-soft" }, "select a value to see what of it this device holds"),
          h(
            "div",
            { class: "sv-groups", id: "device-groups" },
            found.groups.map((/** @type {Untyped} */ g) => h("div", {}, key(g.axis), chip(ctx, g.axis), " ", g.text)),
          ),
        ]
        : h(
          "p",
          { class: "sv-soft" },
          "Click a tile: its company along each mesh axis is lit, with the links between them.",
        ),
    );
  }

  // The order of the devices: which there are, what the collectives take in each, and what the present one changes.
  /** @param {Untyped} data */
  function drawOrder(data) {
    const { options, changes, words, listed } = data.order;
    const { error } = ctx.get("status");
    const own = h("input", {
      type: "text",
      id: "order-text",
      spellcheck: "false",
      autocomplete: "off",
      value: listed,
      placeholder: "0,1,3,2 or [2,4]T(1,0)",
      "aria-label": "the order of the devices: their ids, or a transposed count",
      onkeydown: (e) => {
        e.stopPropagation();
        if (e.key === "Enter") set();
      },
    });
    const set = () => ctx.edit({ op: "set_order", order: own.value });
    const choose = (
      /** @type {Untyped} */ o,
    ) => (typeof o.key === "string"
      ? o.key !== "own" && ctx.edit({ op: "set_order", order: o.key })
      : ctx.edit({ op: "exchange_axes", one: o.key[0], other: o.key[1] }));
    fill(
      order,
      h(
        "div",
        { class: "sv-sec" },
        "order of the devices",
        h("span", { class: "sv-hint" }, "what all collectives take in it"),
      ),
      h(
        "div",
        { class: "sv-orders", role: "radiogroup", "aria-label": "order of the devices", id: "orders" },
        options.map((/** @type {Untyped} */ o) =>
          h(
            "label",
            {},
            h("input", {
              type: "radio",
              name: "sv-order",
              id: `order-${typeof o.key === "string" ? o.key : o.key.join("-")}`,
              checked: o.now,
              onchange: () => choose(o),
            }),
            h("span", {}, o.words),
            h(
              "span",
              { class: "sv-num" },
              h("b", {}, o.time),
              o.ratio ? h("span", { class: "sv-soft" }, ` ${o.ratio}`) : null,
            ),
          )
        ),
      ),
      h(
        "div",
        { class: "sv-ownorder" },
        own,
        h("button", { class: "sv-btn", id: "order-set", title: "put the devices in this order", onclick: set }, "set"),
      ),
      error && error.place === "order" ? notice("sv-error", "order-error", error.message, error.detail) : null,
      h("p", { class: "sv-soft", id: "order-words" }, words),
      changes.length
        ? h(
          "div",
          { class: "sv-changes", id: "order-changes" },
          changes.map((/** @type {Untyped} */ c) =>
            h(
              "p",
              {},
              chip(ctx, c.axis),
              " ",
              h("b", {}, c.now),
              h("span", { class: "sv-soft" }, ` – by mesh_utils: ${c.before}`),
            )
          ),
        )
        : null,
    );
  }

  /** @param {Untyped} data */
  function drawRides(data) {
    fill(
      rides,
      h("div", { class: "sv-sec" }, "what each mesh axis rides on"),
      data.axes.length
        ? h(
          "table",
          { class: "sv-table sv-rides", id: "axis-rides" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", {}, "axis"),
              h("th", {}, "rides on"),
              h("th", { class: "sv-num" }, "a device gathers at"),
              h("th", {}, "1 GB gathered along it"),
            ),
          ),
          h(
            "tbody",
            {},
            data.axes.map((/** @type {Untyped} */ a) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, data.kind === "tpu" ? key(a.name) : null, chip(ctx, a.name), ` ${a.size}`),
                h(
                  "td",
                  {},
                  a.rides,
                  h(
                    "div",
                    {},
                    a.tags.map((/** @type {string} */ t, /** @type {number} */ i) => [
                      i ? h("span", { class: "sv-soft" }, " · ") : null,
                      h("span", { class: `sv-tag ${/not|DCN|network/.test(t) ? "sv-caution" : ""}` }, t),
                    ]),
                  ),
                ),
                h("td", { class: "sv-num" }, a.width),
                h("td", { class: "sv-arith" }, a.formula),
              )
            ),
          ),
        )
        : h("p", { class: "sv-soft" }, "The mesh has no axis of more than one device."),
    );
  }

  /** @type {Untyped} */
  let drawn = null;
  function draw() {
    const data = ctx.get("machine");
    why.hidden = Boolean(data.picture);
    inside.hidden = !data.picture;
    if (!data.picture) {
      fill(
        why,
        data.why
          ? h(
            "p",
            { class: "sv-empty", id: "machine-why" },
            data.why,
            " Choose a target above, such as tpu v5p:4x4x4 or gpu h100:8x8.",
          )
          : waiting(ctx),
      );
      return;
    }
    fill(title, h("b", {}, data.title));
    drawPicture(data);
    drawCompany();
    drawOrder(data);
    drawRides(data);
    drawn = data;
  }

  for (const name of ["machine", "gone"]) ctx.on(name, () => ctx.when("machine", draw));
  for (const name of ["company", "shards"]) ctx.on(name, () => ctx.when("machine", drawCompany));
  ctx.on("status", () =>
    ctx.when("machine", () => {
      if (drawn && ctx.get("machine").picture) drawOrder(ctx.get("machine"));
    }));
  ctx.when("machine", draw);
}
