"""The pictures of a step's cost.

>>> list(KINDS)
['machine']
"""

from __future__ import annotations

import dataclasses

from shardviz.costs.step_cost import StepCost
from shardviz.errors import ShardvizError
from shardviz.view.machine_picture import company_picture, machine_picture
from shardviz.view.picture import Picture, picture
from shardviz.view.step_cost import placed_words


def machine_figure(cost: StepCost) -> Picture:
    """The mesh on its machine, with the first device's company."""
    found = machine_picture(cost.placement)
    found = dataclasses.replace(found, notes=(*found.notes, f"devices stand {placed_words(cost)}"))
    return found.over(company_picture(cost.placement, 0))


KINDS = {"machine": machine_figure}


@picture.register
def _(cost: StepCost, kind: str = "step") -> Picture:
    if kind not in KINDS:
        raise ShardvizError(f"plot(kind={kind!r}): kind is {', '.join(map(repr, KINDS))}")
    return KINDS[kind](cost)
