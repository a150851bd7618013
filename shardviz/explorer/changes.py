"""Small changes of a plan as pure functions, and the rules for allowed changes.

A plan is immutable: each function takes a plan and returns another. pjit's rules apply: an axis shards an array at most
once, and a dimension must be divisible by its axes.

>>> for choice in choices((6, 8), Spec.of(("data",), 2), DeviceMesh.of({"data": 2, "model": 4}), 0):
...     print(choice.axis, choice.legal, choice.reason)
data False already shards this dimension
model False 6 is not divisible by 'data'=2 x 'model'=4 = 8
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shardviz.errors import MeshError, ParseError, ShardvizError, SpecError, excerpt
from shardviz.notation import Axis, DeviceMesh, Spec, axis_name, pspec
from shardviz.notation.bounds import check_size
from shardviz.notation.spec import axis_size, axis_text
from shardviz.records.amounts import plural
from shardviz.tracing.rules import Rule

if TYPE_CHECKING:
    from shardviz.ask.program import Program
    from shardviz.plan.bind import Undivided
    from shardviz.plan.plan import Plan
    from shardviz.records import Value
    from shardviz.records.report import PlanRecord

_MOST_TEXT = 1000


@dataclass(frozen=True)
class AxisChoice:
    """Whether a mesh axis may be added to a dimension, and the reason if not.

    `move`: it may be moved here from the dimension that it shards now.
    """

    axis: str
    legal: bool
    reason: str = ""
    move: bool = False


def choices(shape: Sequence[int], spec: Spec, mesh: DeviceMesh, dimension: int) -> tuple[AxisChoice, ...]:
    """Return for each mesh axis whether it may be added to a dimension of an array with this spec."""
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
    """Return why a size is not divisible by these axes together; empty if it is."""
    count = math.prod(axis_size(a, mesh) for a in axes)
    if size % count == 0:
        return ""
    what = " x ".join(f"{axis_text(a)!r}={axis_size(a, mesh)}" for a in axes)
    return f"{size} is not divisible by {what}" + (f" = {count}" if len(axes) > 1 else "")


def mesh_with_axis(mesh: DeviceMesh, name: str, size: int) -> DeviceMesh:
    """Return the mesh with a new minor axis."""
    return DeviceMesh((*mesh.names, name), (*mesh.sizes, size), (*mesh.types, "Auto"), in_order=mesh.in_order)


def mesh_with_size(mesh: DeviceMesh, name: str, size: int) -> DeviceMesh:
    """Return the mesh with another size of one axis."""
    if name not in mesh.names:
        raise MeshError(f"the mesh {mesh} has no axis {name!r}; it has {', '.join(map(repr, mesh.names)) or 'none'}")
    place = mesh.names.index(name)
    sizes = (*mesh.sizes[:place], size, *mesh.sizes[place + 1 :])
    return DeviceMesh(mesh.names, sizes, mesh.types, in_order=mesh.in_order)


def with_rules(plan: Plan, place: int, change: Callable[[list[Rule]], Any]) -> Plan:
    """Return the plan with its rules changed by `change`; the rule at `place` must exist."""
    rules = list(plan.rules)
    if not 0 <= place < len(rules):
        raise ShardvizError(f"rule {place + 1} does not exist; the plan has {len(rules)} rules")
    change(rules)
    return plan.with_rules(rules)


def rule(pattern: str, spec: Spec | str | None) -> Rule:
    """Return a rule from text that a user typed."""
    if not pattern.strip():
        raise ShardvizError("a rule needs a pattern of the tree path, such as *kernel, or * for everything")
    return Rule(pattern.strip(), parse_spec(spec, "the rule") if isinstance(spec, str) else spec)


def changed_rule(old: Rule, pattern: str | None, spec: str | None) -> Rule:
    """Return a rule with another pattern or spec; None keeps the old one."""
    typed = old.spec if spec is None else parse_spec(spec, "the rule")
    return Rule(old.filter, typed) if pattern is None else rule(pattern, typed)


def parse_spec(text: str, name: str) -> Spec | None:
    """Parse a spec as typed: `P('data', None)`, `('data',)`, `P(data, (model, x))`; None for `None` or an empty text.

    Raises SpecError for the argument `name` if the text cannot be parsed.
    """
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
    """Return the value with a name. Raises SpecError if there is none."""
    for value in values:
        if value.name == name:
            return value
    raise SpecError(f"the program has no {what} {name!r}", argument=name)


@dataclass(frozen=True)
class Alternative:
    """A plan to take instead of a refused one, in a few words; `tip` lists the arrays that it changes."""

    text: str
    tip: str
    plan: Plan


def alternatives(program: Program, wanted: Plan, now: PlanRecord) -> tuple[Alternative, ...]:
    """Return plans to take instead of one that was refused because a dimension does not divide.

    Empty for other reasons, and if the result would be the current plan (`now`).
    """
    try:
        uneven = program._undivided(wanted)
        other = _dropped(wanted, uneven) if uneven else None
        return (other,) if other is not None and program.bind(other.plan) != now else ()
    except ShardvizError:
        return ()


def with_specs(plan: Plan, specs: Mapping[tuple[str, str], Spec | None]) -> Plan:
    """Return the plan with specs for arrays, by role and path."""
    inputs = {path: spec for (role, path), spec in specs.items() if role == "argument"}
    outputs = {path: spec for (role, path), spec in specs.items() if role == "output"}
    return plan.with_spec(inputs).with_spec(outputs, output=True)


def _dropped(wanted: Plan, uneven: Sequence[Undivided]) -> Alternative:
    """Return the plan with each uneven dimension sharded along as many of its axes as divide it."""
    specs: dict[tuple[str, str], Spec] = {}
    dropped: dict[str, None] = {}
    for (role, path, dimension), size, whole in uneven:
        spec = specs.get((role, path), whole)
        axes, mesh = spec.dims[dimension], wanted.mesh
        most = max(n for n in range(len(axes) + 1) if not size % math.prod(axis_size(a, mesh) for a in axes[:n]))
        kept = axes[:most]
        dropped |= dict.fromkeys(map(axis_name, axes[most:]))
        dims = (*spec.dims[:dimension], kept, *spec.dims[dimension + 1 :])
        specs[role, path] = replace(spec, dims=dims)
    return Alternative(
        f"drop {' and '.join(dropped)} where it does not divide ({plural(len(specs), 'array')})",
        ", ".join(path for _, path in specs),
        with_specs(wanted, specs),
    )
