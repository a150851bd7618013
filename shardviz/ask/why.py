"""Questions about a plan: why a value is sharded as it is, why a collective exists, what would change.

All answers are tested: Shardy runs again on the same lowered program with a source removed, added or forced. Results
about a plan are cached while questions are about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from shardviz.ask.rows import labelled
from shardviz.ask.rows import source as lines_of
from shardviz.caching import cached_property
from shardviz.causes.causes import axis_why, causes_of
from shardviz.causes.links import Named, Node, NodeKey, key_before, keys_of, namer
from shardviz.causes.needs import Quarrel, Reason, impossible, quarrels_of, reason
from shardviz.causes.perturb import Forced, Perturbed, edited, places_of
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import cost_of
from shardviz.errors import ShardvizError
from shardviz.judge.comparison import compare_reports
from shardviz.judge.report import Report
from shardviz.notation.spec import axis_name
from shardviz.propagate.lower import Lowered
from shardviz.propagate.propagate import COLLECTIVES
from shardviz.propagate.propagated import PropagatedReading
from shardviz.records import Collective, PlanRecord, Value
from shardviz.records.amounts import format_bytes
from shardviz.records.collectives import axes_words
from shardviz.records.phases import phase
from shardviz.records.why import AxisWhy, CollectiveWhy, Contest, Effect, Source, TriedChange, Why, outcome
from shardviz.stablehlo.graph import MlirGraph

_LISTED = 12
_MOST_CONTESTS = 2
_MOST_CHANGES = 4
_MOST_ADDED = 3
Reported = Callable[[PlanRecord, Callable[[], Any]], Report]


class Questions:
    """A plan of a program, to ask questions about."""

    def __init__(self, lowered: Lowered, bound: PlanRecord, report: Report, reported: Reported):
        """Prepare questions about a propagated plan. `reported` returns the report of a changed module, from its plan
        and a function that makes the module."""
        self.trial, self.report = Perturbed(lowered, bound), report
        self._reported = reported

    def why(
        self, of: Any, axis: str | None, target: str | Machine | None, pause: Callable[[int], None] | None = None
    ) -> Why | CollectiveWhy:
        before = self.trial.runs
        self.trial.pause = None if pause is None else lambda: pause(self.trial.runs - before)
        mesh = self.report.mesh
        if axis is not None and axis not in mesh.names:
            have = ", ".join(map(repr, mesh.names)) or "none"
            raise ShardvizError(f"axis={axis!r}: the mesh has no such axis; it has {have}")
        start = time.perf_counter()
        try:
            with self.trial.lowered.entered():
                of_collective = isinstance(of, Collective)
                answer = self._collective(of, target) if of_collective else self._value(of, axis, target)
        finally:
            self.trial.pause = None
        return replace(answer, tried=self.trial.runs - before, seconds=time.perf_counter() - start)

    def without(self, source: Source, target: str | Machine | None = None) -> Any:
        if source.role == "shard_map":
            raise ShardvizError(
                f"{source.text}: the shapes inside a shard_map follow from its specs; change the program"
            )
        other = self.changed((source,))
        named = {"as it is": self.report, f"without {source.axis} in {source.label}": other}
        return compare_reports(named, target=target)

    def changed(
        self, removed: Sequence[Source] = (), added: Sequence[Source] = (), forced: Sequence[Forced] = ()
    ) -> Report:
        """Return the propagated report without some sources, with others, and with constraints on arrays."""
        bound = self.trial.bound
        specs = {"argument": dict(bound.in_specs), "output": dict(bound.out_specs)}
        for put, sources in ((False, removed), (True, added)):
            for source in sources:
                if source.role in specs:
                    of = specs[source.role]
                    of[source.name] = edited(of[source.name] or source.spec, source, put)
        other = replace(bound, in_specs=specs["argument"], out_specs=specs["output"])
        self.trial.runs += 1
        return self._reported(other, lambda: self.trial.changed(removed, added, forced))

    # A value.

    def _value(self, of: Any, axis: str | None, target: str | Machine | None) -> Why:
        report = self.report
        role, value, key, also = self._find(of, axis)
        node = self.trial.base.node(key)
        asked = [name for name, size in report.mesh.shape.items() if size > 1] if axis is None else [axis]

        def has_name(n):
            return n.key in self.rows and bool(self.rows[n.key].label)

        contested = [q for q in quarrels_of(node.origin, has_name) if axis is None or axis in q.axes]
        return Why(
            program=report.program,
            mesh=report.mesh,
            value=value,
            role=role,
            axes=tuple(axis_why(self.trial, key, each, self.named) for each in asked),
            contest=tuple(self._contest(q, node.origin, target) for q in contested[:_MOST_CONTESTS]),
            also=also,
            source={**report.source, **lines_of((value,), ())},
            ask=lambda source: self.without(source, target),
        )

    def _contest(self, quarrel: Quarrel, of: Node, target: str | Machine | None) -> Contest:
        """Return a disagreement with the cost of either choice; the choice that was not made is forced by
        constraints."""
        node, dim, forced = quarrel.choice(of)
        step, wanted = quarrel.step, forced[0].spec if forced else node.spec
        reason = impossible(node.shape, wanted, self.report.mesh) if forced else "nothing else has this dimension"
        chosen = self._effect(self.report, target)
        effect = None if reason else self._effect(self.changed(forced=forced), target)
        return Contest(
            op=step.name,
            value=self.named(node.origin),
            dimension=dim,
            rule="" if step.rule is None else step.rule.text,
            words=quarrel.words(self.named),
            wanted_by=self.named(quarrel.node),
            chosen_spec=node.spec,
            wanted_spec=wanted,
            chosen=chosen,
            wanted=effect,
            verdict="not possible" if effect is None else outcome(chosen, effect),
            reason=reason,
            source=step.place.frame,
        )

    def _effect(self, report: Report, target: str | Machine | None) -> Effect:
        seconds = None if target is None else cost_of(report, target).seconds
        return Effect(
            bytes=sum(c.assumed_bytes for c in report.collectives),
            collectives=len(report.collectives),
            flops=(report.cost and report.cost.dot_flops) or 0.0,
            held=sum(v.bytes_per_device or 0.0 for v in report.arguments),
            seconds=seconds,
        )

    # A collective.

    def _collective(self, of: Collective, target: str | Machine | None) -> CollectiveWhy:
        report = self.report
        meant = alike(of, report.collectives)
        rows = zip(report.collectives, map(key_before, self.reading.moved_at), strict=True)
        here, moved = next((row for row in rows if row[0] is meant), (None, None))
        if here is None or moved is None:
            return self._of_the_partitioner(of)
        why = reason(self.trial.base, moved, here, self.named)
        asked = {axis: cut.node.key for axis, cut in reversed(why.axes)}  # one operand tells of a sum
        answers = tuple(axis_why(self.trial, key, axis, self.named) for axis, key in asked.items())
        contested = why.quarrel if why.need.kind == "disagree" else None
        need = why.need
        if here.kind != of.kind:
            words = (
                f"XLA's partitioner makes this {of.kind} where Shardy's propagation has the {here.kind} over these "
                f"axes: {need.words} What follows is tried with the {here.kind}."
            )
            need = replace(need, words=words)
        return CollectiveWhy(
            program=report.program,
            mesh=report.mesh,
            collective=here,
            need=need,
            axes=answers,
            contest=() if contested is None else (self._contest(contested, contested.node, target),),
            changes=self._changes(why, answers, here, target),
            source=report.source,
        )

    def _of_the_partitioner(self, of: Collective) -> CollectiveWhy:
        """Explain a collective that XLA's partitioner makes for one operation which Shardy leaves unchanged."""
        names, line = set(map(axis_name, of.axes or ())), None if of.source is None else of.source.short
        steps = {node.maker: None for node in self.trial.base.nodes.values() if node.maker is not None}
        cuts = [
            (step, cut, axis)
            for step in steps
            if step.kind == "rule" and step.place.frame is not None and step.place.frame.short == line
            for used in step.ins
            for cut in used.origin.dims
            for axis in names
            if cut.carries(axis)
        ]
        if not cuts:
            raise ShardvizError(
                f"why({of.name!r}): Shardy's propagation, which answers this, has no {of.kind} over these axes "
                "on this line: XLA's partitioner has made it from other collectives. Ask why of one of "
                "program.propagate(plan).collectives"
            )
        own = of.name_stack.rsplit("/", 1)[-1]
        step, cut, _ = min(cuts, key=lambda each: each[0].name != own)
        value, asked = self.named(cut.node), {}
        for other, carrier, axis in cuts:
            if other is step:
                asked.setdefault(axis, carrier.node.key)
        words = (
            f"{step.name} takes {value} as {cut.node.spec.canonical()}; Shardy leaves it so, and XLA's partitioner "
            "communicates parts of it between devices to compute it. What would avoid it was not tried."
        )
        reason = Reason.of("other", words, value, step, op=step.name, before=cut.node.spec)
        return CollectiveWhy(
            program=self.report.program,
            mesh=self.report.mesh,
            collective=of,
            need=reason.need,
            axes=tuple(axis_why(self.trial, key, axis, self.named) for axis, key in asked.items()),
            source=self.report.source,
        )

    def _changes(
        self, why: Reason, answers: Sequence[AxisWhy], collective: Collective, target: str | Machine | None
    ) -> tuple[TriedChange, ...]:
        """Return changes that may avoid a collective, tried, cheapest first."""
        before, changes = self._effect(self.report, target), []
        for text, removed, added in list(self._tries(why, answers))[:_MOST_CHANGES]:
            other = self.changed(removed, added)
            after = self._effect(other, target)
            changes.append(
                TriedChange(
                    text=text,
                    before=before,
                    after=after,
                    removed=len(_alike(collective, other)) < len(_alike(collective, self.report)),
                    added=tuple(_added(compare_reports(self.report, other)))[:_MOST_ADDED],
                    verdict=outcome(before, after),
                    losing=tuple(removed),
                    gaining=tuple(added),
                )
            )
        return tuple(sorted(changes, key=lambda w: (not w.removed, w.after.seconds or w.after.bytes)))

    def _tries(
        self, why: Reason, answers: Sequence[AxisWhy]
    ) -> Iterator[tuple[str, Sequence[Source], Sequence[Source]]]:
        """Yield changes of specs that may avoid a collective: in words, the sources to remove, the sources to add."""
        removed, added = _asked(self.trial, why)
        if added:
            yield f"{added[0].label} as {added[0].spec.canonical()}", removed, added
        groups = [tuple(c.source for c in a.causes) for a in answers]
        groups += [causes_of(self.trial, cut.node.key, cut.dim, axis) for axis, cut in why.rivals]
        if why.need.kind == "partial sums" and len(answers) == 1:
            groups.insert(0, self._both(why, groups[0]))
        seen = set()
        for sources in groups:
            free = [s for s in sources if s.role != "shard_map"]
            key = frozenset(s.key for s in free)
            if free and key not in seen:
                seen.add(key)
                yield f"without {free[0].axis} in {_several([s.label for s in free])}", free, ()

    def _both(self, why: Reason, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        """Return the sources to remove so that an axis leaves every summed operand, given those for the first
        operand."""
        for axis, cut in why.axes[1:]:
            if self.trial.holds(cut.node.key, cut.dim, axis, sources):
                more = causes_of(self.trial, cut.node.key, cut.dim, axis)
                sources = tuple({s.key: s for s in (*sources, *more)}.values())
        return sources

    # Names.

    @cached_property
    def reading(self) -> PropagatedReading:
        """The reading of the plan's graph, whose rows are the report's."""
        trial = self.trial
        reading = PropagatedReading(MlirGraph(trial.run((), COLLECTIVES)), trial.lowered, trial.bound.mesh, {})
        names = [reading.values[n].name for n in reading.shown]
        assert names == [v.name for v in self.report.intermediates], "the same program has the same values"
        return reading

    @cached_property
    def rows(self) -> dict[NodeKey, Value]:
        """Every intermediate, including those that nothing shards and the report omits."""
        return dict(zip(keys_of(self.reading.made_at), labelled(self.reading.values), strict=True))

    @cached_property
    def named(self) -> Named:
        """A function that names each value of the plan's graph."""
        arguments, outputs = ([v.name for v in of] for of in (self.report.arguments, self.report.outputs))
        return namer(arguments, outputs, self.rows)

    def _find(self, of: Any, axis: str | None) -> tuple[str, Value, NodeKey, tuple[str, ...]]:
        """Return the requested value: its role, itself, its key, and the other values of this name."""
        report = self.report
        name = of.name if isinstance(of, Value) else of
        if not isinstance(name, str):
            raise ShardvizError(
                f"why: expected the name of a value, a Value or a Collective of the propagated report, not {of!r}"
            )
        ends = (("argument", report.arguments), ("output", report.outputs))
        for role, place, value in ((role, *each) for role, values in ends for each in enumerate(values)):
            if value.name == name:
                return role, value, NodeKey((), -1, role, place), ()
        rows = list(self.rows.items())
        exact = [(k, v) for k, v in rows if v.name == name and (not isinstance(of, Value) or v == of)]
        variables = [(k, v) for k, v in rows if v.label == name]
        lines = [(k, v) for k, v in rows if v.source is not None and v.source.short == name]
        matches = exact or variables or lines
        if not matches:
            raise ShardvizError(f"why({name!r}): {self._none(name)}")
        best = min(matches, key=lambda row: self._rank(row[1], axis, last=bool(lines) and not (exact or variables)))
        others = [v for _, v in matches if v is not best[1]]
        return "intermediate", best[1], best[0]._replace(kind="value"), tuple(_place_words(v) for v in others[:_LISTED])

    @staticmethod
    def _rank(value: Value, axis: str | None, *, last: bool) -> tuple[bool, bool, int]:
        """Return a sort key: values of the forward pass first, then those that a line assigns, then those with the
        axis."""
        names = () if value.spec is None else tuple(map(axis_name, value.spec.axes))
        return phase(value.name_stack) != "forward", last and not value.label, 0 if axis is None or axis in names else 1

    def _none(self, name: str) -> str:
        labels = dict.fromkeys(v.label for v in self.rows.values() if v.label)
        paths = [v.name for v in (*self.report.arguments, *self.report.outputs)]
        near = [n for n in (*labels, *paths) if name.lower() in n.lower()] or list(labels)
        listed = ", ".join(map(repr, near[:_LISTED]))
        return (
            f"the propagated report has no value of this name or line; there are {listed or 'none'}. Values are "
            "known by tree path, by the variable that a line assigns, by line (`model.py:20`), and by report name"
        )


def _alike(collective: Collective, report: Report) -> list[Collective]:
    """Return a report's collectives of the same kind, type, line, phase and axes, whatever reads them."""

    def facts(c):
        return (c.kind, c.axes, c.source, c.phase, c.dtype)

    return [c for c in report.collectives if facts(c) == facts(collective)]


def _added(comparison: Any) -> Iterator[str]:
    """Yield in words which collectives appeared or grew, most bytes first."""
    for change in comparison.collectives:
        after = change.after
        if after is not None and change.bytes > 0:
            one = after.collectives[0]
            where = f" at {one.source.short}" if one.source else ""
            yield f"{one.kind} over {axes_words(one.axes)}{where}, {format_bytes(change.bytes)} more"


def _asked(trial: Perturbed, why: Reason) -> tuple[list[Source], list[Source]]:
    """Return the sources that a constraint or an output would have to drop, and those it would have to add, so that
    nothing is moved."""
    step, before = why.step, why.need.before
    if step is None or before is None or why.need.kind not in ("constraint", "output"):
        return [], []
    places = places_of(step.ins[1])
    sharding = next((s for s in trial.shardings if any((s.role, place) in places for place in s.places)), None)
    if sharding is None:
        return [], []
    pairs = list(enumerate(zip(sharding.spec.dims, before.dims, strict=True)))
    spec = before.with_dims(before.dims)

    def sharding_at(d, axis):
        return replace(sharding, dimension=d, axis=axis_name(axis), spec=spec)

    removed = [sharding_at(d, a) for d, (old, new) in pairs for a in old if a not in new]
    return removed, [sharding_at(d, a) for d, (old, new) in pairs for a in new if a not in old]


def _several(names: Sequence[str]) -> str:
    shown = list(names[:2]) if len(names) > 3 else list(names[:-1])
    last = f"{len(names) - 2} others" if len(names) > 3 else names[-1]
    return f"{', '.join(shown)} and {last}" if shown else last


def _place_words(value: Value) -> str:
    where = f" at {value.source.short}" if value.source else ""
    return f"{value.name}{where} ({phase(value.name_stack)})"


def alike(of: Collective, among: Iterable[Collective]) -> Collective | None:
    """Return the corresponding collective of another level: on the same line, over the same axes, and of the same kind
    or phase. Of several, the one for the same array (by size and name) with the same count is preferred, then the one
    with the most bytes."""

    def dims(c):
        return c.array or c.shape

    def likeness(c: Collective) -> tuple[Any, ...]:
        same = (c.name, c.kind, c.source) == (of.name, of.kind, of.source)
        size = sorted(dims(c)) == sorted(dims(of))  # XLA may have it transposed
        what = (c.kind == of.kind, c.phase == of.phase, size, c.operand == of.operand, c.count == of.count)
        return same, *what, dims(c) == dims(of), c.name_stack == of.name_stack, c.assumed_bytes

    line = None if of.source is None else of.source.short
    here = [c for c in among if c.axes == of.axes and (c.source and c.source.short) == line]
    some = [c for c in here if c.kind == of.kind or (line and c.phase == of.phase)]
    return max(some, key=likeness, default=None)
