"""Small changes of a plan, as pure functions, and which of them are allowed.

A plan is immutable: each function takes one and gives another. What may be put where is pjit's rule: an axis shards an
array once, and a dimension must be divisible by the axes that shard it.

>>> for choice in choices((6, 8), Spec.of(("data",), 2), DeviceMesh.of({"data": 2, "model": 4}), 0):
...     print(choice.axis, choice.legal, choice.reason)
data False already shards this dimension
model False 6 is not divisible by 'data'=2 x 'model'=4 = 8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardviz.errors import MeshError, ParseError, ShardvizError, SpecError, excerpt
from shardviz.notation import Axis, DeviceMesh, Spec, axis_name, pspec
from shardviz.notation.bounds import check_size
from shardviz.notation.spec import axis_size, axis_text
from shardviz.program.rules import Rule

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.records import Value

_MOST_TEXT = 1000


@dataclass(frozen=True)
class AxisChoice:
    """Whether a mesh axis may be put after the axes that shard a dimension now; the reason why not, and whether it may
    be moved here from the dimension that it shards now."""

    axis: str
    legal: bool
    reason: str = ""
    move: bool = False


def choices(shape: Sequence[int], spec: Spec, mesh: DeviceMesh, dimension: int) -> tuple[AxisChoice, ...]:
    """For each axis of the mesh, whether it may be added to a dimension of an array, sharded by `spec` now."""
    return tuple(_choice(shape, spec, mesh, dimension, axis) for axis in mesh.names)


def _choice(shape: Sequence[int], spec: Spec, mesh: DeviceMesh, dimension: int, axis: str) -> AxisChoice:
    used = next((d for d, entry in enumerate(spec.dims) if any(axis_name(a) == axis for a in entry)), None)
    if used == dimension:
        return AxisChoice(axis, False, "already shards this dimension")
    why = undivided(shape[dimension], (*spec.dims[dimension], axis), mesh)
    if used is not None:
        return AxisChoice(axis, False, f"already shards dimension {used} of this array", move=not why)
    return AxisChoice(axis, not why, why)


def undivided(size: int, axes: Sequence[Axis], mesh: DeviceMesh) -> str:
    """Why a size is not divisible by these axes together; empty where it is."""
    ways = math.prod(axis_size(a, mesh) for a in axes)
    if size % ways == 0:
        return ""
    what = " x ".join(f"{axis_text(a)!r}={axis_size(a, mesh)}" for a in axes)
    return f"{size} is not divisible by {what}" + (f" = {ways}" if len(axes) > 1 else "")


def mesh_with_axis(mesh: DeviceMesh, name: str, size: int) -> DeviceMesh:
    """The mesh with one more axis, the minor one."""
    return DeviceMesh((*mesh.names, name), (*mesh.sizes, size), (*mesh.types, "Auto"), in_order=mesh.in_order)


def mesh_with_size(mesh: DeviceMesh, name: str, size: int) -> DeviceMesh:
    """The mesh with another number of devices along one axis."""
    if name not in mesh.names:
        raise MeshError(f"the mesh {mesh} has no axis {name!r}; it has {', '.join(map(repr, mesh.names)) or 'none'}")
    place = mesh.names.index(name)
    sizes = (*mesh.sizes[:place], size, *mesh.sizes[place + 1 :])
    return DeviceMesh(mesh.names, sizes, mesh.types, in_order=mesh.in_order)


def with_rules(plan: Plan, place: int, change: Callable[[list[Rule]], Any]) -> Plan:
    """The plan with its rules changed, of which there must be one at this place."""
    rules = list(plan.rules)
    if not 0 <= place < len(rules):
        raise ShardvizError(f"there is no rule {place + 1}; there are {len(rules)}")
    change(rules)
    return plan.with_rules(rules)


def rule(pattern: str, spec: Spec | str | None) -> Rule:
    """A rule from what a person typed."""
    if not pattern.strip():
        raise ShardvizError("a rule needs a pattern of the tree path, such as *kernel, or * for everything")
    return Rule(pattern.strip(), parse_spec(spec, "the rule") if isinstance(spec, str) else spec)


def changed_rule(old: Rule, pattern: str | None, spec: str | None) -> Rule:
    """A rule with another pattern or spec; what is None stays."""
    typed = old.spec if spec is None else parse_spec(spec, "the rule")
    return Rule(old.filter, typed) if pattern is None else rule(pattern, typed)


def parse_spec(text: str, name: str) -> Spec | None:
    """Reads a spec as a person types it: `P('data', None)`, `('data',)`, `P(data, (model, x))`; None for `None` and
    nothing. A `SpecError` of the argument `name` for any other text."""
    if text.strip() in ("", "None"):
        return None
    what = f"{name!r}: cannot read {excerpt(text, 80)!r}"
    try:
        check_size(text, _MOST_TEXT, what, "characters")
        spec, opened = pspec.parse(text.strip(), what, bare=True)
        if any(opened) or spec.unreduced or spec.reduced:
            raise ParseError(f"{what}: only None, axis names and tuples of them can be set here")
    except ParseError as error:
        raise SpecError(f"{error}. Type for example P('data', None)", argument=name) from error
    return spec


def named(values: Iterable[Value], name: str, what: str) -> Value:
    """The value of a name; a `SpecError` where there is none."""
    for value in values:
        if value.name == name:
            return value
    raise SpecError(f"the program has no {what} {name!r}", argument=name)
