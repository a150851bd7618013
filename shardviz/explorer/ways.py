"""Ways on from a refused change: where something does not divide, what would do, each tried before it is offered.

>>> from shardviz.notation import DeviceMesh
>>> from shardviz.program.bind import Undivided
>>> from shardviz.program.dimensions import Member
>>> uneven = Undivided(Member("argument", "w", 0), 30, Spec((("data",), ())))
>>> sizes("data", 4, [uneven], DeviceMesh.of("data=4"))
[1, 2, 3, 5, 6, 10, 15]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardviz.errors import ShardvizError
from shardviz.explorer.changes import mesh_with_size
from shardviz.notation import DeviceMesh, Spec, axis_name
from shardviz.notation.spec import axis_size
from shardviz.records.amounts import plural

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.program.bind import Undivided
    from shardviz.program.plan import Plan
    from shardviz.records.report import PlanRecord

_TRIED = 4  # sizes below, and above
_FARTHEST = 4  # times an axis's size: no larger one is offered


@dataclass(frozen=True)
class WayOn:
    """A way on, in a few words, and what it is done to; the plan that it leads to."""

    text: str
    tip: str
    plan: Plan


def ways(program: Program, wanted: Plan, now: PlanRecord, axis: str = "") -> tuple[WayOn, ...]:
    """The ways on from a plan that was refused because something does not divide; none where that is not why. None of
    them leads back to the plan that stands (`now`). `axis` is the mesh axis whose size was to be changed, if that was
    it."""
    try:
        uneven = program._undivided(wanted)
    except ShardvizError:
        return ()
    if not uneven:
        return ()
    leads = lambda way: _leads_on(program, way, now)  # noqa: E731
    dropped = filter(leads, [_dropped(wanted, uneven)])
    resized = (next(filter(leads, some), None) for some in _resized(wanted, uneven, axis))
    return (*dropped, *filter(None, resized))


def _leads_on(program: Program, way: WayOn, now: PlanRecord) -> bool:
    try:
        return program.bind(way.plan) != now
    except ShardvizError:
        return False


def _dropped(wanted: Plan, uneven: Sequence[Undivided]) -> WayOn:
    """What does not divide is sharded along as many of its axes as divide it."""
    specs: dict[tuple[str, str], Spec] = {}
    gone: dict[str, None] = {}
    for (role, path, dimension), size, whole in uneven:
        spec = specs.get((role, path), whole)
        axes, mesh = spec.dims[dimension], wanted.mesh
        most = max(n for n in range(len(axes) + 1) if not size % math.prod(axis_size(a, mesh) for a in axes[:n]))
        kept = axes[:most]
        gone |= dict.fromkeys(map(axis_name, axes[most:]))
        dims = (*spec.dims[:dimension], kept, *spec.dims[dimension + 1 :])
        specs[role, path] = replace(spec, dims=dims)
    of = lambda which: {path: spec for (role, path), spec in specs.items() if role == which}  # noqa: E731
    plan = wanted.with_spec(of("argument")).with_spec(of("output"), output=True)
    return WayOn(
        f"drop {' and '.join(gone)} where it does not divide ({plural(len(specs), 'array')})",
        ", ".join(path for _, path in specs),
        plan,
    )


def _resized(wanted: Plan, uneven: Sequence[Undivided], axis: str) -> Iterator[list[WayOn]]:
    """A mesh axis takes another size: the nearest below that may fit, then those above, the nearest first."""
    mesh = wanted.mesh
    last = next(axis_name(axes[-1]) for (_, _, d), _, spec in uneven if (axes := spec.dims[d]))
    name = axis if axis in mesh.names else last
    fitting = sizes(name, mesh.shape[name], uneven, mesh)

    def way(size: int) -> WayOn:
        tip = f"the next size of {name!r} that fits"
        return WayOn(f"take {name}={size}", tip, wanted.with_mesh(mesh_with_size(mesh, name, size)))

    below = [size for size in reversed(fitting) if size < mesh.shape[name]]
    above = [size for size in fitting if size > mesh.shape[name]]
    yield from ([way(size) for size in some[:_TRIED]] for some in (below, above))


def sizes(name: str, size: int, uneven: Sequence[Undivided], mesh: DeviceMesh) -> list[int]:
    """The sizes of a mesh axis that divide all these dimensions, up to a few times its present size."""
    rest = []
    for (_, _, dimension), length, spec in uneven:
        axes = spec.dims[dimension]
        if all(axis_name(a) != name for a in axes):
            return []  # its size alone does not help
        rest.append((length, math.prod(axis_size(a, mesh) for a in axes if a != name)))
    whole = range(1, _FARTHEST * size + 1)
    return [n for n in whole if all(length % (n * other) == 0 for length, other in rest)]
