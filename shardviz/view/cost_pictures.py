"""The pictures of a step's cost.

>>> list(KINDS)
['step', 'roofline', 'memory', 'traffic', 'machine', 'work']
"""

from __future__ import annotations

import dataclasses

from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.view.bars import memory_bar, step_bars, work_bars
from shardviz.view.machine_picture import company_picture, machine_picture
from shardviz.view.picture import Picture, picture
from shardviz.view.placement import placed_words
from shardviz.view.roofline import roofline_picture
from shardviz.view.traffic import traffic_figure


def machine_figure(cost: StepCost) -> Picture:
    """The mesh on its machine, with the first device's company."""
    found = machine_picture(cost.placement)
    found = dataclasses.replace(found, notes=(*found.notes, f"devices stand {placed_words(cost.placement)}"))
    return found.over(company_picture(cost.placement, 0))


KINDS = {
    "step": step_bars,
    "roofline": roofline_picture,
    "memory": memory_bar,
    "traffic": traffic_figure,
    "machine": machine_figure,
    "work": work_bars,
}


@picture.register
def _(cost: StepCost, kind: str = "") -> Picture:
    kind = kind or "step"
    if kind not in KINDS:
        raise ShardvizError(f"plot(kind={kind!r}): kind is {', '.join(map(repr, KINDS))}")
    return KINDS[kind](cost)
