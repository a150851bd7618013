"""Seconds where the page shows bytes: of each collective as it was partitioned, and of what each line computes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from shardviz.costs import with_seconds
from shardviz.costs.step_cost import StepCost
from shardviz.errors import TargetError
from shardviz.records import Collective
from shardviz.records.report import Report

Line = tuple[str, int]


def timed(report: Report, cost: StepCost | None) -> Report:
    """The report with `seconds` and `formula` of each of its collectives on the cost's machine.

    They are the partitioner's collectives, also where the cost is reckoned with those that the target runs.
    """
    if cost is None:
        return report
    found = cost.collectives
    if cost.as_run:
        place, machine = cost.placement, cost.machine
        found = tuple(with_seconds(c, place, machine, exact=cost.exact) for c in report.collectives)
    return dataclasses.replace(report, collectives=found)


def step_seconds(collectives: Iterable[Collective]) -> float:
    """Seconds in a step of those whose time and count are known."""
    return sum(c.seconds * c.count for c in collectives if c.seconds is not None and c.count is not None)


def known_seconds(collective: Collective) -> float:
    """Seconds in a step; a run of unknown count is counted once, an unknown time not at all."""
    return (collective.seconds or 0.0) * (1 if collective.count is None else collective.count)


def compute_seconds(report: Report, cost: StepCost | None) -> dict[Line, float]:
    """Source line → seconds of its matrix products on one device in a step; empty where that is not counted by line."""
    if cost is None or report.cost is None:
        return {}
    chip, found = cost.machine.chip, {}
    for work in report.cost.work:
        if work.source is None or not work.dot_flops:
            continue
        try:
            rate = chip.flops(work.dtype)
        except TargetError:
            rate = chip.flops(cost.dtype)
        line = (work.source.file, work.source.line)
        found[line] = found.get(line, 0.0) + work.dot_flops * chip.devices_per_chip / rate
    return found
