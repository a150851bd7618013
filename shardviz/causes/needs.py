"""Competing shardings, and the reason for a collective: what it moves, and which operation needs that.

Before Shardy decides how an operation computes, each of its arrays has a sharding. These may differ along a factor of
the operation's rule. Then Shardy chooses one of them and reshards the arrays that differ. `quarrels` finds these
places. The cost of the other choice is found by forcing it and propagating again.

A collective of Shardy's is between the operation that makes a value and the one that reads it, possibly with other
collectives. The graph (`shardviz.causes.links`) has all three: the resharded value, the reshard, and the operation that
reads the result, whose rule says which dimensions it uses together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from shardviz.causes.links import Links, LinkStep, Named, Node, NodeDim, NodeKey
from shardviz.causes.perturb import Forced
from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axes_size, axis_name
from shardviz.records import Collective
from shardviz.records.why import Need


class Quarrel(NamedTuple):
    """An operation whose arrays disagree along one factor of its rule."""

    step: LinkStep  # the operation
    factor: int
    node: Node  # the array that is sharded otherwise, before it is resharded
    dim: int  # its dimension along the factor
    chosen: tuple[Axis, ...]  # what shards the factor as the operation computes
    wanted: tuple[Axis, ...]  # ... and in the array before
    # how many of the operation's arrays come sharded as chosen, and as wanted, and how many have the factor
    votes: tuple[int, int, int]
    result: bool = False  # the array is the operation's result, which is resharded afterwards

    @property
    def axes(self) -> set[str]:
        """The mesh axes about which the arrays disagree."""
        return set(map(axis_name, (*self.chosen, *self.wanted)))

    def dim_of(self, node: Node) -> int | None:
        """Return the contested dimension of one of the operation's results; None for other values."""
        results = (dims for each, dims in self.step.arrays[len(self.step.ins) :] if each is node)
        return next((d for d, factors in enumerate(next(results, ())) if self.factor in factors), None)

    def words(self, named: Named) -> str:
        """Return in words which sharding each array needs, and why both are impossible."""
        op, name, dim = self.step.name, named(self.node), f"dimension {self.dim}"
        now, then = axes_text(self.chosen), axes_text(self.wanted)
        if self.result:
            both = f"{op} makes {name} with {dim} {now}, and what reads it wants that {then}"
        else:
            both = f"{op} takes {name} with {dim} {now}, and gets it with that dimension {then}"
        if busy := list(self._busy(named)):
            _, _, axis, where = min(busy, key=lambda each: each[:2])
            taken = f"{axis} is taken by {where}, another dimension of the operation"
            return f"{both}; {taken}, and an axis shards only one of them"
        chosen, wanted, every = self.votes
        arrays = f"of the operation's {every} arrays along this dimension {chosen} come {now}, {wanted} {then}"
        return f"{both}; {arrays}"

    def _busy(self, named: Named) -> Iterator[tuple[bool, bool, str, str]]:
        """Yield wanted axes that shard other dimensions: whether of the same array, whether only after a reshard, the
        axis, and the place."""
        for axis in [axis_name(a) for a in self.wanted if a not in self.chosen]:
            for node, dims in self.step.arrays:
                came = node.origin
                for d, factors in enumerate(dims):
                    if self.factor not in factors and NodeDim(node, d).carries(axis):
                        where = f"dimension {d} of {named(came)}"
                        yield came is self.node, not NodeDim(came, d).carries(axis), axis, where

    def choice(self, node: Node) -> tuple[Node, int, tuple[Forced, ...]]:
        """Return constraints that force the other choice, on the operation's result or on the operands that it sums
        over: the value that stands for the choice, its contested dimension, and the constraints. There are none if only
        the array that prefers the other sharding has the dimension. The requested value is constrained itself if the
        operation makes it."""
        for out in (node, *self.step.outs[:1]):
            if (dim := self.dim_of(out)) is not None:
                return out, dim, (Forced(out.key.tag, out.key.place, self._wanted_spec(out, dim)),)
        others = [
            (place, used, d)
            for place, (used, dims) in enumerate(self.step.arrays[: len(self.step.ins)])
            for d, factors in enumerate(dims)
            if self.factor in factors and used.origin is not self.node
        ]
        forced = tuple(
            Forced(self.step.number, place, self._wanted_spec(used.origin, d), operand=True)
            for place, used, d in others
        )
        return (others[0][1], others[0][2], forced) if others else (self.node, self.dim, ())

    def _wanted_spec(self, node: Node, dim: int) -> Spec:
        """Return a value's spec with the wanted axes in its dimension, and in no other dimension."""
        names = set(map(axis_name, self.wanted))
        dims = [tuple(a for a in axes if axis_name(a) not in names) for axes in node.spec.dims]
        dims[dim] = self.wanted
        return Spec(tuple(dims))


def quarrels(step: LinkStep) -> Iterator[Quarrel]:
    """Yield the operations whose arrays disagree: operands that are resharded before it, and results that are resharded
    after it."""
    arrays = [
        (node, _used_as(node) if (result := n >= len(step.ins)) else node.origin, dims, result)
        for n, (node, dims) in enumerate(step.arrays)
    ]
    for used, came, dims, result in arrays:
        now, then = used.spec.dims, came.spec.dims
        for d, factors in enumerate(dims):
            if used is came or len(factors) != 1 or now[d] == then[d]:
                continue
            if not result and now[d][: len(then[d])] == then[d]:  # each device takes a part of what it has
                continue
            same = [c.spec.dims[e] for _, c, others, _ in arrays for e, f in enumerate(others) if f == factors]
            votes = same.count(now[d]), same.count(then[d]), len(same)
            yield Quarrel(step, factors[0], came, d, now[d], then[d], votes, result)


def _used_as(node: Node) -> Node:
    """Return a result as all its readers reshard it, if they agree; otherwise as it is made."""
    moved = [s.ins[1] for s in node.steps if s.kind == "reshard" and s.ins[0] is node]
    others = [s for s in node.steps if s.kind != "reshard" and s is not node.maker]
    return _used_as(moved[0]) if len(moved) == 1 and not others else node


def quarrels_of(node: Node, is_named: Callable[[Node], bool] = lambda _: True) -> list[Quarrel]:
    """Return the disagreements of the operation that makes a value, and of its readers. Values without their own name
    count as steps towards the value."""
    every = [q for n in _unnamed(node, is_named) if n.maker for q in quarrels(n.maker) if q.dim_of(n) is not None]
    every += [q for _, step in node.readers() for q in quarrels(step) if q.node is node and not q.result]
    return list({(q.step.op, q.factor, q.wanted): q for q in reversed(every)}.values())[::-1]


def _unnamed(node: Node, is_named: Callable[[Node], bool]) -> Iterator[Node]:
    """Yield a value, and the unnamed values of its shape that it is made from, such as the product in `relu(x @ w)`."""
    way = {node: None}
    for each in (queue := list(way)):
        yield each
        into = [s for s in each.steps if s.kind in ("call", "return") and s.ins[-1] is each]
        for step in into if each.maker is None else [each.maker] if each.maker.kind != "constraint" else ():
            new = [n for n in step.ins if n.shape == node.shape and n not in way and n is not each and not is_named(n)]
            way.update(dict.fromkeys(new))
            queue += new


def axes_text(axes: tuple[Axis, ...]) -> str:
    return f"sharded along {' and '.join(map(axis_name, axes))}" if axes else "not sharded"


def impossible(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> str:
    """Return why a value of this shape cannot be sharded so; empty if it can."""
    for d, (size, axes) in enumerate(zip(shape, spec.dims, strict=True)):
        if size % (ways := axes_size(axes, mesh)):
            return f"dimension {d} has size {size}, which does not divide by {ways}"
    return ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Reason:
    """The reason for a collective: the dimensions of the moved or summed value that its mesh axes shard, the
    disagreement that it settles, the operation that needs it (None if there is none), and `rivals`, the dimensions of
    the operation's other arrays that the same axes shard."""

    need: Need
    axes: tuple[tuple[str, NodeDim], ...] = ()
    quarrel: Quarrel | None = None
    step: LinkStep | None = None
    rivals: tuple[tuple[str, NodeDim], ...] = ()

    @classmethod
    def of(cls, kind: str, words: str, value: str, step: LinkStep | None = None, op: str = "", **fields: Any) -> Reason:
        """Return a reason; an operation adds its line and rule."""
        ends = {name: fields.pop(name, None) for name in ("before", "after")}
        rule, frame = ("", None) if step is None else (step.rule.text if step.rule else "", step.place.frame)
        need = Need(kind=kind, words=words, value=value, op=op, rule=rule, source=frame, **ends)
        return cls(need=need, step=step, **fields)


def reason(links: Links, moved: NodeKey, collective: Collective, named: Named) -> Reason:
    """Return the reason for a collective."""
    kind = collective.kind
    ends: dict[str, Any] = {"before": collective.before, "after": collective.after}
    if collective.origin == "user":
        words = f"the program itself says {kind} there, inside a shard_map."
        return Reason.of("said", words, collective.operand or "an array", op=kind)
    node = links.nodes.get(moved)
    if node is None:
        return Reason.of("other", "it communicates a value that the compiler made itself.", "a value", **ends)
    axes = tuple(map(axis_name, collective.axes or ()))
    step = node.maker
    several = step is not None and step.op.name == "stablehlo.reduce" and len(step.outs) > 1
    if step and (several or kind in ("all-reduce", "reduce-scatter")) and (sums := _summed(step, axes)):
        return _partial(node, step, sums, named)
    return _reshard(node, collective, axes, named)


def _summed(step: LinkStep, axes: tuple[str, ...]) -> list[tuple[str, NodeDim]]:
    """Return the operands' dimensions that an operation sums over and that these axes shard."""
    return [
        (axis, cut)
        for node, dims in step.arrays[: len(step.ins)]
        for cut, factors in zip(node.dims, dims, strict=False)
        if step.rule is not None and not step.rule.reduced.isdisjoint(factors)
        for axis in axes
        if cut.carries(axis)
    ]


def _partial(node: Node, step: LinkStep, sums: list[tuple[str, NodeDim]], named: Named) -> Reason:
    parts = [f"dimension {cut.dim} of {named(cut.node.origin)}" for _, cut in sums]
    summed = tuple(dict.fromkeys(axis for axis, _ in sums))
    over, along = " and ".join(dict.fromkeys(parts)), " and ".join(summed)
    cut = f"which {'is' if len(set(parts)) == 1 else 'are'} sharded along {along}"
    value = named(node)
    several = len(step.outs) > 1
    does = "goes" if several else "sums"
    each = f"each device has the {'answer' if several else 'sum'} of its own part; all are "
    each += "gathered, and reduced again to give" if several else "added to give"
    words = f"{step.name} {does} over {over}, {cut}: {each} {value}."
    origins = ((axis, NodeDim(cut.node.origin, cut.dim)) for axis, cut in sums)
    kept = tuple((axis, cut) for axis, cut in origins if cut.carries(axis))
    ends = {"before": replace(node.spec, unreduced=summed), "after": node.spec}
    return Reason.of("partial sums", words, value, step, op=step.name, axes=kept, **ends)


_BOUNDARIES = {"loop": "the loop", "branch": "the branches", "manual": "the shard_map"}


def _reshard(node: Node, collective: Collective, axes: tuple[str, ...], named: Named) -> Reason:
    """Return the reason for a collective that reshards a value for its reader."""
    value, before, shown = named(node), node.spec, node.spec.canonical()
    step, after = _needing(node, collective)
    quarrel, rivals = None, ()
    if step is None:
        kind, op, after = "other", "", collective.after
        words = f"{value} is read with another sharding than it is made with."
    elif step.kind == "constraint":
        kind, op = "constraint", "sharding_constraint"
        words = f"the constraint asks for {after.canonical()}, and {value} is made as {shown}."
    elif step.kind == "output":
        kind = op = "output"
        back = named(step.ins[1])
        words = f"the program gives it back as {back}, which is to be {after.canonical()}; it is {shown}."
    elif step.kind != "rule":
        kind, op = "boundary", step.kind
        words = f"{_BOUNDARIES.get(step.kind, 'the function')} takes it as {after.canonical()}, and it is {shown}."
    else:
        op = step.name
        own = [q for q in quarrels(step) if q.node is node and not q.result]
        quarrel = next((q for q in own if set(map(axis_name, q.wanted)) & set(axes)), own[0] if own else None)
        if quarrel is None or step.rule is None:
            kind, words = "other", f"{op} takes {value} as {after.canonical()}, but it is made as {shown}."
        elif quarrel.factor in step.rule.whole:
            wanted = axes_text(quarrel.wanted)
            kind, words = "unsharded", f"{op} needs dimension {quarrel.dim} of {value} whole, which is {wanted}."
        else:
            kind, words = "disagree", quarrel.words(named) + "."
            others = dict.fromkeys(each.origin for each in (*step.ins, *step.outs) if each.origin is not node)
            cuts = [cut for each in others for cut in each.dims]
            rivals = tuple((axis, cut) for cut in cuts for axis in axes if cut.carries(axis))
    ends = {"before": before, "after": after, "op": op}
    own_cuts = tuple((axis, cut) for axis in axes for cut in node.dims if cut.carries(axis))
    return Reason.of(kind, words, value, step, axes=own_cuts, quarrel=quarrel, rivals=rivals, **ends)


def _needing(node: Node, collective: Collective) -> tuple[LinkStep | None, Spec]:
    """Return the operation that reads a value with another sharding, and that sharding, for the step that this
    collective performs."""
    readers = [(used, step) for used, step in node.readers() if used is not node or step.kind == "constraint"]
    for used, step in readers:
        after = step.ins[1].spec if step.kind == "constraint" else used.spec
        between = _names(after) | _names(node.spec)  # a spec on the way has no axis that neither end has
        if after.dims != node.spec.dims and (collective.after is None or _names(collective.after) <= between):
            return step, after
    for _, step in readers:  # behind a constraint that changes nothing
        if step.kind == "constraint" and step.ins[1].spec.dims == node.spec.dims:
            needing = _needing(step.ins[1], collective)
            if needing[0] is not None:
                return needing
    return None, Spec()


def _names(spec: Spec) -> set[str]:
    return {axis_name(a) for dim in spec.dims for a in dim}
