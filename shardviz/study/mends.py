"""What mends a report's findings, tried: a plan each, and what it changes everywhere, in the numbers of its level.

A `Mend` was run: by Shardy's propagation and the cost model, and where its `level` says so by XLA's partitioner or the
target's compiler. One that makes the step worse, or that no longer fits where the plan did, is not among them; but one
against an array that lies on too many devices is where the target's compiler plans with so much less memory, and its
sentence says by how much the step is longer. It is of the findings that are no more, or cost less, in its own report.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from shardviz.ask.program import Program
from shardviz.costs.accuracy import STEP_ERROR
from shardviz.display import Displayed
from shardviz.judge.changes import CollectiveChange
from shardviz.judge.comparison import Comparison
from shardviz.program.plan import Plan
from shardviz.records import Finding, Frame
from shardviz.records.amounts import format_bytes, format_flops, format_seconds

NO_ROOM = "does-not-fit", "too-much"
"""The rules of findings that a plan does not fit."""
_PLURALS = {"all-to-all": "all-to-alls", "reduce-scatter": "reduce-scatters"}


@dataclass(frozen=True, kw_only=True, repr=False)
class Mend:
    """A change of a plan that was tried.

    Attributes:
        findings: those that it removes, then those that cost less with it, the gravest first.
        plan: the changed plan; where donated arguments, a dimension of another length, another checkpoint policy or
            another constraint in the source mend it, its `variant` has them.
        write: the Python that a person writes for such a variant; empty where specs and constraints are all.
        action: what is changed, in words: `give params['wk'] the spec P('data', 'model')`.
        difference: what is different, everywhere; the plan as it was is the baseline.
        level: how far it was tried: `propagated`, `partitioned`, or `compiled` where memory decides.
        seconds: of a step, saved; None where the target has no speed.
        step: seconds of the step as it was; None where the target has no speed.
        bytes: operand bytes that collectives move on one device in a step, saved.
        memory: bytes that one device needs, more than before: the compiler's plan at level `compiled`, else predicted.
        over: bytes that are too much for a device with it, as told by the same; 0 where it fits.
    """

    plan: Plan
    action: str
    difference: Comparison
    level: str
    seconds: float | None
    step: float | None
    bytes: float
    memory: float
    over: float = 0.0
    write: str = ""
    findings: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        return self.text

    @property
    def finding(self) -> Finding | None:
        """The first of `findings`; None where it is of none."""
        return next(iter(self.findings), None)

    @property
    def text(self) -> str:
        """What is changed and what that brings, in one sentence: `constrain h at model.py:64 to P('data'): ...`."""
        return f"{self.action}: {', '.join(self.effects)}"

    @property
    def effects(self) -> tuple[str, ...]:
        """What it brings, in words with numbers: what vanishes or comes, what is saved, what it costs."""
        return (*self.collectives, *self._saved(), *self._computed(), *self._memory())

    @property
    def collectives(self) -> tuple[str, ...]:
        """Which collectives vanish and which come, by kind: `3 all-gathers vanish`."""
        return tuple(_moved(self.difference.collectives))

    @property
    def lines(self) -> tuple[Frame, ...]:
        """The lines whose collectives change, those that save most first."""
        changes = sorted(self.difference.collectives, key=lambda c: c.bytes)
        return tuple(dict.fromkeys(c.source.bare for c in changes if c.source is not None))

    @property
    def is_unsure(self) -> bool:
        """Whether no compiler of the target says that it saves time, and so little that the step may be longer: such a
        one is a mend for what else it saves, memory."""
        return self.level != "compiled" and 0 < (self.seconds or 0.0) < STEP_ERROR * (self.step or 0.0)

    @property
    def levels(self) -> str:
        """`predicted`, where no partitioner confirmed it; `within the error of level partitioned`, where it is unsure;
        else empty."""
        if self.is_unsure:
            return f"within the error of level {self.level}"
        return "predicted" if self.level == "propagated" else ""

    def _saved(self) -> Iterator[str]:
        if self.seconds and self.step:
            levels = f" ({self.levels})" if self.levels else ""
            if self.seconds > 0:
                yield f"{format_seconds(self.seconds)} of {format_seconds(self.step)} a step saved{levels}"
            else:
                yield f"{format_seconds(-self.seconds)} more than the {format_seconds(self.step)} a step{levels}"
        if self.bytes:
            word = "less" if self.bytes > 0 else "more"
            yield f"{format_bytes(abs(self.bytes))} {word} moved on each device"

    def _computed(self) -> Iterator[str]:
        more = sum(a.difference or 0.0 for a in self.difference.amounts if a.name == "FLOPs")
        if self.plan.variant and more:
            yield f"{format_flops(abs(more))} {'more' if more > 0 else 'less'} of matrix products"

    def _memory(self) -> Iterator[str]:
        if abs(self.memory) >= 0.5e6:
            word = "more" if self.memory > 0 else "less"
            about, predicted = ("", "") if self.level == "compiled" else ("about ", ", predicted")
            yield f"{about}{format_bytes(abs(self.memory))} {word} memory{predicted if self.for_memory else ''}"
        if self.over:
            yield f"still {format_bytes(self.over)} too large"

    @property
    def for_memory(self) -> bool:
        """Whether it is of a finding that the plan does not fit."""
        return any(finding.rule in NO_ROOM for finding in self.findings)

    def to_data(self) -> dict[str, Any]:
        """It as plain data: bytes and seconds on one device."""
        return {
            "finding": self.finding and self.finding.id,
            "findings": [finding.id for finding in self.findings],
            "action": self.action,
            "text": self.text,
            "write": self.write,
            "level": self.level,
            "seconds_saved": self.seconds,
            "step_seconds": self.step,
            "bytes_saved": self.bytes,
            "memory_more": self.memory,
            "memory_over": self.over,
            "lines": [frame.short for frame in self.lines],
        }


def _moved(changes: Sequence[CollectiveChange]) -> Iterator[str]:
    """`3 all-gathers vanish, an all-reduce appears`: how many runs of each kind are gone in a step, or new."""
    runs = Counter[str]()
    for change in changes:
        for sign, total in ((-1, change.before), (1, change.after)):
            for c in total.collectives if total else ():
                runs[c.kind] += sign * (1 if c.count is None else c.count)
    for word, sign in (("vanish", -1), ("more", 1)):
        for kind, count in sorted(runs.items(), key=lambda item: -abs(item[1])):
            if count * sign > 0:
                many = f"{abs(count):,} {_PLURALS.get(kind, f'{kind}s') if abs(count) != 1 else kind}"
                yield f"{many} {word if sign > 0 or abs(count) != 1 else 'vanishes'}"


@dataclass(frozen=True, kw_only=True)
class NotOffered:
    """A change that was tried and is not offered: what it is, and why."""

    action: str
    why: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Mends(Displayed):
    """The mends of a report, the one that saves most first; where the plan does not fit, most memory.

    Attributes:
        program, target: what was tried, and the machine whose seconds are meant.
        level: of the report that is mended.
        mends: what is offered.
        tried: how many changes were tried.
        candidates: how many there are.
        not_offered: what was tried and makes nothing better, or does not run.
        by_hand: what the findings suggest besides, in words, that was not tried, as only a person can write it: another
            line of the function.
        seconds: that it took.
        finished: whether all was tried; else it was stopped, or goes on.
    """

    _width: ClassVar[int | None] = 120

    program: str
    target: str
    level: str
    mends: tuple[Mend, ...]
    tried: int
    candidates: int
    not_offered: tuple[NotOffered, ...] = ()
    by_hand: tuple[str, ...] = ()
    seconds: float = 0.0
    finished: bool = True

    def __iter__(self) -> Iterator[Mend]:
        return iter(self.mends)

    def __len__(self) -> int:
        return len(self.mends)

    def __getitem__(self, place: int) -> Mend:
        return self.mends[place]

    def of(self, finding: Finding) -> tuple[Mend, ...]:
        """Those that remove a finding, or make it cost less."""
        return tuple(m for m in self.mends if finding.id in {each.id for each in m.findings})

    def to_json(self, *, indent: int | None = None) -> str:
        """All of it as JSON text; bytes and seconds on one device."""
        return json.dumps(
            {
                "shardviz_mends": 1,
                "program": self.program,
                "target": self.target,
                "level": self.level,
                "mends": [mend.to_data() for mend in self.mends],
                "not_offered": [{"action": n.action, "why": n.why} for n in self.not_offered],
                "by_hand": list(self.by_hand),
                "tried": self.tried,
                "finished": self.finished,
            },
            indent=indent,
        )


Told = Callable[[Program], str]
"""Given a variant of the program, says what to write for it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change to be tried: the plan, the change in words, and the finding that suggests it (None for one that follows
    from the plan itself). `told`, given the program that the plan is of, says what to write for it; None where `write`
    has it."""

    plan: Plan
    action: str
    finding: Finding | None = None
    told: Told | None = None
    write: str = ""
