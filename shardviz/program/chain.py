"""The chain from a cause to a value: operation by operation, which dimension hands its axis to which.

A chain is a shortest path of `Links` over dimensions that carry the axis, in the plan as it is and, where that was
tried, with the other causes taken away too: so that what is on it has the axis from its cause and from nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from shardviz.program.links import Cut, Links, Rule, Step
from shardviz.program.links import Hop as Link
from shardviz.records.why import End, Hop

Named = Callable[[int], str]

_BOUNDARIES = {
    "call": ("call", "the function takes it as its argument"),
    "return": ("call", "the function gives it back"),
    "loop": ("loop", "the loop carries it, or takes it, as it is"),
    "branch": ("branch", "each branch gives it back"),
    "manual": ("shard_map", "the shard_map leaves this axis as it is"),
    "output": ("output", "the program gives it back"),
    "reshard": ("reshard", "the compiler moves it and keeps this axis"),
    "constraint": ("sharding_constraint", "the constraint says this axis"),
    "same": ("barrier", "it is passed on as it is"),
}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def chain(
    links: Links, target: Cut, source: Cut, axis: str, named: Named, also: Callable[[Cut], bool] | None = None
) -> tuple[Hop, ...]:
    """The steps from a source to a target, each handing the axis on.

    Args:
        links: the propagated program.
        target, source: dimensions that carry the axis.
        axis: the mesh axis.
        named: what a node is called.
        also: whether a dimension carries it in another run too; where no path goes over such alone, it is not asked.
    """
    for test in ([lambda c: links.carries(c, axis) and also(c)] if also else []) + [lambda c: links.carries(c, axis)]:
        found = links.reach(target, test)
        if source in found:
            break
    else:
        return ()
    hops: list[Hop] = []
    cut = source
    while (before := found[cut]) is not None:
        nearer, link = before
        hops.append(hop(links, cut, nearer, link, named))
        cut = nearer
    return tuple(hops)


def end(links: Links, cut: Cut, named: Named) -> End:
    """A value on a chain."""
    return End(name=named(cut.node), dimension=cut.dim, spec=links.spec(cut.node), shape=links.shape(cut.node))


def hop(links: Links, before: Cut, after: Cut, link: Link, named: Named) -> Hop:
    """A step in plain data."""
    step = links.steps[link.step]
    place = links.place_of(step)
    rule = links.rule(step) if step.kind == "rule" else None
    if rule is None:
        op, words = _BOUNDARIES.get(step.kind, (step.kind, ""))
        backwards = not links.upstream(link.step, after.node, before.node)
    else:
        words, backwards = _words(step, rule, before, after, link.factor)
        op = op_name(links, step)
    return Hop(
        op=op,
        rule="" if rule is None else rule.text,
        words=words,
        before=end(links, before, named),
        after=end(links, after, named),
        source=place.frame,
        backwards=backwards,
    )


def op_name(links: Links, step: Step) -> str:
    """What JAX calls an operation."""
    if step.op.name in ("sdy.reshard", "sdy.sharding_constraint"):
        return "sharding_constraint"
    return links.place_of(step).op.split("[")[0] or step.op.name.split(".", 1)[1]


def _words(step: Step, rule: Rule, before: Cut, after: Cut, factor: int | None) -> tuple[str, bool]:
    """What an operation does with a dimension, and whether that goes from a result to an operand."""
    came, went = _sides(step, before.node, rule, before.dim, factor), _sides(step, after.node, rule, after.dim, factor)
    if came is None or went is None or factor is None:
        return "it hands the dimension on", False
    (from_operand, i), (to_operand, j) = came, went
    one, other = (
        _called(rule, from_operand, i, before.dim),
        _called(rule, to_operand, j, after.dim),
    )
    if from_operand and not to_operand:
        return f"{one} is {other}", False
    if not from_operand and to_operand:
        return f"{one} is {other}", True
    if from_operand:
        return f"{one} and {other} {'are summed over together' if factor in rule.reduced else 'go together'}", False
    return f"{one} and {other} are one of the operand", False


def _sides(step: Step, node: int, rule: Rule, dim: int, factor: int | None) -> tuple[bool, int] | None:
    """Whether a node is an operand, and which; of several places the first whose dimension is along the factor."""
    for operand, nodes in ((True, step.ins), (False, step.outs)):
        for place, each in enumerate(nodes):
            if each == node and dim < len(dims := rule.dims(operand, place)) and factor in dims[dim]:
                return operand, place
    return None


def _called(rule: Rule, operand: bool, place: int, dim: int) -> str:
    """A dimension in words; numbers that an operation takes besides its arrays are not counted."""
    arrays = [n for n, dims in enumerate(rule.ins if operand else rule.outs) if dims]
    what, number = "operand" if operand else "result", arrays.index(place)
    which = "" if len(arrays) == 1 else f"{_ORDINALS[number] if number < len(_ORDINALS) else f'{number + 1}th'} "
    return f"dimension {dim} of the {which}{what}"
