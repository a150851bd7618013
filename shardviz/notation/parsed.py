"""A spec that a transform has changed, and how far it still is what the person wrote.

`vmap` and its like insert and permute an array's dimensions; the spec has to follow. A message must then not say "you
wrote P(None, 'x')" to somebody who wrote P('x'), so the spec keeps what was written and how far it is from it. pjit's
parsed specs did the same.

>>> spec = ParsedSpec.of(("x", None))
>>> moved = spec.insert(0)
>>> str(moved.spec), str(moved.written), moved.sync.name
("P(None, 'x', None)", "P('x', None)", 'DIM_PERMUTE')
>>> moved.insert(0, ("y",)).sync.name, spec.permute((1, 0)).sync.name, spec.permute((0, 1)).sync.name
('OUT_OF_SYNC', 'DIM_PERMUTE', 'IN_SYNC')
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from shardviz.errors import SpecError
from shardviz.notation.spec import Axis, Spec


class Sync(IntEnum):
    """How far a spec is from what the person wrote; the larger, the closer."""

    OUT_OF_SYNC = 0
    """Axes were put in that the person did not write."""
    DIM_PERMUTE = 1
    """Dimensions were moved, or put in uncut; the axes are those that the person wrote."""
    IN_SYNC = 2
    """It is what the person wrote."""


@dataclass(frozen=True)
class ParsedSpec:
    """A spec with its history.

    Attributes:
        spec: how the array is cut now.
        written: what the person wrote.
        sync: how far the first is from the second.
    """

    spec: Spec
    written: Spec
    sync: Sync = Sync.IN_SYNC

    @classmethod
    def of(cls, spec: Any) -> ParsedSpec:
        """Reads what a person wrote, in any form that `Spec.of` reads.

        Raises:
            SpecError: if it is no spec.
        """
        found = Spec.of(spec)
        return cls(found, found)

    def insert(self, dimension: int, axes: Sequence[Axis] = ()) -> ParsedSpec:
        """With a new dimension, cut along `axes`, before the one that now has this number.

        Raises:
            SpecError: if an axis already cuts another dimension, or `dimension` is negative.
        """
        if dimension < 0:
            raise SpecError(f"{self.spec}: a dimension is inserted at 0 or more, not at {dimension}")
        twice = [axis for axis in axes if axis in self.spec.axes]
        if twice:
            raise SpecError(
                f"{self.spec}: axis {twice[0]!r} cuts it already, so it cannot cut the dimension inserted at "
                f"{dimension} too; take another mesh axis for that"
            )
        dims = self.spec.dims + ((),) * (dimension - len(self.spec.dims))
        dims = (*dims[:dimension], tuple(axes), *dims[dimension:])
        sync = Sync.OUT_OF_SYNC if axes else Sync.DIM_PERMUTE
        return self._changed(dims, sync)

    def permute(self, order: Sequence[int]) -> ParsedSpec:
        """With dimension i now what was dimension `order[i]`, as `numpy.transpose` takes it.

        Raises:
            SpecError: if `order` is no order of at least the dimensions that the spec names.
        """
        if sorted(order) != list(range(len(order))) or len(order) < len(self.spec.dims):
            raise SpecError(f"{self.spec}: {tuple(order)} is no order of its {len(self.spec.dims)} dimensions, or more")
        dims = self.spec.dims + ((),) * (len(order) - len(self.spec.dims))
        moved = tuple(dims[i] for i in order)
        return self if moved == dims else self._changed(moved, Sync.DIM_PERMUTE)

    def _changed(self, dims: tuple[tuple[Axis, ...], ...], sync: Sync) -> ParsedSpec:
        return replace(self, spec=Spec(dims, self.spec.unreduced), sync=min(sync, self.sync))

    def __str__(self) -> str:
        if self.sync is Sync.IN_SYNC:
            return str(self.spec)
        what = "moved from" if self.sync is Sync.DIM_PERMUTE else "made from"
        return f"{self.spec} ({what} {self.written})"
