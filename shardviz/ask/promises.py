"""The promises of presets, as checks of a report: which arrays are sharded along which axes, and which collectives
there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from shardviz.ask.parts import Parts, nbytes
from shardviz.caching import cached_property
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.notation.spec import axis_name
from shardviz.propagate.dimensions import Dimension
from shardviz.propagate.roles import Roles
from shardviz.records import Collective, Value
from shardviz.tracing.trace import Argument

NEARLY, MOST = 0.9, 0.5
"""The share of the bytes that must be sharded if a description says that they are, and of matrix products."""


@dataclass(frozen=True, kw_only=True)
class Subject(Parts):
    """The basis of presets: a program's parts, the roles of its arrays, and a mesh."""

    mesh: DeviceMesh
    roles: Roles

    @property
    def last(self) -> str:
        return self.mesh.names[-1]

    def of(self, what: str) -> list[Dimension]:
        return [d for d in self.dimensions if d.of == what]

    @cached_property
    def parameters(self) -> list[Argument]:
        """The state without the optimizer's."""
        return [a for a in self.state if a.name not in self.optimizer]

    @cached_property
    def weights(self) -> list[Argument]:
        return list(self.matrices.values())

    @cached_property
    def cached(self) -> list[Dimension]:
        """The sequence of a cache, without a derivative: dimensions of data that are returned again. If an array has
        several, the longest, because heads that are split from a projection form a dimension too."""
        state = {a.name for a in self.state}
        again = set(self.roles.becomes) - state if not self.roles.differentiated else set[str]()
        free = [d for d in self.dimensions if not (d.of == "batch" or d.stacked or d.experts)]
        free = [d for d in free if d.arguments and again.issuperset(m.path for m in d.arguments)]
        longest = {m.path: d.size for d in sorted(free, key=lambda d: d.size) for m in d.arguments}
        return [d for d in free if all(d.size == longest[m.path] for m in d.arguments)]


P = ParamSpec("P")
Promise = Callable[[Report], str]
"""A check of a report: returns why the report breaks a preset's description, or nothing."""


def _promise(broken: Callable[Concatenate[Report, P], str]) -> Callable[P, Promise]:
    """Turn a check, which returns why a report breaks a promise (or nothing), into a maker of promises."""
    return lambda *of, **more: lambda report: broken(report, *of, **more)


def _axes_of(values: Iterable[Value]) -> dict[str, tuple[tuple[str, ...], ...]]:
    specs = {v.name: v.spec for v in values}
    return {name: tuple(tuple(map(axis_name, d)) for d in spec.dims) for name, spec in specs.items() if spec}


@_promise
def is_replicated(report: Report, arrays: Sequence[Argument], axes: Set[str] | None = None) -> str:
    """Check that no array is sharded, by some axes or by any."""
    for name, dims in _axes_of(report.arguments).items():
        used = [a for dim in dims for a in dim if axes is None or a in axes]
        if used and any(a.name == name for a in arrays):
            return f"{name} is sharded along {' and '.join(used)}, and should be replicated"
    return ""


@_promise
def is_unsharded(report: Report, dimensions: Sequence[Dimension]) -> str:
    """Check that nothing shards these dimensions."""
    dims = _axes_of(report.arguments)
    cut = (m.path for d in dimensions for m in d.arguments if m.path in dims and dims[m.path][m.dimension])
    return next((f"the {dimensions[0].of} of {path} is sharded" for path in cut), "")


@_promise
def batch_is_sharded(report: Report, subject: Subject, axes: Sequence[str]) -> str:
    """Check that every array with a batch dimension shards it by as many of the axes as divide it."""
    dims, some = _axes_of(report.arguments), False
    for batch in subject.of("batch"):
        wanted = dividing(batch.size, axes, subject.mesh)
        for m in batch.chosen() if wanted else ():
            if m.role == "argument" and m.path in dims:
                if dims[m.path][m.dimension] != wanted:
                    return f"the batch of {m.path} is not sharded along {' and '.join(wanted)}"
                some = True
    if some:
        return ""
    sizes = {d.size for d in subject.of("batch")}
    none = f"no batch of {' or '.join(map(str, sorted(sizes)))} divides by {' or '.join(axes)}"
    return none if sizes else "the arguments have no batch dimension"


@_promise
def are_sharded(
    report: Report, what: str, arrays: Sequence[Argument], axes: Sequence[str], least: float = NEARLY
) -> str:
    """Check that at least a share of these arrays' bytes is sharded along all of the axes."""
    dims = _axes_of((*report.arguments, *report.outputs))
    cut = sum(nbytes(a) for a in arrays if {x for dim in dims.get(a.name, ()) for x in dim}.issuperset(axes))
    whole = sum(map(nbytes, arrays))
    if cut >= least * whole:
        return ""
    return f"{cut / whole:.0%} of {what} can be sharded along {' and '.join(axes)}"


def between_is_sharded(subject: Subject) -> Promise:
    """Return the promise that most of the layers' matrix products are sharded along the last axis."""
    return are_sharded("the matrices' bytes", subject.weights, (subject.last,), MOST)


@_promise
def all_stay(report: Report, arrays: Sequence[Argument]) -> str:
    """Check that none of the arrays is gathered."""
    gathered = _gathered(arrays, report)
    return _where_gathered(gathered[0]) if gathered else ""


@_promise
def are_multiplied(report: Report, subject: Subject) -> str:
    """Check that most of the matrices' bytes are multiplied as sharded along the last axis, not gathered."""
    weights = [a for a in subject.weights if a.name not in subject.roles.optimizer]
    gathered = [c for c in _gathered(weights, report) if subject.last in map(axis_name, c.axes or ())]
    names = {c.operand for c in gathered}
    much = sum(nbytes(a) for a in weights if a.name in names) > MOST * sum(map(nbytes, weights))
    return _where_gathered(gathered[0]) if much else ""


@_promise
def is_communicated(report: Report, kind: str, axes: Sequence[str], phase: str, what: str) -> str:
    """Check that there is such a collective, over exactly these axes and in this phase if given."""

    def over(c):
        return {*map(axis_name, c.axes or ())}

    some = (c for c in report.collectives if c.kind == kind and phase in ("", c.phase))
    if any(not axes or over(c) == {*axes} for c in some):
        return ""
    along = f" along {' and '.join(axes)}" if axes else ""
    return f"no {what} go through an {kind}{along}"


def _gathered(arrays: Sequence[Argument], report: Report) -> list[Collective]:
    names = {a.name for a in arrays}
    return [c for c in report.collectives if c.kind == "all-gather" and c.operand in names]


def _where_gathered(c: Collective) -> str:
    at = f" at {c.source.short}" if c.source else ""
    return f"{c.operand} is gathered{at}, where a constraint or another array has the axis"


@_promise
def each_is_sharded(report: Report, what: str, dimensions: Sequence[Dimension], axis: str) -> str:
    """Check that these dimensions are sharded along an axis in every array that has them."""
    dims = _axes_of(report.arguments)
    for m in (m for d in dimensions for m in d.chosen() if m.role == "argument"):
        if axis not in dims.get(m.path, ())[m.dimension]:
            return f"the {what} dimension of {m.path} is not sharded along {axis}"
    return ""


def dividing(size: int, axes: Sequence[str], mesh: DeviceMesh) -> tuple[str, ...]:
    """Return the first axes whose product divides a size."""
    chosen: list[str] = []
    for axis in axes:
        if size % math.prod(mesh.shape[a] for a in (*chosen, axis)) == 0:
            chosen.append(axis)
    return tuple(chosen)
