"""One dimension of an array as a side of the grid that is drawn, and several of them nested in one another.

>>> import numpy as np
>>> side = Side(0, 8, 2, (("x", 2), ("y", 2)), np.arange(0, 8, 2), np.arange(2, 10, 2))
>>> side.text(), side.slice_text(1)
('dimension 0: 8 by x=2 x y=2, 2 each', '2:4')
>>> side.coordinates()
[('x', [('0', 2), ('1', 2)]), ('y', [('0', 1), ('1', 1), ('0', 1), ('1', 1)])]
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shardviz.notation import Axis
from shardviz.notation.spec import axis_text


@dataclass(frozen=True, eq=False)
class Side:
    """One dimension of the array as a side of the grid.

    Attributes:
        dimension: which dimension; None where the array has none for this side (a vector has no rows).
        size: its number of elements.
        shard: elements of one tile, padding included.
        axes: the mesh axes that cut it, major to minor, with their sizes.
        starts, stops: integers, one a cell: where the slice begins and ends, padding left out.
        merged: how many neighbouring tiles one cell stands for.
    """

    dimension: int | None
    size: int
    shard: int
    axes: tuple[tuple[Axis, int], ...]
    starts: np.ndarray
    stops: np.ndarray
    merged: int = 1

    @property
    def cells(self) -> int:
        """The number of cells along this side."""
        return len(self.starts)

    @property
    def ways(self) -> int:
        """The number of tiles along this side."""
        return self.cells * self.merged

    def padding(self, cell: int) -> int:
        """Elements of this cell that lie beyond the array's end."""
        return self.shard * self.merged - int(self.stops[cell] - self.starts[cell])

    @property
    def padded(self) -> bool:
        """Whether the last tiles hold padding."""
        return self.shard * self.ways > self.size

    def slice_text(self, cell: int) -> str:
        """The slice of a cell, `2:4`."""
        return f"{self.starts[cell]}:{self.stops[cell]}"

    def coordinates(self) -> list[tuple[Axis, list[tuple[str, int]]]]:
        """For every axis, major to minor, its coordinates along the side as (text, number of cells that share it)."""
        bars, inner = [], self.ways
        for axis, size in self.axes:
            inner //= size
            spans: list[tuple[str, int]] = []
            last = None
            for cell in range(self.cells):
                first, end = cell * self.merged // inner, ((cell + 1) * self.merged - 1) // inner
                if first == end == last:
                    spans[-1] = (spans[-1][0], spans[-1][1] + 1)
                    continue
                whole = end - first + 1 >= size or first % size > end % size
                text = f"{first % size}" if first == end else "all" if whole else f"{first % size}-{end % size}"
                spans.append((text, 1))
                last = first if first == end else None
            if all(text == "all" for text, _ in spans):
                spans = [("all", self.cells)]
            bars.append((axis, spans))
        return bars

    def text(self) -> str:
        """In words: `dimension 0: 8192 by data=8, 1024 each`."""
        if self.dimension is None:
            return ""
        cut = " by " + " x ".join(f"{axis_text(a)}={n}" for a, n in self.axes) if self.axes else ", not cut"
        if not self.axes and self.ways > 1:
            cut = f" cut {self.ways} ways"
        return f"dimension {self.dimension}: {self.size}{cut}" + (f", {self.shard} each" if self.ways > 1 else "")


@dataclass(frozen=True, eq=False)
class Nest:
    """The grid that panels stand in.

    Attributes:
        rows, columns: the sides down and across, major to minor; several are nested in one another.
        panels: integers, row x column: the panel at each place.
    """

    rows: tuple[Side, ...]
    columns: tuple[Side, ...]
    panels: np.ndarray


def nested_coordinates(sides: Sequence[Side]) -> list[tuple[Axis, list[tuple[str, int]]]]:
    """`Side.coordinates` of sides nested in one another, major to minor: spans are repeated and widened to fit."""
    bars = []
    for place, side in enumerate(sides):
        times = math.prod(s.cells for s in sides[:place])
        inner = math.prod(s.cells for s in sides[place + 1 :])
        bars += [(axis, [(text, n * inner) for text, n in spans] * times) for axis, spans in side.coordinates()]
    return bars


def nested_slices(sides: Sequence[Side]) -> list[str]:
    """What every place along nested sides is: `dimension 0, 2:4; dimension 2, 0:8`."""
    each = [[f"dimension {s.dimension}, {s.slice_text(c)}" for c in range(s.cells)] for s in sides]
    return ["; ".join(parts) for parts in itertools.product(*each)]
