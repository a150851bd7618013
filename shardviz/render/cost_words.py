"""Words of a step's cost, for the figures that are not Pictures yet."""

from __future__ import annotations

from shardviz.costs.step_cost import StepCost
from shardviz.view.document import plain
from shardviz.view.step_cost import BOUND_WORDS, headline, memory_words, placed_words, times_table

__all__ = ["BOUND_WORDS", "headline", "memory_words", "placed_words", "time_rows"]


def time_rows(cost: StepCost) -> list[tuple[str, float | None, str]]:
    """(what, seconds or None where not known, the arithmetic): compute, HBM, communication, then each of its axes."""
    step, moved = cost.step, cost.by("axes")
    amounts = [None if cost.flops is None else step.compute, step.memory, step.communication]
    names = ["compute", "HBM traffic", "communication", *(f"  {m.label}" for m in moved)]
    how = [plain(row.cells[3]) for row in times_table(cost).rows]
    return list(zip(names, [*amounts, *(m.seconds for m in moved)], how, strict=True))
