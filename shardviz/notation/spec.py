"""A PartitionSpec as plain data, and the rules it must obey.

>>> Spec.of(("data", None, ("model", "x")))
Spec(dims=(('data',), (), ('model', 'x')), unreduced=())
>>> str(_), _.brackets()
("P('data', None, ('model', 'x'))", '[data, ·, model x]')
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardviz.errors import SpecError
from shardviz.notation.mesh import DeviceMesh

Axis = str | tuple[str, int, int]
"""A mesh axis by name, or a part of one: (name, the product of the sizes before it, its size), Shardy's `"x":(2)4`."""


def axis_name(axis: Axis) -> str:
    """The name of the mesh axis that `axis` is, or is a part of."""
    return axis if isinstance(axis, str) else axis[0]


def axis_size(axis: Axis, mesh: DeviceMesh) -> int:
    """The number of devices along an axis or a part of one."""
    return mesh.shape[axis] if isinstance(axis, str) else axis[2]


def axis_part(axis: Axis, mesh: DeviceMesh) -> tuple[str, int, int]:
    """An axis in the form of a part: its name, the product of the sizes before it (1 for a whole axis), its size."""
    return (axis, 1, mesh.shape[axis]) if isinstance(axis, str) else axis


def axis_text(axis: Axis) -> str:
    """`data`, or `model:(2)4` for a part of an axis."""
    return axis if isinstance(axis, str) else f"{axis[0]}:({axis[1]}){axis[2]}"


@dataclass(frozen=True)
class Spec:
    """How an array is cut: for each dimension the mesh axes that cut it, major to minor.

    Attributes:
        dims: one tuple of axes a dimension; an empty tuple is a dimension that is not cut.
        unreduced: axes over which the array still is a partial sum.
    """

    dims: tuple[tuple[Axis, ...], ...] = ()
    unreduced: tuple[Axis, ...] = ()

    @classmethod
    def of(cls, spec: Any, rank: int | None = None) -> Spec:
        """Reads a spec from a PartitionSpec, a tuple such as `("data", None)`, a `Spec`, or None (replicated).

        Args:
            spec: what to read. An entry is None, an axis name, or a tuple of axis names.
            rank: pad with dimensions that are not cut up to this many.

        Raises:
            SpecError: for an entry that is none of these.
        """
        if not isinstance(spec, Spec):
            spec = cls(tuple(_entry(e, spec) for e in _entries(spec)), _unreduced(spec))
        if rank is not None and len(spec.dims) < rank:
            spec = cls(spec.dims + ((),) * (rank - len(spec.dims)), spec.unreduced)
        return spec

    @classmethod
    def with_open(cls, spec: Any) -> tuple[Spec, tuple[bool, ...]]:
        """As `of`, and for each dimension whether it is `P.UNCONSTRAINED`, left to the compiler.

        Raises:
            SpecError: as `of` does.
        """
        if isinstance(spec, Spec):
            return spec, (False,) * len(spec.dims)
        entries = _entries(spec)
        opened = tuple(not isinstance(entry, str) and repr(entry) == "UNCONSTRAINED" for entry in entries)
        closed = zip(entries, opened, strict=True)
        return cls(tuple(() if o else _entry(e, spec) for e, o in closed), _unreduced(spec)), opened

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis that cuts a dimension, in order of dimensions."""
        return tuple(axis for dim in self.dims for axis in dim)

    def canonical(self) -> Spec:
        """Without the trailing dimensions that are not cut."""
        dims = self.dims
        while dims and not dims[-1]:
            dims = dims[:-1]
        return Spec(dims, tuple(sorted(self.unreduced, key=axis_text)))

    def same_as(self, other: Spec, mesh: DeviceMesh) -> bool:
        """Whether both cut an array in the same way: trailing None and axes of size 1 make no difference."""
        return _significant(self, mesh) == _significant(other, mesh)

    def entries(self) -> tuple[Any, ...]:
        """The entries as PartitionSpec takes them: None, a name, or a tuple of names."""
        return tuple(None if not d else d[0] if len(d) == 1 and isinstance(d[0], str) else d for d in self.dims)

    def __str__(self) -> str:
        parts = [repr(e) for e in self.entries()]
        if self.unreduced:
            parts.append("unreduced={" + ", ".join(repr(a) for a in self.unreduced) + "}")
        return f"P({', '.join(parts)})"

    def brackets(self) -> str:
        """The short form: `[data, ·]`."""
        text = "[" + ", ".join(" ".join(map(axis_text, d)) or "·" for d in self.dims) + "]"
        return text + (" sum over " + " ".join(map(axis_text, self.unreduced)) if self.unreduced else "")


def only_sums(kind: str, what: str) -> None:
    """Raises for unreduced axes of another kind than sums, which JAX has from 0.12 on.

    Args:
        kind: JAX's, Shardy's or XLA's name of the kind; "None" where it is not said.
        what: the sharding, for the message.

    Raises:
        SpecError: if it is no sum.
    """
    if kind.rpartition(".")[2].lower() not in ("none", "sum", ""):
        raise SpecError(
            f"{what}: its unreduced axes are of kind {kind}, partial results still to be reduced by their "
            f"{kind.rpartition('.')[2].lower()}; only partial sums are known here"
        )


def _entries(spec: Any) -> tuple[Any, ...]:
    entries = () if spec is None else getattr(spec, "partitions", spec)
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise SpecError(f"expected a PartitionSpec such as P('data', None), not {spec!r}")
    return tuple(entries)


def _unreduced(spec: Any) -> tuple[Axis, ...]:
    found = tuple(sorted(getattr(spec, "unreduced", None) or (), key=str))
    if found:
        only_sums(str(getattr(spec, "unreduced_kind", None)), str(spec))
    return found


def _entry(entry: Any, spec: Any) -> tuple[Axis, ...]:
    if entry is None:
        return ()
    if isinstance(entry, str):
        return (entry,)
    if isinstance(entry, Sequence):
        if _is_part(entry):
            return ((entry[0], entry[1], entry[2]),)
        if all(isinstance(a, str) or _is_part(a) for a in entry):
            return tuple(a if isinstance(a, str) else (a[0], a[1], a[2]) for a in entry)
    raise SpecError(f"{spec!r}: an entry must be None, an axis name or a tuple of axis names, not {entry!r}")


def _is_part(axis: Any) -> bool:
    return (
        isinstance(axis, Sequence)
        and len(axis) == 3
        and isinstance(axis[0], str)
        and all(isinstance(n, int) for n in axis[1:])
    )


def _significant(spec: Spec, mesh: DeviceMesh) -> Spec:
    keep = lambda axes: tuple(a for a in axes if axis_size(a, mesh) > 1)  # noqa: E731
    return Spec(tuple(keep(d) for d in spec.dims), keep(spec.unreduced)).canonical()


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


def check_spec(name: str, shape: Sequence[int], spec: Spec, mesh: DeviceMesh, *, divide: bool = True) -> None:
    """Raises unless `spec` can cut an array of `shape` on `mesh`, by pjit's rules.

    Args:
        name: the array's tree path, for the message.
        shape: the array's global shape.
        spec: the spec to check.
        mesh: the mesh.
        divide: also ask that every dimension divides, as arguments and results of `jax.jit` must.

    Raises:
        SpecError: an axis used twice, an axis that is not in the mesh, more entries than dimensions, or a dimension
            that does not divide. The message says which, and what would do.
    """
    given = f"{name} {spec}" if "'" in name or " " in name else f"{name!r} {spec}"
    axes = mesh.shape
    seen: dict[str, int] = {}
    for dimension, entry in enumerate(spec.dims):
        for axis in entry:
            short = axis_name(axis)
            if short not in axes:
                have = ", ".join(map(repr, axes)) or "none"
                raise SpecError(
                    f"{given}: the mesh has no axis {short!r}; it has {have}. Use one of these, "
                    f"or add {short!r} to the mesh",
                    argument=name,
                    dimension=dimension,
                )
            if isinstance(axis, str) and axis in seen:
                where = (
                    f"dimensions {seen[axis]} and {dimension}"
                    if seen[axis] != dimension
                    else f"dimension {dimension} twice"
                )
                raise SpecError(
                    f"{given}: axis {axis!r} cuts {where}; an axis can cut an array only once, "
                    "so take it from one of them",
                    argument=name,
                    dimension=dimension,
                )
            seen[short] = dimension
    if len(spec.dims) > len(shape):
        raise SpecError(
            f"{given}: {len(spec.dims)} entries for an array of rank {len(shape)}, shape {tuple(shape)}; "
            f"leave out {len(spec.dims) - len(shape)}",
            argument=name,
            dimension=len(shape),
        )
    if not divide:
        return
    for dimension, entry in enumerate(spec.dims):
        ways = math.prod(axis_size(a, mesh) for a in entry)
        if ways > 1 and shape[dimension] % ways:
            size = shape[dimension]
            what = " x ".join(f"{axis_text(a)!r}={axis_size(a, mesh)}" for a in entry)
            what = f"{what} = {ways}" if len(entry) > 1 else what
            up = -(-size // ways) * ways
            percent = 100 * (up - size) / size if size else 0
            digits = 0 if percent >= 10 else 2 if percent < 1 else 1
            share = f" ({up - size} more, {percent:.{digits}f} %)" if size else ""
            raise SpecError(
                f"{given}: dimension {dimension} is {size} and does not divide by {what}; {up} would{share}",
                argument=name,
                dimension=dimension,
            )
