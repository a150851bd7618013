"""An array of which nobody has said yet how it is cut: a hatched box, and who decides.

>>> print(ShownUnknown((8, 6), THE_COMPILER, title="y", dtype="float32"))
y  float32[8, 6]  sharding not known yet
┌─────────────┐
│ ╱╱╱╱ ? ╱╱╱╱ │
└─────────────┘
the compiler has not said how it is cut: its partitioner decides, and a
constraint on it (jax.lax.with_sharding_constraint) would settle it
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from shardviz.notation import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.paint.columns import wrap
from shardviz.records.amounts import format_shape, plural
from shardviz.render.chips import QUIET, SANS, code, mesh_html
from shardviz.render.picture import encode_png
from shardviz.visible import Visible

THE_COMPILER = (
    "the compiler has not said how it is cut: its partitioner decides, and a constraint on it "
    "(jax.lax.with_sharding_constraint) would settle it"
)
ALL_OPEN = (
    "every dimension is open, so the compiler may cut it in any way: its partitioner decides, and what it chose stands "
    "in the compiled program"
)
NOBODY_YET = (
    "it is a shape and a type with no sharding: jit's in_shardings decide, or the sharding of the array that takes its "
    "place; where there is neither, the compiler"
)
A_REPORT = "the report does not say how it is cut: at its level the compiler has not decided"


def traced(axes: Sequence[str]) -> str:
    """Who decides about a traced value, whose type says only what Explicit axes do."""
    if not axes:
        return (
            "it is a traced value, and no mesh is set: what it is called with decides, and the compiler; the finished "
            "program tells, as sv.analyze does"
        )
    return (
        f"it is a traced value, whose type says nothing about the Auto {'axis' if len(axes) == 1 else 'axes'} "
        f"{', '.join(axes)}: there the compiler's partitioner decides; the finished program tells, as sv.analyze does"
    )


def undecided(record: Sharding) -> str:
    """Why a sharding says nothing about where the array lies; empty where it does."""
    if record.unknown:
        return THE_COMPILER
    said = record.unreduced or record.manual or record.replicated or any(n > 1 for n in record.tiles)
    return ALL_OPEN if record.open and all(record.open) and not said and record.mesh.size > 1 else ""


class ShownUnknown(Visible):
    """An array whose sharding is not known yet.

    Attributes:
        shape: its global shape.
        why: who decides, in words.
        title: its name; may be empty.
        dtype: the element type, or None where it is not known.
        mesh: the mesh, or None where there is none yet.
    """

    def __init__(self, shape: Sequence[int], why: str, title: str = "", dtype: str | None = None, mesh: Any = None):
        self.shape = tuple(shape)
        self.why = why
        self.title = title
        self.dtype = dtype
        self.mesh = None if mesh is None else DeviceMesh.of(mesh)

    def text(self, width: int = 80) -> str:
        """A hatched box and who decides, in plain text."""
        over = f"mesh {self.mesh}, {plural(self.mesh.size, 'device')}" if self.mesh and self.mesh.names else ""
        head = "  ".join(filter(None, (self.named, "sharding not known yet", over)))
        box = ["┌─────────────┐", "│ ╱╱╱╱ ? ╱╱╱╱ │", "└─────────────┘"]
        return "\n".join([*wrap(head, width), *box, *wrap(self.why, width)])

    def html(self) -> str:
        """A hatched box and who decides, in HTML that survives JupyterLab's sanitizer."""
        over = f" · mesh {mesh_html(self.mesh)}" if self.mesh and self.mesh.names else ""
        name = f"<b>{escape(self.title)}</b> " if self.title else ""
        head = f"{name}{code(f'{self.dtype or str()}{format_shape(self.shape)}')} <b>sharding not known yet</b>{over}"
        data = base64.b64encode(_hatched(150, 44)).decode()
        return (
            f'<div style="{SANS}"><div style="padding:2px 0">{head}</div>'
            f'<img src="data:image/png;base64,{data}" width="150" height="44" alt="{escape(self.described)}" '
            f'style="max-width:none;margin:4px 0"><div style="{QUIET}">{escape(self.why)}</div></div>'
        )

    def plot(self, ax: Any = None, *, dark: bool = False) -> Any:
        """A hatched box as a matplotlib figure: draws on `ax`, or on a new figure's, and returns the Axes."""
        from shardviz.render.matplotlib import unknown_axes  # only here is matplotlib needed

        return unknown_axes(self, ax, dark=dark)

    @property
    def named(self) -> str:
        """The name, the element type and the shape, as far as they are known."""
        return "  ".join(filter(None, (self.title, f"{self.dtype or ''}{format_shape(self.shape)}")))

    @property
    def described(self) -> str:
        """It in words: the alt text of its picture."""
        return f"A hatched box: array {format_shape(self.shape)}, whose sharding is not known yet."


def _hatched(width: int, height: int) -> bytes:
    """A dashed frame with hatching in it, as a PNG that reads on light and dark pages."""
    y, x = np.indices((height, width))
    image = ((x + y) % 9 == 0).astype(np.uint8)
    frame = (x == 0) | (y == 0) | (x == width - 1) | (y == height - 1)
    image[frame] = ((x + y) % 8 < 5)[frame]
    return encode_png(image, ["#000000", "#8C8C8C"])
