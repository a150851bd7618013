"""Mends tried: what may help against a report's findings, and against what costs most, run one after the other.

    mends = program.mends(report, "tpu v5p:4x4x4")
    for state in program.mending(report, "tpu v5p:4x4x4"): ...      # as they are found; `.stop()` ends it

A change is a whole plan: what a finding suggests, a logical dimension cut as most of its arrays are, or cut by another
axis of those that cost most, or a value of a costly line held cut. Or it is the plan's `variant`, the program traced
anew: with donated arguments, a dimension of another length, its layers under another checkpoint policy. Each is scored
by Shardy's propagation and the cost model, in tens of milliseconds. What makes the step no shorter falls out, but for
what takes less memory in as short a step, or makes it fit; the best of the rest go through XLA's partitioner, and what
that finds is what is said.
"""

from __future__ import annotations

import contextlib
import itertools
import linecache
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shardviz.breath import breathe
from shardviz.costs import Machine
from shardviz.costs.machine import machine_of
from shardviz.costs.orders import exchanged, reordered
from shardviz.diagnose import findings
from shardviz.errors import ShardvizError
from shardviz.kept import cached_property
from shardviz.notation import Axis, Spec
from shardviz.notation.spec import axis_name, axis_size, axis_text
from shardviz.program.dimensions import Dimension
from shardviz.program.intermediates import Constrain, Intermediate, as_propagated
from shardviz.program.plan import Plan
from shardviz.records import Finding, Longer, Value, Variant
from shardviz.records.amounts import format_seconds, plural
from shardviz.records.findings import Suggestion
from shardviz.records.paths import segments
from shardviz.records.phases import phase
from shardviz.records.report import Constrained, Report
from shardviz.session.collecting import uncollected
from shardviz.session.program import Program
from shardviz.session.submitting import ReportFuture
from shardviz.session.targeting import resolve_target
from shardviz.study.comparison import compare
from shardviz.study.mends import Change, Mend, Mends, NotOffered
from shardviz.study.scoring import Scorer

_FINDINGS = 5
_CONFIRMED, _CONFIRMED_ELSE = 2, 3
"""How many mends of each finding go through the partitioner, and how many that are against none."""
_COSTLY = 3
"""How many mesh axes are looked at, those over which most is moved."""
_HELD = 2
"""How many values inside the function are tried at most."""
_NAMED = 2
_VARIED = frozenset(("donate", "pad", "checkpoint"))
"""Suggestions that are of another program."""
_WORTH = 0.005
"""A change that saves a smaller share is not offered."""
_EQUAL = 1e-6


def mends(
    program: Program, report: Report, target: Any = None, *, plan: Plan | None = None, findings: int = _FINDINGS
) -> Mends:
    """What mends a report, tried; see `Program.mends`."""
    *_, last = mending(program, report, target, plan=plan, findings=findings)
    return last


def mending(
    program: Program, report: Report, target: Any = None, *, plan: Plan | None = None, findings: int = _FINDINGS
) -> Mending:
    """The same as it goes on; see `Program.mending`."""
    machine = machine_of(report.target if target is None else target, report.mesh.size)
    return Mending(program, report, None if machine.chip.kind == "cpu" else machine, plan or plan_of(report), findings)


def plan_of(report: Report) -> Plan:
    """The plan that a report is of: every spec spelled out."""
    bound = report.plan

    def place(c: Constrained) -> Intermediate:
        text = linecache.getline(c.source.file, c.source.line).strip()
        return Intermediate(c.name, c.source.short, text, c.source.function, c.occurrence)

    return Plan(
        bound.mesh,
        edits=dict(bound.in_specs),
        out_edits={name: spec for name, spec in bound.out_specs.items() if spec is not None},
        memory=dict(bound.in_memory),
        out_memory=dict(bound.out_memory),
        constraints=[Constrain(place(c), c.spec, c.open) for c in bound.constraints],
        variant=bound.variant,
    )


@dataclass(frozen=True)
class _Judged:
    """A plan as it is judged.

    Attributes:
        step: seconds of a step if all overlaps, and if nothing does; None where the target has no speed.
        bytes: operand bytes that collectives move on one device.
        needed, usable: bytes that one device needs, about, and has; None where not known.
    """

    step: tuple[float, ...] | None
    bytes: float
    needed: float
    usable: float | None

    @property
    def over(self) -> float:
        """Bytes that are too much."""
        return 0.0 if self.usable is None else max(0.0, self.needed - self.usable)

    def worse_than(self, other: _Judged) -> str:
        """Why it is no better than the plan as it was; empty where it is better."""
        if self.over > other.over * (1 + _EQUAL):
            return "it fits even less" if other.over else "it needs more memory than a device has"
        if self.over < other.over:
            return ""  # what fits may take longer than what does not run
        lighter = self.needed < other.needed * (1 - _WORTH)
        if self.step is not None and other.step is not None:
            (lower, upper), (was_lower, was_upper) = self.step, other.step
            longer = upper > was_upper * (1 + _EQUAL) or lower > was_lower * (1 + _EQUAL)
            if longer and lighter:
                more = max(upper - was_upper, lower - was_lower)
                return f"it needs less memory, but the step is {format_seconds(more)} longer"
            same = longer or upper > was_upper * (1 - _WORTH)
            return "the step is no shorter" if same and not lighter else ""
        less = self.bytes <= other.bytes * (1 + _EQUAL) and lighter
        return "" if less or self.bytes < other.bytes * (1 - _WORTH) else "no less is moved"

    @property
    def rank(self) -> tuple[float, float, float]:
        """What is least is best."""
        return self.over, self.bytes if self.step is None else self.step[1], self.needed


def _few(good: Sequence[tuple[_Judged, Change]]) -> list[tuple[_Judged, Change]]:
    """The best of each finding's mends, and of those that are against none, which may be more; the best first."""
    taken: Counter[str] = Counter()
    found = []
    for judged, change in sorted(good, key=lambda each: each[0].rank):
        key = "" if change.finding is None else change.finding.id
        if taken[key] < (_CONFIRMED if key else _CONFIRMED_ELSE):
            taken[key] += 1
            found.append((judged, change))
    return found


@dataclass(eq=False)
class Mending:
    """The trying of mends as it goes on: an iterator of `Mends`, one for each step forward.

    Attributes:
        program, report, machine: what is mended, and the machine whose seconds are wanted; None where none has a speed.
        plan: the plan of the report; the program is as it has it.
        findings: of how many findings the mends are tried.
        patient: while a compile is under way, go on saying what is known, and `waiting`, instead of blocking.
        begun: when it began, by `time.monotonic`.
        answered: seconds until the mends of all findings were told; None before. What is against what costs most, and
            against no finding, comes after them.
    """

    program: Program
    report: Report
    machine: Machine | None
    plan: Plan
    findings: int
    patient: bool = False
    begun: float = field(default_factory=time.monotonic)
    answered: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.program = self.program.of_variant(self.plan.variant)
        self._target = "cpu" if self.machine is None else self.machine.text
        self._lowered_for = resolve_target(self._target, self.report.mesh).lowered_for
        self._bound = self.program.bind(self.plan)
        self._mends: list[Mend] = []
        self._not_offered: list[NotOffered] = []
        self._by_hand: dict[str, None] = {}
        self._tried = self._candidates = 0
        self._stopped = self._finished = self.waiting = False
        self._futures: dict[Plan, ReportFuture] = {}
        self._states = self._run()

    def __iter__(self) -> Iterator[Mends]:
        return self

    def __next__(self) -> Mends:
        return uncollected(lambda: next(self._states))

    def stop(self) -> None:
        """Ends it, from any thread: compiles are stopped, and what was found stays."""
        self._stopped = True
        for future in list(self._futures.values()):
            future.stop()

    @property
    def state(self) -> Mends:
        """What is known now."""
        order = lambda m: (-(m.seconds or 0.0), -m.bytes, m.memory)  # noqa: E731
        return Mends(
            program=self.program.name,
            target=self._target,
            level=self.report.level,
            mends=tuple(sorted(self._mends, key=order)),
            tried=self._tried,
            candidates=max(self._candidates, self._tried),
            not_offered=tuple(self._not_offered),
            by_hand=tuple(self._by_hand),
            seconds=time.monotonic() - self.begun,
            finished=self._finished,
        )

    def _run(self) -> Iterator[Mends]:
        try:
            self._submit(self.plan)
            base = self._judge(self.program, self.plan)
            changes = self._changes()
            self._candidates = len(changes)
            # what is wrong goes before what merely costs most
            yield from self._tell([c for c in changes if c.finding is not None], base)
            self.answered = None if self._stopped else time.monotonic() - self.begun
            yield from self._tell([c for c in changes if c.finding is None], base)
            self._finished = not self._stopped
            yield self.state
        finally:
            for future in list(self._futures.values()):
                future.stop()

    def _tell(self, changes: Sequence[Change], base: _Judged) -> Iterator[Mends]:
        """Tries changes, those first that need no other trace, and takes the best through the partitioner."""
        good: list[tuple[_Judged, Change]] = []
        places = {tuple(each.value for each in c.plan.constraints) for c in changes if self._holds(c)}
        # one trace for all; where they hold the same, it is the one that is compiled
        draft = self.program.drafted([c.plan for c in changes]) if len(places) > 1 else self.program
        for change in sorted(changes, key=self._traces):
            if self._stopped:
                return
            self._tried += 1
            tried = self._try(change, draft if self._holds(change) else self.program)
            if tried is None:
                continue
            judged, change = tried
            if why := judged.worse_than(base):
                self._refuse(change, why)
            else:
                good.append((judged, change))
            self._submit_best(good, change)
            yield self.state
        few = _few(good)
        for each in good:
            if each not in few:
                self._refuse(each[1], "others save more")
        yield from self._confirmed(few, base)

    # Judging.

    def _judge(self, program: Program, plan: Plan) -> _Judged:
        if self.machine is not None:
            score = Scorer(program, self.machine, self._lowered_for)(plan)
            return _Judged((score.lower, score.upper), sum(m.bytes for m in score.moved), score.needed, score.usable)
        report, memory = program.sketch(plan, self._lowered_for)
        return _Judged(None, sum(c.assumed_bytes for c in report.collectives), memory.needed, None)

    def _try(self, change: Change, program: Program) -> tuple[_Judged, Change] | None:
        """What it comes to, with what to write for it; None where it does not run."""
        try:
            if change.told is not None:
                change = replace(change, write=change.told(self.program.of_variant(change.plan.variant)))
            return self._judge(program, change.plan), change
        except ShardvizError as error:
            self._refuse(change, str(error).split("\n", 1)[0])
            return None

    def _refuse(self, change: Change, why: str) -> None:
        self._not_offered.append(NotOffered(action=change.action, why=why))

    # What the partitioner says.

    def _confirmed(self, good: Sequence[tuple[_Judged, Change]], base: _Judged) -> Iterator[Mends]:
        """Takes the best through the partitioner, which is at work on the next while one is read; last what is to be
        traced anew."""
        good = sorted(good, key=lambda each: self._traces(each[1]))
        for _, change in good:
            self._submit(change.plan)
        for judged, change in good:
            while (
                self.patient
                and not self._stopped
                and not all(
                    future.done()
                    for plan in (self.plan, change.plan)
                    if (future := self._futures.get(plan)) is not None
                )
            ):
                self.waiting = True
                yield self.state
            self.waiting = False
            if self._stopped:
                break
            if (mend := self._confirm(change, judged, base)) is not None:
                self._mends.append(mend)
                yield self.state

    def _submit_best(self, good: Sequence[tuple[_Judged, Change]], last: Change) -> None:
        """Submits what is likely to be confirmed: the best so far, but of the finding that is tried now."""
        for _, change in _few(good):
            if change.finding is not None and change.finding is not last.finding:
                self._submit(change.plan)

    def _submit(self, plan: Plan) -> None:
        """Asks the partitioner, once, in another process, which works while others are scored."""
        if self._stopped or plan in self._futures or self._is_answered(plan):
            return
        with contextlib.suppress(ShardvizError):  # then it is told at the level that there is
            self._futures[plan] = self.program.submit(plan, "partitioned", target=self._target)

    def _is_answered(self, plan: Plan) -> bool:
        """Whether the report that is mended is the partitioner's answer."""
        known = self.report.level == "partitioned" and self.report.target == self._target
        return known and plan is self.plan

    def _partitioned(self, plan: Plan) -> Report | None:
        """What the partitioner makes of a plan; None where it gives no answer."""
        if self._is_answered(plan):
            return self.report
        future = self._futures.get(plan)
        try:
            return None if future is None else future.result()
        except ShardvizError:
            return None

    def _confirm(self, change: Change, judged: _Judged, base: _Judged) -> Mend | None:
        """The mend at the highest level that answers; None where that says that it is none."""
        plans = (self.plan, change.plan)
        reports = list(map(self._partitioned, plans))
        breathe()
        if self._stopped:
            return None
        level = "propagated" if None in reports else "partitioned"
        before, after = (
            self.program.propagate(plan) if None in reports or report is None else report
            for plan, report in zip(plans, reports, strict=True)
        )
        breathe()
        difference = compare(("as it was", before), ("mended", after), target=self._text)
        moved, steps = difference.amount("operand bytes"), None
        if self.machine is not None:
            steps = difference.amount("step, all overlaps"), difference.amount("step, nothing overlaps")
        sides = [
            replace(
                of,
                bytes=getattr(moved, side) or 0.0,
                step=None if steps is None else tuple(getattr(s, side) or 0.0 for s in steps),
            )
            for of, side in ((base, "before"), (judged, "after"))
        ]
        if why := sides[1].worse_than(sides[0]):
            self._refuse(change, f"{why}: so it is at level {level}")
            return None
        return Mend(
            finding=change.finding,
            plan=change.plan,
            action=change.action,
            difference=difference,
            level=level,
            seconds=None if steps is None else -(steps[1].difference or 0.0),
            step=None if steps is None else steps[1].before,
            bytes=-(moved.difference or 0.0),
            memory=judged.needed - base.needed,
            write=change.write,
        )

    @property
    def _text(self) -> str | None:
        return None if self.machine is None else self.machine.text

    # What is tried.

    def _changes(self) -> list[Change]:
        """Every change to be tried, once, those of the gravest findings first."""
        found: dict[Any, Change] = {}
        for change in self._proposed():
            breathe()
            key: Any = change.plan
            if self._varies(change):
                key = change.action
            elif not change.plan.constraints:
                with contextlib.suppress(ShardvizError):  # it says why when it is tried
                    key = self.program.bind(change.plan)
            if key != self._bound:
                found.setdefault(repr(key), change)
        return list(found.values())

    def _varies(self, change: Change) -> bool:
        """Whether it is one of the program."""
        return change.plan.variant != self.plan.variant

    def _holds(self, change: Change) -> bool:
        """Whether it constrains a value more."""
        return len(change.plan.constraints) > len(self.plan.constraints)

    def _traces(self, change: Change) -> tuple[int, bool]:
        """What is least needs no other trace."""
        return len(change.plan.constraints), self._varies(change)

    def _proposed(self) -> Iterator[Change]:
        grave = [f for f in findings(self.report, self.machine) if f.mends][: self.findings]
        for finding in grave:
            yield from self._donating(finding)
            yield from self._together(finding)
            for suggestion in finding.mends:
                plan = self._suggested(suggestion)
                if suggestion.kind in _VARIED:
                    yield from self._varied(finding, suggestion)
                elif suggestion.kind == "code":
                    self._by_hand[suggestion.words] = None
                elif plan is not None:
                    yield Change(plan=plan, finding=finding, action=_action(suggestion, plan))
        yield from self._as_most_are()
        yield from self._by_costly_axes()
        yield from self._held()

    def _suggested(self, what: Suggestion) -> Plan | None:
        """The plan with what a finding suggests; None where no plan says it."""
        if what.kind == "argument":
            return self.plan.with_spec(what.target, what.spec or Spec())
        if what.kind == "output":
            return self.plan.with_out_spec(what.target, what.spec)
        if what.kind == "device-order":
            return self._laid_out(what)
        if what.kind == "constrain":
            value = as_propagated(what.target, self.report.intermediates, lambda: self._values)
            at = what.source.short if what.source is not None and value is None else ""
            with contextlib.suppress(ShardvizError):  # it has no line, or is made by the backward pass
                return self.plan.constrain(value, what.spec or Spec(), line=at)
        return None

    def _together(self, finding: Finding) -> Iterator[Change]:
        """The arguments that a finding would give one spec, all at once."""
        alike = [m for m in finding.mends if m.kind == "argument"]
        if len(alike) > 1 and len({m.spec for m in alike}) == 1:
            plan = self.plan.with_edits({m.target: m.spec or Spec() for m in alike})
            names = " and ".join(m.target for m in alike)
            yield Change(plan=plan, finding=finding, action=f"give {names} the spec {alike[0].spec}")

    def _donating(self, finding: Finding) -> Iterator[Change]:
        """What a finding would have donated, at once."""
        targets = [m.target for m in finding.mends if m.kind == "donate"]
        roots = tuple(dict.fromkeys(segments(name)[0] for name in targets))

        if roots:
            plan = self.plan.with_variant(Variant(donated=roots))
            names = ", ".join(map(repr, roots))
            write = f"jax.jit({self.program.name}, donate_argnames=[{names}])"
            yield Change(plan=plan, finding=finding, action=f"donate {' and '.join(roots)}", write=write)

    def _varied(self, finding: Finding, what: Suggestion) -> Iterator[Change]:
        """The plan, of a program with what a finding suggests and no plan says."""
        if what.kind == "checkpoint":

            def told(made: Program) -> str:
                if not made.checkpoints:
                    raise ShardvizError("no loop and no jax.checkpoint in it is differentiated, to put it around")
                return ", and ".join(made.checkpoint_words(what.policy, _NAMED))

            plan = self.plan.with_variant(Variant(checkpoint=what.policy))
            yield Change(plan=plan, finding=finding, action=f"{what.words} around each layer", told=told)
        if what.kind == "pad":
            yield from self._padded(finding, what)

    def _padded(self, finding: Finding, what: Suggestion) -> Iterator[Change]:
        """A dimension made longer in all arrays that have it, cut as it is, and by the axes that did not divide it."""
        member = f"{what.target}:{what.dimension}"
        found = [d for d in self.program.dimensions if member in map(str, d.members)]
        sizes = {v.name: v.shape for v in self.report.arguments}
        if not found or what.dimension is None or what.size is None or what.target not in sizes:
            self._not_offered.append(NotOffered(action=what.words, why="the program has no such dimension to change"))
            return
        dimension, was, better = found[0], sizes[what.target][what.dimension], what.size

        arrays = [str(m) for m in dimension.arguments if sizes[m.path][m.dimension] % was == 0]
        write = f"{better} in place of {was} in {', '.join(arrays)}"
        longer = Longer(path=what.target, dimension=what.dimension, size=was, better=better)
        wide = self.plan.with_variant(Variant(lengths=(longer,)))
        action = f"make dimension {dimension.name} {better:,} long, in place of {was:,}"
        yield Change(plan=wide, finding=finding, action=action, write=write)
        cuts = self._cuts[dimension.name]
        axes = cuts.most_common(1)[0][0] if cuts else ()
        if more := tuple(a for a in finding.axes if a not in axes):
            plan = wide.with_dimension(dimension, (*axes, *more))
            said = " and ".join(map(axis_text, (*axes, *more)))
            yield Change(plan=plan, finding=finding, action=f"{action}, and cut it by {said}", write=write)

    def _laid_out(self, what: Suggestion) -> Plan | None:
        """The plan with the mesh's devices in another order, as the finding timed it."""
        mesh = self.plan.mesh
        if what.policy:
            return self.plan.with_mesh(reordered(mesh, what.policy))
        moved = [name for name, other in zip(mesh.names, what.axes, strict=False) if name != other]
        if self.machine is None or len(moved) != 2:
            return None
        return self.plan.with_mesh(exchanged(mesh, self.machine, *moved))

    @cached_property
    def _values(self) -> tuple[Value, ...]:
        """What is made inside, as Shardy's level has it."""
        return self.program.propagate(self.plan).intermediates

    @cached_property
    def _cuts(self) -> dict[str, Counter[tuple[Axis, ...]]]:
        """Logical dimension → the axes that cut it in each array, by how many elements these have."""
        sizes = {v.name: math.prod(v.shape) for v in self.report.arguments}
        found = {}
        for dimension in self.program.dimensions:
            weights = found[dimension.name] = Counter[tuple[Axis, ...]]()
            for member in dimension.arguments:
                spec = self._bound.in_specs.get(member.path)
                if spec is not None and member.dimension < len(spec.dims):
                    weights[spec.dims[member.dimension]] += sizes.get(member.path, 1)
        return found

    def _as_most_are(self) -> Iterator[Change]:
        """Each logical dimension cut in all its arrays as it is in most of them."""
        for dimension in self.program.dimensions:
            if len(cuts := self._cuts[dimension.name]) > 1:
                for axes, _ in cuts.most_common(2):
                    yield self._with(dimension, axes)

    def _by_costly_axes(self) -> Iterator[Change]:
        """Each logical dimension with one of the axes over which most is moved more, or less."""
        moved: Counter[str] = Counter()
        for c in self.report.collectives:
            for axis in c.axes or ():
                moved[axis_name(axis)] += round(c.assumed_bytes)
        for axis, _ in moved.most_common(_COSTLY):
            for dimension in self.program.dimensions:
                cuts = self._cuts[dimension.name]
                axes = cuts.most_common(1)[0][0] if cuts else ()
                if axis in axes:
                    yield self._with(dimension, tuple(a for a in axes if a != axis))
                elif not dimension.stacked and self._divides(dimension, (*axes, axis)):
                    yield self._with(dimension, (*axes, axis))

    def _divides(self, dimension: Dimension, axes: Sequence[Axis]) -> bool:
        by = math.prod(axis_size(a, self.plan.mesh) for a in axes)
        return by > 1 and all(size % by == 0 for size in dimension.sizes)

    def _with(self, dimension: Dimension, axes: Sequence[Axis]) -> Change:
        plan = self.plan.with_dimension(dimension, axes)
        said = " and ".join(map(axis_text, axes))
        does = f"cut dimension {dimension.name} by {said}" if axes else f"leave dimension {dimension.name} whole"
        return Change(plan=plan, action=f"{does} in {self._where(plan)}")

    def _where(self, plan: Plan) -> str:
        """The arguments that a plan cuts otherwise, in words."""
        try:
            bound = self.program.bind(plan)
        except ShardvizError:
            return "all its arrays"
        names = [name for name, spec in bound.in_specs.items() if spec != self._bound.in_specs[name]]
        if len(names) <= _NAMED:
            return " and ".join(names)
        return f"{names[0]} and {plural(len(names) - 1, 'more array')}"

    def _held(self) -> Iterator[Change]:
        """The largest variables of the forward pass, held cut by the axes over which most is summed there."""
        sums: Counter[tuple[str, ...]] = Counter()
        for c in self.report.collectives:
            if c.kind == "all-reduce" and c.axes and c.phase == "forward":
                sums[tuple(map(axis_name, c.axes))] += round(c.assumed_bytes)
        for axes, _ in sums.most_common(1):
            heavy = sorted(self._values, key=lambda v: -(v.bytes_per_device or 0.0) * (v.count or 1))
            cut = ((value, self._more_cut(value, axes)) for value in heavy)
            for value, spec in itertools.islice(((v, s) for v, s in cut if s is not None), _HELD):
                with contextlib.suppress(ShardvizError):
                    plan, line = self.plan.constrain(value, spec), value.source.short if value.source else ""
                    yield Change(plan=plan, action=f"constrain {value.label} at {line} to {spec}")

    def _more_cut(self, value: Value, axes: Sequence[str]) -> Spec | None:
        """A variable's spec with these axes on the first dimension that nothing cuts; None where that cannot be."""
        if not value.label or value.spec is None or value.source is None or value.manual:
            return None
        if phase(value.name_stack) != "forward" or set(axes) & set(map(axis_name, value.spec.axes)):
            return None
        by = math.prod(self.plan.mesh.shape[a] for a in axes)
        for d, (size, cut) in enumerate(zip(value.shape, value.spec.dims, strict=False)):
            if d and not cut and size % by == 0 and size > by:
                return value.spec.with_dims((*value.spec.dims[:d], tuple(axes), *value.spec.dims[d + 1 :]))
        return None


def _action(what: Suggestion, plan: Plan) -> str:
    """A suggestion in words; a value inside by what the person calls it."""
    if what.kind != "constrain" or what.text:
        return what.words
    named = plan.constraints[-1].value
    return f"constrain {named.name or 'what is made'} at {named.line} to {what.spec}"
