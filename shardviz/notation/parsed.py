"""A spec that a transform has changed, and how far it still is what the person wrote.

`vmap` and its like insert and permute an array's dimensions; the spec has to follow. A message must then not say "you
wrote P(None, 'x')" to a person who wrote P('x'), so the spec keeps what was written and how far it is from it. pjit's
parsed specs did the same.

>>> spec = ParsedSpec.of(("x", None))
>>> moved = spec.insert(0)
>>> str(moved.spec), str(moved.written), moved.sync.name
("P(None, 'x', None)", "P('x', None)", 'DIM_PERMUTE')
>>> moved.insert(0, ("y",)).sync.name, spec.permute((1, 0)).sync.name, spec.permute((0, 1)).sync.name
('OUT_OF_SYNC', 'DIM_PERMUTE', 'IN_SYNC')
>>> moved.entries(), moved.canonical().entries(), moved.as_written(Sync.DIM_PERMUTE)
((None, 'x', None), (None, 'x'), ('x', None))
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
        open: for each dimension of `spec` whether it is `P.UNCONSTRAINED`, left to the compiler.
        written_open: the same for `written`.
    """

    spec: Spec
    written: Spec
    sync: Sync = Sync.IN_SYNC
    open: tuple[bool, ...] = ()
    written_open: tuple[bool, ...] = ()

    @classmethod
    def of(cls, spec: Any, *, unconstrained: bool = False) -> ParsedSpec:
        """Reads what a person wrote, in any form that `Spec.of` reads.

        Args:
            spec: a PartitionSpec, a tuple, a `Spec`, or None.
            unconstrained: whether a dimension may be `P.UNCONSTRAINED`, as in a sharding constraint; a function's
                arguments and results must say how they are cut.

        Raises:
            SpecError: if it is no spec, or leaves a dimension open that may not be.
        """
        found, opened = Spec.with_open(spec) if unconstrained else (Spec.of(spec), ())
        return cls(found, found, Sync.IN_SYNC, opened, opened)

    def __post_init__(self) -> None:
        for what, spec in (("open", self.spec), ("written_open", self.written)):
            object.__setattr__(self, what, getattr(self, what) or (False,) * len(spec.dims))

    def entries(self) -> tuple[Any, ...]:
        """The entries of the PartitionSpec that it is now, in its one form: `...` for `P.UNCONSTRAINED`."""
        return tuple(... if o else e for o, e in zip(self.open, self.spec.entries(), strict=True))

    def as_written(self, at_least: Sync = Sync.IN_SYNC) -> tuple[Any, ...]:
        """The entries that the person wrote, for a message that says "you wrote".

        Args:
            at_least: how close the spec must still be to them.

        Raises:
            SpecError: if it is further away, so that the message would blame the person for what a transform did.
        """
        if self.sync < at_least:
            raise SpecError(f"{self}: it is no longer what was written, so it cannot be said to be")
        return tuple(... if o else e for o, e in zip(self.written_open, self.written.entries(), strict=True))

    def canonical(self) -> ParsedSpec:
        """Without the trailing dimensions that are neither cut nor open: equal for specs that mean the same."""
        count = len(self.spec.dims)
        while count and not self.spec.dims[count - 1] and not self.open[count - 1]:
            count -= 1
        return replace(self, spec=self.spec.with_dims(self.spec.dims[:count]), open=self.open[:count])

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
        more = dimension - len(self.spec.dims)
        dims, opened = self.spec.dims + ((),) * more, self.open + (False,) * more
        dims = (*dims[:dimension], tuple(axes), *dims[dimension:])
        opened = (*opened[:dimension], False, *opened[dimension:])
        sync = Sync.OUT_OF_SYNC if axes else Sync.DIM_PERMUTE
        return self._changed(dims, opened, sync)

    def permute(self, order: Sequence[int]) -> ParsedSpec:
        """With dimension i now what was dimension `order[i]`, as `numpy.transpose` takes it.

        Raises:
            SpecError: if `order` is no order of at least the dimensions that the spec names.
        """
        if sorted(order) != list(range(len(order))) or len(order) < len(self.spec.dims):
            raise SpecError(f"{self.spec}: {tuple(order)} is no order of its {len(self.spec.dims)} dimensions, or more")
        more = len(order) - len(self.spec.dims)
        dims, opened = self.spec.dims + ((),) * more, self.open + (False,) * more
        moved, turned = tuple(dims[i] for i in order), tuple(opened[i] for i in order)
        return self if (moved, turned) == (dims, opened) else self._changed(moved, turned, Sync.DIM_PERMUTE)

    def _changed(self, dims: tuple[tuple[Axis, ...], ...], opened: tuple[bool, ...], sync: Sync) -> ParsedSpec:
        """Once out of sync it stays so: no later move makes the axes what the person wrote."""
        return replace(self, spec=self.spec.with_dims(dims), open=opened, sync=min(sync, self.sync))

    def __str__(self) -> str:
        now = _text(self.spec, self.open)
        if self.sync is Sync.IN_SYNC:
            return now
        what = "moved from" if self.sync is Sync.DIM_PERMUTE else "made from"
        return f"{now} ({what} {_text(self.written, self.written_open)})"


def _text(spec: Spec, opened: tuple[bool, ...]) -> str:
    parts = ["P.UNCONSTRAINED" if o else repr(e) for o, e in zip(opened, spec.entries(), strict=True)]
    parts += [f"unreduced={{{', '.join(map(repr, spec.unreduced))}}}"] if spec.unreduced else []
    parts += [f"unreduced_kind={spec.unreduced_kind}"] if spec.unreduced_kind != "sum" else []
    return f"P({', '.join(parts)})"
