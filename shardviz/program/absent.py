"""Why a mesh axis is not on a value: where it ends on its way there, and which spec would bring it.

From every dimension of the value the graph is followed over dimensions that have not the axis, until one has it: there
the axis ends, and what stands between says why. Specs of the arguments and constraints on the way are tried: with the
axis put in, Shardy propagates again, and the value has it or has it not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator

from shardviz.notation import DeviceMesh, Spec
from shardviz.notation.spec import axis_name, axis_size
from shardviz.program.chain import Named, end, op_name
from shardviz.program.links import Cut, Key, Links, Step
from shardviz.program.links import Hop as Link
from shardviz.program.perturb import Perturbed
from shardviz.records.why import Giver, Source, Stop

_MOST_STOPS = 3
_MOST_GIVERS = 3
_MOST_RUNS = 8


def absent(trial: Perturbed, key: Key, axis: str, named: Named) -> tuple[tuple[Stop, ...], tuple[Giver, ...]]:
    """Where an axis ends on its way to a value that has it not, and specs that would bring it, the nearest first.

    To be called with the trial entered.
    """
    links = trial.base
    node = links.nodes[key]
    stops: list[tuple[int, Stop]] = []
    ways: list[tuple[int, Cut, int]] = []
    for dim in range(links.rank(node)):
        far = _away(links, Cut(node, dim))
        for cut, (distance, before) in far.items():
            if before is not None and links.carries(cut, axis):
                nearer, link = before
                if not links.carries(nearer, axis):
                    stops.append((distance, _stop(links, cut, nearer, link, axis, trial.bound.mesh, named)))
            ways.append((distance, cut, dim))
    stops.sort(key=lambda each: each[0])
    unique = {(s.last, s.next, s.source): s for _, s in stops}
    return tuple(unique.values())[:_MOST_STOPS], _givers(trial, key, axis, sorted(ways))


def _away(links: Links, start: Cut) -> dict[Cut, tuple[int, tuple[Cut, Link] | None]]:
    """Every dimension that hangs together with one, with its distance."""
    found: dict[Cut, tuple[int, tuple[Cut, Link] | None]] = {start: (0, None)}
    left = deque([start])
    while left:
        cut = left.popleft()
        for link in links.hops(cut):
            if link.to not in found:
                found[link.to] = found[cut][0] + 1, (cut, link)
                left.append(link.to)
    return found


def _stop(links: Links, last: Cut, after: Cut, link: Link, axis: str, mesh: DeviceMesh, named: Named) -> Stop:
    step = links.steps[link.step]
    words = _reason(links, after, link, axis, mesh, named)
    op = op_name(links, step) if step.kind == "rule" else step.kind
    source = links.place_of(step).frame
    return Stop(last=end(links, last, named), next=end(links, after, named), op=op, words=words, source=source)


def _reason(links: Links, cut: Cut, link: Link, axis: str, mesh: DeviceMesh, named: Named) -> str:
    """Why a dimension does not take an axis from the one beside it."""
    key, spec, shape, name = links.keys[cut.node], links.spec(cut.node), links.shape(cut.node), named(cut.node)
    taken = [d for d, axes in enumerate(spec.dims) if d != cut.dim and axis in map(axis_name, axes)]
    here = tuple(spec.dims[cut.dim])
    if key.kind == "argument":
        return f"{name} is an argument, and is cut as its spec says, {spec.canonical()}"
    if key.kind == "output" and link.factor is None:
        return f"{name} is an output whose spec says {spec.canonical()}"
    step = links.steps[link.step]
    if step.kind == "reshard":
        return _needs(links, cut, named)
    if step.kind == "constraint":
        return f"the constraint there says {spec.canonical()}"
    if taken:
        return f"{name} is cut along {axis} in dimension {taken[0]} already, and an axis cuts an array once"
    ways = math.prod(axis_size(a, mesh) for a in here) * mesh.shape[axis]
    if shape[cut.dim] % ways:
        return f"dimension {cut.dim} of {name} has size {shape[cut.dim]}, which does not divide by {ways}"
    rule = links.rule(step)
    if rule is not None and link.factor in rule.whole:
        return f"{op_name(links, step)} needs this dimension whole"
    if here:
        have = " and ".join(map(axis_name, here))
        return f"{have} cuts dimension {cut.dim} of {name} already, and the two do not go together"
    return "an operand that is cut otherwise had more to say"


def _needs(links: Links, cut: Cut, named: Named) -> str:
    """Why the compiler moves a value before it is used."""
    spec = links.spec(cut.node).canonical()
    for step in links.touching(cut.node):
        if cut.node in step.ins and step.kind == "constraint":
            return f"the constraint at {_line(links, step)} says {spec}"
        if step.kind == "output":
            return f"output {named(step.ins[1])} has the spec {spec}"
        if cut.node in step.ins and step.kind == "rule":
            at = f"{op_name(links, step)} at {_line(links, step)}"
            return f"{at} takes it as {spec}, which fits what else it takes and gives"
    return f"it is used as {spec}"


def _line(links: Links, step: Step) -> str:
    frame = links.place_of(step).frame
    return "an unknown line" if frame is None else frame.short


def _givers(trial: Perturbed, key: Key, axis: str, ways: list[tuple[int, Cut, int]]) -> tuple[Giver, ...]:
    """Specs that were tried and bring the axis, the nearest first."""
    mesh = trial.bound.mesh
    written = trial.sources(axis)
    found: list[Giver] = []
    runs = trial.runs + _MOST_RUNS
    for source, was, shape, dim in _candidates(trial, ways, axis):
        if len(found) >= _MOST_GIVERS or trial.runs >= runs:
            break
        ways_cut = math.prod(axis_size(a, mesh) for a in source.spec.dims[source.dimension])
        if shape[source.dimension] % ways_cut or any(g.source.key == source.key for g in found):
            continue
        gone = [s for s in written if (s.role, s.places) == (source.role, source.places)]
        if trial.holds(key, dim, axis, gone, (source,)):
            found.append(Giver(source=source, was=was, dimension=dim))
    return tuple(found)


def _candidates(
    trial: Perturbed, ways: list[tuple[int, Cut, int]], axis: str
) -> Iterator[tuple[Source, Spec, tuple[int, ...], int]]:
    """Sources that would say the axis, with the spec that they have, their array's shape, and the value's dimension."""
    links = trial.base
    lines = {(role, place): s for s in trial.said for role, place in [(s.role, p) for p in s.places]}
    for _, cut, dim in ways:
        node = links.keys[cut.node]
        roles = [(node.kind, node.place)] if node.kind in ("argument", "output") else [("constraint", node.tag)]
        if node.kind.startswith("inside"):
            continue
        for role, place in roles:
            line = lines.get((role, place))
            if line is None or links.carries(cut, axis):
                continue
            dims = [tuple(a for a in axes if axis_name(a) != axis) for axes in line.spec.dims]
            dims[cut.dim] = (*dims[cut.dim], axis)
            new = Spec(tuple(dims))
            source = Source(
                role=role,
                name=line.name,
                dimension=cut.dim,
                axis=axis,
                spec=new,
                source=line.source,
                places=line.places,
            )
            yield source, line.spec, links.shape(cut.node), dim
