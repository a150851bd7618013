"""pmap's notation for a sharding, found in old code and papers; current JAX no longer has it.

Chunking an array's dimensions makes *sharded axes*, numbered in order. The mesh mapping assigns each mesh axis to a
sharded axis, or to copies:

>>> spec = ShardingSpec((Chunked((4,)), NoSharding()), (Replicated(2), ShardedAxis(0)))
>>> spec.mesh_shape, str(spec.to_sharding("a=2,b=4"))
((2, 4), '[b, ·]')

`Unstacked` shards a dimension into pieces of one element and removes it from the shards:

>>> unstacked = ShardingSpec((Unstacked(4), NoSharding()), (ShardedAxis(0),))
>>> str(unstacked.to_sharding().to("pmap"))
'ShardingSpec((Unstacked(4), NoSharding()), (ShardedAxis(axis=0),))'
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz.errors import ParseError, SpecError, excerpt
from shardviz.notation.bounds import MOST_AXES, check_size
from shardviz.notation.letters import NOT_SHARDED, Letter, Piece
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.spec import Axis, Spec, axis_part


@dataclass(frozen=True)
class NoSharding:
    """A dimension that is not sharded."""


@dataclass(frozen=True)
class Chunked:
    """A dimension sharded into chunks, the chunks into smaller chunks, and so on; each level is a sharded axis."""

    chunks: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", tuple(_count(n, self) for n in self.chunks))

    def __repr__(self) -> str:
        return f"Chunked({','.join(map(str, self.chunks))})"  # as JAX wrote it


@dataclass(frozen=True)
class Unstacked:
    """A dimension of this size that the shards lack: each device has one of its elements."""

    size: int

    def __post_init__(self) -> None:
        _count(self.size, self)

    def __repr__(self) -> str:
        return f"Unstacked({self.size})"  # as JAX wrote it


@dataclass(frozen=True)
class ShardedAxis:
    """A mesh axis that shards the sharded axis of this number."""

    axis: int


@dataclass(frozen=True)
class Replicated:
    """A mesh axis along which the devices hold this number of copies."""

    replicas: int

    def __post_init__(self) -> None:
        _count(self.replicas, self)


@dataclass(frozen=True)
class ShardingSpec:
    """The sharding of each dimension (`NoSharding` or None, `Chunked`, `Unstacked`), and the mapping to a mesh. The
    mesh has no axis names. Each of its axes, major to minor, is `ShardedAxis` or `Replicated`."""

    sharding: tuple[NoSharding | Chunked | Unstacked, ...]
    mesh_mapping: tuple[ShardedAxis | Replicated, ...]

    def __post_init__(self) -> None:
        dims = tuple(NoSharding() if d is None else d for d in self.sharding)
        for dim in dims:
            if not isinstance(dim, NoSharding | Chunked | Unstacked):
                raise SpecError(f"ShardingSpec: a dimension is NoSharding, Chunked or Unstacked, not {dim!r}")
        object.__setattr__(self, "sharding", dims)
        object.__setattr__(self, "mesh_mapping", tuple(self.mesh_mapping))
        for entry in self.mesh_mapping:
            if not isinstance(entry, ShardedAxis | Replicated):
                raise SpecError(f"ShardingSpec: a mesh axis is ShardedAxis or Replicated, not {entry!r}")
        check_size(self.mesh_mapping, MOST_AXES, "ShardingSpec", "mesh axes", SpecError)
        check_size(self.sharded_axes, MOST_AXES, "ShardingSpec", "sharded axes", SpecError)
        taken = sorted(entry.axis for entry in self.mesh_mapping if isinstance(entry, ShardedAxis))
        if taken != list(range(len(self.sharded_axes))):
            axes, needs = "no sharded axes", ""
            if self.sharded_axes:
                axes, needs = f"the sharded axes 0 to {len(self.sharded_axes) - 1}", "; it needs each of them once"
            raise SpecError(f"{self}: the dimensions make {axes}, and mesh_mapping has {taken}{needs}")

    @property
    def sharded_axes(self) -> tuple[int, ...]:
        """The sizes of the sharded axes."""
        return tuple(size for levels in self._levels() for size in levels)

    @property
    def mesh_shape(self) -> tuple[int, ...]:
        """The sizes of the mesh axes."""
        sizes = self.sharded_axes
        return tuple(e.replicas if isinstance(e, Replicated) else sizes[e.axis] for e in self.mesh_mapping)

    def _levels(self) -> list[tuple[int, ...]]:
        return [
            dim.chunks if isinstance(dim, Chunked) else (dim.size,) if isinstance(dim, Unstacked) else ()
            for dim in self.sharding
        ]

    def to_sharding(self, mesh: Any = None) -> Sharding:
        """Return the record over a mesh; `sv.layout` computes its slices.

        Args:
            mesh: a mesh with as many devices; None for one with the axes `m0`, `m1`, ... of `mesh_mapping`.

        Raises:
            SpecError: if the mesh has another number of devices.
        """
        names = tuple(f"m{i}" for i in range(len(self.mesh_mapping)))
        mapped = zip(self.mesh_mapping, names, strict=True)
        by_number = {entry.axis: name for entry, name in mapped if isinstance(entry, ShardedAxis)}
        numbers = itertools.count()
        dims = tuple(tuple(by_number[next(numbers)] for _ in levels) for levels in self._levels())
        record = Sharding.from_spec(Spec(dims), DeviceMesh(names, self.mesh_shape), len(dims))
        unstacked = tuple(i for i, dim in enumerate(self.sharding) if isinstance(dim, Unstacked))
        return replace(record if mesh is None else record.onto(DeviceMesh.of(mesh)), unstacked=unstacked)

    def __str__(self) -> str:
        return f"ShardingSpec({self.sharding}, {self.mesh_mapping})"  # as JAX wrote it


def _count(n: Any, owner: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise SpecError(f"{type(owner).__name__}: expected whole numbers of 1 or more, not {n!r}")
    return int(n)


def from_sharding(sharding: Sharding) -> ShardingSpec:
    """Return a record as pmap's specification; an axis of which dimensions use parts becomes several mesh axes."""
    for axes, what in (
        (sharding.unreduced, "partial sums"),
        (sharding.manual, "manual axes"),
        (sharding.reduced, "reduced axes"),
    ):
        if axes:
            raise SpecError(f"{sharding}: pmap's ShardingSpec has no {what}")
    if any(sharding.open) or any(p is not None for p in sharding.priorities):
        raise SpecError(f"{sharding}: pmap's ShardingSpec has no open dimensions and no priorities")
    if sharding.mesh.by_id:
        raise SpecError(
            f"{sharding}: pmap's ShardingSpec has no order of devices, and those of {sharding.mesh.text} have one"
        )
    if sharding.spec is None:
        raise SpecError(f"{sharding}: pmap's ShardingSpec runs along mesh axes, and {sharding.why}")
    mesh, numbers, chunks = sharding.mesh, {}, []
    for i, dim in enumerate(sharding.spec.dims):
        parts = [part for axis in dim for part in _split(axis, sharding)]
        for part in parts:
            numbers[part] = len(numbers)
        sizes = tuple(size for _, _, size in parts)
        alone = i in sharding.unstacked and len(sizes) == 1
        chunks.append(Unstacked(sizes[0]) if alone else Chunked(sizes) if sizes else NoSharding())
    mapping = [
        ShardedAxis(numbers[part]) if part in numbers else Replicated(part[2])
        for name in mesh.names
        for part in _split(name, sharding)
    ]
    return ShardingSpec(tuple(chunks), tuple(mapping))


def _split(axis: Axis, sharding: Sharding) -> list[tuple[str, int, int]]:
    """Return the parts of an axis, split at the boundaries of the parts that dimensions use."""
    assert sharding.spec is not None
    name, before, size = axis_part(axis, sharding.mesh)
    bounds = {before, before * size}
    for other in sharding.spec.axes:
        if not isinstance(other, str) and other[0] == name:
            bounds |= {n for n in (other[1], other[1] * other[2]) if before < n < before * size}
    edges = sorted(bounds)
    for low, high in itertools.pairwise(edges):
        if high % low:
            raise SpecError(f"{sharding}: the parts of axis {name!r} do not nest, so no mesh axes make them up")
    return [(name, low, high // low) for low, high in itertools.pairwise(edges)]


def write(sharding: Sharding) -> Iterator[Piece]:
    """Write the text of a record's `ShardingSpec`."""
    spec = from_sharding(sharding)
    yield "ShardingSpec(("
    number = 0
    for dimension, entry in enumerate(spec.sharding):
        yield ", " if dimension else ""
        words = NOT_SHARDED
        if isinstance(entry, Chunked):
            first, *more = entry.chunks
            last = number + len(more)
            words = f"dimension {dimension} is sharded in {first}" + "".join(f", each piece again in {n}" for n in more)
            words += f": sharded axes {number} to {last}" if more else f": sharded axis {number}"
            number = last + 1
        elif isinstance(entry, Unstacked):
            words = f"each device has one of the {entry.size} elements of dimension {dimension}: sharded axis {number}"
            number += 1
        yield Letter(repr(entry), words)
    yield ",), (" if len(spec.sharding) == 1 else "), ("
    for i, entry in enumerate(spec.mesh_mapping):
        yield ", " if i else ""
        if isinstance(entry, Replicated):
            yield Letter(repr(entry), f"a mesh axis along which {entry.replicas} devices hold copies")
        else:
            size = spec.sharded_axes[entry.axis]
            words = f"a mesh axis of {size} devices, which takes up sharded axis {entry.axis}"
            yield Letter(repr(entry), words)
    yield ",))" if len(spec.mesh_mapping) == 1 else "))"


_ENTRIES = r"((?>(?:\s*+\w++\([^()]*+(?>(?:\([0-9,\s]*+\))?)\s*+\)\s*+,?+)*))"
_TEXT = re.compile(
    rf"(?:PmapSharding\(\s*(?:sharding_spec\s*=\s*)?)?ShardingSpec\(\s*(?:sharding\s*=\s*)?\({_ENTRIES}"
    rf"\s*\)\s*,\s*(?:mesh_mapping\s*=\s*)?\({_ENTRIES}\s*\)\s*\)"
)
_ENTRY = re.compile(r"(\w+)\(\s*(?:[a-z]+\s*=\s*)?[(\[]?([0-9,\s]*)[)\]]?\s*\)\s*,?\s*")
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (NoSharding, Unstacked, ShardedAxis, Replicated)}


def looks_like(text: str) -> bool:
    """Return whether a text is a ShardingSpec, or a PmapSharding that contains one."""
    return text.startswith(("ShardingSpec(", "PmapSharding("))


def parse(text: str) -> ShardingSpec:
    """Parse the text of a ShardingSpec or a PmapSharding, in the format of any JAX version.

    Raises ParseError for other text, SpecError for inconsistent numbers.
    >>> parse("ShardingSpec((Chunked(4), NoSharding()), (Replicated(replicas=2), ShardedAxis(axis=0)))").mesh_shape
    (2, 4)
    """
    match = _TEXT.match(text)
    if match is None or (text[match.end() :].strip() and not text.startswith("Pmap")):
        raise _no_such(text)
    return ShardingSpec(*(tuple(_entries(part.strip(), text)) for part in match.groups()))


def _entries(part: str, text: str) -> Iterator[Any]:
    at = 0
    while at < len(part):
        entry = _ENTRY.match(part, at)
        numbers = entry[2].replace(",", " ").split() if entry else []
        if entry is None or any(len(n) > 9 for n in numbers):
            raise _no_such(text)
        kind, values = entry[1], [int(n) for n in numbers]
        if kind == "Chunked":
            yield Chunked(tuple(values))
        elif len(values) == {"NoSharding": 0, "Unstacked": 1, "ShardedAxis": 1, "Replicated": 1}.get(kind):
            yield _KINDS[kind](*values)
        else:
            raise _no_such(text)
        at = entry.end()


def _no_such(text: str) -> ParseError:
    shape = "ShardingSpec((Chunked((4,)), NoSharding()), (ShardedAxis(0),))"
    return ParseError(f"{excerpt(text)!r}: expected a text such as {shape}")
