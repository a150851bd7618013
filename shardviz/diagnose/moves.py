"""Rules about avoidable communication. `findings.BRIEFS` describes each in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from shardviz.costs.orders import Order, orders
from shardviz.diagnose.case import Case, and_others, at_line, by_hand, moved_words, quoted_axes, severity
from shardviz.diagnose.policy import GRAVE, TINY
from shardviz.diagnose.specs import divides, steps_along, suggest_specs
from shardviz.notation import Axis
from shardviz.notation.spec import axis_name
from shardviz.records import Collective, Finding, Suggestion
from shardviz.records.amounts import format_bytes, format_seconds, plural
from shardviz.records.groups import grouped

_ALONG = {
    "reshape": "reshape",
    "pad": "pad",
    "concatenate": "concatenate",
    "slice": "slice",
    "reverse": "flip",
    "dynamic_slice": "slice",
    "dynamic_update_slice": "update in place",
}
"""Operations that cannot run along a sharded dimension → the JAX user's name for them."""


def slow_order(case: Case) -> Iterator[Finding]:
    """Find a device order that saves a twentieth of the step in communication."""
    cost = case.cost
    if cost is None or not case.step or cost.unknown or cost.machine.chip.kind == "cpu":
        return
    tried = orders(cost)
    now = next((order for order in tried if order.now), None)
    best = min(tried, key=lambda order: order.communication, default=None)
    if now is None or best is None or now.communication - best.communication < GRAVE * case.step:
        return
    saved = now.communication - best.communication
    heaviest = cost.by("axes")[0]
    route = cost.placement.route(heaviest.axes) if heaviest.axes else None
    where = f" over {heaviest.label!r} ({route})" if route is not None else ""
    exposed = None if cost.timed is None else sum(each.seconds for each in cost.timeline.exposed)
    yield Finding(
        "slow-order",
        severity(exposed is None or exposed >= GRAVE * case.step),
        f"This device order of {cost.machine.text} sends most of the traffic{where} over slow links: in another order, "
        f"a step's communication would take {format_seconds(best.communication)} instead of "
        f"{format_seconds(now.communication)}.",
        why="the device order of the mesh decides which devices are neighbours along a mesh axis; arrays and specs "
        "stay as they are",
        axes=heaviest.axes or (),
        numbers=case.timed(saved)
        | {"communication_seconds": now.communication, "best_seconds": best.communication, "bytes": heaviest.bytes},
        suggestions=(_laid_out(best, case),),
    )


def _laid_out(order: Order, case: Case) -> Suggestion:
    if isinstance(order.key, str):
        return Suggestion(kind="device-order", policy=order.key)
    one, other = order.key
    exchange = {one: other, other: one}
    return Suggestion(kind="device-order", axes=tuple(exchange.get(a, a) for a in case.report.mesh.names))


def moves(case: Case) -> Iterator[Finding]:
    """Find avoidable communication, one finding per group of similar collectives."""
    for name, rule in _RULES.items():
        ours = (c for c in case.report.collectives if c.origin == "partitioner" or name in _OWN)
        avoidable = (c for c in ours if c.axes and "windowed" not in c.facts and rule(case, c, (c,)) is not None)
        for alike in grouped((_cause(case, name, c), c) for c in avoidable).values():
            finding = _finding(case, name, alike)
            if finding.numbers["bytes"] >= TINY * case.moved_bytes:
                yield finding


def _cause(case: Case, name: str, c: Collective) -> tuple[object, ...]:
    """Return a key that is equal for the collectives of one finding."""
    if name in _EVERYWHERE or (name == "gathered-each-run" and case.is_argument(c.operand)):
        return (c.axes,)
    return case.value_name(c), c.source, () if name == "along-shards" else (c.kind, c.axes, c.dtype, c.shape)


def _finding(case: Case, name: str, alike: Sequence[Collective]) -> Finding:
    """Return the finding about similar collectives: a note if there is no change to try."""
    c = alike[0]
    diagnosis = _RULES[name](case, c, alike)
    assert diagnosis is not None
    moved = case.what_inside(c) + and_others({case.what_inside(each) for each in alike}, "other array")
    numbers = {**case.moved([*alike, *_back(case, alike)] if name == "there-and-back" else alike), **diagnosis.numbers}
    return Finding(
        f"{name}:{case.place(c)}",
        severity(case.grave(numbers) and diagnosis.suggestions and not c.conditional),
        f"{diagnosis.text}. This communicates {moved_words(numbers, moved)}.",
        why=diagnosis.why,
        source=c.source,
        value=case.value_name(c),
        axes=c.axes or (),
        numbers=numbers,
        suggestions=tuple(diagnosis.suggestions),
    )


def _gathered(c: Collective) -> tuple[Axis, ...]:
    """Return the axes along which a collective, or the resharding that it belongs to, gathers the array."""
    if c.before is None or c.after is None:
        return c.axes or () if c.kind == "all-gather" else ()
    after = {axis_name(a) for a in c.after.axes}
    return tuple(a for a in c.before.axes if axis_name(a) not in after)


class _Diagnosis(NamedTuple):
    """A rule's diagnosis of similar collectives: the fault, its cause, changes to try, and extra numbers."""

    text: str
    why: str
    suggestions: Sequence[Suggestion] = ()
    numbers: Mapping[str, float] = MappingProxyType({})


_Rule = Callable[[Case, Collective, Sequence[Collective]], _Diagnosis | None]


def _each_run(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    if not _gathered(c) or c.kind == "all-reduce" or "loop-invariant" not in c.facts or case.runs_as_once(c):
        return None
    extra = sum(each.operand_bytes * ((each.count or 1) - 1) for each in alike)
    held = sum(case.left(each) for each in alike)
    asked = c.origin != "partitioner" or "asked" in c.facts
    before = (by_hand(c.source, f"gather it before the loop, not at {at_line(c.source)[4:]}"),) if asked else ()
    sharded = [s for each in alike if each.origin == "partitioner" for s in case.constrained(each, each.after)]
    specs = [(s.target, s.spec) for s in sharded if s.kind == "argument" and s.spec is not None]
    text = f"give {plural(len(specs), 'argument')} the specs that the loop gathers them to"
    are, they_are = ("is", "it is") if len(alike) == 1 else ("are", "they are")
    over = quoted_axes(_gathered(c)) + ("" if c.kind == "all-gather" else f" ({c.kind})")
    return _Diagnosis(
        f"{case.what(c)}{and_others(alike, 'other array')} {are} gathered over {over} in each of "
        f"{plural(c.count or 1, 'run')} of a loop, though {they_are} the same each time",
        "it enters the loop sharded, and each run gathers it; gathered once before the loop, it would "
        f"take {format_bytes(held)} of each device's memory for as long as the loop runs",
        (*before, *suggest_specs("argument", specs, text), *(s for s in sharded if s.kind != "argument")),
        {"extra_bytes": extra, "result_bytes": held},
    )


def _wide(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    narrowed = "narrowed" in c.facts
    if not narrowed and "widened" not in c.facts:
        return None
    sums = c.kind == "all-reduce"
    if sums and c.origin != "user":
        return None
    does = "summed" if sums else "gathered"
    arrays, where = {case.what_inside(each) for each in alike}, at_line(c.source)
    are = f"{and_others(arrays, 'other array')} {'is' if len(arrays) == 1 else 'are'}"
    was = "then cast to a narrower type" if narrowed else "cast from a narrower type before"
    return _Diagnosis(
        f"{case.what(c)}{are} {does} over {quoted_axes(c.axes or ())} as {c.dtype}, and {was}",
        "a collective moves an array in the array's type; with the cast on its other side, fewer bytes move"
        + (", and the sum is rounded to the narrower type" if sums else ""),
        (by_hand(c.source, f"cast {'before' if narrowed else 'after'} the array is {does}{where}"),),
    )


def _asked_otherwise(kind: str, fact: str, text: str, why: str, write: str) -> _Rule:
    """Return the rule of a collective that the function itself asks for, of which less would do."""

    def rule(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
        if c.kind != kind or fact not in c.facts or c.origin != "user":
            return None
        what, inside, axes = case.what(c), case.what_inside(c), quoted_axes(c.axes or ())
        fix = by_hand(c.source, f"jax.lax.{write}{at_line(c.source)}")
        return _Diagnosis(text.format(what=what, inside=inside, axes=axes), why, (fix,))

    return rule


def _stack(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    if "stack" not in c.facts:
        return None
    extra = sum(case.left(each) - each.operand_bytes for each in alike)
    return _Diagnosis(
        f"All of {case.what_inside(c)}{and_others(alike, 'other stack')} is gathered on each device before a loop that "
        f"reads one slice of {'each' if len(alike) > 1 else 'it'} in each run, which takes {format_bytes(extra)} more "
        "memory on each device",
        "something outside the loop asks for it replicated, so that all slices are in memory at once",
        (by_hand(c.source, "constrain the slice in the loop's body, not the stack"),),
        {"held_bytes": extra},
    )


def _there_and_back(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    if "undone" not in c.facts:
        return None
    between = f" ({c.before} to {c.after} and back)" if c.before and c.after else ""
    tries = case.constrained(c, c.before)
    if "asked" in c.facts and c.before:
        tries = (by_hand(c.source, f"drop the constraint{at_line(c.source)}, or make it {c.before}"),)
    return _Diagnosis(
        f"{case.what(c)} is resharded and then back again, and nothing uses it in between{between}",
        "two constraints, or a constraint and a reader of the array, disagree about its sharding",
        tries or (by_hand(c.source, "drop one of the two constraints, or make them equal"),),
    )


def _back(case: Case, alike: Sequence[Collective]) -> Iterator[Collective]:
    """Yield, for each collective of a resharding, the collective that reverses it."""
    left = [c for c in case.report.collectives if c not in alike]
    for c in alike:
        ends = (c.after, c.before, c.array, c.count)
        back = next((r for r in left if None not in ends and (r.before, r.after, r.array, r.count) == ends), None)
        if back is not None:
            left.remove(back)
            yield back


def _along(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    if c.kind not in ("all-to-all", "collective-permute", "all-gather") or len(c.read_by) > 1:
        return None
    if {"asked", "undone", "stack", "sliced"} & set(c.facts) or "convolution" in c.read_by:
        return None
    if c.made_by == "reshape" and c.read_by == ("dynamic_update_slice",) and (c.array or (0,))[0] == 1:
        return None  # the slice that a loop writes into a stack, as the stack's sharding requires
    made_by = (c.made_by,) if c.kind == "collective-permute" else ()
    culprit = next((op for op in (*c.read_by, *made_by) if op in _ALONG), "")
    if not culprit or any(v.name == c.operand and steps_along(v) for v in case.arguments):
        return None  # in the second case the rule `steps-along` reports it
    return _Diagnosis(
        f"A {_ALONG[culprit]} runs along a dimension of {case.what_inside(c)} that is sharded along "
        f"{quoted_axes(c.axes or ())}, so the array is resharded for it",
        "the result's shards have other offsets in that dimension than the operand's; with another dimension sharded, "
        "no resharding is needed",
        case.elsewhere(c) or case.constrained(c, c.after),
    )


def _table(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    if not _gathered(c) or "gather" not in c.read_by or not case.is_argument(c.operand):
        return None
    if c.before is None or not any(c.before.dims[:-1]):  # sharded features are gathered if that is less
        return None
    return _Diagnosis(
        f"A lookup gathers all of {case.what_inside(c)} over {quoted_axes(_gathered(c))}, "
        f"{format_bytes(case.left(c))} on each device",
        "the axis that shards the table shards the ids too, and the partitioner does not send each id to the device "
        "that has its row; with another dimension sharded, ids or results move instead",
        case.elsewhere(c),
        {"result_bytes": case.left(c)},
    )


def _summed_each_run(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    if "accumulated" not in c.facts or case.runs_as_once(c):
        return None
    axes = quoted_axes(c.axes or ())
    once, all_runs = sum(each.operand_bytes for each in alike), sum(each.assumed_bytes for each in alike)
    own = f"add up what each device has{at_line(c.source)}"
    keep = own if c.origin == "user" else f"accumulate in a jax.shard_map over {axes}"
    return _Diagnosis(
        f"The partial sums of {case.what_inside(c)}{and_others(alike, 'other array')} are added over {axes} in each of "
        f"{plural(c.count or 1, 'run')} of a loop, although only the total after the loop is used",
        "the loop adds it to a total, and the total could be summed over the devices once, after the loop: "
        f"{format_bytes(once)} in place of {format_bytes(all_runs)}",
        (by_hand(c.source, f"{keep}, and jax.lax.psum the total after the loop"),),
        {"extra_bytes": all_runs - once},
    )


def _operands_unlike(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    together = sorted(set(c.read_by) & _TOGETHER)
    if not together or "asked" in c.facts or c.kind == "all-reduce" or c.before is None or c.after is None:
        return None
    mesh = case.report.mesh
    inputs = [v for v in case.arguments if v.shape == c.array and v.spec is not None and not (v.optimizer or v.becomes)]
    now, better = c.after, c.before
    if case.is_argument(c.operand):  # the argument itself is resharded
        inputs, now, better = [v for v in inputs if v.name == c.operand], c.before, c.after
    v = next((v for v in inputs if v.spec is not None and v.spec.same_as(now, mesh)), None)
    if v is None or set(map(axis_name, now.axes)) - set(map(axis_name, better.axes)):
        return None
    return _Diagnosis(
        f"{v.name} is sharded as {now}, and an operation takes it together with an array that is sharded as {better} "
        f"({', '.join(together)}), so one of the two is resharded",
        "operands of an elementwise operation must be sharded alike; with the other operand's spec, the argument needs "
        "no resharding",
        (Suggestion(kind="argument", target=v.name, spec=better),) if divides(v, better, mesh) else (),
    )


_TOGETHER = frozenset(("add", "subtract", "multiply", "divide", "maximum", "minimum", "select"))


def _halo(case: Case, c: Collective, alike: Sequence[Collective]) -> _Diagnosis | None:
    if c.kind not in ("collective-permute", "all-to-all") or "convolution" not in c.read_by:
        return None
    mesh, names = case.report.mesh, [axis_name(a) for a in c.axes or ()]
    batched = []
    for v in case.arguments:
        if v.spec is None or len(v.shape) < 3 or v.optimizer or v.becomes or v.scanned:
            continue
        rest = tuple(tuple(a for a in dim if axis_name(a) not in names) for dim in v.spec.dims)
        spec = v.spec.with_dims(((*rest[0], *names), *rest[1:]))
        batched += [(v.name, spec)] if rest[1:] != v.spec.dims[1:] and divides(v, spec, mesh) else []
    if not batched:
        return None  # there are too few images to share them out
    text = f"give {plural(len(batched), 'argument')} the batch's dimension sharded along {quoted_axes(names)}"
    resharded = "; other images are resharded for that" if any(c.kind == "all-to-all" for c in alike) else ""
    return _Diagnosis(
        f"A convolution exchanges the borders of its shards (halos) over {quoted_axes(names)}, as {batched[0][0]}"
        f"{and_others(batched)} is sharded along a dimension that it runs along{resharded}",
        "each device needs its neighbours' rows; with the batch sharded in place of height or width, each device "
        "convolves whole images",
        suggest_specs("argument", batched, text),
    )


_RULES: dict[str, _Rule] = {
    "gathered-each-run": _each_run,
    "stack-gathered": _stack,
    "there-and-back": _there_and_back,
    "along-shards": _along,
    "table-gathered": _table,
    "summed-each-run": _summed_each_run,
    "operands-unlike": _operands_unlike,
    "halo": _halo,
    "gathered-wide": _wide,
    "sum-sliced": _asked_otherwise(
        "all-reduce",
        "sliced",
        "The psum of {inside} over {axes} gives each device the whole sum, of which it takes a slice",
        "an all-reduce moves twice what a reduce-scatter moves, after which each device has its own slice",
        "psum_scatter(..., tiled=True) in place of psum and slice",
    ),
    "gathered-then-sliced": _asked_otherwise(
        "all-gather",
        "sliced",
        "{what} is gathered over {axes}, and then a slice of another dimension is taken",
        "each device receives the arrays of all others and keeps a slice; an all-to-all sends it that slice alone",
        "all_to_all(..., tiled=True) in place of all_gather and slice",
    ),
    "gathered-then-summed": _asked_otherwise(
        "all-gather",
        "summed",
        "{what} is gathered over {axes}, and then summed over what was gathered",
        "each device receives the arrays of all others to add them; an all-reduce adds them on their way",
        "psum in place of all_gather and sum",
    ),
}
_OWN = _RULES.keys() - {"stack-gathered", "there-and-back", "along-shards", "table-gathered", "operands-unlike", "halo"}
"""Rules that also apply to the collectives that the function itself asks for, in a `shard_map`."""
_EVERYWHERE = frozenset(("summed-each-run", "halo", "stack-gathered", "gathered-wide"))
"""Rules in which one cause has many collectives: those over the same axes become one finding."""
