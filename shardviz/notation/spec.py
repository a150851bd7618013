"""A PartitionSpec as plain data, and its rules.

>>> Spec.of(("data", None, ("model", "x")))
Spec(dims=(('data',), (), ('model', 'x')), unreduced=())
>>> str(_), _.brackets()
("P('data', None, ('model', 'x'))", '[data, ·, model x]')
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardviz.caching import cached_property
from shardviz.errors import SpecError, excerpt
from shardviz.notation.bounds import MOST_NAME, MOST_NAMED, check_size
from shardviz.notation.mesh import DeviceMesh

Axis = str | tuple[str, int, int]
"""A mesh axis by name, or a part of one: (name, the product of the sizes before it, its size), Shardy's `"x":(2)4`."""


def axis_name(axis: Axis) -> str:
    """Return the mesh axis's name, also for a part of an axis."""
    return axis if isinstance(axis, str) else axis[0]


def axis_size(axis: Axis, mesh: DeviceMesh) -> int:
    """Return the number of devices along an axis or a part of an axis."""
    return mesh.size_of(axis) if isinstance(axis, str) else axis[2]


def axes_size(axes: Iterable[Axis], mesh: DeviceMesh) -> int:
    """Return the number of devices along several axes or parts of axes."""
    return math.prod(axis_size(axis, mesh) for axis in axes)


def axis_part(axis: Axis, mesh: DeviceMesh) -> tuple[str, int, int]:
    """Return an axis as a part: its name, the product of the sizes before it (1 for the full axis), its size."""
    return (axis, 1, mesh.shape[axis]) if isinstance(axis, str) else axis


def axis_text(axis: Axis) -> str:
    """Write `data`, or `model:(2)4` for a part of an axis."""
    return axis if isinstance(axis, str) else f"{axis[0]}:({axis[1]}){axis[2]}"


@dataclass(frozen=True)
class Spec:
    """The mesh axes, major to minor, that shard each dimension of an array.

    Attributes:
        dims: one tuple of axes per dimension; an empty tuple is a dimension that is not sharded.
        unreduced: axes over which the devices hold partial results that are still to be reduced.
        reduced: Explicit axes over which the array is replicated and its gradient stays a partial sum. This is part of
            the array's type and does not affect where its bytes are.
        unreduced_kind: how partial results are reduced, a key of `KINDS`; before JAX 0.12 always a sum.
    """

    dims: tuple[tuple[Axis, ...], ...] = ()
    unreduced: tuple[Axis, ...] = ()
    reduced: tuple[Axis, ...] = field(default=(), repr=False)
    unreduced_kind: str = field(default="sum", repr=False)

    def __post_init__(self) -> None:
        """Reset the kind of reduction if there are no unreduced axes."""
        if not self.unreduced and self.unreduced_kind != "sum":
            object.__setattr__(self, "unreduced_kind", "sum")

    @classmethod
    def of(cls, spec: Any, rank: int | None = None) -> Spec:
        """Read a spec from a PartitionSpec, a tuple such as `("data", None)`, a `Spec`, or None (replicated).

        For a NamedSharding, read its spec; if it names a memory other than the device's, return a `PlacedSpec`.

        Args:
            spec: what to read. An entry is None, an axis name, or a tuple of axis names.
            rank: pad with dimensions that are not sharded up to this many.

        Raises:
            SpecError: for any other entry, and for `P.UNCONSTRAINED`, which `with_open` accepts.
        """
        if not isinstance(spec, Spec):
            kind, entries = getattr(spec, "memory_kind", None), getattr(spec, "spec", spec)
            spec, opened = cls.with_open(entries)
            if any(opened):
                raise SpecError(
                    f"{entries}: dimension {opened.index(True)} is P.UNCONSTRAINED, which only a sharding constraint "
                    "inside the program may use: jax.jit refuses it in in_shardings and out_shardings. Write None for "
                    "a dimension that is not sharded; None in place of a result's whole spec leaves it to the compiler"
                )
            if kind not in (None, DEVICE_MEMORY):
                spec = placed(spec, memory_kind(kind, str(spec)))
        if rank is not None and len(spec.dims) < rank:
            return replace(spec, dims=spec.dims + ((),) * (rank - len(spec.dims)))
        return spec

    @classmethod
    def with_open(cls, spec: Any) -> tuple[Spec, tuple[bool, ...]]:
        """Read a spec as `of` does, and for each dimension whether it is `P.UNCONSTRAINED` (left to the compiler)."""
        if isinstance(spec, Spec):
            return spec, (False,) * len(spec.dims)
        entries = () if spec is None else getattr(spec, "partitions", spec)
        if isinstance(entries, str) or not isinstance(entries, Iterable):
            raise SpecError(f"expected a PartitionSpec such as P('data', None), not {spec!r}")
        entries = tuple(entries)
        is_open = tuple(not isinstance(entry, str) and repr(entry) == "UNCONSTRAINED" for entry in entries)
        dims = tuple(() if o else _entry(e, spec) for e, o in zip(entries, is_open, strict=True))
        unreduced, reduced = (
            tuple(sorted(getattr(spec, name, None) or (), key=str)) for name in ("unreduced", "reduced")
        )
        kind = partial_kind(str(getattr(spec, "unreduced_kind", None)), str(spec)) if unreduced else "sum"
        return cls(dims, unreduced, reduced, kind), is_open

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis that shards a dimension, in order of dimensions."""
        return tuple(axis for dim in self.dims for axis in dim)

    def canonical(self) -> Spec:
        """Return the spec without trailing dimensions that are not sharded, with sorted sets."""
        dims = self.dims
        while dims and not dims[-1]:
            dims = dims[:-1]
        sets = (tuple(sorted(axes, key=axis_text)) for axes in (self.unreduced, self.reduced))
        return Spec(dims, *sets, unreduced_kind=self.unreduced_kind)

    def with_dims(self, dims: tuple[tuple[Axis, ...], ...]) -> Spec:
        """Return a spec with other dimensions and the same partial results, without `reduced` and memory."""
        return Spec(dims, self.unreduced, (), self.unreduced_kind)

    def same_as(self, other: Spec, mesh: DeviceMesh) -> bool:
        """Return whether both specs shard an array equally; trailing None and axes of size 1 make no difference."""
        return self == other or _significant(self, mesh) == _significant(other, mesh)

    def entries(self) -> tuple[Any, ...]:
        """Return the entries as PartitionSpec takes them: None, a name, or a tuple of names."""
        return tuple(None if not d else d[0] if len(d) == 1 and isinstance(d[0], str) else d for d in self.dims)

    def __str__(self) -> str:
        parts = [repr(e) for e in self.entries()]
        for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                parts.append(f"{name}={{{', '.join(map(repr, axes))}}}")
        parts += [f"unreduced_kind={self.unreduced_kind}"] if self.unreduced_kind != "sum" else []
        return f"P({', '.join(parts)})"

    def brackets(self) -> str:
        """Write the short form: `[data, ·]`."""
        text = "[" + ", ".join(" ".join(map(axis_text, d)) or "·" for d in self.dims) + "]"
        kind = f" {self.unreduced_kind} over "
        return text + (kind + " ".join(map(axis_text, self.unreduced)) if self.unreduced else "")


DEVICE_MEMORY = "device"
MEMORY_KINDS = (DEVICE_MEMORY, "pinned_host", "unpinned_host")
"""Memories for a device's shards, by JAX's names: the device's own memory, or its host's."""


def memory_kind(kind: str, where: str) -> str:
    """Return a memory kind; raise SpecError for one that JAX does not have, naming `where` it was read."""
    if kind not in MEMORY_KINDS:
        raise SpecError(f"{where}: memory kind {kind!r}: expected one of {', '.join(map(repr, MEMORY_KINDS))}")
    return kind


@dataclass(frozen=True)
class PlacedSpec(Spec):
    """A spec of an array whose shards are in one of the host's `MEMORY_KINDS`, as a NamedSharding may state."""

    memory_kind: str = "pinned_host"


def memory_of(spec: Spec | None) -> str:
    """Return the memory that a spec names for its shards; empty if it names none."""
    return spec.memory_kind if isinstance(spec, PlacedSpec) else ""


def placed(spec: Spec, kind: str) -> Spec:
    """Return the spec with its shards in a memory; with an empty `kind`, without one."""
    fields = spec.dims, spec.unreduced, spec.reduced, spec.unreduced_kind
    return PlacedSpec(*fields, kind) if kind else Spec(*fields)


KINDS = {"sum": "sums", "max": "maxima", "min": "minima"}
"""Each reduction of partial results, and the plural noun for these results."""


def partial_kind(kind: str, what: str) -> str:
    """Return the reduction, a key of `KINDS`, for JAX's, Shardy's or XLA's name of it (`UnreducedKind.max`, `MAX`).
    "None" is a sum. Raises SpecError about `what` for another name."""
    word = kind.rpartition(".")[2].lower()
    if word in ("none", ""):
        return "sum"
    if word not in KINDS:
        raise SpecError(
            f"{what}: its unreduced axes are of kind {kind}, partial results still to be reduced by their {word}; "
            f"expected one of {', '.join(KINDS)}"
        )
    return word


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
    def larger(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(axis for axis in axes if axis_size(axis, mesh) > 1)

    return Spec(tuple(map(larger, spec.dims)), larger(spec.unreduced), (), spec.unreduced_kind).canonical()


def check_axes(spec: Spec, every: Sequence[tuple[str, Axis]], mesh: DeviceMesh) -> None:
    """Raise SpecError unless every axis is in the mesh and no part of an axis is used twice. `every` has where each
    axis was used (`dimension 0`), and the axis."""
    check_size(every, MOST_NAMED, "sharding", "mentions of axes", SpecError)
    used: dict[str, list[tuple[int, int, str]]] = {}
    sizes = mesh.shape
    for where, axis in every:
        name = axis_name(axis)
        check_size(name, MOST_NAME, f"sharding: axis {excerpt(name)!r}", "characters in its name", SpecError)
        if name not in sizes:
            have = ", ".join(map(repr, sizes)) or "none"
            raise SpecError(f"{spec}: the mesh has no axis {name!r}; it has {have}. Use one of these, or add it")
        before, size = (1, sizes[name]) if isinstance(axis, str) else (axis[1], axis[2])
        if before < 1 or size < 1 or sizes[name] % (before * size):
            must = f"the product of {before} and {size} must divide it"
            raise SpecError(
                f"{spec}: {axis_text(axis)!r} is not a part of the axis {name!r} of size {sizes[name]}; {must}"
            )
        for start, length, other in used.get(name, ()):
            (low, by), (high, wide) = sorted(((before, size), (start, length)))
            if size > 1 and length > 1 and low * by <= high and high % (low * by):
                raise SpecError(
                    f"{spec}: the parts {name}:({low}){by} and {name}:({high}){wide} of an axis do not fit into one "
                    f"factorization of the axis, as {high} is not a multiple of {low * by}"
                )
            if (before < start * length and start < before * size) or (isinstance(axis, str) and length == sizes[name]):
                twice = f"twice by {where}" if other == where else f"by {other} and by {where}"
                once = "an axis can be used only once, so take it from one of them"
                raise SpecError(f"{spec}: axis {axis_text(axis)!r} is used {twice}; {once}")
        used.setdefault(name, []).append((before, size, where))


def check_spec(name: str, shape: Sequence[int], spec: Spec, mesh: DeviceMesh, *, divide: bool = True) -> None:
    """Raise SpecError unless `spec` can shard an array (its tree path, its global shape) on `mesh`, by pjit's rules.
    The rules refuse an axis used twice, an axis that is not in the mesh and more entries than dimensions. With
    `divide`, they also refuse a dimension that does not divide, as `jax.jit` does for arguments and results."""
    label = f"{name} {spec}" if "'" in name or " " in name else f"{name!r} {spec}"

    def refused(why: str, dimension: int | None = None) -> SpecError:
        return SpecError(f"{label}: {why}", argument=name, dimension=dimension)

    axes = mesh.shape
    every = [(dimension, axis) for dimension, entry in enumerate(spec.dims) for axis in entry]
    seen: dict[str, int] = {}
    for dimension, axis in every:
        short = axis_name(axis)
        if short not in axes:
            have = ", ".join(map(repr, axes)) or "none"
            what = f"the mesh has no axis {short!r}; it has {have}. Use one of these, or add {short!r} to the mesh"
            raise refused(what, dimension)
        if isinstance(axis, str) and axis in seen:
            first = seen[axis]
            where = f"dimension {first} twice" if first == dimension else f"dimensions {first} and {dimension}"
            once = "an axis can shard an array only once, so take it from one of them"
            raise refused(f"axis {axis!r} shards {where}; {once}", dimension)
        seen[short] = dimension
    for axis in map(axis_name, spec.reduced):
        explicit = axis in axes and mesh.types[mesh.names.index(axis)] == "Explicit"
        if not explicit or axis in seen or axis in map(axis_name, spec.unreduced):
            why = "is used by the spec already" if explicit else "is not an Explicit axis of the mesh"
            raise refused(
                f"reduced axis {axis!r} {why}; `reduced` is part of a type, for Explicit axes that shard no "
                "dimension and are not unreduced: leave it out" + ("" if explicit else ", or make the axis Explicit")
            )
    if more := max(0, len(spec.dims) - len(shape)):
        what = f"{len(spec.dims)} entries for an array of rank {len(shape)}, shape {tuple(shape)}; leave out {more}"
        raise refused(what, len(shape))
    if not all(isinstance(axis, str) for axis in spec.axes):
        try:
            check_axes(spec, [(f"dimension {dimension}", axis) for dimension, axis in every], mesh)
        except SpecError as error:
            raise SpecError(f"{name!r}: {error}", argument=name) from None
        for dimension, axis in every:
            if not isinstance(axis, str) and axis[2] in (1, axes[axis[0]]):
                problem = "of size 1: leave it out" if axis[2] == 1 else f"all of the axis: write {axis[0]!r}"
                raise refused(f"{axis_text(axis)!r} is {problem}", dimension)
    for dimension, entry in enumerate(spec.dims if divide else ()):
        size, shards = shape[dimension], axes_size(entry, mesh)
        if size % shards:
            by = " x ".join(f"{axis_text(a)!r}={axis_size(a, mesh)}" for a in entry)
            by = f"{by} = {shards}" if len(entry) > 1 else by
            up = -(-size // shards) * shards
            percent = 100 * (up - size) / size
            digits = 0 if percent >= 10 else 2 if percent < 1 else 1
            larger = "doubles it" if up == 2 * size else f"adds {percent:.{digits}f} %"
            raise refused(
                f"dimension {dimension} is {size}, which is not divisible by {by}; padding to {up} {larger}", dimension
            )
