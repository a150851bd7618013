"""One record for a sharding, independent of the notation it was written in.

>>> mesh = DeviceMesh.of({"data": 2, "model": 4})
>>> sharding = Sharding.from_spec(Spec.of((None, "model")), mesh)
>>> sharding.tiles, sharding.places().tolist()
((1, 4), [[0, 0], [0, 1], [0, 2], [0, 3], [0, 0], [0, 1], [0, 2], [0, 3]])
>>> odd = Sharding.from_tiling(Tiling((8,), (), (0, 3, 1, 2, 4, 5, 6, 7)), mesh)
>>> odd.spec, odd.places().ravel().tolist()
(None, [0, 2, 3, 1, 4, 5, 6, 7])
>>> print(odd.why)
the tiles of dimension 0 run along no axes of the mesh data=2,model=4, nor along parts of them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shardviz.errors import SpecError
from shardviz.notation.bounds import MOST_CELLS, MOST_DIMENSIONS
from shardviz.notation.mesh import DeviceMesh
from shardviz.notation.spec import Axis, Spec, axes_size, axis_text, check_axes
from shardviz.notation.tiling import Tiling, axes_along, digits, joined, ordered, places, tiling_of

NOTATIONS = ("pspec", "short", "book", "hlo-v1", "hlo-v2", "hlo-v3", "proto", "sdy", "pmap")


WRITERS: dict[str, Callable[[Sharding], Any]] = {}
"""The writer of each notation. `read.py` fills this table, so that the record does not import the notations."""


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """How an array is sharded over a mesh.

    Attributes:
        mesh: the device mesh.
        rank: the array's number of dimensions; None if unknown (`P('data')` fits every rank from 1 up).
        spec: the mesh axes, or parts of axes, that shard each dimension; None if no axes express the sharding.
        why: if `spec` is None, the reason.
        tiles: the number of tiles along each dimension.
        unreduced: axes over which the devices hold partial results that are still to be reduced.
        unreduced_kind: how partial results are reduced: `sum`, `max` or `min`.
        manual: axes that the program handles itself, as inside a `shard_map`: the shape is one device's along them.
        maximal: the single position of the mesh that holds the full array, or None.
        open: for each dimension whether the compiler may shard it further (Shardy's `?`, `P.UNCONSTRAINED`).
        priorities: Shardy's priority of each dimension, or None.
        replicated: axes that are explicitly replicated (Shardy's `replicated={...}`).
        reduced: axes in JAX's `reduced` set.
        unknown: the compiler did not state how the array is sharded.
        assignment: if `spec` is None, the tile at each position.
        unstacked: the dimensions that pmap unstacked: each device has one element, and its shard lacks the dimension.
    """

    mesh: DeviceMesh
    rank: int | None
    spec: Spec | None = None
    why: str = ""
    tiles: tuple[int, ...] = ()
    unreduced: tuple[Axis, ...] = ()
    unreduced_kind: str = "sum"
    manual: tuple[Axis, ...] = ()
    maximal: int | None = None
    open: tuple[bool, ...] = ()
    priorities: tuple[int | None, ...] = ()
    replicated: tuple[Axis, ...] = ()
    reduced: tuple[Axis, ...] = ()
    unknown: bool = False
    assignment: Tiling | None = None
    unstacked: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Pad `open` and `priorities` to one entry per dimension: closed, without a priority."""
        for name, default in (("open", False), ("priorities", None)):
            entries = tuple(getattr(self, name))
            object.__setattr__(self, name, entries + (default,) * (len(self.tiles) - len(entries)))

    @classmethod
    def from_spec(
        cls,
        spec: Spec,
        mesh: DeviceMesh,
        rank: int | None = None,
        *,
        manual: Sequence[Axis] = (),
        open: Sequence[bool] = (),
        priorities: Sequence[int | None] = (),
        replicated: Sequence[Axis] = (),
        reduced: Sequence[Axis] = (),
    ) -> Sharding:
        """Return the record of a spec. Raises SpecError if the axes do not fit the mesh or the rank."""
        if rank is not None and len(spec.dims) > rank:
            raise SpecError(
                f"{spec}: {len(spec.dims)} entries for an array of rank {rank}; leave out {len(spec.dims) - rank}"
            )
        count = len(spec.dims) if rank is None else rank
        check_rank(count, mesh)
        reduced = reduced or spec.reduced
        every = [
            *((f"dimension {i}", axis) for i, dim in enumerate(spec.dims) for axis in dim),
            *(("unreduced", axis) for axis in spec.unreduced),
            *(("manual", axis) for axis in manual),
            *(("replicated", axis) for axis in replicated),
            *(("reduced", axis) for axis in reduced if axis not in replicated),
        ]
        check_axes(spec, every, mesh)
        dims = tuple(joined(dim, mesh) for dim in spec.dims) + ((),) * (count - len(spec.dims))
        spec = Spec(dims, ordered(spec.unreduced, mesh), (), spec.unreduced_kind)
        return cls(
            mesh=mesh,
            rank=rank,
            spec=spec,
            tiles=tuple(axes_size(dim, mesh) for dim in dims),
            unreduced=spec.unreduced,
            unreduced_kind=spec.unreduced_kind,
            manual=ordered(manual, mesh),
            open=tuple(open),
            priorities=tuple(priorities),
            replicated=ordered(replicated, mesh),
            reduced=ordered(reduced, mesh),
        )

    @classmethod
    def from_tiling(cls, tiling: Tiling, mesh: DeviceMesh) -> Sharding:
        """Return the record of a tile assignment; its `spec` is None if the tiles follow no axes of the mesh. Raises
        SpecError if the assignment is over another number of devices."""
        if len(tiling.devices) != mesh.size:
            count = f"{len(tiling.devices)} device" + ("s" if len(tiling.devices) != 1 else "")
            raise SpecError(
                f"tile assignment [{','.join(map(str, tiling.dims))}]: it is over {count}, and the mesh {mesh} has "
                f"{mesh.size}"
            )
        along, count = tiling.axes(mesh), len(tiling.tiles)
        by_kind: dict[str, list[Axis]] = {"manual": [], "unreduced": [], "replicated": []}
        for kind, axes in zip(tiling.kinds, along[count:], strict=True):
            by_kind[kind].extend(axes or ())
        unreduced, manual = tuple(by_kind["unreduced"]), tuple(by_kind["manual"])
        why = ""
        if None in along:
            i = along.index(None)
            what = f"the tiles of dimension {i}" if i < count else f"the {tiling.kinds[i - count]} subgroups"
            why = f"{what} run along no axes of the mesh {mesh}, nor along parts of them"
        return cls(
            mesh=mesh,
            rank=count,
            spec=None if why else Spec(tuple(axes or () for axes in along[:count]), unreduced),
            why=why,
            tiles=tiling.tiles,
            unreduced=unreduced,
            manual=manual,
            assignment=tiling if why else None,
        )

    @classmethod
    def on_one(cls, place: int, mesh: DeviceMesh, rank: int | None = None) -> Sharding:
        """Return the record of an array that is entirely on one position of the mesh."""
        if not 0 <= place < mesh.size:
            raise SpecError(f"maximal device={place}: the mesh {mesh} has the places 0 to {mesh.size - 1}")
        if mesh.size == 1:
            return cls.from_spec(Spec(), mesh, rank)
        why = "the full array is on one device"
        return cls(mesh=mesh, rank=rank, why=why, tiles=(1,) * (rank or 0), maximal=place)

    @classmethod
    def not_known(cls, mesh: DeviceMesh, rank: int | None = None) -> Sharding:
        """Return the record of an array whose sharding the compiler did not state."""
        return cls(mesh=mesh, rank=rank, why="not known to the compiler", tiles=(1,) * (rank or 0), unknown=True)

    @property
    def kind(self) -> str:
        """XLA's name for this kind of sharding, the `type` of its `OpSharding`. One of `unknown` (not stated by the
        compiler), `maximal` (all on one device), `replicated`, `manual`, `unreduced` (each on every device), or
        `other`: tiles, or several subgroups."""
        if self.unknown or self.maximal is not None:
            return "unknown" if self.unknown else "maximal"
        tiling = self.tiling()
        if any(n > 1 for n in tiling.tiles) or len(tiling.kinds) > 1:
            return "other"
        return tiling.kinds[0] if tiling.kinds else "replicated"

    def places(self) -> np.ndarray:
        """Return the tile that each position holds: integers, position in mesh order x dimension. A position that holds
        nothing (`maximal`) has -1. Raises SpecError if the sharding is unknown."""
        if self.unknown:
            raise SpecError("the sharding is unknown: the compiler did not state which device holds what")
        if self.maximal is not None:
            table = np.full((self.mesh.size, len(self.tiles)), -1, np.int64)
            table[self.maximal] = 0
            return table
        if self.spec is None:
            assert self.assignment is not None  # the constructors see to it
            return self.assignment.positions()[:, : len(self.tiles)]
        columns = [digits(dim, self.mesh) for dim in self.spec.dims]
        return np.stack(columns, 1) if columns else np.zeros((self.mesh.size, 0), np.int64)

    def tiling(self) -> Tiling:
        """Return the sharding as a tile assignment, with subgroups in the order replicated, manual, unreduced. Raises
        SpecError if the sharding is unknown or on one device, and so has no tiles."""
        if self.assignment is not None:
            return self.assignment
        if self.spec is None:
            raise SpecError(f"a tile assignment cannot express this sharding: {self.why}")
        return tiling_of(self.spec.dims, (("manual", self.manual), ("unreduced", self.unreduced)), self.mesh)

    def onto(self, mesh: DeviceMesh, devices: tuple[int, ...] = ()) -> Sharding:
        """Return the same sharding in the axes of another mesh with as many devices. `devices` has the position in
        `mesh` of each position of this record's mesh; empty for 0, 1, 2, ... Raises SpecError if the meshes have
        different numbers of devices."""
        theirs = self.mesh
        if theirs.size != mesh.size:
            raise SpecError(f"{self}: it is over {theirs.size} devices, and the mesh {mesh} has {mesh.size}")
        if devices == tuple(range(mesh.size)):
            devices = ()
        if theirs.names == mesh.names and theirs.sizes == mesh.sizes and not devices:
            return replace(self, mesh=mesh)
        if self.unknown or self.maximal is not None:
            place = self.maximal
            return replace(self, mesh=mesh, maximal=devices[place] if devices and place is not None else place)
        order = np.asarray(devices or range(mesh.size))
        tiling = self.tiling()
        sharding = Sharding.from_tiling(
            Tiling(tiling.dims, tiling.kinds, tuple(order[list(tiling.devices)].tolist())), mesh
        )
        along = axes_along(order[places(self.replicated, theirs)], mesh)
        sharding = replace(sharding, rank=self.rank, open=self.open, priorities=self.priorities, replicated=along or ())
        return sharding.with_kind(self.unreduced_kind)

    def with_kind(self, kind: str) -> Sharding:
        """Return the sharding with its partial results, if any, reduced by a sum, a maximum or a minimum."""
        if not self.unreduced and not (self.assignment is not None and "unreduced" in self.assignment.kinds):
            return self
        spec = None if self.spec is None else replace(self.spec, unreduced_kind=kind)
        return replace(self, spec=spec, unreduced_kind=kind)

    def over(self, mesh: DeviceMesh) -> Sharding:
        """Return the sharding by the same axis names over another mesh; without axes, the devices keep their order.
        Raises SpecError if the spec does not fit that mesh."""
        if (self.mesh.names, self.mesh.sizes) == (mesh.names, mesh.sizes):
            return replace(self, mesh=mesh)
        if self.spec is None:
            return self.onto(mesh)
        more = {"manual": self.manual, "replicated": self.replicated, "reduced": self.reduced}
        return Sharding.from_spec(self.spec, mesh, self.rank, open=self.open, priorities=self.priorities, **more)

    def with_rank(self, rank: int) -> Sharding:
        """Return the sharding of an array of this rank; the added dimensions are not sharded. Raises SpecError if the
        record has another rank."""
        if rank == self.rank:
            return self
        check_rank(rank, self.mesh)
        if self.rank is not None or rank < len(self.tiles):
            have = len(self.tiles) if self.rank is None else self.rank
            raise SpecError(f"{self}: it is for an array of rank {have}, and this array's rank is {rank}")
        more = rank - len(self.tiles)
        return replace(
            self,
            rank=rank,
            spec=None if self.spec is None else self.spec.with_dims(self.spec.dims + ((),) * more),
            tiles=self.tiles + (1,) * more,
        )

    def to(self, notation: str) -> Any:
        """Return the sharding in another notation.

        Args:
            notation: `pspec` (a `jax.sharding.PartitionSpec`), `short` (`[data, ·]`), `book` (the scaling
                book's `A[I_data, J]`), `hlo-v1`, `hlo-v2`, `hlo-v3` (text), `proto` (an `OpSharding`), `sdy` (text) or
                `pmap` (a `ShardingSpec` of `notation.pmap`).

        Raises:
            SpecError: if the notation cannot express the sharding; the message says why.
        """
        if notation not in WRITERS:
            raise SpecError(f"notation {notation!r}: expected one of {', '.join(NOTATIONS)}")
        return WRITERS[notation](self)

    def same_as(self, other: Sharding) -> bool:
        """Return whether both shardings put the same part of the array on the same devices. Trailing None, axes of size
        1 and axis names make no difference. Open dimensions, partial sums and manual axes do."""
        if self.unknown or other.unknown:
            return self.unknown and other.unknown
        if sorted(self.mesh.ids().tolist()) != sorted(other.mesh.ids().tolist()):
            return False
        if None not in (self.rank, other.rank) and self.rank != other.rank:
            return False
        count = max(len(self.tiles), len(other.tiles))
        return all(np.array_equal(a, b) for a, b in zip(self._meaning(count), other._meaning(count), strict=True))

    def _meaning(self, rank: int) -> tuple[Any, ...]:
        order = np.argsort(self.mesh.ids())
        more = rank - len(self.tiles)
        table = self.places()
        filler = np.where(table[:, :1] < 0, -1, 0) if table.shape[1] else self._filler()
        table = np.concatenate([table, np.repeat(filler, more, 1)], 1)[order]
        groups = [_labels(self._copies(kind)[order]) for kind in ("", "unreduced", "manual")]
        kind = self.unreduced_kind
        return (kind, *self.tiles, *(1,) * more), table, (*self.open, *(False,) * more), *groups, self._filler()[order]

    def _copies(self, kind: str) -> np.ndarray:
        """Return a label for each position, equal for the copies of a tile within a subgroup of this kind."""
        if self.assignment is not None:
            return self.assignment.groups("replicated", kind)
        rest = [axis for dim in (self.spec.dims if self.spec else ()) for axis in dim]
        for other, axes in (("unreduced", self.unreduced), ("manual", self.manual)):
            rest.extend(axes if other != kind else ())
        return places(rest, self.mesh)[digits(rest, self.mesh)]

    def _filler(self) -> np.ndarray:
        column = np.zeros((self.mesh.size, 1), np.int64)
        if self.maximal is not None:
            column[np.arange(self.mesh.size) != self.maximal] = -1
        return column

    def __str__(self) -> str:
        if self.unknown:
            return "unknown"
        if self.maximal is not None:
            return f"all on device {int(self.mesh.ids()[self.maximal])}"
        if self.spec is None:
            return "tiles " + "x".join(map(str, self.tiles))
        cells = [" ".join(map(axis_text, dim)) for dim in self.spec.dims]
        cells = [" ".join(filter(None, (c, "?" if o else ""))) or "·" for c, o in zip(cells, self.open, strict=True)]
        text = f"[{', '.join(cells)}]"
        for words, axes in (
            (f"{self.unreduced_kind} over", self.unreduced),
            ("manual", self.manual),
            ("reduced", self.reduced),
        ):
            text += f" {words} {' '.join(map(axis_text, axes))}" if axes else ""
        return text


def check_rank(rank: int, mesh: DeviceMesh) -> None:
    """Raise SpecError for more dimensions than `MOST_DIMENSIONS` or `MOST_CELLS` allow."""
    if rank > MOST_DIMENSIONS or rank * mesh.size > MOST_CELLS:
        most = min(MOST_DIMENSIONS, MOST_CELLS // mesh.size)
        raise SpecError(f"sharding: {rank:,} dimensions over {mesh.size} devices; at most {most} are counted there")


def _labels(groups: np.ndarray) -> np.ndarray:
    """Number a partition's labels by first appearance, so that equal partitions have equal labels."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]
