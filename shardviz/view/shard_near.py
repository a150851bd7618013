"""A shard map of many devices at two levels of detail: all of it in few cells, and one of these tile by tile.

>>> from shardviz.layouts import layout
>>> from shardviz.view.scene import build_scene, coarsen
>>> fine = build_scene(layout((64, 64), ("x", "y"), {"x": 16, "y": 8}))
>>> few = coarsen(fine, rows=4, columns=4, panels=1)
>>> near(fine, few, 27).devices[0, :, :, 0].tolist()
[[2, 3], [10, 11], [18, 19], [26, 27]]
"""

from __future__ import annotations

import dataclasses

import numpy as np

from shardviz.view.scene import Scene


def near(fine: Scene, few: Scene, device: int) -> Scene:
    """The tiles that the cell of a device stands for.

    Args:
        fine: the scene with one cell a tile, or what this gave of it.
        few: the same with several tiles a cell.
        device: the id of a device that holds a cell.
    """
    panel, r, c = np.argwhere((few.devices == device).any(axis=-1))[0].tolist()
    sides = (*fine.depth, fine.rows, fine.columns)
    merged = (*few.depth, few.rows, few.columns)
    parts = [
        slice(cell * side.merged, (cell + 1) * side.merged)
        for cell, side in zip((*few.place(panel), r, c), merged, strict=True)
    ]
    *depth, rows, columns = (
        dataclasses.replace(
            side, starts=side.starts[part], stops=side.stops[part], first=side.first + part.start, of=side.ways
        )
        for side, part in zip(sides, parts, strict=True)
    )

    def cut(entries: np.ndarray) -> np.ndarray:
        whole = entries.reshape(*(side.cells for side in sides), entries.shape[-1])[tuple(parts)]
        return whole.reshape(-1, rows.cells, columns.cells, entries.shape[-1])

    return dataclasses.replace(
        fine,
        depth=tuple(depth),
        rows=rows,
        columns=columns,
        devices=cut(fine.devices),
        processes=None if fine.processes is None else cut(fine.processes),
    )
