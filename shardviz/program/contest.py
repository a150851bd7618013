"""Where shardings compete: an operation whose operands and result come cut in ways that it cannot have together.

Before Shardy settles how an operation computes, each of its arrays has a sharding. Along a factor of the operation's
rule they may differ: then one cut is chosen, and what is cut otherwise is moved. `quarrels` finds these; what the other
choice costs is found by forcing it, and propagating again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from shardviz.notation import Axis, DeviceMesh, Spec
from shardviz.notation.spec import axis_name, axis_size
from shardviz.program.chain import Named, op_name
from shardviz.program.links import Links, Rule, Step
from shardviz.program.perturb import Forced


class Quarrel(NamedTuple):
    """An operation's arrays disagree along one factor of its rule.

    Attributes:
        step: the operation.
        rule: its rule.
        factor: the factor.
        node: the array that wants it otherwise, as it comes.
        dim: the array's dimension along the factor.
        chosen, wanted: the axes that cut the factor as the operation computes, and as the array comes.
        votes: how many of the operation's arrays come cut as chosen, and as wanted, of those that have the factor.
        result: whether the array is the operation's result, which is then moved on.
    """

    step: Step
    rule: Rule
    factor: int
    node: int
    dim: int
    chosen: tuple[Axis, ...]
    wanted: tuple[Axis, ...]
    votes: tuple[int, int, int]
    result: bool = False


def quarrels(links: Links, step: Step) -> Iterator[Quarrel]:
    """Where an operation's arrays disagree: operands that are moved before it computes, and a result that is after."""
    rule = links.rule(step) if step.kind == "rule" else None
    if rule is None:
        return
    arrays = [
        *((node, links.origin(node), dims, False) for node, dims in zip(step.ins, rule.ins, strict=True)),
        *((node, _used_as(links, node), dims, True) for node, dims in zip(step.outs, rule.outs, strict=True)),
    ]
    for used, came, dims, result in arrays:
        if used == came:
            continue
        now, then = links.spec(used).dims, links.spec(came).dims
        for d, factors in enumerate(dims):
            if len(factors) != 1 or now[d] == then[d]:
                continue
            if not result and now[d][: len(then[d])] == then[d]:  # each device takes a part of what it has
                continue
            same = [links.spec(c).dims[e] for _, c, others, _ in arrays for e, f in enumerate(others) if f == factors]
            votes = sum(cut == now[d] for cut in same), sum(cut == then[d] for cut in same), len(same)
            yield Quarrel(step, rule, factors[0], came, d, now[d], then[d], votes, result)


def _used_as(links: Links, node: int) -> int:
    """A result as everything that reads it wants it, where that is one; else as it is made."""
    moved = [s.ins[1] for s in links.touching(node) if s.kind == "reshard" and s.ins[0] == node]
    others = [s for s in links.touching(node) if s.kind != "reshard" and links.maker(node) is not s]
    sums = [m for m in moved if links.spec(m).dims == links.spec(node).dims]  # an all-reduce of partial sums
    if len(moved) == 1 and not others and not sums:
        return _used_as(links, moved[0])
    return _used_as(links, sums[0]) if len(moved) == 1 and not others and sums else node


def axes_text(axes: tuple[Axis, ...]) -> str:
    """`uncut`, `cut along model`, `cut along data and model`."""
    return f"cut along {' and '.join(map(axis_name, axes))}" if axes else "uncut"


def quarrel_words(links: Links, quarrel: Quarrel, named: Named) -> str:
    """What each wanted, and why not both."""
    op, name, dim = op_name(links, quarrel.step), named(quarrel.node), f"dimension {quarrel.dim}"
    now, then = axes_text(quarrel.chosen), axes_text(quarrel.wanted)
    if quarrel.result:
        said = f"{op} makes {name} with {dim} {now}, and what reads it wants that {then}"
    else:
        said = f"{op} takes {name} with {dim} {now}, and it comes with that {then}"
    busy = _busy(links, quarrel, named)
    chosen, wanted, every = quarrel.votes
    return said + (
        busy or f"; of the operation's {every} arrays along this dimension {chosen} come {now}, {wanted} {then}"
    )


def _busy(links: Links, quarrel: Quarrel, named: Named) -> str:
    """Where the axis that was wanted is at work elsewhere in the operation; empty where it is not."""
    rule, step = quarrel.rule, quarrel.step
    missing = [axis_name(a) for a in quarrel.wanted if a not in quarrel.chosen]
    arrays = [*zip(step.ins, rule.ins, strict=True), *zip(step.outs, rule.outs, strict=True)]
    found = []
    for axis in missing:
        for node, dims in arrays:
            came = links.origin(node)
            for d, factors in enumerate(dims):
                if quarrel.factor not in factors and axis in map(axis_name, links.spec(node).dims[d]):
                    as_it_comes = axis in map(axis_name, links.spec(came).dims[d])
                    where = f"dimension {d} of {named(came)}"
                    found.append((came == quarrel.node, not as_it_comes, axis, where))
    if not found:
        return ""
    _, _, axis, where = min(found, key=lambda each: each[:2])
    return f"; {axis} is taken by {where}, another dimension of the operation, and an axis cuts only one of them"


def made_along(quarrel: Quarrel, node: int) -> int | None:
    """The dimension of an operation's result that is contested; None where it is none of its."""
    step = quarrel.step
    if node not in step.outs:
        return None
    dims = quarrel.rule.outs[step.outs.index(node)]
    return next((d for d, factors in enumerate(dims) if quarrel.factor in factors), None)


def choice(links: Links, quarrel: Quarrel, node: int) -> tuple[int, int, tuple[Forced, ...]]:
    """How the other choice is made: by constraints on the operation's result, or on what it sums over.

    Args:
        links: the plan propagated.
        quarrel: the disagreement.
        node: the value that was asked about; it is what is constrained, if the operation makes it.

    Returns:
        The value that stands for the choice, its contested dimension, and the constraints; none where nothing but the
        array that wants it otherwise has the dimension.
    """
    step, rule = quarrel.step, quarrel.rule
    for out in (node, *step.outs[:1]):
        dim = made_along(quarrel, out)
        if dim is not None:
            key = links.keys[out]
            return out, dim, (Forced(key.tag, key.place, wanted_spec(links, quarrel, out, dim)),)
    others = [
        (place, used, d)
        for place, (used, dims) in enumerate(zip(step.ins, rule.ins, strict=True))
        for d, factors in enumerate(dims)
        if quarrel.factor in factors and links.origin(used) != quarrel.node
    ]
    number = links.number(step)
    forced = tuple(
        Forced(number, place, wanted_spec(links, quarrel, links.origin(used), d), operand=True)
        for place, used, d in others
    )
    return (others[0][1], others[0][2], forced) if others else (quarrel.node, quarrel.dim, ())


def wanted_spec(links: Links, quarrel: Quarrel, node: int, dim: int) -> Spec:
    """A value's spec with what was wanted in its dimension, and those axes nowhere else."""
    spec, names = links.spec(node), set(map(axis_name, quarrel.wanted))
    dims = [tuple(a for a in axes if axis_name(a) not in names) for axes in spec.dims]
    dims[dim] = quarrel.wanted
    return Spec(tuple(dims))


def impossible(shape: tuple[int, ...], spec: Spec, mesh: DeviceMesh) -> str:
    """Why a value of this shape cannot be cut so; empty where it can."""
    for d, (size, axes) in enumerate(zip(shape, spec.dims, strict=True)):
        ways = 1
        for axis in axes:
            ways *= axis_size(axis, mesh)
        if size % ways:
            return f"dimension {d} has size {size}, which does not divide by {ways}"
    return ""
