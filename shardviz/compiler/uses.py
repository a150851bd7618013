"""The operations around a partitioned program's collective, and whether it is necessary.

The facts are those of the propagated level (`records.collectives.Collective.facts`). Facts that HLO shows are read
here; facts that only Shardy's level knows are taken from the matching collective there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from shardviz.compiler.graph import HloOperation
from shardviz.graph import Operation, Origins
from shardviz.graph.uses import casts, is_invariant, maker
from shardviz.records import Collective
from shardviz.records.groups import grouped

RESHARDS = ("all-gather", "all-to-all", "collective-permute")
_PASSES = frozenset((*RESHARDS, "convert", "copy", "bitcast"))
_NAMES = {"dot": "dot_general", "rev": "reverse", "conv_general_dilated": "convolution"}
_SHARDYS = frozenset(("asked", "undone", "stack", "sliced", "loop-invariant", "accumulated"))


def made_by(op: HloOperation) -> str:
    """Return the operation that makes a collective's operand; empty for an input of its computation."""
    origin = maker(op.operands[0], _passes) if op.operands else None
    return "" if origin is None else _plain(origin.native.opcode)


def _passes(op: HloOperation) -> bool:
    """Return whether an operation only passes a value on: a reshard, or a slice of the partitioner's own."""
    own = op.kind == "dynamic-slice" and not op.native.op_name.endswith("dynamic_slice")
    return own or op.kind in _PASSES


def read_by(op: HloOperation, name_stack: str) -> tuple[str, ...]:
    """Return JAX's name of the operation that the partitioner inserted a collective for; otherwise of those that read
    its result."""
    names = [name_stack.rpartition("/")[2]]
    if not names[0]:
        names = [_jax_name(user) for user in _users(op)]
    return tuple(dict.fromkeys(_plain(name) for name in names if name))


def facts(op: HloOperation, origins: Origins) -> tuple[str, ...]:
    """Return the `facts` of a collective that its HLO shows."""
    if _windowed(op):
        return ("windowed",)
    names = ["loop-invariant"] if op.operands and is_invariant(op, origins) else []
    users = _users(op) if len(op.results) == 1 else []
    if op.collective == "all-reduce" and users and all(map(_slices, users)):
        names.append("sliced")
    if op.collective == "all-gather":
        names += ["summed"] if users and all(_sums(user, op) for user in users) else []
        names += ["sliced"] if users and all(_slices(user) and _keeps(user, op) for user in users) else []
    if op.collective in ("all-gather", "all-reduce"):
        names += casts(op, sums=op.collective == "all-reduce")
    return tuple(names)


def _slices(user: HloOperation) -> bool:
    """Return whether an operation takes a slice that is written in the program, unlike the partitioner's own slices."""
    return user.kind == "dynamic-slice" and _jax_name(user) == "dynamic_slice"


def _keeps(slice_: HloOperation, gather: HloOperation) -> bool:
    """Return whether a slice takes all of the dimension that was gathered."""
    shapes = zip(slice_.results[0].shape, gather.results[0].shape, strict=True)
    changed = {str(d) for d, (part, whole) in enumerate(shapes) if part != whole}
    return not changed & set(re.findall(r"\d+", gather.native.attributes.get("dimensions", "")))


def _sums(user: HloOperation, gather: HloOperation) -> bool:
    """Return whether an operation sums a gathered array over the dimension that was gathered."""
    if user.kind != "reduce" or [op.kind for op in user.applied[0].operations][-1:] != ["add"]:
        return False
    gathered, summed = (set(re.findall(r"\d+", op.native.attributes.get("dimensions", ""))) for op in (gather, user))
    return bool(gathered) and gathered <= summed


def _jax_name(op: HloOperation) -> str:
    return op.native.op_name.rpartition("/")[2]


def _windowed(op: HloOperation) -> bool:
    """Return whether a permutation is part of a windowed product, or stands just before or after its loop."""
    if op.collective != "collective-permute":
        return False
    around = [maker(op.operands[0], lambda each: each.kind in _PASSES), *_users(op)]
    blocks = [op.block, *(block for each in around if each is not None for block in each.blocks)]
    return any(_WINDOWED in block.name for block in blocks)


_WINDOWED = "windowed_dot_general"
"""XLA's name for the loop of a windowed product, which passes on an operand or a sum piece by piece."""


def _users(op: HloOperation) -> list[Any]:
    """Return the operations that use a result, in program order."""
    users = (user for value in op.results for user, _ in value.uses if isinstance(user, Operation))
    return list(dict.fromkeys(users))


def _plain(name: str) -> str:
    """Return a plain operation name: `reduce` for `reduce_sum`, `dynamic_slice` for `dynamic-slice`."""
    name = name.partition("[")[0].replace("-", "_")
    return "reduce" if name.startswith("reduce_") and name != "reduce_scatter" else _NAMES.get(name, name)


def with_shardys(
    ours: Sequence[Collective], predicted: Sequence[Collective], arguments: Sequence[str]
) -> tuple[Collective, ...]:
    """Return the partitioner's collectives with the facts that only Shardy's level knows, from matching collectives of
    the same plan: first those equal in every respect, then those that move as much along the same axes, then those that
    replace Shardy's at the same line. If Shardy follows a constraint by another collective of that line, the constraint
    is added too."""
    rows = list(ours)
    others, free = list(range(len(ours))), list(predicted)
    for key in _ALIKE:
        others, free = _matched(rows, others, free, key)
    others = [place for place in others if ours[place].origin == "partitioner"]
    for place, twin in _in_place_of(ours, others, free, frozenset(arguments)):
        rows[place] = _with_twin(ours[place], twin)
    constraints = {(c.source, c.phase): c.constraint for c in free if c.constraint is not None}
    for place in others:
        if rows[place].constraint is None:
            rows[place] = replace(rows[place], constraint=constraints.get((rows[place].source, rows[place].phase)))
    return tuple(rows)


def _matched(
    rows: list[Collective], left: Sequence[int], free: Sequence[Collective], key: Callable[[Collective], object]
) -> tuple[list[int], list[Collective]]:
    """Add to each collective the facts of its match with the same key, and return the unmatched ones of both levels."""
    twins_of = grouped((key(c), c) for c in free)
    taken: set[int] = set()
    rest = []
    for place in left:
        twins = twins_of.get(key(rows[place]), [])
        if not twins:
            rest.append(place)
            continue
        twin = twins.pop(0) if len(twins) > 1 else twins[0]
        taken.add(id(twin))
        rows[place] = _with_twin(rows[place], twin)
    return rest, [c for c in free if id(c) not in taken]


def _in_place_of(
    ours: Sequence[Collective], left: Sequence[int], free: Sequence[Collective], arguments: Collection[str]
) -> Iterator[tuple[int, Collective]]:
    """Yield for each of the partitioner's collectives Shardy's reshard that it is a part of, if that is unambiguous."""
    groups: dict[object, tuple[list[int], list[Collective]]] = {}
    for place in left:
        if ours[place].kind in RESHARDS:
            groups.setdefault(_where(ours[place], arguments), ([], []))[0].append(place)
    for c in free:
        if c.kind in RESHARDS and (group := groups.get(_where(c, arguments))) is not None:
            group[1].append(c)
    for places, twins in groups.values():
        if len(places) == 1 and twins:
            yield places[0], _chain(twins)
        elif twins and len(places) % len(twins) == 0:
            each = len(places) // len(twins)
            yield from ((place, twins[n // each]) for n, place in enumerate(places))


def _chain(twins: Sequence[Collective]) -> Collective:
    """Merge several reshardings of one array; return the first if they are of several arrays."""
    first, last = twins[0], twins[0]
    for twin in twins[1:]:
        if twin.array != last.array or twin.before != last.after:
            return first
        last = twin
    return replace(first, after=last.after, read_by=last.read_by)


def _with_twin(c: Collective, twin: Collective) -> Collective:
    more = tuple(fact for fact in twin.facts if fact in _SHARDYS and fact not in c.facts)
    return replace(
        c,
        before=twin.before,
        after=twin.after,
        array=twin.array,
        constraint=twin.constraint,
        made_by=twin.made_by or c.made_by,
        read_by=twin.read_by or c.read_by,
        facts=(*c.facts, *more),
    )


_SAME = "origin", "kind", "axes", "phase", "dtype", "shape", "count"
_ALIKE = attrgetter(*_SAME, "source"), attrgetter(*_SAME, "operand")
"""The properties that matching collectives share, the most reliable first."""


def _where(c: Collective, arguments: Collection[str]) -> object:
    return c.source, c.phase, c.operand if c.operand in arguments else "", c.dtype, c.count
