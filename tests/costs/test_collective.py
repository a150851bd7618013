"""Laws of collective times, and each thing that makes one slower: lines, hops, DCN, two devices a chip, domains."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardviz.costs.chips import chip
from shardviz.costs.collective import collective_seconds, group_seconds, with_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.placement import groups_along, placement
from shardviz.costs.step import roofline
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.notation import DeviceMesh
from shardviz.records import Collective
from tests.collectives import collective
from tests.costs.machines import KINDS, TARGETS, factorings, placed

ALL_KINDS = (*KINDS, "collective-broadcast")
BYTES = st.floats(0, 1e12)
Placed = tuple[Machine, DeviceMesh, tuple[str, ...]]
W1 = chip("v5p").ici_link_bytes_per_s


def seconds(kind: str, nbytes: float, axes: object, mesh: object, target: object, **options: bool) -> float:
    return collective_seconds(kind, nbytes, axes, mesh, target, **options).seconds  # type: ignore[arg-type]


@settings(max_examples=300)
@given(placed(), st.sampled_from(ALL_KINDS), BYTES, BYTES)
def test_more_bytes_are_never_faster(given_: Placed, kind: str, one: float, other: float):
    machine, mesh, axes = given_
    few, many = sorted((one, other))
    assert seconds(kind, few, axes, mesh, machine) <= seconds(kind, many, axes, mesh, machine)


@settings(max_examples=300)
@given(placed(), BYTES, st.booleans())
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(given_: Placed, nbytes: float, exact: bool):
    machine, mesh, axes = given_
    gather = seconds("all-gather", nbytes, axes, mesh, machine, exact=exact)
    assert seconds("reduce-scatter", nbytes, axes, mesh, machine, exact=exact) == gather
    assert seconds("all-reduce", nbytes, axes, mesh, machine, exact=exact) == pytest.approx(2 * gather)


@settings(max_examples=300)
@given(placed(), st.sampled_from(ALL_KINDS), BYTES)
def test_exact_is_at_most_the_books_approximation(given_: Placed, kind: str, nbytes: float):
    machine, mesh, axes = given_
    exact = seconds(kind, nbytes, axes, mesh, machine)
    assert exact <= seconds(kind, nbytes, axes, mesh, machine, exact=False) * (1 + 1e-12)


@settings(max_examples=300)
@given(placed(), st.sampled_from(KINDS[:5]), st.randoms(use_true_random=False))
def test_the_order_of_the_mesh_axes_is_nothing_to_the_links(given_: Placed, kind: str, random: object):
    """The same devices in the same groups, in a mesh whose axes are listed in another order."""
    machine, mesh, axes = given_
    place = placement(mesh, machine)
    turn = list(range(len(mesh.sizes)))
    random.shuffle(turn)  # type: ignore[attr-defined]
    devices = np.array(place.device_ids()).reshape(mesh.sizes).transpose(turn)
    other = DeviceMesh(tuple(mesh.names[i] for i in turn), devices.shape, device_ids=tuple(devices.ravel().tolist()))
    if not other.device_ids:  # 0, 1, 2, ...: a mesh that says nothing
        return
    assert seconds(kind, 1e9, axes, other, machine) == pytest.approx(seconds(kind, 1e9, axes, mesh, machine))


@settings(max_examples=300)
@given(placed(), st.sampled_from(KINDS[:5]))
def test_groups_given_one_by_one_are_those_of_the_axes(given_: Placed, kind: str):
    machine, mesh, axes = given_
    found = group_seconds(kind, 1e9, groups_along(axes, mesh), mesh, machine)
    assert found.seconds == seconds(kind, 1e9, axes, mesh, machine)


@settings(max_examples=300)
@given(placed(), st.sampled_from(ALL_KINDS))
def test_the_formula_has_its_numbers_and_its_source(given_: Placed, kind: str):
    machine, mesh, axes = given_
    time = collective_seconds(kind, 1e9, axes, mesh, machine)
    if time.bound == "nothing":
        assert time.seconds == 0 and "nothing moves" in time.formula
        return
    assert time.seconds == pytest.approx(sum(max(t.seconds for t in stage.terms) for stage in time.stages))
    assert time.bound in ("ICI link", "chip", "DCN", "NVLink", "network", "latency")
    assert all(time.sources) and time.inputs["V"] == 1e9 and time.inputs["N"] == time.route.size
    assert all(f"{stage.largest.source}" in time.formula for stage in time.stages)
    assert str(time).startswith(f"{kind} over ") and "bound by" in str(time)


@pytest.mark.parametrize(
    ("kind", "nbytes", "axes", "mesh", "target", "wanted", "bound"),
    [
        # each chip all-reduces its own array with its counterpart: 2 V (M-1)/M over its share of the host's network
        ("all-reduce", 1e9, "data", "data=2*1,model=16", "tpu v5e:4x4*2", 2 * 1e9 / 2 / 3.125e9, "DCN"),
        # which is halved for a device of two
        ("all-reduce", 1e9, "data", "data=2*1,model=128", "tpu tpu7x:4x4x4*2", 2 * 1e9 / 2 / (12.5e9 / 2), "DCN"),
        # 128 devices on 64 chips: what counts is what a chip gets over its links, which are its group's alone
        ("all-gather", 1e10, "all", "all=128", "tpu tpu7x:4x4x4", 1e10 * 63 / 64 / (6 * 9e10), "ICI link"),
        # between the two devices of one chip
        ("all-gather", 1e10, "core", "rest=64,core=2", "tpu tpu7x:4x4x4", 1e10 / 2 / 5.4e11, "chip"),
        # fewer GPUs of a host have fewer network cards
        ("all-gather", 1e9, "x", "x=8", "gpu h100:2x4", 1e9 / 2 / 2e11, "network"),
        # a rack is one domain
        ("all-gather", 1e9, "x", "x=72", "gpu gb200:1x72", None, "NVLink"),
        ("all-gather", 1e9, "x", "x=72", "gpu gb200:18x4", None, "NVLink"),
        ("all-gather", 1e9, "x", "x=72", "gpu h100:9x8", None, "network"),
        # a shift along a ring loads each link once, and the last of a line sends back over all of it
        ("collective-permute", 8e9, "x", "x=8,y=8,z=8", "tpu v5p:8x8x8", 1e9 / W1, "ICI link"),
        ("collective-permute", 16, "Y", "X=8,Y=4", "tpu v5e:8x4", 3e-6, "latency"),
        # each chip sends its half to the other slice, over its share of the host's network
        ("collective-permute", 1e9, "data", "data=2*1,model=16", "tpu v5e:4x4*2", 1e9 / 2 / 3.125e9, "DCN"),
    ],
)
def test_how_long_it_takes_and_what_bounds_it(kind, nbytes, axes, mesh, target, wanted, bound):
    time = collective_seconds(kind, nbytes, axes, mesh, target)
    assert time.bound == bound and (wanted is None or time.seconds == pytest.approx(wanted))


def test_how_many_devices_of_a_group_share_a_chip():
    asked = ("all", "all=128"), ("core", "rest=64,core=2")
    both, within = (collective_seconds("all-gather", 1e10, *each, "tpu tpu7x:4x4x4").route for each in asked)
    assert (both.on_chip, within.on_chip, within.legs) == (2, 2, ())


# Wraparound


@pytest.mark.parametrize("kind", ["all-gather", "all-to-all"])
def test_a_line_takes_twice_as_long_as_a_ring(kind: str):
    line = Machine(chip("v5p"), (4, 4, 4), wrap=(False,) * 3)
    ring = seconds(kind, 1e9, "x", "x=4,y=4,z=4", "tpu v5p:4x4x4")
    assert seconds(kind, 1e9, "x", "x=4,y=4,z=4", line) == pytest.approx(2 * ring)


def test_places_two_hops_apart_share_their_links():
    """Of 16 chips in a ring every other one: two groups on each link."""
    near = seconds("all-gather", 1e9, "b", "a=8,b=16", "tpu v5e:8x16")
    far = collective_seconds("all-gather", 1e9, (("b", 1, 8),), "a=8,b=16", "tpu v5e:8x16")
    assert far.route.legs[0].stride == 2
    assert far.seconds == pytest.approx(2 * near * (7 / 8) / (15 / 16))


# Several slices over DCN


def test_an_axis_that_spans_slices_adds_both_stages():
    """V over 2 slices of 16: gathered between slices at 16 chips' share, then within each."""
    time = collective_seconds("all-gather", 1e9, "data", "data=2*16", "tpu v5e:4x4*2")
    within = collective_seconds("all-gather", 1e9, "data", "data=16", "tpu v5e:4x4").seconds
    assert time.seconds == pytest.approx(within + 1e9 / 2 / (16 * 3.125e9))
    assert [stage.largest.bound for stage in time.stages] == ["ICI link", "DCN"]
    assert time.route.slices == 2


def test_an_all_to_all_over_dcn_sends_each_slices_part():
    time = collective_seconds("all-to-all", 1e9, "data", "data=4*16", "tpu v5e:4x4*4")
    sent = 1e9 / 4 * 3 / 4  # by each slice to the others
    assert time.stages[1].seconds == pytest.approx(sent / (16 * 3.125e9))
    within = seconds("all-to-all", 1e9 / 4, "data", "data=16", "tpu v5e:4x4")
    assert time.stages[0].seconds == pytest.approx(within)


# Two devices a chip


def test_two_devices_of_a_chip_share_its_links():
    one = dataclasses.replace(chip("v4"), devices_per_chip=2)
    shared = collective_seconds("all-gather", 1e9, "x", "x=4,yz=16,core=2", Machine(one, (4, 4, 4)))
    alone = collective_seconds("all-gather", 1e9, "x", "x=4,yz=16", "tpu v4:4x4x4")
    assert shared.route.legs[0].size == alone.route.legs[0].size == 4
    assert shared.seconds == pytest.approx(2 * alone.seconds)


# GPUs


def test_groups_of_one_domain_share_what_leaves_it():
    alone = collective_seconds("all-gather", 1e9, "x", "x=32", "gpu h100:4x8")
    eight = collective_seconds("all-gather", 1e9, "x", "x=4,y=8", "gpu h100:4x8")
    assert alone.seconds == pytest.approx(1e9 * 3 / 4 / 4e11, rel=0.2)
    assert eight.seconds == pytest.approx(8 * 1e9 * 3 / 4 / 4e11)
    assert (eight.bound, eight.route.domains) == ("network", 4)


def test_an_all_to_all_over_domains():
    time = collective_seconds("all-to-all", 1e9, "x", "x=32", "gpu h100:4x8")
    assert time.seconds == pytest.approx(1e9 * 3 / 16 / 4e11)
    # to each of 7 in the domain, 1/32 of a 32nd of the array
    assert {term.bound: term.seconds for term in time.terms}["NVLink"] == pytest.approx(7 * 1e9 / 32**2 / 4.5e11)


def test_a_ragged_all_to_all_is_at_most_an_all_to_all():
    ragged = collective_seconds("ragged-all-to-all", 1e9, "x", "x=8", "gpu h100:1x8")
    assert ragged.seconds == seconds("all-to-all", 1e9, "x", "x=8", "gpu h100:1x8")
    assert ragged.formula.endswith("at most, as an all-to-all of all rows")


# Permutes


def test_a_shift_over_domains():
    time = collective_seconds("collective-permute", 16e9, "x", "x=16", "gpu h100:2x8")
    assert time.seconds == pytest.approx(1e9 / 4e11)  # one message out of each host, at once with 7 inside
    assert {term.bound: term.seconds for term in time.terms}["NVLink"] == pytest.approx(1e9 / 4.5e11)


# A program's collectives


@pytest.mark.parametrize(
    ("kind", "before", "after", "whole"),
    [
        ("all-gather", 1e6, 8e6, 8e6),
        ("reduce-scatter", 8e6, 1e6, 8e6),
        ("all-reduce", 8e6, 8e6, 8e6),
        ("all-to-all", 1e6, 1e6, 8e6),
        ("ragged-all-to-all", 1e6, 1e6, 8e6),
        ("collective-permute", 1e6, 1e6, 8e6),
        ("collective-broadcast", 8e6, 8e6, 8e6),
    ],
)
def test_a_programs_collective_is_of_the_whole_array(kind: str, before: float, after: float, whole: float):
    mesh, target = "x=8,y=8,z=8", "tpu v5p:8x8x8"
    found = with_seconds(collective(kind, ("x",), before, after), mesh, target)
    wanted = collective_seconds(kind, whole, "x", mesh, target)
    assert (found.seconds, found.formula) == (wanted.seconds, wanted.formula)


def test_groups_that_are_no_product_of_axes_are_read_from_the_text():
    one = collective("all-gather", None, 1e6, 4e6, groups="{{0,1,2,3},{4,5,6,7}}")
    found = with_seconds(one, "x=8", "gpu h100:1x8")
    assert found.seconds == pytest.approx(4e6 * 3 / 4 / 4.5e11)


def test_of_groups_of_unequal_sizes_the_longest_counts():
    one = collective("all-gather", None, 1e7, 6e7, groups="{{0,1,2,3,4,5},{6,7}}")
    assert with_seconds(one, "x=8", "gpu h100:1x8").seconds == pytest.approx(6e7 * 5 / 6 / 4.5e11)


def test_a_permute_goes_by_its_own_pairs():
    """Two devices of a host change places: nothing leaves it, though the axis spans hosts."""
    one = collective("collective-permute", ("x",), 1e9, 1e9, groups="{{0,1},{1,0}}")
    assert with_seconds(one, "x=16", "gpu h100:2x8").seconds == pytest.approx(1e9 / 4.5e11)
    across = collective("collective-permute", ("x",), 1e9, 1e9, groups="{{0,8},{8,0}}")
    assert with_seconds(across, "x=16", "gpu h100:2x8").seconds == pytest.approx(1e9 / 4e11)


@pytest.mark.parametrize(
    ("collective", "mesh", "target", "why"),
    [
        (collective("all-gather", None, 1, 1), "x=8", "gpu h100:1x8", "its groups are no product of mesh axes"),
        (collective("all-gather", ("x",), 1, 1), "x=8", "cpu", "simulated devices have no links"),
        (collective("all-gather", ("x",), 1, 1), "x=4", "gpu h100:1x8", "gpu h100:1x8 has 8"),
        (collective("all-gather", None, 1, 1, groups="nonsense"), "x=8", "gpu h100:1x8", "replica groups 'nonsense'"),
    ],
)
def test_a_time_that_cannot_be_told_says_why(collective: Collective, mesh: str, target: str, why: str):
    found = with_seconds(collective, mesh, target)
    assert found.seconds is None
    assert found.formula is not None and found.formula.startswith("not known: ") and why in found.formula


# Refusals


@pytest.mark.parametrize(
    ("kind", "nbytes", "axes", "target", "error", "said"),
    [
        ("gather", 1, "x", "gpu h100:1x8", ShardvizError, "there is no such collective; there are all-gather"),
        ("all-gather", -1, "x", "gpu h100:1x8", ShardvizError, "expected 0 bytes or more"),
        ("all-gather", float("nan"), "x", "gpu h100:1x8", ShardvizError, "expected 0 bytes or more"),
        ("all-gather", "1MB", "x", "gpu h100:1x8", ShardvizError, "nbytes '1MB': expected 0 bytes or more"),
        ("all-gather", 1, None, "gpu h100:1x8", ShardvizError, "use group_seconds for groups"),
        ("all-gather", 1, "z", "gpu h100:1x8", MeshError, "the mesh has no axis 'z'; it has x=8"),
        ("all-gather", 1, "x", "cpu", TargetError, "simulated devices have no links and no speed; name a real machine"),
        ("all-gather", 1, "x", "gpu h100:2x8", TargetError, "gpu h100:2x8 has 16"),
    ],
)
def test_what_cannot_be_reckoned_is_refused(
    kind: str, nbytes: float, axes: str, target: str, error: type[ShardvizError], said: str
):
    with pytest.raises(error, match=said):
        collective_seconds(kind, nbytes, axes, "x=8", target)


def test_meshes_of_jax_and_placements_are_taken():
    from jax.sharding import AbstractMesh

    place = placement(DeviceMesh.of("x=8"), Machine.of("gpu h100:1x8"))
    times = {
        seconds("all-gather", 1e9, "x", mesh, "gpu h100:1x8") for mesh in (AbstractMesh((8,), ("x",)), {"x": 8}, place)
    }
    assert len(times) == 1
    with pytest.raises(TargetError, match="the mesh is placed on gpu h100:1x8, the target is gpu h200:1x8"):
        collective_seconds("all-gather", 1e9, "x", place, "gpu h200:1x8")


# The rate of an axis follows from the formula that stands beside it: rate x time is the bytes that it moves

UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}


def arithmetic_of(formula: str) -> str:
    """The numbers of a formula, those that follow it put into their places."""
    if found := re.fullmatch(r"(.*) transfers .*; V = (.*), W1 = (.*)", formula):
        return found[1].replace("V", found[2]).replace("2 W1", f"2 x {found[3]}") + ")"
    return formula.split(" = ")[-1].split(";")[0]


def number_of(text: str) -> float:
    """The value of an arithmetic: `1.00 GB x 3/4 / (2 x 45.0 GB/s / 2 (devices of a chip))`."""
    text = re.sub(r"\((devices of a chip)\)| groups| (through|between) the .*", "", text)
    text = re.sub(r"([\d.]+) ([kMGTP]?)B(/s)?", lambda m: f"{float(m[1]) * UNITS[m[2]]!r}", text)
    assert re.fullmatch(r"[\d.e+\-/x*() ]+", text), text
    return eval(text.replace("x", "*"))


@pytest.mark.parametrize("target", TARGETS)
def test_the_rate_of_each_axis_is_the_one_that_its_formula_divides_by(target: str):
    machine = Machine.of(target)
    meshes = [DeviceMesh(("a", "b"), sizes) for sizes in factorings(machine.size, 2)]
    meshes = [m for m in meshes if m.sizes[0] % machine.num_slices == 0]
    for mesh in meshes[:: max(1, len(meshes) // 8)]:
        for name, size in mesh.shape.items():
            if size == 1:
                continue
            found = collective_seconds("all-gather", 1e9, name, mesh, machine)
            assert found.bytes_per_s is not None
            assert found.bytes_per_s * found.seconds == pytest.approx(found.moved)
            for stage in found.stages:
                arithmetic = arithmetic_of(stage.largest.formula)
                assert number_of(arithmetic) == pytest.approx(stage.seconds, rel=0.01), arithmetic
            if len(found.stages) == 1:
                above = arithmetic_of(found.stages[0].largest.formula).split(" / ")[0]
                assert number_of(above) == pytest.approx(found.moved, rel=0.01)
            if machine.chip.kind == "tpu" and machine.chip.devices_per_chip == 1:
                assert found.moved == pytest.approx(1e9 * (size - 1) / size), "what a device did not have"
            knee = next(k for k in roofline(mesh, machine) if k.name == name)
            assert knee.bytes_per_s == pytest.approx(found.bytes_per_s), "the roofline's is the same"


def test_axes_of_one_formula_have_one_rate():
    """A ring of two chips two hops apart and a line of two, both beside a ring of 4: three links each."""
    a, b = (collective_seconds("all-gather", 1e9, axis, "a=8,b=8", "tpu v5p:4x4x4") for axis in "ab")
    assert a.seconds == b.seconds and a.moved == b.moved
    assert a.bytes_per_s == b.bytes_per_s == pytest.approx(3 * chip("v5p").needs("ici_link_bytes_per_s"))
