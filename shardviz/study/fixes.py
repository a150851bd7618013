"""The records of `sv.fixes`: changes of a plan that were tried and help, and the changes that do not.

Each `Fix` was run by Shardy's propagation and the cost model, and by the compiler that its `level` names. A change
that makes the step longer is included only if it saves memory that a finding reports.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from shardviz.ask.program import Program
from shardviz.costs.accuracy import STEP_ERROR
from shardviz.diagnose import policy
from shardviz.display import Displayed
from shardviz.judge.comparison import Comparison
from shardviz.plan.plan import Plan
from shardviz.records import Finding, Frame
from shardviz.records.amounts import format_bytes, format_flops, format_seconds, plural

NO_ROOM = "does-not-fit", "too-much"
"""The rules of findings about a plan that does not fit."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Fix:
    """A change of a plan that was tried and helps.

    Attributes:
        findings: the findings that the change removes, then those that it makes cheaper; gravest first.
        plan: the changed plan. Its `variant` has donated arguments, padded dimensions, a checkpoint policy or
            constraints.
        write: the Python to write for such a variant; empty if specs and constraints suffice.
        action: the change in words: `give params['wk'] the spec P('data', 'model')`.
        difference: the comparison with the original plan, which is the baseline.
        level: the highest level of the comparison: `propagated`, `partitioned` or `compiled`.
        seconds: seconds per step saved; None if the target has no known speed.
        step: seconds per step of the original plan; None if the target has no known speed.
        bytes: operand bytes saved that collectives move per device in a step.
        memory: additional bytes per device; planned by the compiler at level `compiled`, else predicted.
        over: bytes by which the changed plan exceeds a device's memory; 0 if it fits.
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
        """The first of `findings`; None if there is none."""
        return next(iter(self.findings), None)

    @property
    def text(self) -> str:
        """The change and its effects in one sentence: `constrain h at model.py:64 to P('data'): ...`."""
        return f"{self.action}: {', '.join(self.effects)}"

    @property
    def effects(self) -> tuple[str, ...]:
        """The effects in words with numbers: collectives, seconds, bytes moved and memory."""
        return (*self.collectives, *self._amounts())

    @property
    def collectives(self) -> tuple[str, ...]:
        """The collectives that vanish or appear in a step, by kind: `removes 3 all-gathers`."""
        runs = Counter[str]()
        for change in self.difference.collectives:
            for sign, total in ((-1, change.before), (1, change.after)):
                for c in total.collectives if total else ():
                    runs[c.kind] += sign * (1 if c.count is None else c.count)
        most = sorted(runs.items(), key=lambda item: -abs(item[1]))
        return (
            *(f"removes {plural(-count, kind)}" for kind, count in most if count < 0),
            *(f"adds {plural(count, kind)}" for kind, count in most if count > 0),
        )

    @property
    def lines(self) -> tuple[Frame, ...]:
        """The lines whose collectives change, largest saving first."""
        changes = sorted(self.difference.collectives, key=lambda c: c.bytes)
        return tuple(dict.fromkeys(c.source.bare for c in changes if c.source is not None))

    @property
    def is_unsure(self) -> bool:
        """Whether the saving is within the level's error, and the target's compiler did not confirm it."""
        return self.level != "compiled" and 0 < (self.seconds or 0.0) < STEP_ERROR * (self.step or 0.0)

    @property
    def levels(self) -> str:
        """A remark on certainty: `predicted` or `within the error of level partitioned`; empty if confirmed."""
        if self.is_unsure:
            return f"within the error of level {self.level}"
        return "predicted" if self.level == "propagated" else ""

    def _amounts(self) -> Iterator[str]:
        if self.seconds and self.step:
            levels = f" ({self.levels})" if self.levels else ""
            if self.seconds > 0:
                yield f"{format_seconds(self.seconds)} of {format_seconds(self.step)} a step saved{levels}"
            else:
                yield f"{format_seconds(-self.seconds)} more than the {format_seconds(self.step)} a step{levels}"
        if self.bytes:
            word = "less" if self.bytes > 0 else "more"
            yield f"{format_bytes(abs(self.bytes))} {word} moved on each device"
        more = sum(a.difference or 0.0 for a in self.difference.amounts if a.name == "FLOPs")
        if self.plan.variant and more:
            yield f"{format_flops(abs(more))} {'more' if more > 0 else 'less'} of matrix products"
        if abs(self.memory) >= policy.MENTIONED:
            word = "more" if self.memory > 0 else "less"
            about, predicted = ("", "") if self.level == "compiled" else ("about ", ", predicted")
            yield f"{about}{format_bytes(abs(self.memory))} {word} memory{predicted if self.for_memory else ''}"
        if self.over:
            yield f"still {format_bytes(self.over)} too large"

    @property
    def for_memory(self) -> bool:
        """Whether it fixes a finding about a plan that does not fit."""
        return any(finding.rule in NO_ROOM for finding in self.findings)

    def to_data(self) -> dict[str, Any]:
        """Return the fields as plain data; bytes and seconds per device."""
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


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A change that was tried and is not offered, and the reason."""

    action: str
    why: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Fixes(Displayed):
    """The changes that improve a report, largest saving first; if the plan does not fit, those that make it fit first.

    Attributes:
        program, target: the function's name, and the machine.
        level: the level of the report.
        fixes: the changes that help.
        tried: number of changes tried.
        candidates: number of changes in total.
        rejected: changes that improve nothing or do not run.
        by_hand: suggestions of the findings that only a person can carry out, because they change a line of the
            function.
        seconds: duration of the search in seconds.
        finished: whether all changes were tried; False if the search was stopped or still runs.
    """

    _width: ClassVar[int | None] = 120

    program: str
    target: str
    level: str
    fixes: tuple[Fix, ...]
    tried: int
    candidates: int
    rejected: tuple[Rejected, ...] = ()
    by_hand: tuple[str, ...] = ()
    seconds: float = 0.0
    finished: bool = True

    def __iter__(self) -> Iterator[Fix]:
        return iter(self.fixes)

    def __len__(self) -> int:
        return len(self.fixes)

    def __getitem__(self, place: int) -> Fix:
        return self.fixes[place]

    def of(self, finding: Finding) -> tuple[Fix, ...]:
        """Return the changes that remove a finding or make it cheaper."""
        return tuple(m for m in self.fixes if finding.id in {each.id for each in m.findings})

    def to_json(self, *, indent: int | None = None) -> str:
        """Return everything as JSON text; bytes and seconds per device."""
        data = {name: getattr(self, name) for name in FixesData.__struct_fields__ if hasattr(self, name)}
        data |= {"fixes": [fix.to_data() for fix in self.fixes], "rejected": [vars(each) for each in self.rejected]}
        return json.dumps(msgspec.to_builtins(FixesData(**data)), indent=indent)


class FixesData(msgspec.Struct, kw_only=True):
    """The JSON of `Fixes`, largest saving first; bytes and seconds per device."""

    shardviz_fixes: int = 1
    program: str
    target: str
    level: str
    fixes: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    by_hand: tuple[str, ...]
    tried: int
    finished: bool


CodeFor = Callable[[Program], str]
"""A function from a variant of the program to the code that the user has to write for it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change to try.

    Attributes:
        plan: the changed plan.
        action: the change in words.
        finding: the finding that suggests it; None for changes derived from the plan alone.
        code: returns the code to write, given the variant of the program; None if `write` has the code.
    """

    plan: Plan
    action: str
    finding: Finding | None = None
    code: CodeFor | None = None
    write: str = ""

    @property
    def is_grave(self) -> bool:
        """Whether a warning or an error suggests it."""
        return self.finding is not None and self.finding.severity != "note"
