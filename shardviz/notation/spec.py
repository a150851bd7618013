"""A PartitionSpec as plain data, and the rules it must obey.

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
    """The name of the mesh axis that `axis` is, or is a part of."""
    return axis if isinstance(axis, str) else axis[0]


def axis_size(axis: Axis, mesh: DeviceMesh) -> int:
    """The number of devices along an axis or a part of one."""
    return mesh.size_of(axis) if isinstance(axis, str) else axis[2]


def axes_size(axes: Iterable[Axis], mesh: DeviceMesh) -> int:
    """Devices along mesh axes, or parts of axes, taken together."""
    return math.prod(axis_size(axis, mesh) for axis in axes)


def axis_part(axis: Axis, mesh: DeviceMesh) -> tuple[str, int, int]:
    """An axis in the form of a part: its name, the product of the sizes before it (1 for a whole axis), its size."""
    return (axis, 1, mesh.shape[axis]) if isinstance(axis, str) else axis


def axis_text(axis: Axis) -> str:
    """`data`, or `model:(2)4` for a part of an axis."""
    return axis if isinstance(axis, str) else f"{axis[0]}:({axis[1]}){axis[2]}"


@dataclass(frozen=True)
class Spec:
    """How an array is sharded: for each dimension the mesh axes that shard it, major to minor.

    Attributes:
        dims: one tuple of axes a dimension; an empty tuple is a dimension that is not sharded.
        unreduced: axes over which the devices hold partial results, still to be reduced: partial sums, or another kind.
        reduced: Explicit axes over which the array is whole, and its gradient is to be left a partial sum. That is in
            its type, and says nothing of where its bytes are.
        unreduced_kind: what reduces the partial results, one of `KINDS`; JAX has others than sums from 0.12 on.
    """

    dims: tuple[tuple[Axis, ...], ...] = ()
    unreduced: tuple[Axis, ...] = ()
    reduced: tuple[Axis, ...] = field(default=(), repr=False)
    unreduced_kind: str = field(default="sum", repr=False)

    def __post_init__(self) -> None:
        """Where nothing is left to be reduced there is no kind."""
        if not self.unreduced and self.unreduced_kind != "sum":
            object.__setattr__(self, "unreduced_kind", "sum")

    @classmethod
    def of(cls, spec: Any, rank: int | None = None) -> Spec:
        """Reads a spec from a PartitionSpec, a tuple such as `("data", None)`, a `Spec`, or None (replicated).

        Of a NamedSharding it is the spec; where that names another memory than the device's, a `PlacedSpec`.

        Args:
            spec: what to read. An entry is None, an axis name, or a tuple of axis names.
            rank: pad with dimensions that are not sharded up to this many.

        Raises:
            SpecError: for an entry that is none of these; `P.UNCONSTRAINED` is for `with_open`.
        """
        if not isinstance(spec, Spec):
            kind, entries = getattr(spec, "memory_kind", None), getattr(spec, "spec", spec)
            spec, opened = cls.with_open(entries)
            if any(opened):
                raise SpecError(
                    f"{entries}: dimension {opened.index(True)} is P.UNCONSTRAINED, which only a sharding constraint "
                    "inside the program may say: an argument or a result lies somewhere, so jax.jit refuses it in "
                    "in_shardings and out_shardings too. Write None for a dimension that is not sharded; None in place "
                    "of a result's whole spec leaves it to the compiler"
                )
            if kind not in (None, DEVICE_MEMORY):
                spec = placed(spec, memory_kind(kind, str(spec)))
        if rank is not None and len(spec.dims) < rank:
            return replace(spec, dims=spec.dims + ((),) * (rank - len(spec.dims)))
        return spec

    @classmethod
    def with_open(cls, spec: Any) -> tuple[Spec, tuple[bool, ...]]:
        """As `of`, and for each dimension whether it is `P.UNCONSTRAINED`, left to the compiler. Raises SpecError as
        `of` does."""
        if isinstance(spec, Spec):
            return spec, (False,) * len(spec.dims)
        entries = () if spec is None else getattr(spec, "partitions", spec)
        if isinstance(entries, str) or not isinstance(entries, Iterable):
            raise SpecError(f"expected a PartitionSpec such as P('data', None), not {spec!r}")
        entries = tuple(entries)
        opened = tuple(not isinstance(entry, str) and repr(entry) == "UNCONSTRAINED" for entry in entries)
        dims = tuple(() if o else _entry(e, spec) for e, o in zip(entries, opened, strict=True))
        unreduced, reduced = (
            tuple(sorted(getattr(spec, which, None) or (), key=str)) for which in ("unreduced", "reduced")
        )
        kind = partial_kind(str(getattr(spec, "unreduced_kind", None)), str(spec)) if unreduced else "sum"
        return cls(dims, unreduced, reduced, kind), opened

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis that shards a dimension, in order of dimensions."""
        return tuple(axis for dim in self.dims for axis in dim)

    def canonical(self) -> Spec:
        """Without the trailing dimensions that are not sharded."""
        dims = self.dims
        while dims and not dims[-1]:
            dims = dims[:-1]
        sets = (tuple(sorted(axes, key=axis_text)) for axes in (self.unreduced, self.reduced))
        return Spec(dims, *sets, unreduced_kind=self.unreduced_kind)

    def with_dims(self, dims: tuple[tuple[Axis, ...], ...]) -> Spec:
        """Other dimensions, and the same partial results; of memories and gradients it says nothing."""
        return Spec(dims, self.unreduced, (), self.unreduced_kind)

    def same_as(self, other: Spec, mesh: DeviceMesh) -> bool:
        """Whether both shard an array in the same way: trailing None and axes of size 1 make no difference."""
        if self == other:
            return True
        return _significant(self, mesh) == _significant(other, mesh)

    def entries(self) -> tuple[Any, ...]:
        """The entries as PartitionSpec takes them: None, a name, or a tuple of names."""
        return tuple(None if not d else d[0] if len(d) == 1 and isinstance(d[0], str) else d for d in self.dims)

    def __str__(self) -> str:
        parts = [repr(e) for e in self.entries()]
        for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
            if axes:
                parts.append(f"{name}={{{', '.join(map(repr, axes))}}}")
        parts += [f"unreduced_kind={self.unreduced_kind}"] if self.unreduced_kind != "sum" else []
        return f"P({', '.join(parts)})"

    def brackets(self) -> str:
        """The short form: `[data, ·]`."""
        text = "[" + ", ".join(" ".join(map(axis_text, d)) or "·" for d in self.dims) + "]"
        kind = f" {self.unreduced_kind} over "
        return text + (kind + " ".join(map(axis_text, self.unreduced)) if self.unreduced else "")


DEVICE_MEMORY = "device"
MEMORY_KINDS = (DEVICE_MEMORY, "pinned_host", "unpinned_host")
"""Where a device's shards may lie, in JAX's words: its own memory, or its host's."""


def memory_kind(kind: str, where: str) -> str:
    """A memory kind; a `SpecError`, which says `where`, for what JAX knows no memory of."""
    if kind not in MEMORY_KINDS:
        raise SpecError(f"{where}: memory kind {kind!r}: expected one of {', '.join(map(repr, MEMORY_KINDS))}")
    return kind


@dataclass(frozen=True)
class PlacedSpec(Spec):
    """A spec of an array whose shards lie in another memory (one of `MEMORY_KINDS`) than the device's, as a
    NamedSharding may say."""

    memory_kind: str = "pinned_host"


def memory_of(spec: Spec | None) -> str:
    """The memory that a spec says its shards lie in; empty where it says none."""
    return spec.memory_kind if isinstance(spec, PlacedSpec) else ""


def placed(spec: Spec, kind: str) -> Spec:
    """The spec of an array whose shards lie in a memory; empty for one that says nothing of it."""
    fields = spec.dims, spec.unreduced, spec.reduced, spec.unreduced_kind
    return PlacedSpec(*fields, kind) if kind else Spec(*fields)


KINDS = {"sum": "sums", "max": "maxima", "min": "minima"}
"""What may reduce partial results → what these are then called."""


def partial_kind(kind: str, what: str) -> str:
    """What reduces partial results, one of `KINDS`, from JAX's, Shardy's or XLA's name of it (`UnreducedKind.max`,
    `MAX`; "None" where it is not said). A `SpecError` about `what` for another."""
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
    keep = lambda axes: tuple(a for a in axes if axis_size(a, mesh) > 1)  # noqa: E731
    return Spec(tuple(keep(d) for d in spec.dims), keep(spec.unreduced), (), spec.unreduced_kind).canonical()


def check_axes(spec: Spec, every: Sequence[tuple[str, Axis]], mesh: DeviceMesh) -> None:
    """A `SpecError` unless each axis is one of the mesh and no place along an axis is used twice; `every` has where
    each stands (`dimension 0`), and the axis."""
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
                f"{spec}: {axis_text(axis)!r} is no part of the axis {name!r} of size {sizes[name]}; {must}"
            )
        for start, length, other in used.get(name, ()):
            (low, by), (high, wide) = sorted(((before, size), (start, length)))
            if size > 1 and length > 1 and low * by <= high and high % (low * by):
                raise SpecError(
                    f"{spec}: the parts {name}:({low}){by} and {name}:({high}){wide} of an axis cannot stand side by "
                    f"side, as {high} is no multiple of {low * by}"
                )
            if (before < start * length and start < before * size) or (isinstance(axis, str) and length == sizes[name]):
                twice = f"twice by {where}" if other == where else f"by {other} and by {where}"
                once = "an axis can be used only once, so take it from one of them"
                raise SpecError(f"{spec}: axis {axis_text(axis)!r} is used {twice}; {once}")
        used.setdefault(name, []).append((before, size, where))


def check_spec(name: str, shape: Sequence[int], spec: Spec, mesh: DeviceMesh, *, divide: bool = True) -> None:
    """Raises SpecError unless `spec` can shard an array (its tree path, its global shape) on `mesh`, by pjit's rules:
    for an axis used twice or that is not in the mesh, more entries than dimensions or, with `divide`, a dimension that
    does not divide, as those of arguments and results of `jax.jit` must. The message says which, and what would do."""
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
            why = "is used by the spec already" if explicit else "is no Explicit axis of the mesh"
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
                mend = "of size 1: leave it out" if axis[2] == 1 else f"all of the axis: write {axis[0]!r}"
                raise refused(f"{axis_text(axis)!r} is {mend}", dimension)
    for dimension, entry in enumerate(spec.dims if divide else ()):
        size, ways = shape[dimension], axes_size(entry, mesh)
        if size % ways:
            by = " x ".join(f"{axis_text(a)!r}={axis_size(a, mesh)}" for a in entry)
            by = f"{by} = {ways}" if len(entry) > 1 else by
            up = -(-size // ways) * ways
            percent = 100 * (up - size) / size
            digits = 0 if percent >= 10 else 2 if percent < 1 else 1
            larger = "doubles it" if up == 2 * size else f"adds {percent:.{digits}f} %"
            raise refused(
                f"dimension {dimension} is {size}, which is not divisible by {by}; padding to {up} {larger}", dimension
            )
