"""The numbers of a small array, shard by shard.

>>> import numpy as np
>>> shard_lines(np.arange(6).reshape(2, 3), (slice(0, 2), slice(1, 3)))
['1 2', '4 5']
>>> shard_lines(np.asarray([0.5, 1 / 3]), (slice(0, 2),))
['  0.5 0.333']
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardviz.view.scene import Scene

MOST_CELLS, MOST_IN_A_CELL, MOST_IN_A_LINE = 64, 64, 16


def number(value: Any) -> str:
    """One element in at most three significant digits: `0.333`, `7`, `True`, `1+2j`."""
    if isinstance(value, complex | np.complexfloating):
        return f"{value:.3g}"
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    return f"{float(value):.3g}"


def shard_lines(values: np.ndarray, index: tuple[slice, ...]) -> list[str]:
    """The elements of one shard, a line for each row, flush right; matrices of a higher rank follow one another.

    Args:
        values: the whole array.
        index: the shard's slice of it.

    Returns:
        Lines of numbers with `…` for those beyond the first 64 of a shard and the first 16 of a row; one line that
        says so where the shard holds nothing.
    """
    shard = values[index]
    if not shard.size:
        return ["nothing"]
    rows = shard.reshape(-1, shard.shape[-1] if shard.ndim else 1)
    across = min(rows.shape[1], MOST_IN_A_LINE)
    down = max(1, MOST_IN_A_CELL // across)
    texts = [[number(v) for v in row] for row in rows[:down, :across]]
    width = max(len(t) for row in texts for t in row)
    more = " …" if rows.shape[1] > across else ""
    lines = [" ".join(t.rjust(width) for t in row) + more for row in texts]
    return lines if len(rows) <= down else [*lines, "…"]


def cell_lines(scene: Scene, values: np.ndarray, panel: int, row: int, column: int) -> list[str]:
    """The elements of the slice that a cell is."""
    return shard_lines(values, scene.layout.index(int(scene.devices[panel, row, column, 0])))


def drawable(scene: Scene) -> bool:
    """Whether the cells are few enough to have their numbers in them."""
    return scene.cells <= MOST_CELLS and scene.merged == 1 and bool(scene.devices.size)
