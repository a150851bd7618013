"""Motions, played on NumPy arrays: they arrive, they send only what is held, and they send what is said elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import shardviz as sv
from shardviz.costs.motion import Motion, motion_between, motion_of_collective, motion_of_moves
from shardviz.costs.placement import Placement
from shardviz.errors import ShardvizError, SpecError
from shardviz.layouts import layout
from shardviz.layouts.transfers import transfers
from shardviz.notation import DeviceMesh, Spec
from shardviz.records import Collective
from shardviz.stablehlo.resharding import moves
from tests.layouts.test_moves import KNOWN, LAST_PERMUTE, MESH, REDUCE, resharding

SHORT = (
    (24, 24, 24),
    DeviceMesh.of({"a0": 4, "a1": 3, "a2": 4}),
    Spec(((("a0", 1, 2),), ("a1", ("a2", 2, 2)), ())),
    Spec(((), (("a2", 1, 2),), ("a1", ("a0", 1, 2)))),
)
"""Shardy's collectives leave half of `a2` on the last dimension."""


def box(start, stop) -> tuple[slice, ...]:
    return tuple(map(slice, start.tolist(), stop.tolist()))


def play(motion: Motion, first: dict[int, np.ndarray], reduce=np.add) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """What every device holds in the end: device → (its numbers, whether it holds each of them)."""
    held = {device: (np.zeros(motion.shape, np.int64), np.zeros(motion.shape, bool)) for device in motion.devices}
    for device, start, stop in zip(*motion.start[:3], strict=True):
        at = box(start, stop)
        held[int(device)][0][at], held[int(device)][1][at] = first[int(device)][at], True
    for step in motion.steps:
        sent = []
        for sender, start, stop in zip(step.senders.tolist(), step.starts, step.stops, strict=True):
            numbers, known = held[sender]
            assert known[box(start, stop)].all(), f"device {sender} sends what it does not hold"
            sent.append(numbers[box(start, stop)].copy())
        for receiver, start, stop, part in zip(step.receivers.tolist(), step.starts, step.stops, sent, strict=True):
            numbers, known = held[receiver]
            at = box(start, stop)
            assert known[at].all() or not step.adds
            numbers[at], known[at] = reduce(numbers[at], part) if step.adds else part, True
        if step.keeps is not None:
            kept = {device: np.zeros(motion.shape, bool) for device in held}
            for device, start, stop in zip(*step.keeps[:3], strict=True):
                kept[int(device)][box(start, stop)] = True
            for device, (_, known) in held.items():
                assert (known | ~kept[device]).all(), f"device {device} keeps what it never held"
                known &= kept[device]
    return held


def arrives(way) -> Motion:
    before, after = way.before, way.after
    motion = motion_of_moves(way)
    parts = np.random.default_rng(0).integers(0, 1000, (before.partial_sums, *before.shape))
    first = {int(d): parts[before.partial_ids[n]] for n, d in enumerate(before.device_ids)}
    reduce = REDUCE[before.unreduced_kind]
    held = play(motion, first, reduce)
    for n, device in enumerate(after.device_ids.tolist()):
        numbers, known = held[device]
        wanted = np.zeros(before.shape, bool)
        if after.holds[n]:
            wanted[after.index(device)] = True
        assert (known == wanted).all()
        same = {int(before.partial_ids[m]) for m in np.flatnonzero(after.partial_ids == after.partial_ids[n])}
        total = reduce.reduce([parts[i] for i in sorted(same)])
        assert (numbers[known] == total[known]).all()
    return motion


def counted(way, motion: Motion) -> None:
    """Each collective's messages are as many elements as `sv.moves` says."""
    steps, here = list(motion.steps), way.before
    for move in way.steps:
        mine, steps = steps[: steps[0].count], steps[steps[0].count :]
        assert {step.kind for step in mine} == {move.kind} and mine[-1].keeps is not None
        received = np.zeros(len(here.device_ids), np.int64)
        for step in mine:
            np.add.at(received, [here.row(d) for d in step.receivers.tolist()], step.elements)
        if move.kind == "all-reduce":
            count = here.partial_sums // move.layout.partial_sums
            assert received.sum() * count == 2 * (count - 1) * here.elements.sum()
        elif move.kind == "reduce-scatter":  # where a dimension does not divide, some shards are smaller
            count = here.partial_sums // move.layout.partial_sums
            assert received.sum() == (count - 1) * move.layout.elements.sum() and received.max() <= move.elements
            assert received.max() == move.elements or not move.layout.divides
        else:
            assert received.max(initial=0) == move.elements
        here = move.layout
    assert not steps


@settings(max_examples=150)
@example(LAST_PERMUTE)
@example(SHORT)
@given(resharding())
def test_every_device_ends_with_its_new_shard_and_the_bytes_are_those_of_moves(case):
    shape, mesh, before, after = case
    way = moves(shape, before, after, mesh)
    counted(way, arrives(way))


@pytest.mark.parametrize(("before", "after", "kinds"), KNOWN, ids=[f"{a} to {b}" for a, b, _ in KNOWN])
def test_the_collectives_that_people_know(before, after, kinds):
    way = moves((16, 16), before, after, MESH)
    motion = arrives(way)
    counted(way, motion)
    assert [step.kind for step in motion.steps if step.number == 1] == kinds
    assert all((np.bincount(step.senders) <= 1).all() for step in motion.steps)


@given(st.permutations(range(6)), st.sampled_from([("a", "b"), ("b", "a"), (("a", "b"),), ("b",)]))
def test_between_meshes_it_sends_what_reshard_says(order, spec):
    old = layout((12, 12), ("x",), {"x": 4})
    new = layout((12, 12), spec, DeviceMesh(("a", "b"), (3, 2), (), tuple(int(n) + 2 for n in order)))
    motion = motion_between(old, new)
    first = {int(d): np.arange(144).reshape(12, 12) for d in old.device_ids}
    held = play(motion, first)
    for device in new.device_ids.tolist():
        assert held[device][1].sum() == held[device][1][new.index(device)].sum() == new.elements[new.row(device)]
    sent = transfers(old, new)
    apart = sent.senders != sent.receivers
    place = {device: n for n, device in enumerate(motion.devices)}
    for ends, total in ((sent.senders, motion.sent()), (sent.receivers, motion.received())):
        assert total.tolist() == np.bincount([place[d] for d in ends[apart]], sent.elements[apart], len(place)).tolist()


MACHINES = [("tpu v4:4x4x4", "x=4,y=4,z=4"), ("tpu v5e:4x4", "x=4,y=4"), ("gpu h100:2x8", "x=2,y=8"), (None, "x=4,y=4")]


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
@pytest.mark.parametrize(("target", "mesh"), MACHINES)
def test_the_links_carry_what_the_cost_of_the_collective_says(kind, target, mesh):
    """On one axis of the torus, ring or line, and between GPUs of a domain: the bytes on each step's busiest link, by
    counting the messages, are together the bytes that the formula divides by the rate of a link."""
    n, count = 4 * 1024, DeviceMesh.of(mesh).shape["y"]
    operand, result = {"all-gather": (n, n * count), "reduce-scatter": (n * count, n), "all-reduce": (n * count,) * 2}[
        kind
    ]
    one = Collective(
        kind=kind, axes=("y",), dtype="float32", shape=(), operand_bytes=operand, result_bytes=result, count=1
    )
    place = None if target is None else Placement.of(mesh, target)
    motion = motion_of_collective(one, DeviceMesh.of(mesh), place)
    size = motion.bytes_per_element or 0.0
    sent = {"all-gather": n * (count - 1), "reduce-scatter": n * (count - 1), "all-reduce": 2 * n * (count - 1)}[kind]
    assert (motion.received() * size).sum() == sent * len(
        motion.devices
    ) and motion.sent().sum() == motion.received().sum()
    assert (motion.received() * size == sent).all() or motion.way == "both ways along the line"  # its ends pass less on
    if place is None or target is None:
        assert sum(motion.on_links) * size == sent
        return
    (stage,) = sv.collective_seconds(kind, n * count, "y", place, target).stages
    term = next(term for term in stage.terms if term.bound in ("ICI link", "NVLink"))
    ring = motion.way == "both ways around the ring"
    assert sum(motion.on_links) * size == term.moved / (2 if ring else 1)
    whole, first = np.full(motion.shape, 7), {d: np.full(motion.shape, 1 + d) for d in motion.devices}
    held = play(motion, first if kind != "all-gather" else dict.fromkeys(motion.devices, whole))
    groups = np.arange(DeviceMesh.of(mesh).size).reshape(DeviceMesh.of(mesh).sizes)
    for device, (numbers, known) in held.items():
        at = np.argwhere(groups == device)[0]
        at = (at[0], slice(None), *at[2:])
        total = 7 if kind == "all-gather" else sum(1 + groups[at])
        assert (numbers[known] == total).all() and known.sum() == (known.size if kind != "reduce-scatter" else 2)


def test_an_all_to_all_takes_as_many_rounds_as_there_are_others_and_a_permute_one():
    base = {"dtype": "float32", "shape": (), "operand_bytes": 96, "result_bytes": 96, "count": 1}
    every = motion_of_collective(Collective(kind="all-to-all", axes=("x",), **base), DeviceMesh.of("y=2,x=3"))
    assert len(every.steps) == 2 and (every.received() * (every.bytes_per_element or 0) == 64).all()
    held = play(every, {d: np.full((3, 3), d) for d in range(6)})
    for device, (numbers, known) in held.items():
        first = device // 3 * 3
        assert known[:, device % 3].all() and known.sum() == 3
        assert numbers[:, device % 3].tolist() == [first, first + 1, first + 2]
    pairs = "{{0,1},{1,2},{2,0}}"
    ring = Collective(kind="collective-permute", axes=None, groups=pairs, **base)
    (step,) = motion_of_collective(ring, DeviceMesh.of("x=4")).steps
    assert dict(zip(step.senders.tolist(), step.receivers.tolist(), strict=True)) == {0: 1, 1: 2, 2: 0}


def test_what_has_no_motion_is_refused():
    with pytest.raises(ShardvizError, match="at most 512"):
        motion_of_moves(moves((1024,), ("x",), (), {"x": 1024}))
    unknown = Collective(
        kind="all-gather", axes=None, dtype="float32", shape=(), operand_bytes=4, result_bytes=16, count=1
    )
    with pytest.raises(ShardvizError, match="which devices"):
        motion_of_collective(unknown, DeviceMesh.of("x=4"))
    with pytest.raises(SpecError, match="shapes"):
        motion_between(layout((4,), (), {"x": 2}), layout((8,), (), {"x": 2}))
