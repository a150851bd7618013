"""The texts of a plan's program are made while somebody looks at them, in slices (`chores`), so that the explorer stays
live. Those of the last few plans are kept, so that a plan can be held against another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from shardviz.errors import ShardvizError
from shardviz.records.stages import Stage
from shardviz.session.chores import WAITING
from shardviz.session.offering import Offering
from shardviz.session.stages import Passes, Stages, pass_stages

if TYPE_CHECKING:
    from shardviz.program.plan import Plan

_KEPT = 2
"""Plans whose texts are kept although nobody looks at them."""


class Staging(Offering):
    """What makes the texts; see `Offering`."""

    def find_stages(self, other: bool = False) -> None:
        """Has the texts of the plan made, and, where `other`, those of the card that it is compared with."""
        wanted = tuple(dict.fromkeys((self.plan, self.deck.other.plan))) if other else (self.plan,)
        if set(wanted) <= set(self._chores.meant) and self.plan == self.now.stages.of:
            return
        self._stop("stages")
        self._chores.meant = wanted  # before anybody is told, who may ask again
        missing = [plan for plan in wanted if plan not in self._chores.texts]
        self._put(stages=self._chores.texts.get(self.plan, Stages(self.plan, busy=True)))
        if missing:
            self._begin("stages", self._make_stages(missing))

    def stages_of(self, plan: Plan) -> Stages:
        """The texts of a plan as far as they are made."""
        if self.now.stages.of == plan:
            return self.now.stages
        return self._chores.texts.get(plan, Stages(plan))

    def show_passes(self) -> None:
        """Has the plan compiled once more for its target, with what each of XLA's passes makes of it."""
        self._stop("passes")
        self._begin("passes", self._make_passes(self.plan, self.now.machine.target))

    def passes_of(self, plan: Plan) -> Passes:
        """What XLA's passes make of a plan on the target, as far as somebody has asked for it."""
        return self._chores.passed.get((plan, self.now.machine.target), Passes())

    def _make_passes(self, plan: Plan, target: str) -> Iterator[Any]:
        def put(made: Passes) -> None:
            self._chores.passed.pop((plan, target), None)
            self._chores.passed[plan, target] = made
            for old in list(self._chores.passed)[:-_KEPT]:
                self._chores.passed.pop(old)
            self._put(stages=replace(self.now.stages))

        job = None
        put(Passes(busy=True))
        try:
            yield
            job = self.program.submit_passes(plan, target)
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
            if self._chores.passed.get((plan, target), Passes()).busy:  # nobody waits for it any more
                self._chores.passed.pop((plan, target))

    def _make_stages(self, plans: list[Plan]) -> Iterator[Any]:
        yield  # so that the page says first that they are being made
        for plan in plans:
            made = Stages(plan, busy=True)
            try:
                for stage in self.program.stages(plan):
                    made = replace(made, items=(*made.items, stage))
                    if plan == self.plan and len(made.items) <= 2:
                        self._put(stages=made)
                    yield
            except ShardvizError as error:
                made = replace(made, trouble=str(error))
            made = replace(made, busy=False)
            self._chores.texts[plan] = made
            for old in [old for old in self._chores.texts if old not in self._chores.meant][:-_KEPT]:
                self._chores.texts.pop(old)
            self._put(stages=made if plan == self.plan else replace(self.now.stages))
