"""The way on from a refused change: what does not divide is sharded less, tried before it is offered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from shardviz.errors import ShardvizError
from shardviz.notation import Spec, axis_name
from shardviz.notation.spec import axis_size
from shardviz.records.amounts import plural

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.program.bind import Undivided
    from shardviz.program.plan import Plan
    from shardviz.records.report import PlanRecord


@dataclass(frozen=True)
class WayOn:
    """A way on, in a few words, and what it is done to; the plan that it leads to."""

    text: str
    tip: str
    plan: Plan


def ways(program: Program, wanted: Plan, now: PlanRecord) -> tuple[WayOn, ...]:
    """The ways on from a plan that was refused because something does not divide; none where that is not why, or that
    lead back to the plan that stands (`now`)."""
    try:
        uneven = program._undivided(wanted)
        way = _dropped(wanted, uneven) if uneven else None
        return (way,) if way is not None and program.bind(way.plan) != now else ()
    except ShardvizError:
        return ()


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
