// @ts-check
// The machine: a device is picked on its picture or by its number, and an order of the devices chosen. What there is to
// read beside the picture are Documents.
import { Documented } from "./document.js";
import { Field, Notice, ui, useContextOf, useLast, useTraits, Waiting } from "./parts.js";
import { Picture } from "./picture.js";
import { Pieces } from "./pieces.js";
import { Sample } from "./shapes.js";
import { useRef } from "./vendor/preact.js";
import { pieces, stacked } from "./words.js";

/** @import { Edit, Machine as Told, OrderKey, Row } from "./types.d.ts" */

const SIDE = [22, 40]; // characters of the columns beside the picture: an axis, and what there is to say of it
const HINT = "Click a tile: its company along each mesh axis is lit, with the links between them.";

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
  const ctx = useTraits("machine", "company", "status", "device", "gone");
  const told = useLast(ctx.get("machine"));
  const { document, picture } = told;
  const { document: facts, device = -1, picture: ways } = ctx.get("company");
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
  /** A click on a tile picks its device, once more the next on it, and at last none. @param {number[]} devices */
  const pick = (devices) => ctx.pickDevice(devices[devices.indexOf(ctx.get("device")) + 1] ?? -1);
  return ui`<${Documented} of=${{ ...document, blocks: [] }} />
    ${
    picture && ui`<div class="sv-machinebox"><div class="sv-picture" style=${{
      "--w": `${picture.width}px`,
      "--most": `${Math.round(picture.width * 1.15)}px`,
    }}><${Picture} of=${picture} over=${ways} pressed=${
      ctx.get(
        "device",
      )
    } id="machine-picture" said="hovered"
    hint="point at a tile, or click one; with the arrows from tile to tile" pick=${pick} />${
      picture.notes.map((text) =>
        ui`<p
            class="sv-soft">
          ${text}</p>`
      )
    }</div><div class="sv-machineside"><div class="sv-sec">${"device "}<${Number_} device=${device} /></div><div data-testid="company"><${Documented}
    of=${
      facts ||
      { blocks: [{ block: "p", pieces: HINT, quiet: true }] }
    } editors=${{ "device-groups": { cell: sampled, widths: SIDE } }} /></div>${
      told.orders && ui`<${Orders}
            of=${told.orders} />`
    }</div></div>`
  }
    <${Documented} of=${{ blocks: document?.blocks || [] }} editors=${{ "axis-rides": { cell: sampled } }} />
    ${!document && ui`<${Waiting} />`}`;
}

/** The number of the device that is picked; an empty field picks none. @param {{ device: number }} props */
function Number_({ device }) {
  const ctx = useContextOf();
  const { devices } = ctx.get("mesh");
  const value = device < 0 ? "" : String(device);
  const box = useRef(/** @type {any} */ (null));
  const go = (/** @type {string} */ typed) => {
    const text = typed.trim();
    const known = /^\d+$/.test(text) && Number(text) < devices;
    if (!text) ctx.pickDevice(-1);
    else if (!known) box.current.querySelector("input").value = value;
    else if (Number(text) !== ctx.get("device")) ctx.pickDevice(Number(text));
  };
  return ui`<span ref=${box}>
      <${Field} class="sv-pickdevice" inputmode="numeric" data-testid="pick-device" value=${value} placeholder="number"
          aria-label="a device, 0 to ${devices - 1}" enter=${go} leave=${go} /></span>`;
}

/** The orders of the devices, and why the last one was refused. @param {{ of: NonNullable<Told["orders"]> }} props */
function Orders({ of: { keys, now, document, listed } }) {
  const ctx = useContextOf();
  const { error } = ctx.get("status");
  const box = useRef(/** @type {any} */ (null));
  const set = () => ctx.edit({ op: "set_order", order: box.current.querySelector("input").value });
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
    <div class="sv-ownorder" ref=${box}>
      <${Field} data-testid="order-text" value=${listed} enter=${set} placeholder="0,1,3,2 or [2,4]T(1,0)"
          aria-label="the order of the devices: their ids, or a transposed count" />
      <button class="sv-btn" data-testid="order-set" title="put the devices in this order"
      onclick=${set}>set</button></div>
    ${
    error?.place === "order" &&
    ui`<${Notice} kind="sv-error" id="order-error" message=${error.message} detail=${error.detail} />`
  }`;
}
