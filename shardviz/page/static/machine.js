// @ts-check
// The machine: a device is picked on its picture or by its number, and an order of the devices chosen. What there is to
// read beside the picture are Documents.
import { Documented } from "./document.js";
import { Field, Form } from "./fields.js";
import { ui, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { Picture } from "./picture.js";
import { Pieces } from "./pieces.js";
import { Sample } from "./shapes.js";
import { useState } from "./vendor/preact.js";
import { pieces, stacked } from "./words.js";

/** @import { Edit, Machine as Content, OrderKey, Picture as Drawn, Row } from "./types.d.ts" */

const SIDE = [22, 40]; // characters of the columns beside the picture: an axis, and what there is to say of it
const HINT = "Click a tile: its group along each mesh axis is highlighted, with the links between its members.";

/**
 * The edit that puts the devices in an order; none for one that only its own text says.
 * @param {OrderKey} key
 * @returns {Edit | null}
 */
export function ordering(key) {
  if (typeof key !== "string") return { op: "exchange_axes", one: key[0], other: key[1] };
  return key === "own" ? null : { op: "set_order", order: key };
}

export function Machine() {
  const ctx = useTraits("machine", "device_groups", "status", "device", "gone");
  const content = useLast(ctx.get("machine"));
  const { document, picture } = content;
  const { document: facts, device = -1, picture: links } = ctx.get("device_groups");
  /** An axis with the sample of its lines or its fill. @param {Row} row @param {number} _ @param {number} column */
  function sampled({ cells }, _, column) {
    const place = column ? -1 : picture?.axes.indexOf(pieces(cells[0])[0].v[0]) ?? -1;
    if (!picture || place < 0) return undefined;
    return [
      ui`<${Sample} ctx=${ctx} axes=${picture.axes} of=${picture.keys[place]} />`,
      " ",
      ui`<${Pieces} of=${cells[0]} />`,
    ];
  }
  const none = { blocks: [{ block: /** @type {"p"} */ ("p"), pieces: HINT, quiet: true }] };
  const about = ui`<div class="sv-machineside">
      <div class="sv-sec">${"device "}<${Number_} device=${device} /></div>
      <div data-testid="device_groups">
        <${Documented} of=${facts || none} editors=${{ "device-groups": { cell: sampled, widths: SIDE } }} /></div>
      ${content.orders && ui`<${Orders} of=${content.orders} />`}</div>`;
  return ui`<${Documented} of=${{ ...document, blocks: [] }} />
    ${picture && ui`<div class="sv-machinebox"><${Tiles} of=${picture} over=${links} />${about}</div>`}
    <${Documented} of=${{ blocks: document?.blocks || [] }} editors=${{ "axis-rides": { cell: sampled } }} />
    ${!document && ui`<${Waiting} />`}`;
}

/** The picture of the devices, and what is said below it. @param {{ of: Drawn, over?: Drawn }} props */
function Tiles({ of, over }) {
  const ctx = useTraits("device");
  const device = ctx.get("device");
  /** A click on a tile picks its device, once more the next on it, and at last none. @param {number[]} devices */
  const pick = (devices) => ctx.set("device", devices[devices.indexOf(device) + 1] ?? -1);
  const style = { "--w": `${of.width}px`, "--most": `${Math.round(of.width * 1.15)}px` };
  return ui`<div class="sv-picture" style=${style}>
      <${Picture} of=${of} over=${over} pressed=${device} id="machine-picture" said="hovered" pick=${pick}
          hint="point at a tile, or click one; with the arrows from tile to tile" />
      ${of.notes.map((text) => ui`<p class="sv-soft">${text}</p>`)}</div>`;
}

/** The number of the device that is picked; an empty field picks none. @param {{ device: number }} props */
function Number_({ device }) {
  const ctx = useContextOf();
  const { devices } = ctx.get("mesh");
  const value = device < 0 ? "" : String(device);
  const [wrong, refuse] = useState(0); // what is no device's number is taken back
  const go = (/** @type {string} */ typed) => {
    const text = typed.trim();
    if (text && !(/^\d+$/.test(text) && Number(text) < devices)) refuse(wrong + 1);
    else if (text !== value) ctx.set("device", text ? Number(text) : -1);
  };
  return ui`<${Field} key=${wrong} class="sv-pickdevice" inputmode="numeric" data-testid="pick-device" value=${value}
        placeholder="number" aria-label="a device, 0 to ${devices - 1}" enter=${go} leave=${go} />`;
}

/** The orders of the devices, and why the last one was refused. @param {{ of: NonNullable<Content["orders"]> }} props */
function Orders({ of: { keys, now, document, listed } }) {
  const ctx = useContextOf();
  const set = (/** @type {string} */ order) => ctx.edit({ op: "set_order", order });
  const field = {
    "data-testid": "order-text",
    value: listed,
    placeholder: "0,1,3,2 or [2,4]T(1,0)",
    "aria-label": "the order of the devices: their ids, or a transposed count",
  };
  /** What chooses an order. @param {Row} row @param {number} n @param {number} column */
  function chooser({ cells }, n, column) {
    if (column || !keys[n]) return undefined;
    const edit = ordering(keys[n]);
    const id = typeof keys[n] === "string" ? keys[n] : /** @type {string[]} */ (keys[n]).join("-");
    return ui`<label class="sv-order">
        <input type="radio" name="sv-order" data-testid="order-${id}" checked=${n === now}
            onchange=${() => edit && ctx.edit(edit)} /><span><${Pieces} of=${stacked(cells[0]).main} /></span></label>`;
  }
  const editors = { orders: { cell: chooser, widths: [28, 14, 14] }, "order-changes": { widths: SIDE } };
  return ui`<${Documented} of=${document} editors=${editors} role="radiogroup" aria-label="order of the devices" />
    <${Form} class="sv-ownorder" fields=${[field]} take=${set} id="order-set" words="set"
        title="put the devices in this order" />`;
}
