"""Questions about one plan: why a value is cut as it is, why a collective is there, what would change.

All answers are tried: Shardy runs again on the same lowered program with something taken away, put in or forced. What
was found out about a plan is kept while questions are about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from shardviz.costs import Machine
from shardviz.costs.step_cost import cost_of
from shardviz.errors import ShardvizError
from shardviz.judge.comparison import compare
from shardviz.judge.report import Report
from shardviz.notation import Axis
from shardviz.notation.spec import axis_name
from shardviz.program.absent import absent
from shardviz.program.causes import causes, near
from shardviz.program.chain import Named, chain, op_name
from shardviz.program.contest import Quarrel, choice, impossible, made_along, quarrel_words, quarrels
from shardviz.program.graph import MlirGraph
from shardviz.program.links import Cut, Key
from shardviz.program.lower import Lowered
from shardviz.program.needs import Found as Moving
from shardviz.program.needs import need
from shardviz.program.numbered import Numbered, namer
from shardviz.program.perturb import Forced, Perturbed, edited
from shardviz.program.propagate import PIPELINE
from shardviz.records import Collective, PlanRecord, Value
from shardviz.records.amounts import format_bytes
from shardviz.records.collectives import axes_words
from shardviz.records.phases import phase
from shardviz.records.why import (
    AxisWhy,
    Cause,
    CollectiveWhy,
    Contest,
    Effect,
    Hop,
    Source,
    Way,
    Why,
    outcome,
)

_LISTED = 12
_MOST_CONTESTS = 2
_MOST_WAYS = 4
_MOST_ADDED = 3
_BY_ITSELF = (
    "values on the way lose {axis!r} again, as another spec or constraint has it on another dimension of theirs: the "
    "steps are those of the program where nothing else says {axis!r}"
)
Reported = Callable[[PlanRecord, Callable[[], Any]], Report]


class Asking:
    """One plan of a program, to be asked about."""

    def __init__(self, lowered: Lowered, bound: PlanRecord, report: Report, reported: Reported, sketched: Reported):
        """A plan that was propagated.

        Args:
            lowered: the program.
            bound: the plan.
            report: its propagated report.
            reported: makes the report of another module, given its plan and what makes the module.
            sketched: the same, but for what costs nothing.
        """
        self.trial, self.report = Perturbed(lowered, bound), report
        self._reported, self._sketched = reported, sketched
        self._reading: Numbered | None = None
        self._named: Named | None = None

    def why(
        self, of: Any, axis: str | None, target: str | Machine | None, pause: Callable[[int], None] | None = None
    ) -> Why | CollectiveWhy:
        """See `Program.why`."""
        before = self.trial.runs
        self.trial.pause = None if pause is None else lambda: pause(self.trial.runs - before)
        mesh = self.report.mesh
        if axis is not None and axis not in mesh.names:
            have = ", ".join(map(repr, mesh.names)) or "none"
            raise ShardvizError(f"axis={axis!r}: the mesh has no such axis; it has {have}")
        try:
            return self._collective(of, target) if isinstance(of, Collective) else self._value(of, axis, target)
        finally:
            self.trial.pause = None

    def without(self, source: Source, target: str | Machine | None = None) -> Any:
        """See `Program.without`."""
        if source.role == "shard_map":
            raise ShardvizError(
                f"{source.text}: the shapes inside a shard_map follow from its specs; change the program"
            )
        other = self.changed((source,))
        named = {"as it is": self.report, f"without {source.axis} in {_bare(source)}": other}
        return compare(named, target=target)

    def changed(self, gone: Sequence[Source] = (), given: Sequence[Source] = ()) -> Report:
        """The propagated report without some sources, and with others."""
        bound = self.trial.bound
        specs = {"argument": dict(bound.in_specs), "output": dict(bound.out_specs)}
        for put, sources in ((False, gone), (True, given)):
            for source in sources:
                if source.role in specs:
                    of = specs[source.role]
                    of[source.name] = edited(of[source.name] or source.spec, source, put)
        other = replace(bound, in_specs=specs["argument"], out_specs=specs["output"])
        self.trial.runs += 1
        return self._reported(other, lambda: self.trial.changed(gone, given))

    # A value.

    def _value(self, of: Any, axis: str | None, target: str | Machine | None) -> Why:
        start, runs = time.perf_counter(), self.trial.runs
        with self.trial.entered():
            role, value, key, also = self._find(of, axis)
            asked = self.report.mesh.names if axis is None else (axis,)
            answers = tuple(self._axis(key, each) for each in asked if axis or self.report.mesh.shape[each] > 1)
            found = [q for q in self._quarrels(key) if axis is None or axis in _named_axes(q)]
        contest = [self._contest(q, key, target) for q in found[:_MOST_CONTESTS]]
        return Why(
            program=self.report.program,
            mesh=self.report.mesh,
            value=value,
            role=role,
            axes=answers,
            contest=tuple(contest),
            also=also,
            source=self.report.source,
            tried=self.trial.runs - runs,
            seconds=time.perf_counter() - start,
            ask=lambda source: self.without(source, target),
        )

    def _axis(self, key: Key, axis: str) -> AxisWhy:
        """Why one axis is on a value, or is not."""
        links, named = self.trial.base, self.named
        node = links.nodes[key]
        dim = next((d for d in range(links.rank(node)) if links.carries(Cut(node, d), axis)), None)
        if dim is None and (reason := links.closed(node, axis)):
            return AxisWhy(value=named(node), axis=axis, dimension=None, notes=(reason,))
        if dim is None:
            stops, givers = absent(self.trial, key, axis, named)
            return AxisWhy(value=named(node), axis=axis, dimension=None, stops=stops, givers=givers)
        found = causes(self.trial, key, dim, axis)
        hops = ()
        if found.causes:
            first = found.causes[0].source
            at = found.at.get(first.key)
            if at is not None:
                hops = chain(links, Cut(node, dim), at, axis, named, self._alone(found.causes[1:], axis))
        notes = found.notes
        if found.causes and not hops:
            hops = self._by_itself(key, dim, axis, found.causes)
            notes = (*notes, _BY_ITSELF.format(axis=axis)) if hops else notes
        said = {"value": named(node), "axis": axis, "dimension": dim}
        return AxisWhy(causes=found.causes, chain=hops, notes=notes, **said)

    def _by_itself(self, key: Key, dim: int, axis: str, found: Sequence[Cause]) -> tuple[Hop, ...]:
        """The chain where nothing but the causes says the axis: another source may have it taken off the values on
        the way once it has come through, by cutting another dimension of theirs."""
        trial, base, named = self.trial, self.trial.base, self.named
        for kept in ([c.source.key for c in found], [found[0].source.key]):
            gone = tuple(s for s in trial.sources(axis) if s.key not in kept)
            links = trial.links(gone)
            node = links.nodes.get(key)
            if not gone or node is None or not links.carries(target := Cut(node, dim), axis):
                continue
            at = near(links, target, axis, [found[0].source]).get(found[0].source.key)
            called = lambda n, links=links: named(base.nodes[k]) if (k := links.keys[n]) in base.nodes else str(k)  # noqa: E731
            if at is not None and (hops := chain(links, target, at, axis, called)):
                here = replace(hops[-1].after, spec=base.spec(base.nodes[key]))
                return (*hops[:-1], replace(hops[-1], after=here))
        return ()

    def _alone(self, others: Sequence[Any], axis: str) -> Callable[[Cut], bool] | None:
        """Whether a dimension carries an axis though all other causes are taken away."""
        gone = tuple(c.source for c in others if c.enough)
        if not gone:
            return None
        base, other = self.trial.base, self.trial.links(gone)

        def also(cut: Cut) -> bool:
            node = other.nodes.get(base.keys[cut.node])
            return node is not None and other.carries(Cut(node, cut.dim), axis)

        return also

    # The contest.

    def _quarrels(self, key: Key) -> list[Quarrel]:
        """Where what makes a value disagrees along its dimensions, and where what reads it wants it otherwise."""
        links = self.trial.base
        node = links.nodes[key]
        maker = links.maker(node)
        steps = [maker] if maker is not None else []
        found = [q for step in steps for q in quarrels(links, step) if made_along(q, node) is not None]
        for _, step in links.readers(node):
            found += [q for q in quarrels(links, step) if q.node == node and not q.result]
        return list({(q.step.op, q.factor, q.wanted): q for q in reversed(found)}.values())[::-1]

    def _contest(self, quarrel: Quarrel, key: Key, target: str | Machine | None) -> Contest:
        """A disagreement with what either choice costs: the wanted one is forced by constraints."""
        links, named, mesh = self.trial.base, self.named, self.report.mesh
        with self.trial.entered():
            words = quarrel_words(links, quarrel, named)
            op, rule, source = op_name(links, quarrel.step), quarrel.rule.text, links.place_of(quarrel.step).frame
            node, dim, forced = choice(links, quarrel, links.nodes[key])
            chosen_spec = links.spec(node)
            wanted = forced[0].spec if forced else chosen_spec
            reason = impossible(links.shape(node), wanted, mesh) if forced else "nothing else has this dimension"
            name, wanted_by = named(links.origin(node)), named(quarrel.node)
        chosen, effect = self._effect(self.report, target), None
        if not reason:
            effect = self._effect(self._forced(forced), target)
        return Contest(
            op=op,
            value=name,
            dimension=dim,
            rule=rule,
            words=words,
            wanted_by=wanted_by,
            chosen_spec=chosen_spec,
            wanted_spec=wanted,
            chosen=chosen,
            wanted=effect,
            verdict="not possible" if effect is None else outcome(chosen, effect),
            reason=reason,
            source=source,
        )

    def _forced(self, forced: Sequence[Forced]) -> Report:
        """The program with constraints on arrays, as far as it costs."""
        self.trial.runs += 1
        return self._sketched(self.trial.bound, lambda: self.trial.changed((), (), forced))

    def _effect(self, report: Report, target: str | Machine | None) -> Effect:
        seconds = None if target is None else cost_of(report, target).upper
        return Effect(
            bytes=sum(c.assumed_bytes for c in report.collectives),
            collectives=len(report.collectives),
            flops=(report.cost and report.cost.dot_flops) or 0.0,
            held=sum(v.bytes_per_device or 0.0 for v in report.arguments),
            seconds=seconds,
        )

    # A collective.

    def _collective(self, of: Collective, target: str | Machine | None) -> CollectiveWhy:
        start, runs = time.perf_counter(), self.trial.runs
        with self.trial.entered():
            meant = alike(of, self.report.collectives)
            same = zip(self.report.collectives, self.reading.moves, strict=True)
            found = next(((c, m) for c, m in same if c is meant), None)
            if found is None:
                raise ShardvizError(
                    f"why({of.name!r}): Shardy's propagation, of which this is asked, has no {of.kind} over these axes "
                    "on this line: XLA's partitioner has made it of something else. Ask why of one of "
                    "program.propagate(plan).collectives"
                )
            moved = need(self.trial.base, found[1], found[0], self.named)
            keys = self.trial.base.keys
            asked = {axis: keys[cut.node] for axis, cut in reversed(moved.axes)}  # one operand tells of a sum
            answers = tuple(self._axis(key, axis) for axis, key in asked.items())
        contest = ()
        if moved.quarrel is not None and moved.need.kind == "disagree":
            contest = (self._contest(moved.quarrel, keys[moved.quarrel.node], target),)
        return CollectiveWhy(
            program=self.report.program,
            mesh=self.report.mesh,
            collective=found[0],
            need=moved.need,
            axes=answers,
            contest=contest,
            ways=tuple(self._ways(moved, answers, found[0], target)),
            source=self.report.source,
            tried=self.trial.runs - runs,
            seconds=time.perf_counter() - start,
        )

    def _ways(
        self, moved: Moving, answers: Sequence[AxisWhy], collective: Collective, target: str | Machine | None
    ) -> Iterator[Way]:
        """What would avoid a collective, tried: the cheapest first."""
        tries = list(self._tries(moved, answers))[:_MOST_WAYS]
        before = self._effect(self.report, target)
        made = []
        for text, gone, given in tries:
            other = self.changed(gone, given)
            after = self._effect(other, target)
            left = len(_alike(collective, other)) < len(_alike(collective, self.report))
            said = tuple(_added(compare(self.report, other)))[:_MOST_ADDED]
            verdict = outcome(before, after)
            made.append(
                Way(
                    text=text,
                    before=before,
                    after=after,
                    gone=left,
                    added=said,
                    verdict=verdict,
                    taken=tuple(gone),
                    given=tuple(given),
                )
            )
        return iter(sorted(made, key=lambda w: (not w.gone, w.after.seconds or w.after.bytes)))

    def _tries(
        self, moved: Moving, answers: Sequence[AxisWhy]
    ) -> Iterator[tuple[str, Sequence[Source], Sequence[Source]]]:
        """Changes of specs that may avoid a collective, in words and as sources that go or come."""
        seen = set()
        if moved.need.kind in ("constraint", "output") and moved.step is not None and moved.need.before is not None:
            with self.trial.entered():
                gone, given = _asked(self.trial, moved)
            if given:
                yield f"{_bare(given[0])} as {given[0].spec.canonical()}", gone, given
        links = self.trial.base
        groups = [tuple(c.source for c in a.causes) for a in answers]
        with self.trial.entered():
            for axis, cut in moved.rivals:
                groups.append(self._sources(links.keys[cut.node], cut.dim, axis))
            if moved.need.kind == "partial sums" and len(answers) == 1:
                groups = [self._both(moved, groups[0]), *groups]
        for sources in groups:
            free = [s for s in sources if s.role != "shard_map"]
            key = frozenset(s.key for s in free)
            if free and key not in seen:
                seen.add(key)
                yield f"without {free[0].axis} in {_several([_bare(s) for s in free])}", free, ()

    def _both(self, moved: Moving, sources: tuple[Source, ...]) -> tuple[Source, ...]:
        """What takes an axis off everything that is summed over, given what takes it off the first operand."""
        for axis, cut in moved.axes[1:]:
            key = self.trial.base.keys[cut.node]
            if self.trial.holds(key, cut.dim, axis, sources):
                more = self._sources(key, cut.dim, axis)
                sources = tuple({s.key: s for s in (*sources, *more)}.values())
        return sources

    def _sources(self, key: Key, dim: int, axis: str) -> tuple[Source, ...]:
        """What takes an axis off a value, all together."""
        return tuple(c.source for c in causes(self.trial, key, dim, axis).causes)

    # Names.

    @property
    def reading(self) -> Numbered:
        """The report's rows with the operations that they are of."""
        if self._reading is None:
            trial = self.trial
            module = trial.run((), passes=PIPELINE)
            self._reading = Numbered(MlirGraph(module), trial.lowered, trial.bound.mesh, {})
            names = [v.name for v in self._reading.values]
            assert names == [v.name for v in self.report.intermediates], "the same program has the same values"
        return self._reading

    @property
    def named(self) -> Named:
        """What each node of the plan's graph is called."""
        if self._named is None:
            arguments, outputs = ([v.name for v in of] for of in (self.report.arguments, self.report.outputs))
            values = dict(zip(self.reading.keys, self.report.intermediates, strict=True))
            self._named = namer(self.trial.base, arguments, outputs, values)
        return self._named

    def _find(self, of: Any, axis: str | None) -> tuple[str, Value, Key, tuple[str, ...]]:
        """The value that is meant: its role, itself, its key, and the others of its name."""
        report = self.report
        name = of.name if isinstance(of, Value) else of
        if not isinstance(name, str):
            raise ShardvizError(
                f"why: expected the name of a value, a Value or a Collective of the propagated report, not {of!r}"
            )
        for role, values in (("argument", report.arguments), ("output", report.outputs)):
            for place, value in enumerate(values):
                if value.name == name:
                    return role, value, Key((), -1, role, place), ()
        rows = list(zip(self.reading.keys, report.intermediates, strict=True))
        exact = [(k, v) for k, v in rows if v.name == name and (not isinstance(of, Value) or v == of)]
        labelled = [(k, v) for k, v in rows if v.label == name]
        lines = [(k, v) for k, v in rows if v.source is not None and v.source.short == name]
        found = exact or labelled or lines
        if not found:
            raise ShardvizError(f"why({name!r}): {self._none(name)}")
        best = min(found, key=lambda row: self._rank(row[1], axis, last=bool(lines) and not (exact or labelled)))
        others = [v for _, v in found if v is not best[1]]
        return "intermediate", best[1], best[0], tuple(_told(v) for v in others[:_LISTED])

    @staticmethod
    def _rank(value: Value, axis: str | None, *, last: bool) -> tuple[bool, bool, int]:
        """What is meant first: a value of the way forward, that the line assigns, that has the axis."""
        names = () if value.spec is None else tuple(map(axis_name, value.spec.axes))
        return phase(value.name_stack) != "forward", last and not value.label, 0 if axis is None or axis in names else 1

    def _none(self, name: str) -> str:
        labels = dict.fromkeys(v.label for v in self.report.intermediates if v.label)
        paths = [v.name for v in (*self.report.arguments, *self.report.outputs)]
        near = [n for n in (*labels, *paths) if name.lower() in n.lower()] or list(labels)
        listed = ", ".join(map(repr, near[:_LISTED]))
        return (
            f"the propagated report has no value of this name or line; there are {listed or 'none'}. Values are "
            "known by tree path, by the variable that a line assigns, by line (`model.py:20`), and by report name"
        )


def _named_axes(quarrel: Quarrel) -> set[str]:
    return set(map(axis_name, (*quarrel.chosen, *quarrel.wanted)))


def _alike(collective: Collective, report: Report) -> list[Collective]:
    """The collectives of a report that are of one kind, line and phase, over the same axes, on the same shape."""
    what = lambda c: (c.kind, c.axes, c.source, c.phase, c.dtype, c.made_by, c.read_by)  # noqa: E731
    return [c for c in report.collectives if what(c) == what(collective)]


def _added(comparison: Any) -> Iterator[str]:
    """What there is more of than before, the most bytes first."""
    for change in comparison.collectives:
        after = change.after
        if after is not None and change.bytes > 0:
            one = after.collectives[0]
            where = f" at {one.source.short}" if one.source else ""
            yield f"{one.kind} over {axes_words(one.axes)}{where}, {format_bytes(change.bytes)} more"


def _asked(trial: Perturbed, moved: Moving) -> tuple[list[Source], list[Source]]:
    """What a constraint or an output would have to leave out, and to say as well, so that nothing need be moved."""
    step, before = moved.step, moved.need.before
    if step is None or before is None:
        return [], []
    key = trial.base.keys[step.ins[1]]
    place, roles = (key.place, ("output",)) if step.kind == "output" else (key.tag, ("constraint", "type"))
    said = next((s for s in trial.said if s.role in roles and place in s.places), None)
    if said is None:
        return [], []

    def source(dim: int, axis: Axis) -> Source:
        line = {"role": said.role, "name": said.name, "source": said.source, "places": said.places}
        return Source(dimension=dim, axis=axis_name(axis), spec=before.with_dims(before.dims), **line)

    pairs = list(enumerate(zip(said.spec.dims, before.dims, strict=True)))
    gone = [source(d, a) for d, (old, new) in pairs for a in old if a not in new]
    return gone, [source(d, a) for d, (old, new) in pairs for a in new if a not in old]


def _bare(source: Source) -> str:
    """A source without its spec."""
    return source.text.removesuffix(f" {source.spec.canonical()}")


def _several(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and 3 others`."""
    shown = list(names[:2]) if len(names) > 3 else list(names[:-1])
    last = f"{len(names) - 2} others" if len(names) > 3 else names[-1]
    return f"{', '.join(shown)} and {last}" if shown else last


def _told(value: Value) -> str:
    where = f" at {value.source.short}" if value.source else ""
    return f"{value.name}{where} ({phase(value.name_stack)})"


def alike(of: Collective, among: Iterable[Collective]) -> Collective | None:
    """It, or the collective of another level that stands on the same line for the same: one of its kind over the same
    axes, that of the same array first, or another over them; of several the one that moves most.
    """
    among, key = list(among), (of.name, of.kind, of.axes, of.source)
    here = [c for c in among if c.source is not None and of.source is not None and c.source.short == of.source.short]
    for same in (
        [c for c in among if (c.name, c.kind, c.axes, c.source) == key],
        [c for c in here if (c.kind, c.axes, c.phase, c.array) == (of.kind, of.axes, of.phase, of.array)],
        [c for c in here if (c.kind, c.axes, c.phase) == (of.kind, of.axes, of.phase)],
        [c for c in here if (c.kind, c.axes) == (of.kind, of.axes)],
        [c for c in here if c.axes == of.axes],
    ):
        if same:
            return max(same, key=lambda c: c.assumed_bytes)
    return None
