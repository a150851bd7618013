// Dragging a mesh axis onto a dimension. While it is in the air the slots that would take it are marked.

const air = { axis: null, from: null };

export function dragAxis(handle, axis, from, picture) {
  handle.setAttribute("draggable", "true");
  handle.addEventListener("dragstart", (e) => {
    air.axis = axis;
    air.from = from;
    e.dataTransfer.setData("text/plain", axis);
    e.dataTransfer.effectAllowed = "copyMove";
    if (picture) e.dataTransfer.setDragImage(picture, 8, 8);
    const root = handle.closest(".shardviz");
    if (root) root.dispatchEvent(new CustomEvent("sv-drag", { detail: axis }));
    e.stopPropagation();
  });
  handle.addEventListener("dragend", () => {
    air.axis = null;
    const root = handle.closest(".shardviz");
    if (root) root.dispatchEvent(new CustomEvent("sv-drag", { detail: null }));
  });
}

// Makes `slot` take an axis. `may(axis)` says whether it would; `take(axis)` is what it does.
export function dropAxis(slot, may, take) {
  slot.addEventListener("dragover", (e) => {
    if (air.axis === null || !may(air.axis)) return;
    e.preventDefault();
    slot.classList.add("sv-over");
  });
  slot.addEventListener("dragleave", () => slot.classList.remove("sv-over"));
  slot.addEventListener("drop", (e) => {
    slot.classList.remove("sv-over");
    if (air.axis === null) return;
    e.preventDefault();
    e.stopPropagation();
    if (may(air.axis)) take(air.axis);
  });
}
