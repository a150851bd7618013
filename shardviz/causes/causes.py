"""The causes of a mesh axis on a value, found by removing the axis at its sources; or the place where the axis stops.

A source is a place that states the axis: a dimension of an argument's or output's spec, or of a constraint. The graph
shows which sources can matter: those connected with the value through dimensions that carry the axis. Which of them
matter is tested: without all of them the value must lose the axis. Then a smallest set without which the axis is lost
is searched:

* one source: it is *needed*. If it does not bring the axis alone, it does so *only together* with others;
* several sources: each brings the axis without the others; the value is sharded because of *one of several*.

The chain from the first cause is a shortest path over dimensions that carry the axis, in the plan as it is and, if
tested, also without the other causes. A value on it then has the axis from this cause only.

For an axis that the value lacks, the graph is searched over dimensions without the axis until one has it. The axis
stops there, and the operation in between says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from shardviz.causes.links import DimLink, FactorRule, LinkStep, Named, Node, NodeDim, NodeKey, reach
from shardviz.causes.perturb import Perturbed, places_of
from shardviz.notation import DeviceMesh
from shardviz.notation.spec import axes_size, axis_name
from shardviz.records.why import AxisWhy, Cause, ChainStop, End, Hop, Source

_MOST_RUNS = 24
_MOST_REACHED = 4
_MOST_STOPS = 3
_BY_ITSELF = (
    "values on the way lose {axis!r} again, as another spec or constraint has it on another dimension of theirs: the "
    "steps are those of the program where nothing else says {axis!r}"
)
_UNTRIED = (
    "{} farther sources were taken away together with the others and not tried by themselves: that would take long"
)


def axis_why(trial: Perturbed, key: NodeKey, axis: str, named: Named) -> AxisWhy:
    """Explain why a mesh axis shards a value, or why it does not."""
    node = trial.base.node(key)
    target = next((cut for cut in node.dims if cut.carries(axis)), None)
    if target is not None:
        tracing = Tracing(trial, key, target, axis)
        causes, notes = tracing.causes()
        chain, more = tracing.chain(causes, named)
        notes += more
        return AxisWhy(value=named(node), axis=axis, dimension=target.dim, causes=causes, chain=chain, notes=notes)
    never = "" if node.shape else "it is a single number"
    if axis in node.manual:
        never = f"it is inside a shard_map over {axis}, along which every device has an array of its own"
    if never:
        return AxisWhy(value=named(node), axis=axis, dimension=None, notes=(never,))
    stops = [
        (distance, _stop(cut, nearer, link, axis=axis, mesh=trial.bound.mesh, named=named))
        for dim in node.dims
        for cut, (distance, nearer, link) in reach(dim, lambda _: True, even=True).items()
        if nearer and link and cut.carries(axis) and not nearer.carries(axis)
    ]
    nearest = {(s.last, s.next, s.source): s for _, s in sorted(stops, key=lambda each: each[0])}
    ends, many, notes = tuple(nearest.values())[:_MOST_STOPS], trial.bound.mesh.shape[axis], ()
    if not (ends or any(size % many == 0 for size in node.shape)):
        notes = (f"none of its dimensions {list(node.shape)} divides by {axis}={many}",)
    return AxisWhy(value=named(node), axis=axis, dimension=None, stops=ends, notes=notes)


def causes_of(trial: Perturbed, key: NodeKey, dim: int, axis: str) -> tuple[Source, ...]:
    """Return the sources that, removed together, take an axis off a value."""
    causes, _ = Tracing(trial, key, NodeDim(trial.base.node(key), dim), axis).causes()
    return tuple(cause.source for cause in causes)


class Tracing:
    """The search for the sources of an axis on a dimension of a value."""

    def __init__(self, trial: Perturbed, key: NodeKey, target: NodeDim, axis: str):
        self.trial, self.key, self.target, self.axis = trial, key, target, axis
        self._sources = trial.sources(axis)
        self._near = self._nearest(target, self._sources)
        self._until = trial.runs + _MOST_RUNS

    def causes(self) -> tuple[tuple[Cause, ...], tuple[str, ...]]:
        """Return the causes, nearest first, and the sources that were not tried."""
        near = self._in_order(self._near)
        if len(near) > 1 and self._is_lost(near[:1]):  # most often the nearest is all
            return self._needed(near[0], near[1:]), ()
        removed = self._widened(near)
        if not self._is_lost(removed):
            if not self._is_lost(self._sources):
                every = tuple(Cause(source=s, verdict="not tried") for s in removed)
                return every, ("the axis stays without every source",)
            removed = self._sources
        keep, untried = self._fewest(removed)
        if len(keep) == 1:
            return self._needed(keep[0], [s for s in removed if s is not keep[0]]), ()
        causes = tuple(self._one_of_several(source, keep, removed, source in untried) for source in keep)
        return causes, (_UNTRIED.format(len(untried)),) if untried else ()

    def _in_order(self, keys: Iterable[tuple]) -> list[Source]:
        sources = {s.key: s for s in self._sources}
        return [sources[key] for key in keys]

    def _widened(self, near: Sequence[Source]) -> list[Source]:
        """Return the near sources, and farther ones that they had hidden, until the value loses the axis without
        them."""
        removed = list(near)
        for _ in range(_MOST_REACHED):
            if self._is_lost(removed):
                break
            reached = self._nearest(self.trial.links(removed).dim(self.key, self.target.dim), self._sources)
            new = [source for source in self._in_order(reached) if source not in removed]
            if not new:
                break
            removed += new
        return removed

    def _one_of_several(self, source: Source, keep: list[Source], removed: list[Source], untried: bool) -> Cause:
        """Return the cause for one of several sources of the axis, and whether it is enough alone (None if not
        tried)."""
        enough: bool | None = None
        if len(keep) == len(removed) and not untried:
            enough = True  # `_fewest` has tried just this
        elif self._may_run():
            enough = not self._is_lost([s for s in removed if s is not source])
        return Cause(source=source, verdict="not tried" if untried else "one of several", enough=enough)

    def chain(self, causes: Sequence[Cause], named: Named) -> tuple[tuple[Hop, ...], tuple[str, ...]]:
        """Return the steps from the first cause to the value, and the causes that they leave out."""
        if not causes:
            return (), ()
        first, others = causes[0].source, tuple(c.source for c in causes[1:] if c.enough)
        start = self._near.get(first.key)
        if start == self.target:
            return (), ()
        if start is not None:
            alone = self.trial.links(others) if others else self.trial.base
            for links in dict.fromkeys((alone, self.trial.base)):

                def same(cut, links=links):
                    return links.dim(cut.node.key, cut.dim)

                def through(cut, same=same):
                    return self._carries(cut) and self._carries(same(cut))

                if hops := self._path(start, self.target, through, named):
                    return hops, ()
        return self._path_by_itself(causes, named)

    def _carries(self, cut: NodeDim | None) -> bool:
        return cut is not None and cut.carries(self.axis)

    def _path_by_itself(self, causes: Sequence[Cause], named: Named) -> tuple[tuple[Hop, ...], tuple[str, ...]]:
        """Return the chain in a program where only the causes state the axis. In the plan itself a value on the way may
        have lost the axis, because another source states it for another dimension of the value."""
        base, first = self.trial.base.nodes, causes[0].source

        def called(node):
            return named(base[node.key]) if node.key in base else str(node.key)

        for kept in ([c.source.key for c in causes], [first.key]):
            removed = tuple(s for s in self._sources if s.key not in kept)
            target = self.trial.links(removed).dim(self.key, self.target.dim) if removed else None
            if target is None or not self._carries(target):
                continue
            start = self._nearest(target, [first]).get(first.key)
            if start is not None and (hops := self._path(start, target, self._carries, called)):
                here = replace(hops[-1].after, spec=self.target.node.spec)
                return (*hops[:-1], replace(hops[-1], after=here)), (_BY_ITSELF.format(axis=self.axis),)
        return (), ()

    def _path(
        self, start: NodeDim, target: NodeDim, through: Callable[[NodeDim], bool], named: Named
    ) -> tuple[Hop, ...]:
        """Return the steps from one dimension to another, through dimensions that pass a test."""
        reached = reach(target, through)
        hops: list[Hop] = []
        while start in reached:
            _, nearer, link = reached[start]
            if nearer is None or link is None:
                break
            hops.append(_hop(start, nearer, link, named))
            start = nearer
        return tuple(hops)

    def _nearest(self, target: NodeDim | None, sources: Iterable[Source]) -> dict[tuple, NodeDim]:
        """Return the sources that are connected with a value along the axis, nearest first, each with its dimension."""
        wanted = {(s.role, place, s.dimension): s.key for s in sources for place in s.places}
        reached: dict[tuple, NodeDim] = {}

        def ends(cut: NodeDim) -> bool:  # what is said of an array holds; nothing comes through it
            here = [wanted[at] for where in places_of(cut.node) if (at := (*where, cut.dim)) in wanted]
            for key in here:
                reached.setdefault(key, cut)
            return bool(here)

        if target is not None:
            reach(target, self._carries, ends)
        return reached

    def _may_run(self) -> bool:
        return self.trial.runs < self._until

    def _is_lost(self, removed: Collection[Source]) -> bool:
        return not self.trial.holds(self.key, self.target.dim, self.axis, removed)

    def _needed(self, first: Source, rest: Sequence[Source]) -> tuple[Cause, ...]:
        """Return the causes when the first source is needed: of the others, those without which the first does not
        bring the axis."""
        if not rest or not self._is_lost(rest):
            return (Cause(source=first, verdict="needed", enough=True),)
        # with the first alone it is lost: which of the others must stay?
        stay, _ = self._least(
            rest, lambda tried: not self._is_lost([s for s in rest if s not in tried]), reversed(rest)
        )
        verdicts = ["needed" if self._is_lost([s]) else "only together" for s in stay]
        pairs = [(first, "needed"), *zip(stay, verdicts, strict=True)]
        return tuple(Cause(source=s, verdict=verdict, enough=False) for s, verdict in pairs)

    def _fewest(self, free: Sequence[Source]) -> tuple[list[Source], list[Source]]:
        """Return a smallest set of sources without which the axis is lost, and those in it that were not tried
        alone."""
        keep = list(free)
        half = len(keep) // 2
        while half > 1 and self._may_run():  # a needed one among many redundant ones is found by halves
            if not self._is_lost(keep[:half]):
                break
            keep, half = keep[:half], half // 2
        return self._least(keep, lambda rest: bool(rest) and self._is_lost(rest), keep)

    def _least(
        self, sources: Sequence[Source], will_do: Callable[[list[Source]], bool], order: Iterable[Source]
    ) -> tuple[list[Source], list[Source]]:
        """Return the sources without those that can be dropped one after the other while a condition holds; and those
        not tried."""
        keep, untried = list(sources), list(order)
        while untried and self._may_run():
            source = untried.pop(0)
            rest = [s for s in keep if s is not source]
            keep = rest if will_do(rest) else keep
        return keep, untried


_BOUNDARIES = {
    "call": ("call", "the function takes it as its argument"),
    "return": ("call", "the function gives it back"),
    "loop": ("loop", "the loop does not change its sharding"),
    "branch": ("branch", "each branch gives it back"),
    "manual": ("shard_map", "the shard_map does not change this axis"),
    "output": ("output", "the program gives it back"),
    "reshard": ("reshard", "the compiler reshards it and keeps this axis"),
    "constraint": ("sharding_constraint", "the constraint says this axis"),
    "same": ("barrier", "it is passed on as it is"),
}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def _end(cut: NodeDim, named: Named) -> End:
    return End(name=named(cut.node), dimension=cut.dim, spec=cut.node.spec, shape=cut.node.shape)


def _hop(before: NodeDim, after: NodeDim, link: DimLink, named: Named) -> Hop:
    step, rule = link.step, link.step.rule
    if rule is None or link.factor is None:
        op, words = _BOUNDARIES[step.kind]
        backwards = not step.upstream(after.node, before.node)
    else:
        op, (words, backwards) = step.name, _words(step, rule, before, after, link.factor)
    return Hop(
        op=op,
        rule="" if rule is None else rule.text,
        words=words,
        before=_end(before, named),
        after=_end(after, named),
        source=step.place.frame,
        backwards=backwards,
    )


def _words(step: LinkStep, rule: FactorRule, before: NodeDim, after: NodeDim, factor: int) -> tuple[str, bool]:
    """Return in words what an operation does with a dimension, and whether that leads from a result to an operand."""
    (gives, one), (taken, other) = (_called(step, cut, factor) for cut in (before, after))
    if gives and taken:
        return f"{one} and {other} {'are summed over together' if factor in rule.reduced else 'go together'}", False
    if not gives and not taken:
        return f"{one} and {other} are one of the operand", False
    return f"{one} is {other}", taken


def _called(step: LinkStep, cut: NodeDim, factor: int) -> tuple[bool, str]:
    """Return whether a dimension belongs to an operand, and its name; operands are numbered without scalars."""
    same = [n for n, (node, _) in enumerate(step.arrays) if node is cut.node]
    at = next(n for n in same if factor in step.arrays[n][1][cut.dim])
    operand = at < len(step.ins)
    first, last = (0, len(step.ins)) if operand else (len(step.ins), len(step.arrays))
    arrays = [n for n in range(first, last) if step.arrays[n][1]]
    number = arrays.index(at)
    which = "" if len(arrays) == 1 else f"{_ORDINALS[number] if number < len(_ORDINALS) else f'{number + 1}th'} "
    return operand, f"dimension {cut.dim} of the {which}{'operand' if operand else 'result'}"


def _stop(last: NodeDim, after: NodeDim, link: DimLink, *, axis: str, mesh: DeviceMesh, named: Named) -> ChainStop:
    step = link.step
    return ChainStop(
        last=_end(last, named),
        next=_end(after, named),
        op=step.name if step.kind == "rule" else step.kind,
        words=_reason(after, link, axis, mesh, named),
        source=step.place.frame,
    )


def _reason(cut: NodeDim, link: DimLink, axis: str, mesh: DeviceMesh, named: Named) -> str:
    """Return why a dimension does not take over an axis from its neighbour."""
    node, name, step = cut.node, named(cut.node), link.step
    spec = node.spec.canonical()
    if node.key.kind == "argument":
        return f"{name} is an argument, and is sharded as its spec says, {spec}"
    if node.key.kind == "output" and link.factor is None:
        return f"{name} is an output whose spec says {spec}"
    if step.kind == "reshard":
        return _wanted(node, named)
    if step.kind == "constraint":
        return f"the constraint there says {spec}"
    if taken := [other.dim for other in node.dims if other.carries(axis)]:
        return f"{name} is sharded along {axis} in dimension {taken[0]} already, and an axis shards an array once"
    here = node.spec.dims[cut.dim]
    ways = axes_size(here, mesh) * mesh.shape[axis]
    if node.shape[cut.dim] % ways:
        return f"dimension {cut.dim} of {name} has size {node.shape[cut.dim]}, which does not divide by {ways}"
    if step.rule is not None and link.factor in step.rule.whole:
        return f"{step.name} needs this dimension whole"
    if here:
        have = " and ".join(map(axis_name, here))
        return f"{have} shards dimension {cut.dim} of {name} already, and the two do not go together"
    return "Shardy preferred the sharding of another operand"


def _wanted(node: Node, named: Named) -> str:
    """Return why the compiler reshards a value before it is used."""
    spec = node.spec.canonical()
    for step in node.steps:
        frame = step.place.frame
        line = "an unknown line" if frame is None else frame.short
        if node in step.ins and step.kind == "constraint":
            return f"the constraint at {line} says {spec}"
        if step.kind == "output":
            return f"output {named(step.ins[1])} has the spec {spec}"
        if node in step.ins and step.kind == "rule":
            return f"{step.name} at {line} takes it as {spec}, which fits what else it takes and gives"
    return f"it is used as {spec}"
