"""What the page is told, as plain JSON: Documents, the mesh, the status. `inputs.py` has the arguments and outputs.

Numbers come with their text, so that they read the same here, in a terminal and in a table: the page formats nothing.
A spec is a list of dimensions, each a list of axes, each a name or `[name, before, size]` for a part of an axis.
"""

from __future__ import annotations

from typing import Any

from shardviz.explorer.explorer import ExplorerState
from shardviz.paint.json import Json, json_of
from shardviz.paint.theme import axis_colours
from shardviz.view.document import Document
from shardviz.view.report import LEVEL_WORDS


def mesh_view(state: ExplorerState) -> Json:
    """The mesh axes with their sizes and colours, and the number of devices."""
    mesh = state.plan.mesh
    colours = axis_colours(mesh)
    axes = [
        {"name": name, "size": size, "type": kind}
        | {look: getattr(colours[name], look) for look in ("light", "dark", "ink", "dark_ink")}
        for name, size, kind in zip(mesh.names, mesh.sizes, mesh.types, strict=True)
    ]
    return {"axes": axes, "devices": mesh.size, "text": str(mesh), "ids": list(mesh.device_ids)}


def pane(document: Document, **more: Any) -> Json:
    """What a tab shows: a Document, and what is no part of one."""
    return {"document": json_of(document), **more}


def source_view(document: Document) -> tuple[Json, Json]:
    """What is known of the lines of `source_pane`'s document (or why there are none), and apart from it, by file, their
    texts, which stay as they are while plans change."""
    files: list[Json] = []
    texts: list[list[Any]] = []
    for block in json_of(document)["blocks"]:
        if block["block"] == "section":
            rows = block["blocks"][0]["rows"]
            files.append({"title": block["title"], "lines": [_line(row) for row in rows]})
            codes = [(code.get("t", ""), code.get("tip", "")) for code in (row["cells"][2] for row in rows)]
            texts.append([text if tip in ("", text.strip()) else {"t": text, "tip": tip} for text, tip in codes])
    told: Json = {"files": files} if files else {"files": [], "none": json_of(document)["blocks"][0]["pieces"]}
    return told, {"files": texts}


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
    """How far the answer is, what went wrong, and which change it answers."""
    return {
        "level": state.level,
        "means": LEVEL_WORDS.get(state.level, ""),
        "status": state.status,
        "message": state.message,
        "doing": _doing(state),
        "busy": state.busy,
        "error": state.error,
        "failure": state.failure,
        "undo": len(state.past),
        "redo": len(state.ahead),
        "seq": seq,
        "seconds": None if seconds is None else round(seconds, 2),
    }


def _doing(state: ExplorerState) -> str:
    """What a busy state is doing, in a few words; `message` is the whole sentence."""
    if not state.busy:
        return ""
    if state.status != "propagating" and "simulated" not in state.message:
        return state.message.partition(";")[0].partition(" for ")[0]
    return "planning memory" if state.status == "partitioned" else "partitioning"
