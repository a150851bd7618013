"""Small changes of a plan, as pure functions, and which of them are allowed.

A plan is immutable: each function takes one and gives another. What may be put where is pjit's rule: an axis shards an
array once, and a dimension must be divisible by the axes that shard it.

>>> for choice in choices((6, 8), Spec.of(("data",), 2), DeviceMesh.of({"data": 2, "model": 4}), 0):
...     print(choice.axis, choice.legal, choice.reason)
data False already shards this dimension
model False 6 is not divisible by 'data'=2 x 'model'=4 = 8
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardviz.errors import MeshError, ShardvizError, SpecError, excerpt
from shardviz.notation import Axis, DeviceMesh, Spec, axis_name
from shardviz.notation.spec import axis_size, axis_text
from shardviz.program.rules import Rule

if TYPE_CHECKING:
    from shardviz.program.plan import Plan
    from shardviz.records import Value

_MOST_TEXT = 1000


# What may be put where.


@dataclass(frozen=True)
class Choice:
    """Whether a mesh axis may be added to a dimension.

    Attributes:
        axis: the mesh axis.
        legal: it may be put after the axes that shard the dimension now.
        reason: why not; empty where it may.
        move: it may not be added, but it may be moved here from the dimension that it cuts now.
    """

    axis: str
    legal: bool
    reason: str = ""
    move: bool = False


def choices(shape: Sequence[int], spec: Spec, mesh: DeviceMesh, dimension: int) -> tuple[Choice, ...]:
    """For each axis of the mesh, whether it may be added to a dimension of an array.

    Args:
        shape: the array's shape.
        spec: how the array is sharded now, one entry a dimension.
        mesh: the mesh.
        dimension: the dimension to add to.
    """
    return tuple(_choice(shape, spec, mesh, dimension, axis) for axis in mesh.names)


def _choice(shape: Sequence[int], spec: Spec, mesh: DeviceMesh, dimension: int, axis: str) -> Choice:
    used = next((d for d, entry in enumerate(spec.dims) if any(axis_name(a) == axis for a in entry)), None)
    if used == dimension:
        return Choice(axis, False, "already shards this dimension")
    why = undivided(shape[dimension], (*spec.dims[dimension], axis), mesh)
    if used is not None:
        return Choice(axis, False, f"already shards dimension {used} of this array", move=not why)
    return Choice(axis, not why, why)


def undivided(size: int, axes: Sequence[Axis], mesh: DeviceMesh) -> str:
    """Why a size is not divisible by these axes together; empty where it is."""
    ways = math.prod(axis_size(a, mesh) for a in axes)
    if size % ways == 0:
        return ""
    what = " x ".join(f"{axis_text(a)!r}={axis_size(a, mesh)}" for a in axes)
    return f"{size} is not divisible by {what}" + (f" = {ways}" if len(axes) > 1 else "")


# Changes of the mesh and of the rules.


def mesh_with_axis(mesh: DeviceMesh, name: str, size: int) -> DeviceMesh:
    """The mesh with one more axis, the minor one."""
    return DeviceMesh((*mesh.names, name), (*mesh.sizes, size), (*mesh.types, "Auto"), in_order=mesh.in_order)


def mesh_with_size(mesh: DeviceMesh, name: str, size: int) -> DeviceMesh:
    """The mesh with another number of devices along one axis."""
    place = _place(mesh, name)
    sizes = (*mesh.sizes[:place], size, *mesh.sizes[place + 1 :])
    return DeviceMesh(mesh.names, sizes, mesh.types, in_order=mesh.in_order)


def _place(mesh: DeviceMesh, axis: str) -> int:
    if axis not in mesh.names:
        raise MeshError(f"the mesh {mesh} has no axis {axis!r}; it has {', '.join(map(repr, mesh.names)) or 'none'}")
    return mesh.names.index(axis)


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


# What a person types.


def parse_spec(text: str, name: str) -> Spec | None:
    """Reads a spec as a person types it: `P('data', None)`, `('data',)`, `P(data, (model, x))`, or `None`.

    Nothing is evaluated: the text is read as a Python expression of names, strings, tuples and `None`.

    Args:
        text: what was typed.
        name: the argument that it is for, for the message.

    Returns:
        The spec; None for `None` and for nothing.

    Raises:
        SpecError: if the text is no spec.
    """
    if not text.strip():
        return None
    if len(text) > _MOST_TEXT or _nesting(text) > 10:  # deep nesting can harm Python's own parser for good
        raise _unreadable(text, name, "it is too long or nested too deep")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _unreadable(text, name, "it is not Python") from error
    if isinstance(tree, ast.Constant) and tree.value is None:
        return None
    if isinstance(tree, ast.Call):
        if tree.keywords:
            raise _unreadable(text, name, f"{tree.keywords[0].arg!r} cannot be set here")
        called = tree.func.attr if isinstance(tree.func, ast.Attribute) else getattr(tree.func, "id", "")
        if called not in ("P", "PartitionSpec"):
            callee = excerpt(ast.get_source_segment(text.strip(), tree.func) or called, 60)
            raise _unreadable(text, name, f"{callee!r} is neither P nor PartitionSpec")
        entries = tree.args
    elif isinstance(tree, ast.Tuple | ast.List):
        entries = tree.elts
    else:
        entries = [tree]
    try:
        return Spec.of(tuple(_entry(e) for e in entries))
    except (ShardvizError, TypeError) as error:
        raise _unreadable(text, name, "an entry must be None, an axis name or a tuple of axis names") from error


def _nesting(text: str) -> int:
    deep = most = 0
    for character in text:
        deep += (character in "([{") - (character in ")]}")
        most = max(most, deep)
    return most


def _entry(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | int)):
        return node.value
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(_entry(e) for e in node.elts)
    raise TypeError(f"{type(node).__name__} is not part of a spec")


def _unreadable(text: str, name: str, why: str) -> SpecError:
    shown = text if len(text) <= 80 else text[:77] + "..."
    return SpecError(f"{name!r}: cannot read {shown!r}: {why}. Type for example P('data', None)", argument=name)


def named(values: Iterable[Value], name: str, what: str) -> Value:
    """The value of a name.

    Raises:
        SpecError: if there is none.
    """
    for value in values:
        if value.name == name:
            return value
    raise SpecError(f"the program has no {what} {name!r}", argument=name)
