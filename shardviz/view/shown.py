"""What `show` gives: records that show themselves, as a picture in a notebook, as text in a terminal.

A shard map is a figure, drawn by `paint.shard_maps`; what there is to say besides is told here.

>>> from shardviz.layouts import layout
>>> print(Shown(layout((4,), ("x",), {"x": 2}), "w", "int8"))
w  int8, 2 B per device
[4]  P('x')  mesh x=2, 2 devices  shard [2]
columns  dimension 0: 4 by x=2, 2 each
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
from shardviz.layouts import Layout, Leaf, Moves, ProcessLayout, TreeBytes, add_up, moves_between
from shardviz.notation import DeviceMesh
from shardviz.records.amounts import format_bytes, format_shape, plural
from shardviz.view.document import Block, Document, Figure, code, document, mesh_axes, paragraph, words
from shardviz.view.layouts import all_axes, move_blocks, process_blocks, tree_blocks, uneven_words
from shardviz.visible import Visible, painters


class Drawn(Visible):
    """What has a figure too."""

    def text(self, width: int | None = 80) -> str:
        """It in plain text, at most `width` columns wide."""
        return super().text(width)

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """It as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes."""
        return painters().plot(self, ax, dark=dark)


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
    def named(self) -> str:
        """The name, the element type and the bytes on a device, as far as they are known."""
        size = ""
        if self.dtype is not None:
            size = f"{self.dtype}, {format_bytes(self.layout.bytes_per_device(self.dtype))} per device"
        return "  ".join(filter(None, (self.title, size)))


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

    @cached_property
    def moves(self) -> Moves:
        """What each device keeps, receives and drops, and the collectives that do it."""
        return moves_between(self.before.layout, self.after.layout)


@document.register
def of_shown(shown: Shown) -> Document:
    """The map, what JAX does with a cut that does not divide, and what each process holds."""
    return Document(blocks=(Figure(of=shown), *_besides(shown)), mesh=shown.layout.mesh)


def _besides(shown: Shown, which: str = "") -> tuple[Block, ...]:
    uneven = uneven_words(shown.layout, shown.dtype)
    said = (paragraph(uneven, label=which or "uneven"),) if uneven else ()
    return said + (process_blocks(shown.hosts, which) if shown.hosts is not None else ())


@document.register
def of_unknown(shown: ShownUnknown) -> Document:
    """A hatched box, and who decides.

    >>> print(ShownUnknown((8, 6), "the compiler decides", title="y", dtype="float32"))
    y float32 [8, 6] sharding not known yet
    <BLANKLINE>
    ┌─────────────┐
    │ ╱╱╱╱ ? ╱╱╱╱ │
    └─────────────┘
    the compiler decides
    """
    mesh = shown.mesh if shown.mesh is not None and shown.mesh.names else None
    over = () if mesh is None else (words("mesh"), mesh_axes(mesh), words(f"({plural(mesh.size, 'device')})"))
    head = (words(shown.title, strong=True), code(shown.typed), words("sharding not known yet", strong=True), *over)
    return Document(blocks=(paragraph(*head), Figure(of=shown), paragraph(shown.why, quiet=True)), mesh=mesh)


@document.register
def of_tree(shown: ShownTree) -> Document:
    """The table of the arrays, and the chosen one's map."""
    chosen = document(shown.chosen)
    mesh = all_axes(leaf.layout for leaf in shown.leaves)
    return Document(blocks=(*tree_blocks(shown.bytes, shown.left_out), *chosen.blocks), mesh=mesh)


@document.register
def of_change(shown: ShownChange) -> Document:
    """Both maps, what moves, and what there is to say of each."""
    more = (*_besides(shown.before, "before"), *_besides(shown.after, "after"))
    blocks = (Figure(of=shown), *move_blocks(shown.moves, shown.before.dtype), *more)
    return Document(blocks=blocks, mesh=shown.before.layout.mesh)
