"""Why a value is cut as it is, why a collective is there, and what would change: asked by a person, answered in slices.

A question takes a dozen runs of Shardy; between two of them whatever else is asked is answered, and a newer question
or another plan ends it.

A name means something in the report that the person looks at, which may be the partitioner's. What is asked about is
the same thing at the propagated level, where there is one: `counterpart` finds values, the line and the axes find
collectives. An answer is of one plan and one machine; it goes when either does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from shardviz.errors import ShardvizError, excerpt
from shardviz.records import Collective, Value
from shardviz.records.report import Report
from shardviz.records.why import Why
from shardviz.session.chores import stepped
from shardviz.session.dealing import Dealing
from shardviz.session.offers import Asked
from shardviz.session.selection import counterpart
from shardviz.session.snapshot import Snapshot
from shardviz.session.why import alike

if TYPE_CHECKING:
    from shardviz.session.program import Program


class Questions(Dealing):
    """What can be asked about the plan as it is.

    Attributes:
        now: as `ExplorerState` has it.
        program: the program.
    """

    now: Snapshot
    program: Program

    @abstractmethod
    def _begin(self, which: str, steps: Iterator[Any]) -> None:
        """Begins a chore."""

    @abstractmethod
    def _stop(self, which: str) -> None:
        """Ends a chore."""

    def ask_why(self, name: str, axis: str = "") -> None:
        """Asks why a value is cut as it is, or why a collective is there.

        Args:
            name: a collective's or a value's name in the report, as `Collective.name` and `Value.name` have it.
            axis: the mesh axis on a value, or missing from it; empty for all of them.
        """
        self._stop("why")
        asked = Asked(of=self.now.plan, name=name, axis=axis)
        found = _named(name, axis, self.now.answers.report)
        if found is None:
            what = "value" if axis else "value or collective"
            self._put(why=replace(asked, trouble=f"there is no {what} {excerpt(name)!r} here"))
            return
        line = "" if found.source is None else found.source.short
        self._put(why=replace(asked, line=line, busy=True))
        self._begin("why", self._find_why(found))

    def ask_without(self, cause: int) -> None:
        """Asks what would change in the whole program if a cause of the answer did not say its axis.

        Args:
            cause: which of the answer's causes, from 0.
        """
        asked = self.now.why
        causes = () if asked.answer is None else asked.answer.causes
        if asked.busy or not 0 <= cause < len(causes) or cause in asked.changes:
            return
        self._put(why=replace(asked, busy=True, trouble=""))
        self._begin("why", self._find_change(cause))

    def ask_recorded(self) -> None:
        """Asks what Shardy itself recorded of the axes that the answer is about."""
        asked = self.now.why
        if asked.busy or asked.looked or not isinstance(asked.answer, Why):
            return
        self._put(why=replace(asked, busy=True, trouble=""))
        self._begin("why", self._find_recorded())

    def close_why(self) -> None:
        """Takes the question and its answer away."""
        self._stop("why")
        self._put(why=Asked())

    # How.

    def _find_why(self, found: Value | Collective) -> Iterator[Any]:
        yield  # so that the page says first that it was asked
        asked, machine, plan = self.now.why, self.now.machine.machine, self.now.plan
        report = self.now.answers.known["propagated"]
        meant, trouble = _meant(found, self.now.answers.report, report)
        answer = None
        if meant is not None:
            target = None if machine.chip.kind == "cpu" else machine
            try:
                answers: list[Any] = []
                ask = partial(self.program.why, plan, meant, axis=asked.axis or None, target=target)
                steps = stepped(lambda pause: answers.append(ask(pause=pause)))
                with closing(steps):
                    for tried in steps:
                        if isinstance(tried, int):
                            self._put(why=replace(asked, tried=tried))
                        yield tried
                answer = answers[0]
            except ShardvizError as error:
                trouble = str(error)
        self._put(why=replace(asked, busy=False, answer=answer, trouble=trouble))

    def _find_change(self, cause: int) -> Iterator[None]:
        yield
        asked = self.now.why
        try:
            change = asked.answer.without(asked.answer.causes[cause])
        except ShardvizError as error:
            self._put(why=replace(asked, busy=False, trouble=str(error)))
            return
        self._put(why=replace(asked, busy=False, changes={**asked.changes, cause: change}))

    def _find_recorded(self) -> Iterator[None]:
        yield
        asked = self.now.why
        self._put(why=replace(asked, busy=False, looked=True, recorded=asked.answer.recorded()))


def _named(name: str, axis: str, report: Report) -> Value | Collective | None:
    """What has a name in a report; an axis is asked of values alone."""
    moved = () if axis else report.collectives
    return next((each for each in (*moved, *report.values) if each.name == name), None)


def _meant(found: Value | Collective, seen: Report, report: Report) -> tuple[Value | Collective | None, str]:
    """The same thing in the propagated report; where there is none, why."""
    if isinstance(found, Collective):
        moved = alike(found, report.collectives)
        return moved, "" if moved is not None else (
            f"Shardy's propagation, of which this is asked, has no {found.kind} over these axes on this line: XLA's "
            "partitioner has made it of something else"
        )
    outer = next((v for v in (*report.arguments, *report.outputs) if v.name == found.name), None)
    if outer is not None or seen is report or seen.level == report.level:
        return outer or found, ""
    match = counterpart(found, seen.intermediates, report.intermediates)
    if match is None:
        return None, (
            "Shardy's propagation, of which this is asked, has no such value: XLA's partitioner has made it of others"
        )
    return next(v for v in report.intermediates if v.name == match.name), ""
