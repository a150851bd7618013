"""The texts of a plan's program are made while somebody looks at them, in slices (`chores`), so that the explorer stays
live. Those of the last few plans are kept, so that a plan can be held against another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardviz.ask.program import submit_passes
from shardviz.errors import ShardvizError
from shardviz.explorer.asking import Board
from shardviz.explorer.stages import Passes, Stages, pass_stages
from shardviz.records.stages import Stage
from shardviz.study.trying import WAITING

if TYPE_CHECKING:
    from shardviz.program.plan import Plan

_KEPT = 2
"""Plans whose texts are kept although nobody looks at them."""


class Texts:
    """The texts of an explorer's plans.

    Args:
        board: where they are put.
        begin: begins a chore.
        end: ends one.
    """

    def __init__(self, board: Board, begin: Callable[[str, Iterator[Any]], None], end: Callable[[str], None]):
        self._board, self._begin, self._end = board, begin, end
        self._kept: dict[Plan, Stages] = {}
        self._passes: dict[tuple[Plan, str], Passes] = {}
        self._wanted: tuple[Plan, ...] = ()

    def find(self, other: bool = False) -> None:
        """Has the texts of the plan made, and, where `other`, those of the card that it is compared with."""
        now = self._board.now
        wanted = tuple(dict.fromkeys((now.plan, now.deck.other.plan))) if other else (now.plan,)
        if set(wanted) <= set(self._wanted) and now.plan == now.stages.of:
            return
        self._end("stages")
        self._wanted = wanted  # before anybody is told, who may ask again
        missing = [plan for plan in wanted if plan not in self._kept]
        self._board.put(stages=self._kept.get(now.plan, Stages(now.plan, busy=True)))
        if missing:
            self._begin("stages", self._make(missing))

    def of(self, plan: Plan) -> Stages:
        """The texts of a plan as far as they are made."""
        if self._board.now.stages.of == plan:
            return self._board.now.stages
        return self._kept.get(plan, Stages(plan))

    def passes_of(self, plan: Plan) -> Passes:
        """What XLA's passes make of a plan on the target, as far as somebody has asked for it."""
        return self._passes.get((plan, self._board.now.machine.target), Passes())

    def passes(self) -> Iterator[Any]:
        """Compiles the plan once more for its target, with what each of XLA's passes makes of it."""
        return self._make_passes(self._board.now.plan, self._board.now.machine.target)

    def _make_passes(self, plan: Plan, target: str) -> Iterator[Any]:
        def put(made: Passes) -> None:
            self._passes.pop((plan, target), None)
            self._passes[plan, target] = made
            for old in list(self._passes)[:-_KEPT]:
                self._passes.pop(old)
            self._board.put(stages=replace(self._board.now.stages))

        job = None
        put(Passes(busy=True))
        try:
            yield
            job = submit_passes(self._board.asking.program, plan, target)
            while not job.done():
                yield WAITING
            made: list[Stage] = []
            for stage in pass_stages(job.result()["compiled"]):
                made.append(stage)
                yield  # packing takes some milliseconds each
            put(Passes(tuple(made)))
        except ShardvizError as error:
            put(Passes(trouble=str(error)))
        finally:
            if job is not None:
                job.stop()
            if self._passes.get((plan, target), Passes()).busy:  # nobody waits for it any more
                self._passes.pop((plan, target))

    def _make(self, plans: list[Plan]) -> Iterator[Any]:
        yield  # so that the page says first that they are being made
        for plan in plans:
            made = Stages(plan, busy=True)
            try:
                for stage in self._board.asking.program.stages(plan):
                    made = replace(made, items=(*made.items, stage))
                    if plan == self._board.now.plan and len(made.items) <= 2:
                        self._board.put(stages=made)
                    yield
            except ShardvizError as error:
                made = replace(made, trouble=str(error))
            made = replace(made, busy=False)
            self._kept[plan] = made
            for old in [old for old in self._kept if old not in self._wanted][:-_KEPT]:
                self._kept.pop(old)
            self._board.put(stages=made if plan == self._board.now.plan else replace(self._board.now.stages))
