"""Why a value is cut as it is, why a collective is there, and what would change: asked by a person, answered in slices.

A question takes a dozen runs of Shardy; between two of them whatever else is asked is answered, and a newer question
or another plan ends it.

A name means something in the report that the person looks at, which may be the partitioner's. What is asked about is
the same thing at the propagated level, where there is one: `counterpart` finds values, the line and the axes find
collectives. An answer is of one plan and one machine; it goes when either does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from shardviz.ask.why import alike
from shardviz.errors import ShardvizError
from shardviz.explorer.asking import Board
from shardviz.explorer.chores import stepped
from shardviz.explorer.selection import counterpart
from shardviz.judge.report import Report
from shardviz.records import Collective, Value


def why(board: Board, subject: Value | Collective) -> Iterator[Any]:
    """Finds why a value is sharded as it is, or why a collective is there; `Snapshot.why` has the question."""
    yield  # so that the page says first that it was asked
    now = board.now
    asked, machine, plan = now.why, now.machine.machine, now.plan
    report = now.answers.known["propagated"]
    meant, trouble = _meant(subject, now.report, report)
    answer = None
    if meant is not None:
        target = None if machine.chip.kind == "cpu" else machine
        try:
            answers: list[Any] = []
            ask = partial(board.asking.program.why, plan, meant, axis=asked.axis or None, target=target)
            steps = stepped(lambda pause: answers.append(ask(pause=pause)))
            with closing(steps):
                for tried in steps:
                    if isinstance(tried, int):
                        board.put(why=replace(asked, tried=tried))
                    yield tried
            answer = answers[0]
        except ShardvizError as error:
            trouble = str(error)
    board.put(why=replace(asked, busy=False, answer=answer, trouble=trouble))


def without(board: Board, cause: int) -> Iterator[None]:
    """Finds what would change if a cause of the answer did not say its axis."""
    yield
    asked = board.now.why
    try:
        change = asked.answer.without(asked.answer.causes[cause])
    except ShardvizError as error:
        board.put(why=replace(asked, busy=False, trouble=str(error)))
        return
    board.put(why=replace(asked, busy=False, changes={**asked.changes, cause: change}))


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
