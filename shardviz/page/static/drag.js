// @ts-check
// Dragging a mesh axis onto a dimension. While it is in the air the slots that would take it are marked.

/** The name of the axis in the air. @type {string | null} */
let air = null;
/** The explorer that it was taken up on: what it was taken by may be drawn anew before it is dropped, and all explorers
 * on a page have one module. @type {Element | null} */
let page = null;

/**
 * Says on the page what is in the air now.
 * @param {string | null} now
 */
function tell(now) {
  air = now;
  page?.dispatchEvent(new CustomEvent("sv-drag", { detail: now }));
  if (now === null) page = null;
}

function end() {
  if (air !== null) tell(null);
}

/**
 * Lets a person drag `handle` as a mesh axis. The page hears of it by the event "sv-drag" at its root.
 * @param {HTMLElement} handle
 * @param {string} axis
 * @param {HTMLElement | null} [picture] what is shown under the pointer; without one, the handle
 */
export function dragAxis(handle, axis, picture) {
  handle.setAttribute("draggable", "true");
  handle.addEventListener("dragstart", (e) => {
    const data = /** @type {DataTransfer} */ (e.dataTransfer);
    data.setData("text/plain", axis);
    data.effectAllowed = "copyMove";
    if (picture) data.setDragImage(picture, 8, 8);
    page = handle.closest(".shardviz");
    tell(axis);
    // no mouse moves while something is dragged, and what has left the page hears of no end
    handle.ownerDocument?.addEventListener("mousemove", end, { once: true });
    e.stopPropagation();
  });
  handle.addEventListener("dragend", end);
}

/**
 * Makes `slot` take an axis.
 * @param {HTMLElement} slot
 * @param {(axis: string) => boolean} may whether it would take it
 * @param {(axis: string) => void} take
 */
export function dropAxis(slot, may, take) {
  slot.addEventListener("dragover", (e) => {
    if (air === null || page !== slot.closest(".shardviz") || !may(air)) return;
    e.preventDefault();
    slot.classList.add("sv-over");
  });
  slot.addEventListener("dragleave", () => slot.classList.remove("sv-over"));
  slot.addEventListener("drop", (e) => {
    slot.classList.remove("sv-over");
    if (air === null || page !== slot.closest(".shardviz")) return;
    e.preventDefault();
    e.stopPropagation();
    const axis = air;
    if (!may(axis)) return;
    end();
    take(axis);
  });
}
