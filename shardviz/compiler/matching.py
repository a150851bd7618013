"""The collectives of the optimised program, matched with those of the partitioned one.

A target's compiler combines collectives, splits them, makes them asynchronous, changes their element type (CPU sums
bfloat16 in float32), or turns an all-reduce into a reduce-scatter if each device keeps only a slice:

    partitioned   all-reduce.3 bf16[512,1024]               optimised   fusion.62 = reduce-scatter bf16[128,1024]
    partitioned   all-reduce.17, all-reduce.18              optimised   all-reduce.40 of both

Instructions get new names. They are matched by the channel (`channel_id`), then by source line and name stack, then by
axes and sizes. The rest stays unmatched and is marked `added`.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain, islice

from shardviz.compiler.collectives import collectives
from shardviz.compiler.graph import HloOperation, graph_of
from shardviz.compiler.module import Instruction, Module
from shardviz.compiler.phases import Phases
from shardviz.graph import At, GraphValue, Origins
from shardviz.layouts.layout import itemsize
from shardviz.notation.mesh import DeviceMesh
from shardviz.records import Collective, TargetCollective
from shardviz.records.groups import grouped

_TOGETHER = re.compile(r'"is_sync"\s*:\s*true')
REDUCES = frozenset(("all-reduce", "reduce-scatter"))


def family(kind: str) -> str:
    """Return a collective's family: its kind, but `reduce` for both all-reduce and reduce-scatter, because compilers
    turn one into the other."""
    return "reduce" if kind in REDUCES else kind


def target_collectives(
    optimized: Module,
    mesh: DeviceMesh,
    partitioned: Sequence[Collective],
    after: Module,
    before: Module | None = None,
    *,
    arguments: Sequence[str] | None = None,
    phases: Phases | None = None,
    slices: Sequence[int] = (),
) -> tuple[TargetCollective, ...]:
    """Return the collectives as the target runs them, in program order. `slices` is the slice of each device of the
    mesh, if there are several. A TPU's compiler then writes a program for one slice, numbers its devices from 0, and
    uses send and recv between slices."""
    runs_as, made_as = _named(optimized), _named(after)
    runs = [
        OptimizedCollective(c, runs_as[c.name], optimized)
        for c in collectives(optimized, mesh, before, arguments=arguments, phases=phases, slices=slices)
    ]
    by_name = {c.name: PartitionedCollective(c, made_as[c.name], after) for c in partitioned}
    laid_before = {one.laid for one in by_name.values()}
    for run in runs:
        if run.laid and run.laid not in laid_before:
            run.parts = [(run.parts[0][0], float(size * run.times)) for size in run.laid]
    by_channel = Counter((one.channel, one.family) for one in by_name.values())
    for one in by_name.values():
        one.alone = by_channel[one.channel, one.family] == 1
    left, sums = dict(by_name), _added_up(after)
    for of_run, of_made in _SURE:
        _pair(runs, left, of_run, of_made, sums)
    _combined(runs, left, by_name)
    _folded(runs, left, after)
    for of_run, of_made in _LIKELY:
        _pair(runs, left, of_run, of_made, sums)
    _serving_several(runs, left, by_name, sums)
    _further_parts(runs, by_name)
    several = Counter(name for run in runs for name in run.stands_for)
    return tuple(_record(run, by_name, several) for run in runs)


def _named(module: Module) -> dict[str, HloOperation]:
    return {op.native.name: op for op in graph_of(module).operations if op.collective}


def _record(run: OptimizedCollective, by_name: _ByName, several: Mapping[str, int]) -> TargetCollective:
    stands_for = [by_name[name].collective for name in run.stands_for]
    shown = run.shown
    if stands_for:
        first = stands_for[0]
        shown = dataclasses.replace(
            shown,
            origin=first.origin,
            source=shown.source or first.source,
            name_stack=shown.name_stack or first.name_stack,
            phase=shown.phase if shown.name_stack else first.phase,
        )
    split = any(several[c.name] > 1 for c in stands_for)
    changes = {
        "combined": len(stands_for) > 1,
        "split": split,
        "moved": not split and any(c.count != shown.count for c in stands_for),
        "turned": any(c.kind != shown.kind for c in stands_for),
        "converted": any(c.dtype not in run.dtypes for c in stands_for),
        "asynchronous": run.apart,
        "fused": run.fused,
        "added": not stands_for,
    }
    return TargetCollective(
        collective=shown, stands_for=tuple(run.stands_for), how=tuple(k for k, holds in changes.items() if holds)
    )


class PartitionedCollective:
    """A partitioned collective, with what may identify it in the optimised program: the elements of the full array on
    one device (`whole`: a gather's result, a reduction's operand); the channel's number, and whether it is the only one
    with that number (`alone`; inside a `shard_map` several may share one); name stack, line and axes; and, if its
    operand is a concatenation already, the sizes of the arrays in it (`laid`)."""

    def __init__(self, collective: Collective, op: HloOperation, module: Module):
        self.collective, self.name, self.family = collective, collective.name, family(collective.kind)
        self.channel = op.channel
        self.alone = True
        self.laid = _laid_together(op)
        self.place = _place(op.native, collective, module)
        self.whole = max(collective.operand_bytes, collective.result_bytes) / itemsize(collective.dtype)


class OptimizedCollective:
    """A collective of the optimised module, with the partitioned ones that it performs (`stands_for`, filled while
    matching).

    `parts` has the family and the elements of the full array for each operand; several if collectives are combined. A
    sum of shards that are padded with zeros is a gather. `laid` has the sizes of the arrays that its only operand is a
    concatenation of. It is `apart` if one instruction starts it and another ends it.
    """

    def __init__(self, collective: Collective, op: HloOperation, module: Module):
        self.stands_for: list[str] = []
        caller = next(iter(op.block.callers), None)
        while caller is not None and caller.kind == "call":  # what an asynchronous call has the sparse cores run
            caller = next(iter(caller.block.callers), None)
        self.fused = caller is not None and caller.kind == "fusion"
        apart = op.kind.endswith("-start") or (caller is not None and caller.kind == "async-start")
        self.apart = op.is_chained or (apart and not _TOGETHER.search(op.native.attributes_text))
        self.shown = _scattered(collective, op) if self.fused else collective
        self.family = family(self.shown.kind)
        self.channel = op.channel
        self.place = _place(op.native, collective, module)
        self.times = (collective.group_size or 1) if collective.kind == "all-gather" else 1
        kinds = ["all-gather" if self.family == "reduce" and _is_padded(v) else self.family for v in op.operands]
        self.parts = [(kind, float(v.elements * self.times)) for kind, v in zip(kinds, op.operands, strict=True)]
        self.laid = _laid_together(op) if len(op.operands) == 1 else ()
        self.dtypes = {value.dtype for value in op.operands}

    @property
    def whole(self) -> float:
        """The elements of all parts together."""
        return sum(size for _, size in self.parts)

    def carry_out(self, name: str, left: _ByName) -> None:
        """Match this run with one of the partitioner's remaining collectives."""
        self.stands_for.append(name)
        del left[name]


def _scattered(collective: Collective, op: HloOperation) -> Collective:
    """Return a reduce-scatter for a fusion of an all-reduce and the slice that each device keeps; other collectives
    unchanged."""
    arrays = [value.array for value in op.block.callers[0].results]
    kept = max(arrays, key=lambda array: array.nbytes)
    nbytes = sum(array.nbytes for array in arrays)
    if collective.kind != "all-reduce" or nbytes >= collective.result_bytes:
        return collective
    if not any(each.kind == "dynamic-slice" for each in op.block.operations):
        return collective
    return dataclasses.replace(collective, kind="reduce-scatter", shape=kept.dims, result_bytes=nbytes)


def _is_padded(value: GraphValue) -> bool:
    """Return whether an array is a shard written into an empty array."""
    maker = value.maker
    if maker is not None and maker.kind == "fusion":
        maker = maker.blocks[0].returned[value.index].maker
    return maker is not None and maker.kind == "dynamic-update-slice"


_LAYS_OUT = frozenset(("bitcast", "reshape", "copy", "transpose"))
_MOST_LAID = 10_000


def _laid_together(op: HloOperation) -> tuple[int, ...]:
    """Return the sizes of the arrays that a GPU's compiler has concatenated into the operand; empty for one array, or
    for more than a compiler concatenates."""
    origins = Origins(_LAYS_OUT)

    def sizes(value: GraphValue) -> Iterator[int]:
        maker = origins(At(value)).value.maker
        if maker is None or maker.kind != "concatenate":
            yield value.elements
        else:
            yield from chain.from_iterable(map(sizes, maker.operands))

    whole = tuple(islice(sizes(op.array(0)), _MOST_LAID + 1))
    return whole if 1 < len(whole) <= _MOST_LAID else ()


def _place(instruction: Instruction, collective: Collective, module: Module) -> Hashable:
    """Return an instruction's name stack (including its callers'), line and axes; None without a name stack."""
    if not instruction.op_name:
        return None
    own = collective.name_stack.endswith(instruction.op_name)
    return collective.name_stack if own else instruction.op_name, module.source(instruction), collective.axes


def _origin_of(collective: Collective) -> Hashable:
    return collective.source, collective.name_stack, collective.axes


_ByName = dict[str, PartitionedCollective]

_Evidence = tuple[Callable[[OptimizedCollective], Hashable], Callable[[PartitionedCollective], Hashable]]

# What a run and a partitioner's collective have in common, the surest first: a key of each; None is no evidence.
_SURE: tuple[_Evidence, ...] = (
    (lambda r: r.channel and (r.channel, r.family), lambda m: m.alone and m.channel and (m.channel, m.family)),
    (
        lambda r: r.channel and (r.channel, *r.parts[0], r.place or r.shown.axes),
        lambda m: m.channel and (m.channel, m.family, m.whole, m.place or m.collective.axes),
    ),
    (lambda r: r.place and (r.place, r.parts[0][1]), lambda m: m.place and (m.place, m.whole)),
)
_LIKELY: tuple[_Evidence, ...] = (
    (
        lambda r: (_origin_of(r.shown), r.family, r.whole, r.shown.count),
        lambda m: (_origin_of(m.collective), m.family, m.whole, m.collective.count),
    ),
    (lambda r: (_origin_of(r.shown), r.family), lambda m: (_origin_of(m.collective), m.family)),
    (
        lambda r: (r.parts[0][0], r.shown.axes, r.whole, r.shown.count),
        lambda m: (m.family, m.collective.axes, m.whole, m.collective.count),
    ),
)


def _pair(
    runs: Sequence[OptimizedCollective],
    left: _ByName,
    of_run: Callable[[OptimizedCollective], Hashable],
    of_made: Callable[[PartitionedCollective], Hashable],
    sums: Sequence[Sequence[str]],
) -> None:
    """Match collectives with equal keys, in program order. If the target runs fewer than were partitioned, those that
    are summed together are matched with one run."""
    waiting = grouped((repr(key), name) for name, partitioned in left.items() if (key := of_made(partitioned)))
    keys = {id(run): repr(key) for run in runs if not run.stands_for and (key := of_run(run))}
    running = Counter(keys.values())
    further = {name for names in sums for name in names[1:]}
    for key, names in waiting.items():
        if running[key] < len(names):
            names.sort(key=further.__contains__)
    for run in runs:
        names = waiting.get(keys.get(id(run), ""))
        if names:
            run.carry_out(names.pop(0), left)


def _combined(runs: Sequence[OptimizedCollective], left: _ByName, by_name: _ByName) -> None:
    """Match the other parts of combined collectives by axes, count and size, preferring those at the place of a known
    part."""
    waiting = {id(run): _unknown(run, by_name) for run in runs if len(run.parts) > 1}

    for by_place in (True, False):
        for run in runs:
            parts = waiting.get(id(run), [])
            places = {run.place, *(by_name[name].place for name in run.stands_for)} - {None}
            for other in list(left.values()) if parts else ():
                if (other.collective.axes, other.collective.count) != (run.shown.axes, run.shown.count):
                    continue
                near = other.place in places
                if near >= by_place and (part := _part(other, parts, by_place)) is not None:
                    run.carry_out(other.name, left)
                    parts.remove(part)


def _folded(runs: Sequence[OptimizedCollective], left: _ByName, after: Module) -> None:
    """Match all-reduces of all-reduces over other axes, which compilers merge into one over all axes."""
    origins = Origins(_LAYS_OUT)
    inner_of: dict[str, str] = {}
    for op in graph_of(after).operations:
        if op.native.name in left and op.kind == "all-reduce":
            inner = origins(At(op.array(0))).value.native.name
            if inner in left:
                inner_of[op.native.name] = inner
    for outer in [name for name in inner_of if name not in inner_of.values()]:
        names = [outer]
        while names[-1] in inner_of:
            names.append(inner_of[names[-1]])
        folded = [left[name].collective for name in names if name in left]
        axes = [axis for one in folded for axis in one.axes or ()]
        for run in runs:
            alike = (run.family, run.whole, run.shown.count) == ("reduce", left[outer].whole, folded[0].count)
            if not run.stands_for and alike and sorted(map(repr, axes)) == sorted(map(repr, run.shown.axes or ())):
                for name in reversed(names):
                    run.carry_out(name, left)
                break


def _unknown(run: OptimizedCollective, by_name: _ByName) -> list[tuple[str, float]]:
    """Return the parts of a run that are not matched yet."""
    parts = list(run.parts)
    for name in run.stands_for:
        if (part := _part(by_name[name], parts, True)) is not None:
            parts.remove(part)
    return parts


def _part(
    partitioned: PartitionedCollective, parts: Sequence[tuple[str, float]], any_family: bool
) -> tuple[str, float] | None:
    """Return the part with a collective's size, preferably of its family."""
    if (partitioned.family, partitioned.whole) in parts:
        return partitioned.family, partitioned.whole
    return next((part for part in parts if any_family and part[1] == partitioned.whole), None)


def _serving_several(
    runs: Sequence[OptimizedCollective], left: _ByName, by_name: _ByName, sums: Sequence[Sequence[str]]
) -> None:
    """Match the collectives that one run replaces: gathers of the same array, and all-reduces whose results are added
    up."""
    runs_of = {name: run for run in runs for name in run.stands_for}
    others = {name: one.collective for name, one in by_name.items() if one.collective.kind not in REDUCES}
    same = grouped(((_moved(c), c.count), name) for name, c in others.items())
    for names in (*same.values(), *sums):
        run = next((runs_of[name] for name in names if name in runs_of), None)
        for name in [n for n in names if run is not None and n in left]:
            assert run is not None
            like = by_name[run.stands_for[0]].collective
            if (left[name].collective.axes, left[name].collective.count) == (like.axes, like.count):
                run.carry_out(name, left)


_KEEPS_SUMS = frozenset(("add", "convert", "copy", "bitcast", "reshape", "transpose"))


def _added_up(module: Module) -> list[list[str]]:
    """Return groups of all-reduces whose results are added up, largest groups first."""
    owner: dict[GraphValue, set[str]] = {}  # value → the all-reduces that it is a sum of
    for op in graph_of(module).operations:
        if op.kind == "all-reduce" and len(op.results) == 1:
            owner[op.result] = {op.native.name}
        elif op.kind in _KEEPS_SUMS:
            summed = [owner[v] for v in op.operands if v in owner and len({user for user, _ in v.uses}) == 1]
            if summed:
                owner[op.result] = set().union(*summed)
    sums = [sorted(names) for names in owner.values() if len(names) > 1]
    return sorted(sums, key=len, reverse=True)


def _further_parts(runs: Sequence[OptimizedCollective], by_name: _ByName) -> None:
    """Match the remaining runs with the collectives that they repeat or are a part of."""
    keys: dict[Hashable, str] = {}
    for name, one in by_name.items():
        for key in _keys(one.channel, one.collective):
            keys.setdefault(key, name)
    for run in runs:
        if not run.stands_for:
            name = next((keys[key] for key in _keys(run.channel, run.shown) if key in keys), None)
            if name is not None:
                run.stands_for.append(name)


def _keys(channel: str, collective: Collective) -> list[Hashable]:
    keys: list[Hashable] = [("channel", channel)] if channel else []
    keys += [("line", _origin_of(collective))] if collective.source is not None else []
    return keys + ([("moved", _moved(collective))] if collective.kind not in REDUCES else [])


def _moved(collective: Collective) -> Hashable:
    """Return a key for a collective that only moves data, by what it moves."""
    dims = tuple(sorted(d for d in collective.shape if d != 1))
    return collective.kind, collective.axes, collective.dtype, dims, collective.operand
