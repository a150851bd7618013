// @ts-check
// The machine: a device is picked on its picture or by its number, and an order of the devices chosen. What there is to
// read beside the picture are Documents.
import { entry, fill, h } from "./dom.js";
import { documentView, inline, pieces, stacked } from "./document.js";
import { notice, waiting } from "./head.js";
import { picture, sample } from "./picture.js";

/** @import { Context, Edit, OrderKey, Picture, Row } from "./types.d.ts" */

const SIDE = [22, 40]; // characters of the columns beside the picture: an axis, and what there is to say of it

/**
 * The edit that puts the devices in an order; none for one that only its own text says.
 * @param {OrderKey} key
 * @returns {Edit | null}
 */
export function ordering(key) {
  if (typeof key !== "string") return { op: "exchange_axes", one: key[0], other: key[1] };
  return key === "own" ? null : { op: "set_order", order: key };
}

/**
 * @param {Context} ctx
 * @param {HTMLElement} el
 */
export function machine(ctx, el) {
  const [top, box, facts, order, more, rides] = Array.from({ length: 6 }, () => h("div", {}));
  const number = entry({ class: "sv-pickdevice", inputmode: "numeric", id: "pick-device", placeholder: "number" }, go);
  number.addEventListener("change", go);
  const typed = entry({ id: "order-text", placeholder: "0,1,3,2 or [2,4]T(1,0)" }, set);
  typed.setAttribute("aria-label", "the order of the devices: their ids, or a transposed count");
  const button = { class: "sv-btn", id: "order-set", title: "put the devices in this order", onclick: set };
  const refused = h("div", {});
  box.className = "sv-picture";
  order.setAttribute("role", "radiogroup");
  order.setAttribute("aria-label", "order of the devices");
  const side = h(
    "div",
    { class: "sv-machineside" },
    h("div", { class: "sv-sec" }, "device ", number),
    h("div", { id: "company" }, facts),
    order,
    h("div", { class: "sv-ownorder" }, typed, h("button", button, "set")),
    refused,
  );
  const middle = h("div", { class: "sv-machinebox" }, box, side);
  el.append(top, middle, rides, more);

  const titleView = documentView(ctx, top);
  const ridesView = documentView(ctx, rides, { "axis-rides": { cell: sampled } });
  const companyView = documentView(ctx, facts, { "device-groups": { cell: sampled, widths: SIDE } });
  const choosing = { orders: { cell: chooser, widths: [28, 14, 14] }, "order-changes": { widths: SIDE } };
  const ordersView = documentView(ctx, order, choosing);
  /** @type {ReturnType<typeof picture> | null} */
  let view = null;
  let listed = ""; // the order's text as the kernel said it last; what is typed stays until that changes

  /** An axis with the sample of its lines or its fill. @param {Row} row @param {number} _ @param {number} column */
  function sampled({ cells }, _, column) {
    const drawn = ctx.get("machine").picture;
    const place = column ? -1 : drawn?.axes.indexOf(pieces(cells[0])[0].v[0]) ?? -1;
    return drawn && place >= 0 ? [sample(ctx, drawn.axes, drawn.keys[place]), " ", inline(ctx, cells[0])] : undefined;
  }

  /** What chooses an order. @param {Row} row @param {number} n @param {number} column */
  function chooser({ cells }, n, column) {
    const { keys, now } = ctx.get("machine").orders || { keys: [], now: -1 };
    if (column || !keys[n]) return undefined;
    const id = `order-${typeof keys[n] === "string" ? keys[n] : keys[n].join("-")}`;
    const edit = ordering(keys[n]);
    const onchange = () => edit && ctx.edit(edit);
    const radio = h("input", { type: "radio", name: "sv-order", id, checked: n === now, onchange });
    return h("label", { class: "sv-order" }, radio, h("span", {}, inline(ctx, stacked(cells[0]).main)));
  }

  function set() {
    ctx.edit({ op: "set_order", order: typed.value });
  }

  /** Picks the device whose number was typed; an empty field picks none. */
  function go() {
    const text = number.value.trim();
    const known = /^\d+$/.test(text) && Number(text) < ctx.get("mesh").devices;
    if (!text) ctx.pickDevice(-1);
    else if (!known) drawNumber();
    else if (Number(text) !== ctx.get("device")) ctx.pickDevice(Number(text));
  }

  function drawNumber() {
    const { device } = ctx.get("company");
    number.value = device === undefined ? "" : String(device);
    number.setAttribute("aria-label", `a device, 0 to ${ctx.get("mesh").devices - 1}`);
  }

  /** A click on a tile picks its device, once more the next on it, and at last none. @param {Picture} data */
  function drawPicture(data) {
    const drawn = picture(ctx, data, {
      id: "machine-picture",
      said: "hovered",
      hint: "point at a tile, or click one; with the arrows from tile to tile",
      pick: (devices) => {
        const next = devices[devices.indexOf(ctx.get("device")) + 1] ?? -1;
        ctx.pickDevice(next);
        drawn.press(next);
      },
    });
    view = drawn;
    box.style.setProperty("--w", `${data.width}px`);
    box.style.setProperty("--most", `${Math.round(data.width * 1.15)}px`);
    fill(box, drawn.element, data.notes.map((text) => h("p", { class: "sv-soft" }, text)));
  }

  /** The ways of one device's groups over the picture, and its facts beside it. */
  function drawCompany() {
    if (!ctx.get("machine").picture || !view) return;
    const { document, device = -1, picture: ways } = ctx.get("company");
    const hint = "Click a tile: its company along each mesh axis is lit, with the links between them.";
    view.over(ways || null);
    view.press(device);
    drawNumber();
    companyView.draw(document || { blocks: [{ block: "p", pieces: hint, quiet: true }] });
  }

  /** The orders, and why the last one was refused. */
  function drawOrders() {
    const { orders } = ctx.get("machine");
    if (!orders) return;
    ordersView.draw(orders.document);
    if (orders.listed !== listed) typed.value = listed = orders.listed;
    const { error } = ctx.get("status");
    fill(refused, error?.place === "order" ? notice("sv-error", "order-error", error.message, error.detail) : null);
  }

  function draw() {
    const { document, picture: drawn } = ctx.get("machine");
    middle.hidden = !drawn;
    fill(more, document ? null : waiting(ctx));
    titleView.draw({ ...document, blocks: [] });
    if (drawn) {
      drawPicture(drawn);
      drawCompany();
      drawOrders();
    }
    ridesView.draw({ blocks: document?.blocks || [] });
  }

  const update = () => ctx.when("machine", draw);
  for (const name of ["machine", "gone"]) ctx.on(name, update);
  ctx.on("company", () => ctx.when("machine", drawCompany));
  ctx.on("status", () => ctx.when("machine", drawOrders));
  update();
}
