"""Mends tried: what may help against a report's findings, and against what costs most.

    mends = sv.mends(program, report, "tpu v5p:4x4x4")
    for state in sv.mends(program, report, "tpu v5p:4x4x4", stream=True): ...       # as they are found

A change (`changes_of`) is a whole plan, or a variant of the program, which is traced anew. Each is scored by Shardy's
propagation and the cost model, in tens of milliseconds. What makes the step no shorter falls out, but for what takes
less memory in as short a step, or makes it fit, or takes away what a warning says that an array holds; the best of the
rest go through XLA's partitioner, and what that finds is what is said. What saves less time than a level is off by is
no mend there, unless it saves memory. For memory the target's compiler is asked, if that is there: where the plan does
not fit, where the change saves hardly any time, and where it costs time against a finding of what an array holds; and
about a change that saves much and that no warning names.

Where the process has other things to do in between, what traces the function is tried in a worker: nobody waits for it,
and whatever the function locks is locked there.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack, overload

from shardviz.ask.derived import of_variant
from shardviz.ask.program import Program, sketch
from shardviz.ask.targeting import resolve_target
from shardviz.costs import Machine
from shardviz.costs.accuracy import STEP_ERROR
from shardviz.costs.footprint import footprint
from shardviz.costs.machine import machine_of
from shardviz.costs.step_cost import memory_parts
from shardviz.diagnose import findings as findings_of
from shardviz.errors import ShardvizError
from shardviz.judge.comparison import compare
from shardviz.judge.report import Report
from shardviz.program.lower import LowerFor
from shardviz.program.plan import Plan
from shardviz.records import Finding
from shardviz.records.amounts import format_seconds
from shardviz.study.mends import NO_ROOM, Change, Mend, Mends, NotOffered, Told
from shardviz.study.proposing import Proposals, plan_of
from shardviz.study.scoring import Scorer
from shardviz.study.trying import Step, Trying, Wait
from shardviz.study.workers import Lost, Shared, Workers, answer_of, can_travel, give

_FINDINGS = 5
_CONFIRMED, _CONFIRMED_ELSE = 2, 3
"""How many mends that a finding suggests go through the partitioner, and how many of each other kind."""
_WORTH = 0.005
"""A change that saves a smaller share is not offered."""
_LESS = 0.02
"""A finding that costs less by a smaller share is not mended."""
_MOST = 0.5
"""Which share of what a finding says that an array holds must be gone for a mend that saves memory alone."""
_UNFORESEEN = 0.1
"""By which share a step without one of the function's constraints may be longer before the partitioner is asked."""
_EQUAL = 1e-6
_MUCH, _TARGETED = 0.2, 2
"""From which share of the step on a mend that no warning names goes through the target's compiler, and how many do."""


class Wanted(TypedDict, total=False):
    """What mends take by keyword; see `mends`."""

    plan: Plan | None
    findings: int


@overload
def mends(
    program: Program, report: Report, target: Any = None, *, stream: Literal[False] = False, **options: Unpack[Wanted]
) -> Mends: ...
@overload
def mends(
    program: Program, report: Report, target: Any = None, *, stream: Literal[True], **options: Unpack[Wanted]
) -> Mending: ...
def mends(
    program: Program,
    report: Report,
    target: Any = None,
    *,
    plan: Plan | None = None,
    findings: int = _FINDINGS,
    stream: bool = False,
) -> Mends | Mending:
    """What mends a report, tried: for each of its gravest findings, and for what costs most.

    Specs, constraints, other specs along logical dimensions, and donation, longer dimensions and checkpoint policies
    (of which each is a program traced anew) are each run through propagation and the cost model, the best two of each
    finding through the partitioner. What makes the step worse is not offered.

    Args:
        program: the program.
        report: of this program, of any level.
        target: the machine whose seconds and memory count; the report's own if not given. Without a machine's speed,
            bytes moved count.
        plan: the plan that the report is of; made from `report.plan` if not given.
        findings: of how many findings mends are tried.
        stream: give an iterator of what is known at each step; its `stop` may be called from any thread.

    Returns:
        `Mends`, the one that saves most first: each has a `plan`, its `difference` and what it does as `text`.

    Raises:
        TargetError, MeshError: as `sv.cost`. What a plan tried raises is in `not_offered`.

    Examples:
        >>> import jax, shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> plan = mlp.plan.with_spec("x", jax.sharding.PartitionSpec())  # each device computes the whole batch
        >>> mends = sv.mends(mlp.program, mlp.program.propagate(plan), "tpu v5e:2x4", findings=1)
        >>> mends[0].level, mends[0].difference.same
        ('partitioned', False)
    """
    machine = machine_of(report.target if target is None else target, report.mesh.size)
    fast = None if machine.chip.kind == "cpu" else machine
    mending = Mending(program, report, fast, plan or plan_of(report), findings)
    if stream:
        return mending
    *_, last = mending
    return last


@dataclass(frozen=True)
class Judged:
    """A plan as it is judged: seconds of a step (None where the target has no speed), operand bytes that collectives
    move on one device, bytes that one device needs, about, and has (None where not known), and FLOPs of matrix products
    on one device, which count where the target has no speed."""

    step: float | None
    bytes: float
    needed: float
    usable: float | None
    flops: float = 0.0

    @property
    def over(self) -> float:
        return 0.0 if self.usable is None else max(0.0, self.needed - self.usable)

    def worse_than(self, other: Judged) -> str:
        """Why it is no better than the plan as it was; empty where it is better."""
        if self.over > other.over * (1 + _EQUAL):
            return "it fits even less" if other.over else "it needs more memory than a device has"
        if self.over < other.over - _WORTH * other.needed:
            return ""  # what fits may take longer than what does not run
        lighter = self.needed < other.needed * (1 - _WORTH)
        if self.step is not None and other.step is not None:
            longer = self.step > other.step * (1 + _EQUAL)
            if longer and lighter:
                more = format_seconds(self.step - other.step)
                return f"it needs less memory, but the step is {more} longer"
            same = longer or self.step > other.step * (1 - _WORTH)
            return "the step is no shorter" if same and not lighter else ""
        if lighter and self.bytes <= other.bytes * (1 + _EQUAL):
            return ""
        if self.bytes > other.bytes * (1 - _WORTH):
            return "no less is moved"
        return "less is moved, but each device computes more" if self.flops > other.flops * (1 + _WORTH) else ""

    def is_unsure(self, other: Judged) -> bool:
        """Whether it saves so few seconds that no level but the compiler's own is sure of them."""
        if self.step is None or other.step is None or self.over < other.over:
            return False
        return self.step > other.step * (1 - STEP_ERROR)

    @property
    def rank(self) -> tuple[float, float, float]:
        """What is least is best."""
        return self.over, self.bytes if self.step is None else self.step, self.needed


@dataclass(frozen=True)
class Judge:
    """How plans are judged, here or in a worker: by the seconds of a machine (None where none has a speed), and what is
    compiled for."""

    machine: Machine | None
    lowered_for: LowerFor

    def __call__(self, program: Program, plan: Plan) -> Judged:
        """A plan of the program, judged. Raises ShardvizError if it does not run."""
        if self.machine is not None:
            score = Scorer(program, self.machine, self.lowered_for)(plan)
            return Judged(score.seconds, sum(m.bytes for m in score.moved), score.needs.total, score.needs.usable)
        report = sketch(program, plan, self.lowered_for)
        moved = sum(c.assumed_bytes for c in report.collectives)
        return Judged(None, moved, footprint(report).needed, None, report.cost.dot_flops if report.cost else 0.0)

    def change(self, program: Program, plan: Plan, told: Told | None) -> tuple[Judged, str] | str:
        """A changed plan, judged, and what `told` says to write for it; or why it does not run."""
        try:
            write = "" if told is None else told(of_variant(program, plan.variant))
            return self(program, plan), write
        except ShardvizError as error:
            return str(error).split("\n", 1)[0]


def _there(program: Program, task: tuple[Judge, Plan, Told | None, str, str]) -> Any:
    """A task for a worker: a changed plan, judged; or for a target its reports as JSON, up to a level."""
    judge, plan, told, target, level = task
    if not target:
        return judge.change(program, plan, told)
    reports = [program.propagate(plan)]
    with contextlib.suppress(ShardvizError):
        future = program.submit(plan, level, target=target)
        future.exception()
        reports += future.reports.values()
    return [report.to_json(stages=False) for report in reports]


@functools.cache
def _worker() -> Workers:
    return Workers(1)


class Mending(Trying[Mends]):
    """The trying of mends.

    Attributes:
        program, report, plan: what is mended; the program is as the plan has it.
        machine: whose seconds count; None where none has a speed.
    """

    def __init__(self, program: Program, report: Report, machine: Machine | None, plan: Plan, findings: int):
        super().__init__()
        self.program, self.report, self.machine, self.plan = of_variant(program, plan.variant), report, machine, plan
        self._target = "cpu" if machine is None else machine.text
        resolved = resolve_target(self._target, report.mesh)
        self._judge = Judge(machine, resolved.lowered_for)
        self._compiler, self._targeted = not resolved.missing, 0
        self._changes: dict[Plan, tuple[Judged, Change]] = {}
        self._proposals = Proposals(self.program, report, machine, plan, findings)
        self._mends: list[Mend] = []
        self._not_offered = self._proposals.not_offered
        self._tried = self._candidates = 0
        self._finished = False
        self._short = any(finding.rule in NO_ROOM for finding in self._proposals.findings)
        self._shared: Shared | None = None  # the program, where a worker has what traces it
        self._sent: dict[tuple[Plan, str], Future[bytes]] = {}
        self._due: list[tuple[Judged, Change]] = []
        self._reports: dict[tuple[Plan, str], Report] = {}
        self._through: set[Plan] = set()

    @property
    def state(self) -> Mends:
        def order(mend: Mend) -> tuple[Any, ...]:
            room = (mend.level != "compiled", mend.memory) if mend.for_memory else ()
            return not mend.for_memory, room, -(mend.seconds or 0.0), -mend.bytes, mend.memory

        return Mends(
            program=self.program.name,
            target=self._target,
            level=self.report.level,
            mends=tuple(sorted(self._mends, key=order)),
            tried=self._tried,
            candidates=max(self._candidates, self._tried),
            not_offered=tuple(self._not_offered),
            by_hand=tuple(self._proposals.by_hand),
            seconds=self.elapsed,
            finished=self._finished,
        )

    def _end(self) -> None:
        super()._end()
        for future in self._sent.values():
            future.cancel()

    def _run(self) -> Iterator[Step]:
        base = self._judge(self.program, self.plan)
        self._short = self._short or base.over > 0
        self._ask(self.plan, "compiled" if self._short else "partitioned")
        yield None
        changes: list[Change] = []
        for change in self._proposals:
            changes.append(change)
            yield None
        self._candidates = len(changes)
        traces = any(any(self._proposals.traces(change)) for change in changes)
        shared = Shared(self.program)
        if self.shares and traces and can_travel(shared) and _worker().begin():
            self._shared = shared
        # what is wrong goes before what merely costs most, which is tried while the partitioner is at work
        yield from self._tell([c for c in changes if c.finding is not None], base)
        yield from self._tell([c for c in changes if c.finding is None], base)
        while not self.stopped and (self._due or self._goes_on()):
            yield Wait([f for _, change in self._due for f in self._awaited(change)])
            yield from self._confirmed(base)
        self._finished = not self.stopped
        yield self.state

    def _tell(self, changes: Sequence[Change], base: Judged) -> Iterator[Step]:
        """Tries changes, those first that need no other trace, and asks the partitioner for the best."""
        good: list[tuple[Judged, Change]] = []
        traces = self._proposals.traces
        for change in filter(self._goes, changes):
            self._send(change)
        for change in sorted(changes, key=lambda change: (self._goes(change), traces(change))):
            if self.stopped:
                return
            if any(traces(change)) and not self._goes(change):  # the partitioner is at work meanwhile
                for judged, best in self._few(good, base)[:1]:
                    self._ask(best.plan, self._level(judged, best, base))
            if (judged := (yield from self._judged(change))) is None:  # stopped
                return
            self._take(change, judged, base, good)
            yield self.state
            yield from self._confirmed(base)
        few = self._few(good, base)
        for each in good:
            if each not in few:
                self._refuse(each[1], "others save more")
        for each in sorted(few, key=lambda each: traces(each[1])):
            self._due.append(each)
            level = self._level(*each, base)
            self._ask(self.plan, level)
            if self._goes(each[1]):
                self._send(each[1], self._target, level)
            else:
                self._ask(each[1].plan, level)

    def _judged(self, change: Change) -> Generator[Step, None, Any]:
        """What comes of a change: from the worker that it was sent to, else tried here."""
        if not self._goes(change):
            return self._judge.change(self.program, change.plan, change.told)
        future = self._sent[change.plan, ""]
        while not (future.done() or self.stopped):
            yield Wait((future,))
        return answer_of(future) if future.done() else None

    def _few(self, good: Sequence[tuple[Judged, Change]], base: Judged) -> list[tuple[Judged, Change]]:
        """The best of what each finding suggests, and of each other kind, which may be more; the best first."""
        taken: Counter[str] = Counter()
        few = []
        for judged, change in sorted(good, key=lambda each: each[0].rank):
            kind = "" if change.finding is None else change.finding.id
            if self._level(judged, change, base) == "compiled":
                kind = "memory"
            elif self._proposals.reconstrains(change):
                kind = "constraints"
            few_enough = _CONFIRMED if change.finding is not None and kind == change.finding.id else _CONFIRMED_ELSE
            if taken[kind] < few_enough:
                taken[kind] += 1
                few.append((judged, change))
        return few

    def _level(self, judged: Judged, change: Change, base: Judged) -> str:
        """How far a change is tried: what may make room in a plan that does not fit, or is for memory alone, by the
        target's compiler."""
        unforeseen = self._proposals.reconstrains(change) or self._donates(change)
        room = judged.needed < base.needed * (1 - _WORTH) or unforeseen
        alone = bool(judged.worse_than(base)) and _holds_less(change, judged, base)
        return "compiled" if (self._short and room) or alone else "partitioned"

    def _donates(self, change: Change) -> bool:
        """Whether other arguments are donated: where the compiler then puts the results is not all foreseen."""
        return change.plan.variant.donated != self.plan.variant.donated

    def _take(self, change: Change, judged: Any, base: Judged, good: list[tuple[Judged, Change]]) -> None:
        """Takes in what came of a change."""
        self._tried += 1
        if isinstance(judged, str | Lost):
            self._refuse(change, judged if isinstance(judged, str) else judged.why)
        elif (
            (why := judged[0].worse_than(base))
            and not self._unforeseen(change, judged[0], base)
            and not _holds_less(change, judged[0], base)
        ):
            self._refuse(change, why)
        else:
            good.append((judged[0], replace(change, write=judged[1] or change.write)))

    def _unforeseen(self, change: Change, judged: Judged, base: Judged) -> bool:
        """Whether only the partitioner says what a change brings: what a constraint costs is not all foreseen, nor what
        only a compiler's report shows, as the halos of a convolution."""
        longer = base.step is None or judged.step is None or judged.step > base.step * (1 + _UNFORESEEN)
        shown = self.report.level != "propagated" and change.finding is not None and change.finding.severity != "note"
        only = self._proposals.reconstrains(change) or (self._short and self._donates(change))
        return (shown or only) and not longer and judged.over <= base.over

    def _refuse(self, change: Change, why: str) -> None:
        self._not_offered.append(NotOffered(action=change.action, why=why))

    # What a worker does.

    def _goes(self, change: Change) -> bool:
        """Whether a change is tried in a worker: what traces the function, where this process is not to wait for it."""
        return self._shared is not None and any(self._proposals.traces(change))

    def _send(self, change: Change, target: str = "", level: str = "") -> None:
        task = self._judge, change.plan, change.told, target, level
        self._sent[change.plan, target] = give(_there, self._shared, task, _worker())

    # What the partitioner says, and the target's compiler.

    def _ask(self, plan: Plan, level: str) -> None:
        """Asks for a plan's report of a level, unless it is there or was asked for; a compile that would end below that
        level is left for one that goes on to it."""
        if self._report(plan, level) is None:
            if level == "compiled" and plan not in self._through:
                self._through.add(plan)
                if (below := self.compiles.pop(plan, None)) is not None:
                    below.stop()
                    self._reports |= {(plan, name): report for name, report in below.reports.items()}
            with contextlib.suppress(ShardvizError):  # then it is told at the level that there is
                self._submit(self.program, plan, level, self._target)

    def _report(self, plan: Plan, level: str) -> Report | None:
        """What is known of a plan at a level; None where there is no answer."""
        if level == "propagated":
            return self._reports.get((plan, level)) or self.program.propagate(plan)
        if plan is self.plan and (self.report.level, self.report.target) == (level, self._target):
            return self.report
        future = self.compiles.get(plan)
        return self._reports.get((plan, level)) or (None if future is None else future.reports.get(level))

    def _awaited(self, change: Change) -> list[Future[Any]]:
        """What is not there yet of the answers that a change is told by."""
        futures: list[Future[Any]] = [
            f for p in (self.plan, change.plan) if (f := self.compiles.get(p)) is not None and not f.done()
        ]
        sent = self._sent.get((change.plan, self._target))
        futures += [sent] if sent is not None and not sent.done() else []
        return futures

    def _confirmed(self, base: Judged) -> Iterator[Step]:
        """The mends of which the partitioner has said what it makes of them."""
        for judged, change in [each for each in self._due if not self._awaited(each[1])]:
            if self.stopped:
                return
            self._due.remove((judged, change))
            if (mend := self._confirm(change, judged, base)) is not None:
                self._mends.append(mend)
                self._changes[mend.plan] = judged, change
                yield self.state

    def _goes_on(self) -> bool:
        """Asks the target's compiler about the mend that saves most, where that is much and no warning names it;
        whether there is one to ask about."""
        best = max(self._mends, key=lambda m: m.seconds or 0.0, default=None)
        if best is None or best.level != "partitioned" or not self._compiler or self._targeted == _TARGETED:
            return False
        judged, change = self._changes[best.plan]
        much = (best.seconds or 0.0) >= _MUCH * (best.step or 0.0) > 0
        if not much or self._goes(change) or any(f.severity != "note" for f in best.findings):
            return False
        self._targeted += 1
        self._mends.remove(best)
        self._due.append((judged, change))
        for each in (self.plan, change.plan):
            self._ask(each, "compiled")
        return True

    def _confirm(self, change: Change, judged: Judged, base: Judged) -> Mend | None:
        """The mend at the highest level that answers; None where that says that it is none."""
        sent = self._sent.get((change.plan, self._target))
        texts = () if sent is None else answer_of(sent)
        for report in map(Report.from_json, () if isinstance(texts, Lost) else texts):
            self._reports[change.plan, report.level] = report
        plans = self.plan, change.plan
        for plan in plans:
            self._compiled(plan)  # raises what is no answer
        levels = ("compiled", "partitioned", "propagated")
        reports = next(pair for level in levels if (pair := self._pair(plans, level)) is not None)
        level, machine = reports[0].level, None if self.machine is None else self.machine.text
        difference = compare(("as it was", reports[0]), ("mended", reports[1]), target=machine)
        moved = difference.amount("operand bytes")
        step = None if self.machine is None else difference.amount("step")
        sides = [
            replace(
                of,
                bytes=getattr(moved, side) or 0.0,
                step=None if step is None else getattr(step, side) or 0.0,
                needed=of.needed if report.memory is None else sum(memory_parts(report).values()),
                flops=of.flops if report.cost is None else report.cost.dot_flops,
            )
            for of, side, report in zip((base, judged), ("before", "after"), reports, strict=True)
        ]
        why = sides[1].worse_than(sides[0])
        if why and not (level == "compiled" and _holds_less(change, sides[1], sides[0])):
            self._refuse(change, f"{why}: so it is at level {level}")
            return None
        if level != "compiled" and sides[1].is_unsure(sides[0]):
            if sides[1].needed > sides[0].needed * (1 - STEP_ERROR):
                self._refuse(change, f"it saves less of the step than level {level} is off by")
                return None
            if self._compiler and change.plan not in self._through and not self._goes(change):
                self._due.append((judged, change))
                for each in plans:
                    self._ask(each, "compiled")
                return None
        own = self._pair(plans, self.report.level) or reports
        saved = None if step is None else -(step.difference or 0.0)
        if saved is not None and step is not None and abs(saved) <= _EQUAL * (step.before or 0.0):  # rounding
            saved = 0.0
        mended = self._mended(change, own, sides[1].needed < sides[0].needed * (1 - _WORTH))
        return Mend(
            findings=mended,
            plan=change.plan,
            action=change.action,
            difference=difference,
            level=level,
            seconds=saved,
            step=None if step is None else step.before,
            bytes=-(moved.difference or 0.0),
            memory=sides[1].needed - sides[0].needed,
            over=sides[1].over,
            write=change.write,
        )

    def _pair(self, plans: Sequence[Plan], level: str) -> list[Report] | None:
        """The reports of plans at a level; None where one is not there."""
        reports = [report for plan in plans if (report := self._report(plan, level)) is not None]
        return reports if len(reports) == len(plans) else None

    def _mended(self, change: Change, reports: Sequence[Report], lighter: bool) -> tuple[Finding, ...]:
        """The findings that a change removes, then those that cost less with it; of what a report made now does not
        find, what suggests the change."""
        before, after = ({f.id: f for f in findings_of(report, self.machine)} for report in reports)
        new = [finding for id, finding in after.items() if id not in before]
        removed, less = list[Finding](), list[Finding]()
        donates = self._donates(change)
        for finding in self._proposals.findings:
            if {mend.kind for mend in finding.mends} == {"donate"} and not donates:
                continue  # what is sharded otherwise is no more donated than it was
            if finding.rule in NO_ROOM:
                removed += [finding] if lighter else []
            elif finding.id not in before:
                removed += [finding] if change.finding is not None and change.finding.id == finding.id else []
            elif (finding.severity == "note" and not finding.mends) or _holds_as_much(finding, *reports):
                pass  # no fault of the plan; or what stands beside it is sharded as little now
            else:
                left = [after[finding.id]] if finding.id in after else [f for f in new if _takes_its_place(f, finding)]
                removed += [] if left else [finding]
                less += [finding] if left and all(_costs_less(f, before[finding.id]) for f in left) else []
        return (*removed, *less)


def _holds_less(change: Change, after: Judged, before: Judged) -> bool:
    """Whether a change takes away most of what a warning says that an array holds, on a machine where that has no
    price in seconds."""
    finding = change.finding
    if finding is None or finding.severity == "note" or "seconds" in finding.numbers or after.step is None:
        return False
    saved = finding.numbers.get("saved_bytes", 0.0)
    return saved > 0 and before.needed - after.needed >= _MOST * saved and after.over <= before.over


def _holds_as_much(finding: Finding, before: Report, after: Report) -> bool:
    """Whether a finding costs nothing but what an argument holds on each device, and that holds no less."""
    if "seconds" in finding.numbers or not finding.numbers.get("saved_bytes"):
        return False
    reports = before, after
    held = [v.bytes_per_device or 0.0 for report in reports for v in report.arguments if v.name == finding.value]
    return len(held) == 2 and held[0] <= held[1]


def _takes_its_place(new: Finding, gone: Finding) -> bool:
    """Whether a finding says the same of an array or line as one that is gone, along other axes, say."""
    lines = [None if each.source is None else each.source.bare for each in (new, gone)]
    same = new.value == gone.value != "" or lines[0] == lines[1] is not None
    return new.rule == gone.rule and same


def _costs_less(after: Finding, before: Finding) -> bool:
    """Whether a finding is of fewer seconds than it was; where it has none, of fewer bytes."""
    for what in ("seconds", "bytes"):
        if what in before.numbers and what in after.numbers:
            return after.numbers[what] < before.numbers[what] * (1 - _LESS)
    return False
