// @ts-check
// Dragging a mesh axis onto a dimension. While it is in the air the slots that would take it are marked.

/** The name of the axis in the air. @type {string | null} */
let air = null;

/**
 * Lets a person drag `handle` as a mesh axis. The page hears of it by the event "sv-drag" at its root.
 * @param {HTMLElement} handle
 * @param {string} axis
 * @param {HTMLElement | null} [picture] what is shown under the pointer; without one, the handle
 */
export function dragAxis(handle, axis, picture) {
  /** @param {string | null} now */
  function tell(now) {
    air = now;
    handle.closest(".shardviz")?.dispatchEvent(new CustomEvent("sv-drag", { detail: now }));
  }
  handle.setAttribute("draggable", "true");
  handle.addEventListener("dragstart", (e) => {
    const data = /** @type {DataTransfer} */ (e.dataTransfer);
    data.setData("text/plain", axis);
    data.effectAllowed = "copyMove";
    if (picture) data.setDragImage(picture, 8, 8);
    tell(axis);
    e.stopPropagation();
  });
  handle.addEventListener("dragend", () => tell(null));
}

/**
 * Makes `slot` take an axis.
 * @param {HTMLElement} slot
 * @param {(axis: string) => boolean} may whether it would take it
 * @param {(axis: string) => void} take
 */
export function dropAxis(slot, may, take) {
  slot.addEventListener("dragover", (e) => {
    if (air === null || !may(air)) return;
    e.preventDefault();
    slot.classList.add("sv-over");
  });
  slot.addEventListener("dragleave", () => slot.classList.remove("sv-over"));
  slot.addEventListener("drop", (e) => {
    slot.classList.remove("sv-over");
    if (air === null) return;
    e.preventDefault();
    e.stopPropagation();
    if (may(air)) take(air);
  });
}
