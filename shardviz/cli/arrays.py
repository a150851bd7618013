"""The verbs about one array: `show`, a shard map; `reshard`, what a change of its sharding sends."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from shardviz.cli.frame import Answer, verb
from shardviz.cli.phrases import array_of

_ARRAY = click.argument("array")
_MESH = click.option("--mesh", required=True, metavar="AXES", help="The mesh: data=4,model=2.")


@verb(
    "show",
    _ARRAY,
    click.argument("spec"),
    _MESH,
    examples="""
shardviz show "bf16[8192,4096]" "P('data', None)" --mesh data=4,model=2
shardviz show "f32[1024]" "{devices=[4]<=[4]}" --mesh x=4       # any notation
shardviz show "bf16[8192,4096]" "P('data')" --mesh data=4 --out map.svg
""",
)
def show(array: str, spec: str, mesh: str) -> Answer:
    """Draw which device holds which slice of an array.

    ARRAY is an element type and a shape, "bf16[8192,4096]"; SPEC is a sharding in any notation.
    """
    from shardviz.cli.schemas import Device, ShowData
    from shardviz.view.show import show as shard_map

    dtype, shape = array_of(array)
    shown: Any = shard_map(shape, spec, mesh, dtype=dtype)
    at = shown.layout
    rows = zip(at.device_ids.tolist(), at.starts.tolist(), at.stops.tolist(), at.replica_ids.tolist(), strict=True)
    data = ShowData(
        shape=list(shape),
        dtype=dtype,
        spec=_spec(at.spec) or "",
        mesh=dict(at.mesh.shape),
        shard_shape=list(at.shard_shape),
        bytes_per_device=at.bytes_per_device(dtype),
        devices=[Device(device=d, start=start, stop=stop, replica=r) for d, start, stop, r in rows],
    )
    return Answer(Coloured(shown, tuple(at.mesh.names)), record=data, whole=shown)


@verb(
    "reshard",
    _ARRAY,
    click.argument("before"),
    click.argument("after"),
    _MESH,
    click.option("--target", metavar="MACHINE", help="Say how long it takes there: tpu v5p:4x4x4."),
    examples="""
shardviz reshard "bf16[8192,4096]" "P('data', None)" "P(None, 'data')" --mesh data=8
shardviz reshard "bf16[8192,4096]" "P('data')" "P()" --mesh data=8 --target "tpu v5p:2x2x2"
""",
)
def reshard(array: str, before: str, after: str, mesh: str, target: str | None) -> Answer:
    """Say what is sent when an array changes its sharding.

    BEFORE and AFTER are shardings of ARRAY in any notation.
    """
    from shardviz.cli.schemas import ReshardData, ReshardStep
    from shardviz.costs.placement import Placement
    from shardviz.layouts import itemsize
    from shardviz.notation.spec import axis_text
    from shardviz.records.amounts import format_seconds
    from shardviz.view.document import Document, section, table
    from shardviz.view.show import show as shard_map
    from shardviz.view.subjects import document

    dtype, shape = array_of(array)
    if target is not None:
        Placement.of(mesh, target)  # which refuses a machine of another size
    shown: Any = shard_map(shape, before, mesh, after=after, dtype=dtype)
    way, size = shown.moves, shown.moves.bytes(dtype)
    times = [_seconds(step, shape, dtype, mesh, target) for step in way.steps]
    data = ReshardData(
        shape=list(shape),
        dtype=dtype,
        before=_spec(shown.before.layout.spec) or before,
        after=_spec(shown.after.layout.spec) or after,
        mesh=dict(shown.before.layout.mesh.shape),
        target=target or "",
        steps=[
            ReshardStep(
                kind=step.kind,
                axes=None if step.axes is None else [axis_text(axis) for axis in step.axes],
                after=_spec(step.after),
                received_bytes=step.elements * itemsize(dtype),
                seconds=seconds,
                formula=formula,
            )
            for step, (seconds, formula) in zip(way.steps, times, strict=True)
        ],
        kept_bytes=float(size["keep"].max()),
        received_bytes=float(size["receive"].max()),
        dropped_bytes=float(size["drop"].max()),
        seconds=None if any(seconds is None for seconds, _ in times) else math.fsum(s or 0.0 for s, _ in times),
    )
    if target is None:
        return Answer(Coloured(shown, tuple(shown.before.layout.mesh.names)), record=data, whole=shown)
    total = format_seconds(data.seconds)
    timed = table(
        zip(data.steps, times, strict=True),
        ("step", lambda row: row[0].kind),
        ("over", lambda row: ", ".join(row[0].axes or ())),
        ("time", lambda row: format_seconds(row[1][0])),
        ("how", lambda row: row[1][1]),
    )
    whole = document(shown)
    blocks = (*whole.blocks, section(f"on {target}", timed, lead=f"{total} in all"))
    both = Document(title=whole.title, lead=whole.lead, blocks=blocks, mesh=whole.mesh)
    return Answer(Coloured(both, tuple(shown.before.layout.mesh.names)), record=data, whole=both)


def _spec(spec: Any) -> str | None:
    return None if spec is None else str(spec.canonical())


def _seconds(step: Any, shape: tuple[int, ...], dtype: str, mesh: str, target: str | None) -> tuple[float | None, str]:
    """The time of a step of a resharding, and its formula; None where that is not known."""
    from shardviz.costs.collective import with_seconds
    from shardviz.costs.placement import Placement
    from shardviz.layouts import layout
    from shardviz.records import Collective

    if target is None:
        return None, ""
    if step.kind == "slice":
        return 0.0, "each device takes a part of what it holds"
    if step.before is None or step.after is None or step.edges:
        return None, "not known for what no spec says"
    held = [layout(shape, spec, mesh) for spec in (step.before, step.after)]
    before, after = (each.bytes_per_device(dtype) for each in held)
    place = Placement.of(mesh, target)
    collective = Collective(
        kind=step.kind,
        axes=step.axes,
        dtype=dtype,
        shape=held[1].shard_shape,
        operand_bytes=before,
        result_bytes=after,
        count=1,
    )
    timed = with_seconds(collective, place, place.machine)
    return timed.seconds, timed.formula or ""


# In colours.

_INKS = ("blue", "red", "green", "magenta", "yellow", "cyan")
"""Of mesh axes by their places, and of a grid's cells: the terminal's own colours, near those of the page."""


class Coloured:
    """A text with the mesh axes in their colours, and each cell of a grid in one, where the terminal shows them.

    Attributes:
        of: what is shown.
        axes: the names of the mesh axes.
    """

    def __init__(self, of: Any, axes: tuple[str, ...]):
        self.of, self.axes = of, axes

    def text(self, width: int) -> str:
        """It, at most so many columns wide; escapes take none."""
        from shardviz.cli.frame import colours
        from shardviz.paint.text import text_of
        from shardviz.view.subjects import document

        text = text_of(document(self.of), width)
        if not colours():
            return text
        inks = {name: _INKS[place % len(_INKS)] for place, name in enumerate(self.axes)}
        cells: dict[str, str] = {}

        def cell(match: re.Match[str]) -> str:
            return click.style(match[0], cells.setdefault(match[0].strip(), _INKS[len(cells) % len(_INKS)]))

        names = re.compile(rf"\b({'|'.join(map(re.escape, self.axes))})\b")
        return "\n".join(
            re.sub(r"(?<=│)[^│]+(?=│)", cell, line)
            if "│" in line
            else names.sub(lambda match: click.style(match[0], inks[match[0]]), line)
            for line in text.split("\n")
        )
