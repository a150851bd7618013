"""How large everything in a matplotlib shard map is, in inches, before anything is drawn."""

from __future__ import annotations

import numpy as np

from shardviz.render.contents import cell_lines, drawable
from shardviz.render.mpl_look import EM
from shardviz.render.scene import Scene, Side, coarsen

SMALLEST = 5.5
"""Points; device numbers are not set smaller, neighbouring cells are merged instead."""

_GRIDS = (
    *((64, 32), (32, 32), (64, 16), (32, 16), (32, 8), (16, 8), (16, 4), (8, 4), (16, 2), (8, 2)),
    *((16, 1), (8, 1), (4, 2), (4, 1), (2, 1), (1, 1)),
)
BAR, GAP = 0.2, 0.05
"""Inches: the thickness of a coordinate bar, and what is left between bars."""

CARD = 0.055
"""Inches by which the cards of a stack show behind one another."""


class Plan:
    """Inches of all in a shard map: a cell, a panel with its bars, and the panels, `across` of them in a line.

    Attributes:
        texts: what stands in every cell, panel by panel, row by row: its devices, then its values.
        cell: width and height of a cell; `card` of them is left for the cards behind it.
        points: the size of the letters.
        step: from one panel to the next, across and down.
    """

    def __init__(self, scene: Scene, room: tuple[float, float] | None, across: int, values: np.ndarray | None):
        self.scene, self.across = scene, across
        panels, rows, columns = scene.devices.shape[:3]
        self.texts = _texts(scene, values)
        lines = [line for panel in self.texts for row in panel for text in row for line in text.split("\n")]
        high = max(text.count("\n") + 1 for panel in self.texts for row in panel for text in row)
        self.left = 0.28 * (scene.rows.dimension is not None) + (BAR + GAP) * _bar_count(scene.rows)
        self.top = 0.25 * (scene.columns.dimension is not None) + (BAR + GAP) * _bar_count(scene.columns)
        foot, gap, down = 0.4 if scene.depth else 0.0, 0.3, -(-panels // across)
        least = ((max(map(len, lines)) + 1.2) * EM, 1.5 * high / 72)
        self.cards = (min(scene.layout.replicas, 3) - 1) * scene.stacked
        spare = CARD * (self.cards + 1) * (self.cards > 0)
        if room is None:
            big = 3.6 if panels == 1 else 2.0
            tall = scene.aspect if scene.aspect <= 1 else 1.0
            wide = 1.0 if scene.aspect <= 1 else 1 / scene.aspect
            self.cell = (max(big * wide / columns, 7 * least[0] + spare), max(big * tall / rows, 7 * least[1] + spare))
        else:
            wide = (room[0] - gap * (across - 1)) / across - self.left
            tall = room[1] / down - self.top - foot
            self.cell = (max(wide, 0.1) / columns, max(tall, 0.1) / rows)
        self.card = min(CARD, 0.2 * min(self.cell) / (self.cards + 1)) if self.cards else 0.0
        spare = self.card * (self.cards + 1)
        self.points = min(10.0, (self.cell[0] - spare) / least[0], (self.cell[1] - spare) / least[1])
        self.step = (self.left + columns * self.cell[0] + gap, self.top + rows * self.cell[1] + foot)
        self.width, self.height = across * self.step[0] - gap, down * self.step[1]

    def fits(self, limit: float) -> bool:
        """Whether its numbers can be read, in a figure of at most `limit` inches each way."""
        return self.points >= SMALLEST and max(self.width, self.height) <= limit


def _bar_count(side: Side) -> int:
    return len(side.axes) if side.ways > 1 else 0


def _texts(scene: Scene, values: np.ndarray | None) -> list[list[list[str]]]:
    labels = scene.labels()
    if values is None or not drawable(scene):
        return labels
    return [
        [
            ["\n".join([text, *cell_lines(scene, values, p, r, c)]) for c, text in enumerate(row)]
            for r, row in enumerate(panel)
        ]
        for p, panel in enumerate(labels)
    ]


def plan_of(scene: Scene, room: tuple[float, float] | None, values: np.ndarray | None = None) -> Plan:
    """The finest drawing whose numbers can be read, as nearly square as its panels allow.

    Args:
        scene: what to draw, one cell a tile.
        room: width and height in inches that there is; None for as much as it needs, up to 12 inches.
        values: the array's elements, which are left out where they would be too small.
    """
    limit = 12.0 if room is None else float("inf")
    for given in (values, None) if values is not None else (None,):
        for panels in (16, 4, 1):
            for rows, columns in _GRIDS:
                merged = coarsen(scene, rows=rows, columns=columns, panels=panels)
                if given is not None and merged.merged > 1:
                    continue
                plans = [Plan(merged, room, across, given) for across in range(1, merged.devices.shape[0] + 1)]
                found = [plan for plan in plans if plan.fits(limit)]
                if found and room is None:
                    return min(found, key=lambda plan: max(plan.width, 1.5 * plan.height))
                if found:
                    return max(found, key=lambda plan: plan.points)
    return Plan(coarsen(scene, rows=1, columns=1, panels=1), room, 1, None)
