"""What the explorer has the studies try, a step at a time: the search, and the trying of mends.

This is the one file of the explorer that drives them; `offering` shows what they yield.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardviz.ask.program import Program
from shardviz.costs.machine import Machine
from shardviz.judge.report import Report
from shardviz.program.plan import Plan
from shardviz.study import mending
from shardviz.study.answer import Search
from shardviz.study.mends import Mends
from shardviz.study.search import search

SECONDS = 30.0
"""How long the search may take."""


def searches(program: Program, plan: Plan, machine: Machine) -> Iterator[Search]:
    """Searches meshes and specs at level propagated, beginning with a plan and the presets.

    The best are not compiled here: a card that is opened is.

    Args:
        program: the program.
        plan: what the search begins with, where it has as many devices as the machine.
        machine: the machine.

    Raises:
        ShardvizError: as `search`.
    """
    first = plan if plan.mesh.size == machine.size else None
    searching = search(program, machine, seconds=SECONDS, plan=first, level="propagated", stream=True)
    state = searching.state
    for step in searching.steps():
        state = replace(state, tried=tuple(searching.tried.values()), seconds=searching.elapsed)
        if isinstance(step, Search):
            state = step
        yield state


def mends(program: Program, report: Report, machine: Machine, plan: Plan) -> Iterator[Mends | str | None]:
    """Tries what may help a plan, as `sv.mends` does.

    Args:
        program: the program.
        report: what is known of the plan.
        machine: the machine; `cpu` has no speed, so that bytes count.
        plan: the plan.

    Yields:
        What is known, `WAITING` while a compile runs, or None where nothing is new.

    Raises:
        ShardvizError: as `sv.mends`.
    """
    target = machine.text if machine.chip.kind != "cpu" else "cpu"
    return mending.mends(program, report, target, plan=plan, stream=True).steps()
