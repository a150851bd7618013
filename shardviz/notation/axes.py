"""The axes of a sharding, in the form in which a record has them, and whether they fit the mesh.

>>> mesh = DeviceMesh.of({"a": 2, "b": 4})
>>> joined((("b", 1, 2), ("b", 2, 2)), mesh), ordered((("b", 1, 2), "a"), mesh)
(('b',), ('a', ('b', 1, 2)))
"""

from __future__ import annotations

from collections.abc import Sequence

from shardviz.errors import SpecError
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axis_name, axis_text
from shardviz.notation.strides import merge


def joined(dim: Sequence[Axis], mesh: DeviceMesh) -> tuple[Axis, ...]:
    """Axes with neighbouring parts joined, whole axes by name; a whole axis of size 1 stays as it was written."""
    if all(isinstance(axis, str) for axis in dim):
        return tuple(dim)
    return merge(((a, 1, mesh.shape[a]) if isinstance(a, str) else a for a in dim), mesh)


def ordered(axes: Sequence[Axis], mesh: DeviceMesh) -> tuple[Axis, ...]:
    """A set of axes in the mesh's order, as XLA and Shardy insist on, with neighbouring parts joined."""
    place = {name: i for i, name in enumerate(mesh.names)}
    return joined(sorted(axes, key=lambda a: (place[axis_name(a)], 1 if isinstance(a, str) else a[1])), mesh)


def check_axes(spec: Spec, every: Sequence[tuple[str, Axis]], mesh: DeviceMesh) -> None:
    """Raises unless each axis is one of the mesh, and no place along an axis is used twice.

    Args:
        spec: the spec, for the message.
        every: where each axis stands (such as `dimension 0`), and the axis.
        mesh: the mesh.

    Raises:
        SpecError: with what was found, and what would do.
    """
    used: dict[str, list[tuple[int, int, str]]] = {}
    sizes = mesh.shape
    for where, axis in every:
        name = axis_name(axis)
        if name not in sizes:
            have = ", ".join(map(repr, sizes)) or "none"
            raise SpecError(f"{spec}: the mesh has no axis {name!r}; it has {have}. Use one of these, or add it")
        before, size = (1, sizes[name]) if isinstance(axis, str) else (axis[1], axis[2])
        if before < 1 or size < 1 or sizes[name] % (before * size):
            raise SpecError(
                f"{spec}: {axis_text(axis)!r} is no part of the axis {name!r} of size {sizes[name]}; the product of "
                f"{before} and {size} must divide it"
            )
        for start, length, other in used.get(name, ()):
            first, second = sorted(((before, size), (start, length)))
            if size > 1 and length > 1 and first[0] * first[1] <= second[0] and second[0] % (first[0] * first[1]):
                raise SpecError(
                    f"{spec}: the parts {name}:({first[0]}){first[1]} and {name}:({second[0]}){second[1]} of an axis "
                    f"cannot stand side by side, as {second[0]} is no multiple of {first[0] * first[1]}"
                )
            if (before < start * length and start < before * size) or (isinstance(axis, str) and length == sizes[name]):
                twice = f"twice by {where}" if other == where else f"by {other} and by {where}"
                raise SpecError(
                    f"{spec}: axis {axis_text(axis)!r} is used {twice}; an axis can be used only once, so take it from "
                    "one of them"
                )
        used.setdefault(name, []).append((before, size, where))
