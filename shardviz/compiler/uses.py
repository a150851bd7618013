"""Between which operations a partitioned program's collective stands, and whether it need be there.

The words are those of the propagated level (`records.collectives.Collective.facts`): what HLO itself says is read here,
and what only Shardy's level knows is taken from the collective there that this one is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from shardviz.compiler.graph import HloGraph
from shardviz.compiler.module import Computation, Instruction
from shardviz.graph import MOVES, At, Origins, Runs
from shardviz.records import Collective

RESHARDS = ("all-gather", "all-to-all", "collective-permute")
_PASSES = frozenset(
    ("convert", "copy", "bitcast", "get-tuple-element", "all-gather", "all-to-all", "collective-permute")
)
SAME_EACH_RUN = MOVES - {"dynamic-slice", "slice", "pad"}
"""What an array may go through and still be the same in each run of a loop."""
_NAMES = {"dot": "dot_general", "rev": "reverse", "conv_general_dilated": "convolution"}
_SHARDYS = frozenset(("asked", "undone", "again", "reduced", "stack", "sliced", "loop-invariant"))


def made_by(computation: Computation, instruction: Instruction) -> str:
    """The operation that makes a collective's operand; empty for what its computation is given."""
    names = instruction.operands
    while names:
        maker = computation.by_name[names[0]]
        if maker.opcode == "parameter":
            return ""
        if maker.opcode not in _PASSES:
            return _short(maker)
        names = maker.operands
    return ""


def read_by(computation: Computation, instruction: Instruction, name_stack: str) -> tuple[str, ...]:
    """The operation that it is put in for, as the partitioner notes it; failing that, those that read its result.

    By JAX's names: the partitioner's own slices and pads around it have the name of the operation that they serve.
    """
    own = name_stack.rpartition("/")[2]
    if own:
        return (_plain(own),)
    users = (user.op_name.rpartition("/")[2] for user in computation.users.get(instruction.name, ()))
    return tuple(dict.fromkeys(_plain(name) for name in users if name))


def facts(
    graph: HloGraph,
    origins: Origins,
    runs: Mapping[str, Runs],
    computation: Computation,
    instruction: Instruction,
    kind: str,
) -> tuple[str, ...]:
    """`loop-invariant` and `scattered`, as HLO says it.

    Args:
        graph: the program.
        origins: follows values through `SAME_EACH_RUN`.
        runs: computation → how often it runs.
        computation: where the collective stands.
        instruction: the collective.
        kind: its kind.
    """
    found = []
    if instruction.operands:
        block = origins(At(graph.operand(computation.name, instruction))).value.block
        here, there = runs[computation.name].count, runs.get(block.name)
        outside = block.name != computation.name and there is not None
        if outside and there is not None and (here is None or (there.count or here) < here):
            found.append("loop-invariant")
    users = computation.users.get(instruction.name, ())
    if kind == "all-reduce" and users and all(u.opcode == "dynamic-slice" for u in users):
        asked = all(u.op_name.endswith("/dynamic_slice") for u in users)
        found.append("sliced" if asked else "scattered")
    return tuple(found)


def _short(instruction: Instruction) -> str:
    return _plain(instruction.opcode)


def _plain(name: str) -> str:
    """`reduce` of `reduce_sum` and `dynamic_slice` of `dynamic-slice`."""
    name = name.partition("[")[0].replace("-", "_")
    return "reduce" if name.startswith("reduce_") and name != "reduce_scatter" else _NAMES.get(name, name)


def with_shardys(
    ours: Sequence[Collective], predicted: Sequence[Collective], arguments: Sequence[str]
) -> tuple[Collective, ...]:
    """The partitioner's collectives with what Shardy's level alone knows of those that are the same.

    First come those that are alike in everything; then those that move as much along the same axes elsewhere; then
    those that the partitioner takes in place of Shardy's at the same line, one or several for each change of cuts.

    Args:
        ours: of level `partitioned`.
        predicted: of level `propagated`, under the same plan.
        arguments: the names of the program's arguments.
    """
    found = list(ours)
    left = [place for place, c in enumerate(ours) if c.origin == "partitioner"]
    free = list(predicted)
    for key in (_key, _amount):
        left, free = _matched(found, left, free, key)
    for place, twin in _in_place_of(ours, left, free, frozenset(arguments)):
        found[place] = _told(ours[place], twin)
    return tuple(found)


def _matched(
    found: list[Collective], left: Sequence[int], free: Sequence[Collective], key: Callable[[Collective], object]
) -> tuple[list[int], list[Collective]]:
    """Tells each collective with a twin of the same key what the twin knows; gives what is left of both."""
    known: dict[object, list[Collective]] = {}
    for c in free:
        known.setdefault(key(c), []).append(c)
    taken: set[int] = set()
    rest = []
    for place in left:
        twins = known.get(key(found[place]), [])
        if not twins:
            rest.append(place)
            continue
        twin = twins.pop(0) if len(twins) > 1 else twins[0]
        taken.add(id(twin))
        found[place] = _told(found[place], twin)
    return rest, [c for c in free if id(c) not in taken]


def _in_place_of(
    ours: Sequence[Collective], left: Sequence[int], free: Sequence[Collective], arguments: Collection[str]
) -> Iterator[tuple[int, Collective]]:
    """For each of the partitioner's collectives the reshard of Shardy's that it is a part of, where that is plain."""
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
    """Several changes of cuts of one array as one; the first where they are of several arrays."""
    first, last = twins[0], twins[0]
    for twin in twins[1:]:
        if twin.array != last.array or twin.before != last.after:
            return first
        last = twin
    return replace(first, after=last.after, read_by=last.read_by)


def _told(c: Collective, twin: Collective) -> Collective:
    more = tuple(fact for fact in twin.facts if fact in _SHARDYS and fact not in c.facts)
    return replace(
        c,
        before=twin.before,
        after=twin.after,
        array=twin.array,
        made_by=twin.made_by or c.made_by,
        read_by=twin.read_by or c.read_by,
        facts=(*c.facts, *more),
    )


def _key(c: Collective) -> object:
    return c.kind, c.axes, c.source, c.phase, c.dtype, c.shape, c.count


def _amount(c: Collective) -> object:
    return c.kind, c.axes, c.operand, c.phase, c.dtype, c.shape, c.count


def _where(c: Collective, arguments: Collection[str]) -> object:
    return c.source, c.phase, c.operand if c.operand in arguments else "", c.dtype, c.count
