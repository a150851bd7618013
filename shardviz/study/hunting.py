"""The search, and the trying of mends, a step at a time, for whoever has other things to do in between: what
`session.offering` calls a finder and a mender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from shardviz.costs.machine import Machine
from shardviz.program.plan import Plan
from shardviz.records.amounts import format_bytes, format_seconds
from shardviz.records.report import Report
from shardviz.session.chores import WAITING, stepped
from shardviz.session.offers import Better, Remedies, Remedy
from shardviz.session.program import Program
from shardviz.study.answer import WhyNot
from shardviz.study.mending import mending
from shardviz.study.mends import Mend, Mends
from shardviz.study.search import searching

SECONDS = 30.0
_MOST_WHY = 8


def hunt(program: Program, plan: Plan, machine: Machine) -> Iterator[Better]:
    """Searches meshes and cuts at level propagated, beginning with a plan and the presets.

    The best are not compiled here: a card that is opened is.

    Args:
        program: the program.
        plan: what the search begins with, where it is for as many devices, and goes beyond.
        machine: the machine.

    Raises:
        ShardvizError: as `search`.
    """
    first = plan if plan.mesh.size == machine.size else None
    found = searching(program, machine, seconds=SECONDS, plan=first, level="propagated")
    best = None
    for _ in found.slices():
        now = found.best
        share = min(1.0, found.elapsed / SECONDS)
        if now is None or now is best:
            yield Better(tried=len(found.tried), share=share)
            continue
        best = now
        yield Better(tried=len(found.tried), share=share, plan=now.plan, text=now.text)
    if best is not None:
        why = tuple(map(_words, found.state.why_not[:_MOST_WHY]))
        yield Better(tried=len(found.tried), share=1.0, plan=best.plan, text=best.text, why=why)


def _words(why: WhyNot) -> str:
    """`w1:2 by model, not whole; the other way +0.41 s, +3.2 GB: since ...`."""
    sign = "+" if why.seconds >= 0 else "−"
    moved = "+" if why.bytes >= 0 else "−"
    chosen = why.chosen if why.chosen.startswith(why.decision) else f"{why.decision} {why.chosen}"
    return (
        f"{chosen}, not {why.other}; the other way {sign}{format_seconds(abs(why.seconds))}, "
        f"{moved}{format_bytes(abs(why.bytes))} memory: {why.reason}"
    )


def mend(program: Program, report: Report, machine: Machine, plan: Plan) -> Iterator[Remedies | str | None]:
    """Tries what may help a plan, as `program.mends` does.

    Args:
        program: the program.
        report: what is known of the plan.
        machine: the machine; `cpu` has no speed, so that bytes count.
        plan: the plan.

    Raises:
        ShardvizError: as `program.mends`.
    """

    def work(pause: Callable[[Any], None]) -> None:
        going = mending(program, report, machine.text if machine.chip.kind != "cpu" else "cpu", plan=plan)
        going.patient = True
        try:
            for state in going:
                pause(WAITING if going.waiting else _remedies(state))
        finally:
            going.stop()

    return stepped(work)  # to hold a value, the program is traced anew


def _remedies(state: Mends) -> Remedies:
    return Remedies(items=tuple(map(_remedy, state.mends)), tried=state.tried, candidates=state.candidates)


def _remedy(found: Mend) -> Remedy:
    return Remedy(
        action=found.action,
        text=found.text,
        plan=found.plan,
        seconds=found.seconds,
        bytes=found.bytes,
        memory=found.memory,
        level=found.level,
        lines=found.lines,
        finding="" if found.finding is None else found.finding.id,
        write=found.write,
    )
