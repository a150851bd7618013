"""The page's content as plain JSON: Documents, the mesh and the status. `inputs.py` has arguments and outputs.

Numbers are sent as text, so that they read the same on the page, in a terminal and in a table. A spec is a list of
dimensions, each a list of axes; an axis is a name or `[name, before, size]` for a sub-axis.
"""

from __future__ import annotations

from typing import Any

from shardviz.explorer.explorer import ExplorerState
from shardviz.paint.json import Json, json_of
from shardviz.paint.theme import axis_colours
from shardviz.view.document import Document
from shardviz.view.report import LEVEL_WORDS


def mesh_view(state: ExplorerState) -> Json:
    """Return the mesh axes with sizes and colours, and the number of devices."""
    mesh = state.plan.mesh
    colours = axis_colours(mesh)
    axes = [
        {"name": name, "size": size, "type": kind}
        | {look: getattr(colours[name], look) for look in ("light", "dark", "ink", "dark_ink")}
        for name, size, kind in zip(mesh.names, mesh.sizes, mesh.types, strict=True)
    ]
    return {"axes": axes, "devices": mesh.size, "text": str(mesh), "ids": list(mesh.device_ids)}


def pane(document: Document, **more: Any) -> Json:
    """Return a tab's content: a Document, and additional fields."""
    return {"document": json_of(document), **more}


def source_view(document: Document) -> tuple[Json, Json]:
    """Return the facts about the lines of `source_pane`'s document, and separately the texts, which do not depend on
    the plan."""
    files: list[Json] = []
    texts: list[list[Any]] = []
    for block in json_of(document)["blocks"]:
        if block["block"] == "section":
            rows = block["blocks"][0]["rows"]
            files.append({"title": block["title"], "lines": [_line(row) for row in rows]})
            codes = [(code.get("t", ""), code.get("tip", "")) for code in (row["cells"][2] for row in rows)]
            texts.append([text if tip in ("", text.strip()) else {"t": text, "tip": tip} for text, tip in codes])
    lines: Json = {"files": files} if files else {"files": [], "none": json_of(document)["blocks"][0]["pieces"]}
    return lines, {"files": texts}


def _line(row: Json) -> Json:
    number, bar, _, amount = row["cells"]
    line: Json = {"n": number["t"]} | ({"bar": bar["v"]} if bar["v"] else {})
    line |= {"amount": amount} if amount else {}
    if "sel" in row:
        line["at"] = row["sel"][1]
    if "detail" in row:
        line["on"] = [block["pieces"] for block in row["detail"]]
    return line


def status_view(state: ExplorerState, seq: int, seconds: float | None) -> Json:
    """Return the progress, the errors, and the number of the edit that this state answers."""
    return {
        "level": state.level,
        "means": LEVEL_WORDS.get(state.level, ""),
        "status": state.status,
        "message": state.message,
        "doing": _doing(state),
        "busy": state.busy,
        "expected": state.expected,
        "error": state.error,
        "failure": state.failure,
        "undo": len(state.past),
        "redo": len(state.ahead),
        "seq": seq,
        "seconds": None if seconds is None else round(seconds, 2),
    }


def _doing(state: ExplorerState) -> str:
    """Return the current work in a few words; `message` is the full sentence."""
    if not state.busy:
        return ""
    if state.status != "propagating" and "simulated" not in state.message:
        return state.message.partition(";")[0].partition(" for ")[0]
    return "planning memory" if state.status == "partitioned" else "partitioning"
