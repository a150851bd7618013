"""The Rosetta pane as the page gets it: one sharding in every notation, and whatever a person pastes, read.

All of it follows from the spec and the mesh alone, so it is there in milliseconds, whatever the compiler is doing.
"""

from __future__ import annotations

from shardviz.errors import ShardvizError
from shardviz.layouts import Layout, layout
from shardviz.notation import DeviceMesh, check_spec, rosetta
from shardviz.notation.read import Sharding, sharding
from shardviz.paint.columns import clip
from shardviz.paint.json import axis_json
from shardviz.records import Value
from shardviz.records.amounts import format_bytes, format_shape, plural
from shardviz.records.report import Report
from shardviz.view.rosetta import MET, NAMES, sharding_of
from shardviz.widgets.payload import Json, dims

MOST_CHARACTERS = 20_000
"""Characters of a sharding's text on the page; a longer one (thousands of devices) is cut off, and says so."""

MOST_READ = 200_000
"""Characters that are read."""

_MOST_PIECE = 44


def rosetta_view(report: Report, name: str, reading: str) -> Json:
    """The sharding of a value in every notation, and what was pasted in the same way.

    Args:
        report: where the value is.
        name: the value's name; empty where none is selected.
        reading: what a person pasted to be read on the report's mesh; empty for nothing.
    """
    role, value = _found(report, name)
    view: Json = {"name": name, "mesh": str(report.mesh) or "a mesh with no axes", "role": role}
    own = None
    if value is not None:
        view |= {"label": value.label or name, "shape": format_shape(value.shape), "dtype": value.dtype}
        try:
            own = sharding_of(value, report.mesh)
        except ShardvizError as error:
            view["why"] = str(error)
        else:
            view |= _said(own)
    if reading.strip():
        view["read"] = {"text": reading} | _read(reading, report.mesh, role, value, own)
    return view


def _found(report: Report, name: str) -> tuple[str, Value | None]:
    groups = (("argument", report.arguments), ("output", report.outputs), ("intermediate", report.intermediates))
    return next(((role, v) for role, values in groups for v in values if v.name == name), ("", None))


def _said(cut: Sharding) -> Json:
    """A sharding as chips and in every notation."""
    rows = []
    for row in rosetta(cut):
        said: Json = {"notation": row.notation, "title": NAMES[row.notation], "met": MET[row.notation]}
        if row.text is None:
            said["why"] = row.why
        else:
            said["text"] = row.text[:MOST_CHARACTERS]
            said["more"] = max(0, len(row.text) - MOST_CHARACTERS)
            said["letters"] = [[clip(letter.piece, _MOST_PIECE), letter.meaning] for letter in row.letters]
        rows.append(said)
    more = {"unreduced": [axis_json(a) for a in cut.unreduced]} if cut.unreduced else {}
    chips = None if cut.manual or any(cut.open) else dims(cut.spec, len(cut.tiles))
    return {"rows": rows, "dims": chips, "short": clip(str(cut), 200)} | more


def _read(text: str, mesh: DeviceMesh, role: str, value: Value | None, own: Sharding | None) -> Json:
    """What a text is on a mesh, and of the selected value; or why it is nothing."""
    try:
        if len(text) > MOST_READ:
            raise ShardvizError(f"this text has {len(text):,} characters; at most {MOST_READ:,} are read")
        cut = sharding(text, mesh)
    except ShardvizError as error:
        return {"error": str(error)}
    if value is None:
        return _said(cut) | {"cannot": "select an argument or an output to apply it to"}
    try:
        cut = cut.with_rank(len(value.shape))
        holds = _holds(layout(value.shape, cut, mesh), value)
    except ShardvizError as error:
        return _said(cut) | {"cannot": str(error)}
    said: Json = _said(cut) | {"holds": holds}
    if own is not None and cut.same_as(own):
        return said | {"same": True}
    pspec = next(row for row in said["rows"] if row["notation"] == "pspec")
    if "text" not in pspec:
        return said | {"cannot": pspec["why"]}
    try:
        _check_applicable(cut, role, value)
    except ShardvizError as error:
        return said | {"cannot": str(error)}
    return said | {"apply": pspec["text"]}


def _holds(cut: Layout, value: Value) -> str:
    """What each device then holds of the value."""
    shard, size = format_shape(cut.shard_shape), format_bytes(cut.bytes_per_device(value.dtype))
    if not cut.holds.all():
        return f"{size} on {plural(int(cut.holds.sum()), 'device')}, nothing on the others"
    parts = [f"shard {shard}", f"{size} per device"]
    parts += [f"{cut.replicas} copies"] if cut.replicas > 1 else []
    parts += [f"{cut.partial_sums} partial sums"] if cut.partial_sums > 1 else []
    parts += ["manual, so each device's own"] if cut.manual_ways > 1 else []
    if cut.padding.any():
        parts.append("padded, as it does not divide")
    return ", ".join(parts)


def _check_applicable(cut: Sharding, role: str, value: Value) -> None:
    """Raises unless an argument or output can be given this sharding, which a PartitionSpec says."""
    if role == "intermediate":
        raise ShardvizError(
            f"{value.label or value.name} is an intermediate, whose sharding follows from the arguments'; select an "
            "argument or an output to apply this to"
        )
    if any(cut.open):
        raise ShardvizError("it leaves a dimension to the compiler, which an argument's or output's spec cannot")
    if cut.unreduced or cut.reduced or cut.spec is None:
        raise ShardvizError(f"{cut}: an {role} cannot be given partial sums here")
    check_spec(value.name, value.shape, cut.spec, cut.mesh)
