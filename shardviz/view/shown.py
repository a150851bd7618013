"""What `show` gives: records that show themselves, as a table in a notebook, as text in a terminal.

>>> from shardviz.layouts import layout
>>> print(Shown(layout((4,), ("x",), {"x": 2}), "w", "int8"))
w int8, 2 B per device
[4] P('x') · shard [2] · mesh x=2, 2 devices
columns: dimension 0, 4, along x, 2 each
<BLANKLINE>
  0:2   2:4
┌─────┬─────┐
│  0  │  1  │
└─────┴─────┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shardviz.kept import cached_property
from shardviz.layouts import Layout, Leaf, Moves, ProcessLayout, TreeBytes, add_up
from shardviz.notation import DeviceMesh
from shardviz.program.resharding import moves_between
from shardviz.records.amounts import format_bytes, format_shape
from shardviz.visible import Visible, paint


class Drawn(Visible):
    """What has a figure too."""

    def text(self, width: int | None = 80) -> str:
        """It in plain text, at most `width` columns wide."""
        return super().text(width)

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """It as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes."""
        return paint("plot", self, ax, dark=dark)


@dataclass(frozen=True, eq=False, repr=False)
class Shown(Drawn):
    """A shard map.

    Attributes:
        layout: where every slice lies.
        title: the array's name; may be empty.
        dtype: the element type, or None where it is not known.
        values: the array's elements, or None where they are many or not within reach.
        hosts: what each process holds; None where there is one, or nothing says which devices belong together.
    """

    layout: Layout
    title: str = ""
    dtype: str | None = None
    values: np.ndarray | None = None
    hosts: ProcessLayout | None = None

    @property
    def size(self) -> str:
        """The element type and the bytes on a device; empty where the type is not known."""
        if self.dtype is None:
            return ""
        return f"{self.dtype}, {format_bytes(self.layout.bytes_per_device(self.dtype))} per device"

    @property
    def named(self) -> str:
        """The name and the size, as far as they are known."""
        return "  ".join(filter(None, (self.title, self.size)))


@dataclass(frozen=True, eq=False, repr=False)
class ShownUnknown(Drawn):
    """An array whose sharding is not known yet.

    Attributes:
        shape: its global shape.
        why: who decides, in words.
        title: its name; may be empty.
        dtype: the element type, or None where it is not known.
        mesh: the mesh, or None where there is none yet.
    """

    shape: tuple[int, ...]
    why: str
    title: str = ""
    dtype: str | None = None
    mesh: DeviceMesh | None = None

    @property
    def typed(self) -> str:
        """The shape, and the element type where it is known."""
        return f"{self.dtype or ''} {format_shape(self.shape)}".strip()

    @property
    def alt(self) -> str:
        """Its picture in words."""
        return f"A hatched box: array {format_shape(self.shape)}, whose sharding is not known yet."


@dataclass(frozen=True, eq=False, repr=False)
class ShownTree(Drawn):
    """A tree of arrays: a table of them, and the shard map of one.

    Attributes:
        leaves: the arrays, each as `Shown`, in tree order.
        chosen: the one whose shard map is drawn.
        left_out: names of leaves that are no arrays with a known sharding.
    """

    leaves: tuple[Shown, ...]
    chosen: Shown | ShownUnknown
    left_out: tuple[str, ...] = ()

    @cached_property
    def bytes(self) -> TreeBytes:
        """What the arrays come to on each device."""
        return add_up(Leaf.of(shown.title, shown.layout, shown.dtype) for shown in self.leaves)

    @property
    def bytes_per_device(self) -> dict[int, float]:
        """Device id → bytes of all arrays on it."""
        return dict(zip(self.bytes.device_ids.tolist(), self.bytes.per_device.tolist(), strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class ShownChange(Drawn):
    """An array before and after a change of its sharding, side by side, with what moves.

    Attributes:
        before, after: the two shard maps.
    """

    before: Shown
    after: Shown

    @property
    def sides(self) -> tuple[tuple[str, Shown], tuple[str, Shown]]:
        """Both, each with its name."""
        return ("before", self.before), ("after", self.after)

    @cached_property
    def moves(self) -> Moves:
        """What each device keeps, receives and drops, and the collectives that do it."""
        return moves_between(self.before.layout, self.after.layout)
