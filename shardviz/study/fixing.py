"""The search for changes that improve a plan: against the findings of a report, and against the largest costs.

    fixes = sv.fixes(program, report, "tpu v5p:4x4x4")
    for state in sv.fixes(program, report, "tpu v5p:4x4x4", stream=True): ...       # a state after each step

A change (`fixes.Change`) is another plan, or a variant of the program, which is traced anew. Shardy's propagation and
the cost model score each change in tens of milliseconds. XLA's partitioner then confirms the best of them. The target's
compiler, if installed, confirms the first three, and decides where memory matters.

Changes that trace the function run in a worker process if this process has other work. The function may take locks; in
the worker they do not block this process.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack, overload

from shardviz.ask.derived import of_variant
from shardviz.ask.limited import LONGEST
from shardviz.ask.program import Program, sketch
from shardviz.ask.targeting import resolve_target
from shardviz.caching import Memo
from shardviz.costs.accuracy import STEP_ERROR
from shardviz.costs.footprint import footprint
from shardviz.costs.machine import Machine, machine_of
from shardviz.costs.step_cost import StepCost, cost_of, memory_parts
from shardviz.diagnose import findings as findings_of
from shardviz.diagnose import policy
from shardviz.errors import ShardvizError
from shardviz.judge.comparison import compare_reports
from shardviz.judge.report import Report
from shardviz.plan.plan import Plan
from shardviz.processes import LEVELS
from shardviz.propagate.lower import LowerFor
from shardviz.records import Finding
from shardviz.records.amounts import format_seconds
from shardviz.study.fixes import NO_ROOM, Change, CodeFor, Fix, Fixes, Rejected
from shardviz.study.proposing import Proposals, plan_of
from shardviz.study.trying import Step, Trying, Wait, outcome
from shardviz.study.workers import Lost, Shared, Workers, answer_of, can_travel, give


class Wanted(TypedDict, total=False):
    """Keyword arguments of `fixes`."""

    plan: Plan | None
    findings: int
    seconds: float


@overload
def fixes(
    program: Program, report: Report | Plan, target: Any = None, *, stream: Literal[True], **options: Unpack[Wanted]
) -> Fixing: ...
@overload
def fixes(program: Program, report: Report | Plan, target: Any = None, **options: Unpack[Wanted]) -> Fixes: ...
def fixes(
    program: Program,
    report: Report | Plan,
    target: Any = None,
    *,
    plan: Plan | None = None,
    findings: int = policy.FINDINGS,
    seconds: float = LONGEST,
    stream: bool = False,
) -> Fixes | Fixing:
    """Try changes against a report's gravest findings and its largest costs, and return the changes that help.

    Candidates are other specs, constraints, other axes for a logical dimension, donation, padded dimensions and
    checkpoint policies. Changes that make the step worse are not offered.

    Args:
        program: the program.
        report: a report of this program, of any level; or a plan, which is propagated.
        target: the machine whose seconds and memory count; the report's own if None. On a machine without a known
            speed, bytes moved count.
        plan: the plan of the report; rebuilt from `report.plan` if None.
        findings: the number of findings to fix.
        seconds: when to stop; what was not tried by then is listed in `rejected`.
        stream: return an iterator of states, one per step; its `stop` may be called from any thread.

    Returns:
        `Fixes`, largest saving first. Each has a `plan`, its `difference` and a sentence, `text`.

    Raises:
        ShardvizError: if `report` is neither a report nor a plan.
        TargetError, MeshError: as `sv.cost`. Errors of a tried plan are listed in `rejected`.

    Examples:
        >>> import jax, shardviz as sv
        >>> mlp = sv.gallery.mlp()
        >>> plan = mlp.plan.with_spec("x", jax.sharding.PartitionSpec())  # each device computes the whole batch
        >>> fixes = sv.fixes(mlp.program, mlp.program.propagate(plan), "tpu v5e:2x4", findings=1)
        >>> fixes[0].level in ("partitioned", "compiled"), fixes[0].difference.same
        (True, False)
    """
    if isinstance(report, Plan):
        plan, report = report, program.propagate(report, "cpu" if target is None else target)
    if not isinstance(report, Report):
        raise ShardvizError(f"report: {type(report).__name__} was given; give a report or a plan of {program.name}")
    machine = machine_of(report.target if target is None else target, report.mesh.size)
    fast = None if machine.chip.kind == "cpu" else machine
    fixing = Fixing(program, report, fast, plan=plan or plan_of(report), findings=findings, seconds=seconds)
    if stream:
        return fixing
    *_, last = fixing
    return last


@dataclass(frozen=True)
class Judged:
    """The predicted costs of a plan.

    Attributes:
        step: seconds per step; None if the target has no known speed.
        bytes: operand bytes that collectives move per device.
        needed: estimated memory in bytes per device.
        usable: memory in bytes that a device has; None if unknown.
        flops: FLOPs of matrix products per device; used only if the target has no known speed.
    """

    step: float | None
    bytes: float
    needed: float
    usable: float | None
    flops: float = 0.0

    @property
    def over(self) -> float:
        return 0.0 if self.usable is None else max(0.0, self.needed - self.usable)

    def worse_than(self, other: Judged) -> str:
        """Return why this plan is no better than `other`; empty if it is better."""
        if self.over > other.over * (1 + policy.EQUAL):
            return "it fits even less" if other.over else "it needs more memory than a device has"
        if self.over < other.over - policy.WORTH * other.needed:
            return ""  # a plan that fits may be slower than a plan that does not run
        lighter = self.frees(other, policy.WORTH)
        if self.step is not None and other.step is not None:
            if lighter and self.saves(other) < -policy.WORTH:
                return f"it needs less memory, but the step is {format_seconds(self.step - other.step)} longer"
            return "" if lighter or self.saves(other) >= policy.WORTH else "the step is no shorter"
        if lighter and self.bytes <= other.bytes * (1 + policy.EQUAL):
            return ""
        if self.bytes > other.bytes * (1 - policy.WORTH):
            return "it moves no fewer bytes"
        more = self.flops > other.flops * (1 + policy.WORTH)
        return "it moves fewer bytes, but each device computes more" if more else ""

    def saves(self, other: Judged) -> float:
        """Return the share of the other plan's step that this plan saves; NaN if no speed is known, so that every
        comparison with it is false."""
        return 1 - self.step / other.step if self.step is not None and other.step else math.nan

    def frees(self, other: Judged, share: float) -> bool:
        """Return whether this plan needs less memory than the other plan, by more than a share of it."""
        return self.needed < other.needed * (1 - share)

    def confirmed(self, report: Report, cost: StepCost | None) -> Judged:
        """Return these costs as a report of the plan has them."""
        return replace(
            self,
            step=None if cost is None else cost.seconds or 0.0,
            bytes=sum(c.assumed_bytes for c in report.collectives),
            needed=self.needed if report.memory is None else sum(memory_parts(report).values()),
            flops=report.cost.dot_flops if report.cost else self.flops,
        )

    @property
    def rank(self) -> tuple[float, float, float]:
        """Sort key: the least is the best."""
        return self.over, self.bytes if self.step is None else self.step, self.needed


@dataclass(frozen=True, kw_only=True)
class _Scored(Change):
    """A change that was scored; `judged` has its predicted costs."""

    judged: Judged


@dataclass(frozen=True)
class Judge:
    """A scorer of plans, picklable for a worker; `machine` is None if no machine has a known speed."""

    machine: Machine | None
    lowered_for: LowerFor

    def __call__(self, program: Program, plan: Plan) -> Judged:
        """Return the predicted costs of a plan. Raises ShardvizError if the plan does not run."""
        report = sketch(program, plan, self.lowered_for)
        if self.machine is None:
            return Judged(None, 0.0, footprint(report).needed, None).confirmed(report, None)
        cost = cost_of(report, self.machine, tokens=False)
        return Judged(0.0, 0.0, cost.needs.total, cost.needs.usable).confirmed(report, cost)

    def change(self, program: Program, plan: Plan, code: CodeFor | None) -> tuple[Judged, str] | str:
        """Return a change's predicted costs and the code to write for it, or the reason why it does not run."""
        try:
            write = "" if code is None else code(of_variant(program, plan.variant))
            return self(program, plan), write
        except ShardvizError as error:
            return str(error).split("\n", 1)[0]


def _run_task(program: Program, task: tuple[Judge, Plan, CodeFor | None, str, str]) -> Any:
    """Run a worker's task: score a changed plan or, given a level, return its reports as JSON up to that level."""
    judge, plan, code, target, level = task
    if not level:
        return judge.change(program, plan, code)
    reports = [program.propagate(plan)]
    with contextlib.suppress(ShardvizError):
        future = program.submit(plan, level, target=target)
        future.exception()
        reports += future.reports.values()
    return [report.to_json(stages=False) for report in reports]


@functools.cache
def _worker() -> Workers:
    return Workers(1)


_AT_WORK: set[Fixing] = set()


def end_worker() -> None:
    """Stop the worker that tries changes, unless a search uses it."""
    if not _AT_WORK and _worker.cache_info().currsize:
        _worker().stop()
        _worker.cache_clear()


class Fixing(Memo, Trying[Fixes]):
    """A running search for changes that help.

    Attributes:
        program, report, plan: the variant of the program that the plan asks for, the report to improve, and its plan.
        machine: the machine whose seconds count; None if it has no known speed.
    """

    def __init__(
        self,
        program: Program,
        report: Report,
        machine: Machine | None,
        *,
        plan: Plan,
        findings: int,
        seconds: float = math.inf,
    ):
        super().__init__(seconds)
        self.program, self.report, self.machine, self.plan = of_variant(program, plan.variant), report, machine, plan
        self._target = "cpu" if machine is None else machine.text
        resolved = resolve_target(self._target, report.mesh)
        self._judge = Judge(machine, resolved.lowered_for)
        self._compiler = not resolved.missing
        self._proposals = Proposals(self.program, report, machine, plan, findings)
        self._short = any(finding.rule in NO_ROOM for finding in self._proposals.findings)
        self._untried: list[Change] = []
        self._due: list[_Scored] = []
        self._asked: set[tuple[Plan, str]] = set()  # changed plans, and the levels that were asked about them
        self._offered: dict[Plan, tuple[Fix, _Scored]] = {}
        self._rejected = self._proposals.rejected
        self._tried = 0
        self._finished = False
        self._shared: Shared | None = None  # the program, where a worker has what traces it
        self._sent: dict[tuple[Plan, str], Future[bytes]] = {}  # plan and level, none to score it → the worker's answer
        self._reports: dict[tuple[Plan, str], Report] = {}

    @property
    def state(self) -> Fixes:
        def order(fix: Fix) -> tuple[Any, ...]:
            room = fix.for_memory and (fix.level != "compiled", fix.over)
            return not fix.for_memory, room, -(fix.seconds or 0.0), -fix.bytes, fix.memory

        return Fixes(
            program=self.program.name,
            target=self._target,
            level=self.report.level,
            fixes=tuple(sorted((fix for fix, _ in self._offered.values()), key=order)),
            tried=self._tried,
            candidates=self._tried + len(self._untried),
            rejected=tuple(self._rejected),
            by_hand=tuple(self._proposals.by_hand),
            seconds=self.elapsed,
            finished=self._finished,
        )

    def _end(self) -> None:
        super()._end()
        _AT_WORK.discard(self)
        for future in self._sent.values():
            future.cancel()

    def _run(self) -> Iterator[Step]:
        _AT_WORK.add(self)
        self._base = self._judge(self.program, self.plan)
        self._short = self._short or self._base.over > 0
        self._ask(self.plan, "compiled" if self._short else "partitioned")
        yield None
        changes = self._untried
        for change in self._proposals:
            changes.append(change)
            yield None
            if self.stopped:
                break
            if self._tried < policy.EARLY and change.is_grave and not any(self._proposals.traces(change)):
                yield from (None for _ in self._try_changes([change]))  # no state: not all are proposed
            yield from self._confirmed()
        traces = any(any(self._proposals.traces(change)) for change in changes)
        shared = Shared(self.program)
        if self.shares and traces and can_travel(shared) and _worker().begin():
            self._shared = shared
        # findings go first; other changes are tried while the partitioner runs
        first = [c for c in changes if c.is_grave]
        yield from self._try_changes(first)
        yield from self._try_changes([c for c in changes if c not in first])
        yield from self._all_confirmed()
        if not (self.stopped or self._offered):
            changes += (pairs := list(self._proposals.pairs()))
            yield from self._try_changes(pairs)
            yield from self._all_confirmed()
        self._finished = not self.stopped
        for change in self._untried:
            self._refuse(change, "not tried: the time was over")
        self._end_due()
        yield self.state

    def _end_due(self) -> None:
        """Offer the best change that no compiler has confirmed by the end, if there is no other, at level propagated;
        refuse the others. What only a worker traces is not traced here."""
        for change in sorted(self._due, key=lambda change: change.judged.rank):
            if change.plan in self._offered:
                continue
            refused, last = len(self._rejected), not (self._offered or self._stopped or self._in_worker(change))
            if not (last and self._confirm(change)) and len(self._rejected) == refused:
                self._refuse(change, "it helps at level propagated; the time was over before a compiler confirmed it")

    def _try_changes(self, changes: Sequence[Change]) -> Iterator[Step]:
        """Try changes, those that trace the function for something else than its constraints last, and ask the
        partitioner about the best; at once about those that save much, and about constraints."""
        good: list[_Scored] = []
        early: list[_Scored] = []
        traces, reconstrains = self._proposals.traces, self._proposals.reconstrains
        for change in filter(self._in_worker, changes):
            self._give(change)
        places = {c.plan: (self._in_worker(c), (False, False) if reconstrains(c) else traces(c)) for c in changes}
        for change in sorted(changes, key=lambda change: places[change.plan]):
            if self.stopped:
                break
            if (tried := (yield from self._scored(change))) is not None:
                good.append(tried)
                clear = tried.judged.saves(self._base) > policy.LARGE or reconstrains(tried)
                if clear and len(early) < policy.EARLY:
                    early.append(tried)
                    self._ask_about(tried, self._level(tried))
            yield self.state
            yield from self._confirmed()
        few = [change for change in self._few(good) if change not in early]
        for change in sorted(few, key=traces):
            self._ask_about(change, self._level(change))
        for change in good:
            if change not in (*early, *few):
                self._refuse(change, "others save more")

    def _scored(self, change: Change) -> Generator[Step, None, _Scored | None]:
        """Return a change with its score, from its worker or computed here. Return None if the search was stopped, or
        after refusing a change that does not run or cannot help."""
        if not self._in_worker(change):
            answer = self._judge.change(self.program, change.plan, change.code)
        else:
            future = self._sent[change.plan, ""]
            while not future.done():
                if self.stopped:
                    return None
                yield Wait((future,))
            answer = answer_of(future)
        self._tried += 1
        self._untried.remove(change)
        if isinstance(answer, str | Lost):
            self._refuse(change, answer if isinstance(answer, str) else answer.why)
            return None
        judged, write = answer
        scored = _Scored(**{**vars(change), "write": write or change.write}, judged=judged)
        why = judged.worse_than(self._base)
        if why and not (self._unforeseen(scored) or _holds_less(change, judged, self._base)):
            self._refuse(change, why)
            return None
        return scored

    def _few(self, good: Sequence[_Scored]) -> list[_Scored]:
        """Return the best changes for each finding, and the best of each other kind; best first."""
        taken: Counter[str] = Counter()
        few = []
        for change in sorted(good, key=lambda change: change.judged.rank):
            kind, most = "", policy.CONFIRMED_ELSE
            if self._level(change) == "compiled":
                kind = "memory"
            elif self._proposals.reconstrains(change):
                kind = "constraints"
            elif change.finding is not None:
                kind, most = change.finding.id, policy.CONFIRMED
            if taken[kind] < most:
                taken[kind] += 1
                few.append(change)
        return few

    def _level(self, change: _Scored) -> str:
        """Return the level that decides about a change: `compiled` if memory decides, else `partitioned`."""
        judged, base = change.judged, self._base
        room = judged.frees(base, policy.WORTH) or self._proposals.reconstrains(change) or self._donates(change)
        alone = judged.worse_than(base) and _holds_less(change, judged, base)
        return "compiled" if (self._short and room) or alone else "partitioned"

    def _donates(self, change: Change) -> bool:
        """Return whether other arguments are donated: the estimate does not know all buffers that the compiler then
        reuses."""
        return change.plan.variant.donated != self.plan.variant.donated

    def _unforeseen(self, change: _Scored) -> bool:
        """Return whether only the partitioner can tell the effect of a change: propagation does not predict all costs
        of a constraint, nor those of a convolution or a lookup, which the specs that a finding suggests may avoid."""
        judged, base = change.judged, self._base
        suggested = change.is_grave or (change.finding is not None and change.plan.variant == self.plan.variant)
        only = suggested or self._proposals.reconstrains(change) or (self._short and self._donates(change))
        return only and judged.saves(base) >= -policy.UNFORESEEN and judged.over <= base.over

    def _refuse(self, change: Change, why: str) -> None:
        self._rejected.append(Rejected(action=change.action, why=why))

    # What the partitioner says, and the target's compiler, asked here or by a worker.

    def _in_worker(self, change: Change) -> bool:
        return self._shared is not None and any(self._proposals.traces(change))

    def _give(self, change: Change, level: str = "") -> None:
        task = self._judge, change.plan, change.code, self._target, level
        self._sent[change.plan, level] = give(_run_task, self._shared, task, _worker())

    def _ask(self, plan: Plan, level: str) -> None:
        """Request a plan's report of a level, unless it is there."""
        if self._report(plan, level) is None:
            with contextlib.suppress(ShardvizError):  # then a lower level decides
                self._submit(self.program, plan, level, self._target)

    def _ask_about(self, change: _Scored, level: str) -> None:
        """Request the reports of a level of the plan and of a change, which decide about it."""
        self._due.append(change)
        self._asked.add((change.plan, level))
        self._ask(self.plan, level)
        if self._in_worker(change):
            self._give(change, level)
        else:
            self._ask(change.plan, level)

    def _report(self, plan: Plan, level: str) -> Report | None:
        if level == "propagated":
            return self._reports.get((plan, level)) or self.program.propagate(plan)
        if plan is self.plan and (self.report.level, self.report.target) == (level, self._target):
            return self.report
        futures = (self.compiles.get((plan, until)) for until in LEVELS)
        reports = (future.reports.get(level) for future in futures if future is not None)
        return self._reports.get((plan, level)) or next(filter(None, reports), None)

    def _awaited(self, change: Change) -> list[Future[Any]]:
        """Return the unfinished futures that a change depends on."""
        keys = [(plan, level) for plan in (self.plan, change.plan) for level in LEVELS]
        futures = (every.get(key) for key in keys for every in (self.compiles, self._sent))
        return [future for future in futures if future is not None and not future.done()]

    def _all_confirmed(self) -> Iterator[Step]:
        """Wait for all reports, those of the target's compiler on the first fixes too."""
        while not self.stopped and (self._due or self._asks_compiler()):
            yield Wait([f for change in self._due for f in self._awaited(change)])
            yield from self._confirmed()

    def _confirmed(self) -> Iterator[Step]:
        """Offer the changes whose reports are complete and that help, and yield the state after each."""
        for change in [each for each in self._due if not self._awaited(each)]:
            if self.stopped:
                return
            self._due.remove(change)
            before = change.plan in self._offered
            if self._confirm(change) or (before and change.plan not in self._offered):
                yield self.state

    def _asks_compiler(self) -> bool:
        """Ask the target's compiler about the first fixes that it has not confirmed; return whether it was asked."""
        first = self.state.fixes[: policy.COMPILED] if self._compiler else ()
        asked = [f.plan for f in first if f.level == "partitioned" and (f.plan, "compiled") not in self._asked]
        for plan in asked:
            self._ask_about(self._offered[plan][1], "compiled")
        return bool(asked)

    def _confirm(self, change: _Scored) -> bool:
        """Offer a change at the highest level that has both reports, and return whether it helps there; else refuse it,
        or ask the target's compiler if only that can tell."""
        for level in LEVELS:
            texts = answer_of(sent) if (sent := self._sent.get((change.plan, level))) is not None else ()
            for report in map(Report.from_json, () if isinstance(texts, Lost) else texts):
                self._reports[change.plan, report.level] = report
            for plan in (self.plan, change.plan):
                outcome(self.compiles.get((plan, level)))  # raises the error of a crashed compile
        reports = next(pair for level in (*LEVELS[::-1], "propagated") if (pair := self._pair(change, level)))
        costs = self._costs(reports)
        before, after = map(Judged.confirmed, (self._base, change.judged), reports, costs)
        level, why = reports[0].level, after.worse_than(before)
        lighter, unsure = after.frees(before, STEP_ERROR), False
        if why and level == "compiled" and _holds_less(change, after, before):
            why = ""
        elif why:  # the target's compiler can tell whether another constraint helps that needs less memory
            unsure = lighter and after.saves(before) >= -STEP_ERROR and self._proposals.reconstrains(change)
            why = f"{why}: so it is at level {level}"
        elif level != "compiled" and after.over >= before.over and after.saves(before) < STEP_ERROR:
            unsure, why = lighter, "" if lighter else f"it saves less of the step than level {level} is off by"
        if unsure and self._compiler and (change.plan, "compiled") not in self._asked:
            self._ask_about(change, "compiled")
            return False
        self._offered.pop(change.plan, None)
        if why:
            self._refuse(change, why)
            return False
        saved = None if before.step is None or after.step is None else before.step - after.step
        fix = Fix(
            findings=self._fixed(change, reports, costs, after.frees(before, policy.WORTH)),
            plan=change.plan,
            action=change.action,
            difference=compare_reports(*zip(("as it was", "fixed"), reports, strict=True), costs=costs),
            level=level,
            seconds=0.0 if abs(after.saves(before)) <= policy.EQUAL else saved,
            step=before.step,
            bytes=before.bytes - after.bytes,
            memory=after.needed - before.needed,
            over=after.over,
            write=change.write,
        )
        self._offered[change.plan] = fix, change
        return True

    def _costs(self, reports: Sequence[Report]) -> Sequence[StepCost | None]:
        """Return the costs of the starting plan's report, computed once for each level, and of a change's."""
        if (machine := self.machine) is None:
            return None, None
        return self.once(reports[0].level, lambda: cost_of(reports[0], machine)), cost_of(reports[1], machine)

    def _pair(self, change: Change, level: str) -> list[Report]:
        """Return the reports of a level of the plan and of a change; empty if one is not there."""
        reports = [report for plan in (self.plan, change.plan) if (report := self._report(plan, level)) is not None]
        return reports if len(reports) == 2 else []

    def _fixed(
        self, change: Change, reports: Sequence[Report], costs: Sequence[StepCost | None], lighter: bool
    ) -> tuple[Finding, ...]:
        """Return the findings that a change removes, then those that it makes cheaper, at the level of the report if it
        can be. If the change's own finding is absent from a fresh report, it counts as removed."""
        if reports[0].level != self.report.level and (own := self._pair(change, self.report.level)):
            reports, costs = own, self._costs(own)
        earlier = self._proposals.findings if reports[0] is self.report else findings_of(reports[0], costs[0])
        before, after = ({f.id: f for f in some} for some in (earlier, findings_of(reports[1], costs[1])))
        new = [finding for id, finding in after.items() if id not in before]
        removed, less = list[Finding](), list[Finding]()
        donates = self._donates(change)
        for finding in self._proposals.findings:
            if {fix.kind for fix in finding.suggestions} == {"donate"} and not donates:
                continue  # another sharding donates nothing
            if finding.rule in NO_ROOM:
                removed += [finding] if lighter else []
            elif finding.id not in before:
                removed += [finding] if change.finding is not None and change.finding.id == finding.id else []
            elif (finding.severity == "note" and not finding.suggestions) or _holds_as_much(finding, reports):
                pass  # not the plan's fault, or the argument needs as much memory as before
            else:
                left = [after[finding.id]] if finding.id in after else [f for f in new if _takes_its_place(f, finding)]
                removed += [] if left else [finding]
                less += [finding] if left and all(_costs_less(f, before[finding.id]) for f in left) else []
        return (*removed, *less)


def _holds_less(change: Change, after: Judged, before: Judged) -> bool:
    """Return whether a change frees most of the memory that its warning reports, and the warning has no cost in
    seconds."""
    numbers = change.finding.numbers if change.finding is not None and change.is_grave else {}
    if "seconds" in numbers or after.step is None:
        return False
    saved = numbers.get("saved_bytes", 0.0)
    return saved > 0 and before.needed - after.needed >= policy.FREED * saved and after.over <= before.over


def _holds_as_much(finding: Finding, reports: Sequence[Report]) -> bool:
    """Return whether a finding costs only an argument's memory, and the change does not reduce it."""
    sizes = [v.bytes_per_device or 0.0 for report in reports for v in report.arguments if v.name == finding.value]
    alone = "seconds" not in finding.numbers and finding.numbers.get("saved_bytes", 0.0) > 0
    return alone and len(sizes) == 2 and sizes[0] <= sizes[1]


def _takes_its_place(new: Finding, gone: Finding) -> bool:
    """Return whether a new finding repeats a removed one, for the same array or line; its axes may differ."""
    lines = [each.source and each.source.bare for each in (new, gone)]
    return new.rule == gone.rule and (new.value == gone.value != "" or lines[0] == lines[1] is not None)


def _costs_less(after: Finding, before: Finding) -> bool:
    """Return whether a finding costs fewer seconds than before; fewer bytes if it has no seconds."""
    for what in ("seconds", "bytes"):
        if what in before.numbers and what in after.numbers:
            return after.numbers[what] < before.numbers[what] * (1 - policy.LESS)
    return False
