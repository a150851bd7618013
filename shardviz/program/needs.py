"""Why a collective is there: what it moves, which operation needs that, and what of its rule asks for it.

A collective of Shardy's stands between the operation that makes a value and the one that reads it, alone or among
others. Which these are says the graph (`shardviz.program.links`): the value that is moved, the reshard after it, and
the operation behind that, whose rule says what it takes together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardviz.notation import Spec
from shardviz.notation.spec import axis_name
from shardviz.program.chain import Named, op_name
from shardviz.program.contest import Quarrel, axes_text, quarrel_words, quarrels
from shardviz.program.graph import MlirOperation
from shardviz.program.links import Cut, Key, Links, Step, number_of
from shardviz.program.numbered import Moved
from shardviz.records import Collective
from shardviz.records.why import Need


@dataclass(frozen=True, eq=False)
class Found:
    """What was found out of a collective.

    Attributes:
        need: why it is there.
        axes: the dimensions that its mesh axes cut in what it moves, or in what it sums: where they come from.
        quarrel: the disagreement that it settles; None for another reason.
        step: the operation that needs it; None where it is not in the graph.
        rivals: the dimensions of the operation's other arrays that the same axes cut.
    """

    need: Need
    axes: tuple[tuple[str, Cut], ...] = ()
    quarrel: Quarrel | None = None
    step: Step | None = None
    rivals: tuple[tuple[str, Cut], ...] = ()


def need(links: Links, moved: Moved, collective: Collective, named: Named) -> Found:
    """Why a collective is there.

    Args:
        links: the plan propagated.
        moved: the collective in the module that has the collectives.
        collective: its record.
        named: what a node is called.
    """
    if collective.origin == "user":
        words = f"the program itself says {collective.kind} there, inside a shard_map."
        return Found(_need("said", collective.kind, words, None, links, collective.operand or "an array", None, None))
    node = _root(links, moved)
    if node is None:
        words = "it moves what the compiler made itself."
        return Found(_need("other", "", words, None, links, "a value", collective.before, collective.after))
    axes = tuple(map(axis_name, collective.axes or ()))
    maker = links.maker(node)
    if collective.kind in ("all-reduce", "reduce-scatter") and maker is not None and maker.kind == "rule":
        sums = list(_summed(links, maker, axes))
        if sums:
            return _partial(links, node, maker, sums, named)
    return _reshard(links, node, collective, axes, named)


def _need(
    kind: str, op: str, words: str, step: Step | None, links: Links, value: str, before: Spec | None, after: Spec | None
) -> Need:
    rule = links.rule(step) if step is not None and step.kind == "rule" else None
    source = None if step is None else links.place_of(step).frame
    text = "" if rule is None else rule.text
    return Need(kind=kind, op=op, words=words, rule=text, source=source, value=value, before=before, after=after)


def _root(links: Links, moved: Moved) -> int | None:
    """The node of what a collective moves, before all collectives on its way."""
    value = moved.op.operands[0]
    calls = tuple(number_of(call) for call in moved.around.calls)
    while isinstance(owner := value.owner, MlirOperation) and owner.name.startswith("sdy.") and owner.operands:
        if number_of(owner) != -2 and owner.name != "sdy.reshard":
            break
        value = owner.operands[0]
    if isinstance(owner, MlirOperation):
        key = Key(calls, number_of(owner), "result", value.index)
    elif owner.name:  # a function
        key = Key(calls, -1, "inside 0", value.index) if calls else Key((), -1, "argument", value.index)
    else:
        (around,) = owner.callers
        key = Key(calls, number_of(around), f"inside {around.blocks.index(owner)}", value.index)
    return links.nodes.get(key)


# Partial sums.


def _summed(links: Links, step: Step, axes: tuple[str, ...]) -> Iterator[tuple[str, Cut]]:
    """The dimensions of an operation's operands that it sums over and these axes cut."""
    rule = links.rule(step)
    for node, dims in zip(step.ins, rule.ins, strict=True) if rule is not None else ():
        for d, factors in enumerate(dims):
            if rule is not None and not rule.reduced.isdisjoint(factors):
                for axis in axes:
                    if links.carries(Cut(node, d), axis):
                        yield axis, Cut(node, d)


def _partial(links: Links, node: int, step: Step, sums: list[tuple[str, Cut]], named: Named) -> Found:
    op, value = op_name(links, step), named(node)
    parts = [f"dimension {cut.dim} of {named(links.origin(cut.node))}" for _, cut in sums]
    over = " and ".join(dict.fromkeys(parts))
    along = " and ".join(dict.fromkeys(axis for axis, _ in sums))
    cut = f"which {'is' if len(set(parts)) == 1 else 'are'} cut along {along}"
    words = f"{op} sums over {over}, {cut}: each device has the sum of its own part; all are added to give {value}."
    origins = tuple((axis, Cut(links.origin(cut.node), cut.dim)) for axis, cut in sums)
    kept = tuple(each for each in origins if links.carries(each[1], each[0]))
    spec = links.spec(node)
    before = replace(spec, unreduced=tuple(dict.fromkeys(axis for axis, _ in sums)))
    found = _need("partial sums", op, words, step, links, value, before, spec)
    return Found(found, kept, step=step)


# Reshards.


def _reshard(links: Links, node: int, collective: Collective, axes: tuple[str, ...], named: Named) -> Found:
    value, before = named(node), links.spec(node)
    cuts = tuple(
        (axis, Cut(node, d)) for axis in axes for d in range(links.rank(node)) if links.carries(Cut(node, d), axis)
    )
    step, after = _needing(links, node, collective)
    if step is None:
        words = f"{value} is used cut otherwise than it is made."
        return Found(_need("other", "", words, None, links, value, before, collective.after), cuts)
    shown = before.canonical()
    if step.kind == "constraint":
        words = f"the constraint asks for {after.canonical()}, and {value} is made as {shown}."
        return Found(
            _need("constraint", "sharding_constraint", words, step, links, value, before, after), cuts, step=step
        )
    if step.kind == "output":
        words = f"the program gives it back as {named(step.ins[1])}, which is to be {after.canonical()}; it is {shown}."
        return Found(_need("output", "output", words, step, links, value, before, after), cuts, step=step)
    if step.kind != "rule":
        what = {"loop": "the loop", "branch": "the branches", "manual": "the shard_map"}.get(step.kind, "the function")
        words = f"{what} takes it as {after.canonical()}, and it is {shown}."
        return Found(_need("boundary", step.kind, words, step, links, value, before, after), cuts, step=step)
    op, rule = op_name(links, step), links.rule(step)
    own = [q for q in quarrels(links, step) if q.node == node and not q.result]
    quarrel = next((q for q in own if set(map(axis_name, q.wanted)) & set(axes)), own[0] if own else None)
    if quarrel is None or rule is None:
        words = f"{op} takes {value} as {after.canonical()}, and it is made as {shown}."
        return Found(_need("other", op, words, step, links, value, before, after), cuts, step=step)
    if quarrel.factor in rule.whole:
        words = f"{op} needs dimension {quarrel.dim} of {value} whole, which is {axes_text(quarrel.wanted)}."
        return Found(_need("uncut", op, words, step, links, value, before, after), cuts, quarrel, step)
    words = quarrel_words(links, quarrel, named) + "."
    rivals = tuple(_rivals(links, step, node, axes))
    return Found(_need("disagree", op, words, step, links, value, before, after), cuts, quarrel, step, rivals)


def _needing(links: Links, node: int, collective: Collective) -> tuple[Step | None, Spec]:
    """The operation that reads a value otherwise than it is made, and how; the one that this collective is for."""
    readers = [(used, step) for used, step in links.readers(node) if used != node or step.kind == "constraint"]
    for used, step in readers:
        after = links.spec(step.ins[1]) if step.kind == "constraint" else links.spec(used)
        moves = after.dims != links.spec(node).dims
        if moves and (collective.after is None or _towards(collective.after, after, links.spec(node))):
            return step, after
    for _, step in readers:  # behind a constraint that changes nothing
        if step.kind == "constraint" and links.spec(step.ins[1]).dims == links.spec(node).dims:
            found = _needing(links, step.ins[1], collective)
            if found[0] is not None:
                return found
    return None, Spec()


def _towards(step: Spec, after: Spec, before: Spec) -> bool:
    """Whether a spec may lie on the way from one to another: it has no axis in a place where neither has it."""
    return all(
        set(map(axis_name, mid)) <= {axis_name(a) for dim in (*after.dims, *before.dims) for a in dim}
        for mid in step.dims
    )


def _rivals(links: Links, step: Step, node: int, axes: tuple[str, ...]) -> Iterator[tuple[str, Cut]]:
    """The dimensions of an operation's other arrays, as they come, that the same axes cut."""
    for each in (*step.ins, *step.outs):
        came = links.origin(each)
        for d in range(links.rank(came)):
            for axis in axes:
                if came != node and links.carries(Cut(came, d), axis):
                    yield axis, Cut(came, d)
