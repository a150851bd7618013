"""Trees that go to another mesh: as real arrays do on simulated devices; costs by hand; wrong input."""

from __future__ import annotations

import itertools
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import MeshError, ShardvizError, SpecError, TargetError
from shardviz.records.resharding import Resharding
from shardviz.stablehlo.resharding import moves_between
from tests.truth import UNOPTIMIZED, answers_of

PODS = {"target": "tpu v5e:4x4", "to_target": "tpu v5e:2x4"}
BACK = {"target": "tpu v5e:2x4", "to_target": "tpu v5e:4x4"}
APART = {"mesh": {"fsdp": 16}, "to_mesh": {"replica": 2, "tensor": 4}}


def array(*shape: int, dtype: str = "bfloat16") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.mark.long
@pytest.mark.parametrize("what", ["pairs", "code", "changed"])
def test_real_arrays_move_so_on_16_simulated_devices(what):
    answers_of(Path(__file__).with_name("reshard_on_16.py"), what, **UNOPTIMIZED)


@pytest.mark.slow
def test_a_trainer_of_flax_hands_a_sampler_equal_weights():
    answers_of(Path(__file__).with_name("nnx_on_8.py"))


@pytest.mark.long
@pytest.mark.tunix
def test_tunix_syncs_weights_as_the_code_does():
    answers_of(Path(__file__).with_name("tunix_on_8.py"))


def test_a_trainer_hands_a_sampler_its_weights_over_the_network():
    """Each of 8 devices receives a quarter of the array from 16 others; by hand."""
    moved = sv.reshard({"w": array(1024, 1024)}, P("fsdp"), P(None, "tensor"), **APART, **PODS)
    whole = 1024 * 1024 * 2
    assert (moved.moved_bytes, moved.received_bytes, moved.sent_bytes) == (whole * 2, whole / 4, whole / 8)
    assert (moved.pair_count, moved.shared_devices) == (16 * 8, 0)
    assert [(link.kind, link.nbytes, link.seconds) for link in moved.links] == [("DCN", whole * 2, whole / 4 / 3.125e9)]
    host = next(way for way in moved.ways if way.name == "through the host")
    assert host.seconds == pytest.approx(whole / 16 / 1.5e10 + whole / 4 / 3.125e9 + whole / 4 / 1.5e10)
    assert host.host_bytes == whole and moved.leaves[0].taken == "the host"
    assert Resharding.from_json(moved.to_json()) == moved
    told = moved.text()
    assert "4.19 MB between devices" in told and "DCN" in told and "PCIe" in told
    assert "def reshard(tree, devices):" in moved.html()


def test_copies_are_gathered_from_one_that_passed_the_network():
    """Two copies of an array: one passes the network, an eighth to each device, and is gathered over `replica`."""
    moved = sv.reshard({"w": array(1024, 1024)}, P("fsdp"), P(None, "tensor"), **APART, **PODS)
    best, whole = moved.ways[0], 1024 * 1024 * 2
    inside = sv.collective_seconds("all-gather", whole / 4, "replica", APART["to_mesh"], PODS["to_target"])
    assert best.name == "one copy, then gathered" and moved.leaves[0].first == "P('replica', 'tensor')"
    assert best.seconds == pytest.approx(whole / 8 / 3.125e9 + inside.seconds)


def test_on_one_machine_the_bytes_pass_the_torus():
    """Shards move one place along a line of 4: the link in the middle passes one shard, as every link."""
    before, after = "x=4 devices=[0,1,2,3]", "x=4 devices=[1,0,2,3]"
    target = "tpu v5e:2x2"
    moved = sv.reshard(array(4, 1024), P("x"), P("x"), mesh=before, to_mesh=after, target=target)
    assert [(link.kind, link.seconds) for link in moved.links] == [("ICI", 2048 / 4.5e10)]
    assert moved.pairs == ((0, 1, 2048.0), (1, 0, 2048.0)) and moved.leaves[0].taken == "a program"


def test_replicas_are_read_from_the_nearest_and_in_turn():
    """16 holders, of which each host of the sampler's side has none: all send equally much."""
    moved = sv.reshard({"w": array(64, 64)}, P(), P("tensor"), **APART, **PODS)
    sent = np.bincount([s for s, _, _ in moved.pairs], [n for _, _, n in moved.pairs])
    assert sorted(sent.tolist(), reverse=True)[:8] == [64 * 64 * 2 / 4] * 8
    same = sv.reshard({"w": array(64, 64)}, P(), P("fsdp"), mesh={"fsdp": 16}, target="tpu v5e:4x4")
    assert same.moved_bytes == 0 and same.pair_count == 0


def test_the_chunks_are_fewest():
    """Against all ways of cutting the arrays, in their order, into chunks."""
    tree = {f"w{n}": array(64 * (n % 3 + 1), 64 * (5 - n)) for n in range(5)}
    for limit in (60e3, 80e3, 100e3, 140e3):
        moved = sv.reshard(tree, P("fsdp"), P(None, "tensor"), mesh={"fsdp": 8}, to_mesh={"tensor": 8}, limit=limit)
        put = next(way for way in moved.ways if way.name == "jax.device_put" and (way.fits or len(way.chunks) > 1))
        old, new = ([getattr(leaf, f"{side}_bytes") for leaf in moved.leaves] for side in ("before", "after"))

        def peak(cuts, old=old, new=new):
            ends = [0, *cuts, len(old)]
            return max(sum(old[start:]) + sum(new[:end]) for start, end in itertools.pairwise(ends))

        every = [cuts for n in range(5) for cuts in itertools.combinations(range(1, 5), n) if peak(cuts) <= limit]
        assert put.fits is bool(every)
        assert not every or len(put.chunks) == 1 + min(map(len, every))
        assert put.before_peak == put.after_peak == peak(list(itertools.accumulate(put.chunks))[:-1])


def test_a_cast_before_the_move_sends_half():
    tree = {"w": array(1024, 1024, dtype="float32"), "step": array(dtype="int32")}
    moved = sv.reshard(tree, P(), P(), **APART, **PODS, dtype="bfloat16")
    dtypes = {leaf.name: leaf.new_dtype for leaf in moved.leaves}
    assert dtypes == {"['w']": "bfloat16", "['step']": "int32"}
    seconds = {way.cast: way.seconds for way in moved.ways if way.name == "piece by piece"}
    assert seconds["after"] / seconds["before"] == pytest.approx(2, rel=1e-4)


def test_arrays_go_by_their_paths():
    """A tree of arrays after: one is renamed, one arrives nowhere, one comes from nowhere, one arrives replicated."""
    mesh, to = jax.sharding.AbstractMesh((4,), ("x",)), jax.sharding.AbstractMesh((2,), ("y",))
    on = lambda mesh, *spec: jax.sharding.NamedSharding(mesh, P(*spec))
    struct = lambda mesh, *spec: jax.ShapeDtypeStruct((8, 8), "float32", sharding=on(mesh, *spec))
    before = {"attn": {"q": struct(mesh, "x")}, "norm": struct(mesh, "x"), "opt": struct(mesh, "x")}
    after = {"wq": struct(to, None, "y"), "norm": struct(to), "cache": struct(to)}
    moved = sv.reshard(before, None, after, rename={"['attn']['q']": "['wq']"})
    assert {leaf.name: leaf.new_name for leaf in moved.leaves} == {"['attn']['q']": "['wq']", "['norm']": "['norm']"}
    assert (moved.nowhere, moved.unfed) == (("['opt']",), ("['cache']",))
    assert [leaf.name for leaf in moved.leaves if leaf.gathered] == ["['norm']"]
    assert "arrive nowhere" in moved.text() and "come from nowhere" in moved.text()


def test_a_plan_says_mesh_and_specs():
    plans = (sv.Plan({"x": 4}, in_specs=({"w": P("x")},)), sv.Plan({"y": 2}, in_specs=({"w": P(None, "y")},)))
    by_plan = sv.reshard({"w": array(8, 8)}, *plans)
    assert by_plan == sv.reshard({"w": array(8, 8)}, P("x"), P(None, "y"), mesh={"x": 4}, to_mesh={"y": 2})


def test_from_8x8_to_64_devices_on_one_axis_nothing_is_gathered():
    """Each device keeps an eighth of its shard, as `sv.moves` has it with an all-to-all."""
    ends = sv.layout((8192, 28672), P("a", "b"), "a=8,b=8"), sv.layout((8192, 28672), P("x"), "x=64")
    moved = sv.reshard(array(8192, 28672), P("a", "b"), P("x"), mesh={"a": 8, "b": 8}, to_mesh={"x": 64})
    assert moved.received_bytes == 8192 * 28672 * 2 / 64 * 7 / 8
    assert [step.kind for step in moves_between(*ends).steps] == ["all-to-all"]


MESH, SERVES = jax.sharding.AbstractMesh((16,), ("fsdp",)), jax.sharding.AbstractMesh((8,), ("tensor",))


def given(mesh, spec, *shape: int, dtype: str = "bfloat16", memory: str | None = None) -> jax.ShapeDtypeStruct:
    on = jax.sharding.NamedSharding(mesh, spec, memory_kind=memory)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=on)


def amounts(moved):
    return moved.moved_bytes, moved.sent_bytes, moved.received_bytes, moved.pairs, moved.links


@pytest.mark.parametrize("dim", [0, 1])
def test_layers_move_as_the_array_that_they_are_stacked_into(dim):
    """Both ways round; the same bytes as those of an array with a dimension more."""
    layers = {"blocks": [{"w": given(MESH, P("fsdp"), 64, 32)} for _ in range(10)]}
    shape, spec = ((10, 64, 32), (None, "fsdp")) if dim == 0 else ((64, 10, 32), ("fsdp",))
    stacked, one = given(SERVES, P(None, None, "tensor"), *shape), given(MESH, P(*spec), *shape)
    moved = sv.reshard(layers, None, {"w": stacked}, rename={"['blocks'][*]['w']": "['w']"}, **PODS)
    assert amounts(moved) == amounts(sv.reshard({"w": one}, None, {"w": stacked}, **PODS))
    assert (len(moved.leaves[0].layers), moved.leaves[0].layer_dims, moved.nowhere) == (10, (dim, None), ())
    back = {"blocks": [{"w": given(MESH, P("fsdp"), 64, 32)} for _ in range(10)]}
    there = sv.reshard({"w": stacked}, None, back, rename={"['w']": "['blocks'][*]['w']"}, **BACK)
    assert amounts(there) == amounts(sv.reshard({"w": stacked}, None, {"w": one}, **BACK))
    assert "10 layers" in moved.text() and Resharding.from_json(there.to_json()) == there
    specs = sv.reshard(layers, None, P("tensor"), to_mesh=SERVES, rename={"['blocks'][*]['w']": "['w']"}, **PODS)
    assert specs.leaves[0].after == "P(None, 'tensor')"  # one spec for all arrays is that of a layer


def test_layers_of_different_shardings_move_each_by_its_own():
    """Both ways round: the bytes of each layer are those of an array of its shape; the stack is split or made."""
    specs, patterns = (P("fsdp"), P(None, "fsdp"), P("fsdp"), P()), ("['blocks'][*]['w']", "['w']")
    layers = {"blocks": [{"w": given(MESH, spec, 64, 32)} for spec in specs]}
    stacked, one = given(SERVES, P(None, None, "tensor"), 4, 64, 32), given(SERVES, P(None, "tensor"), 64, 32)
    moved = sv.reshard(layers, None, {"w": stacked}, rename=dict([patterns]), **PODS)
    alone = [sv.reshard({"w": each["w"]}, None, {"w": one}, **PODS) for each in layers["blocks"]]
    amount = {leaf.name: leaf.moved_bytes for leaf in moved.leaves}
    assert amount == {f"['blocks'][{n}]['w']": each.moved_bytes for n, each in enumerate(alone)}
    assert {(leaf.stack, leaf.layer_dims) for leaf in moved.leaves} == {("['w']", (None, 0))}
    assert "one by one" in moved.text() and Resharding.from_json(moved.to_json()) == moved
    back = sv.reshard({"w": stacked}, None, layers, rename=dict([patterns[::-1]]), **BACK)
    assert [leaf.after for leaf in back.leaves] == ["P('fsdp')", "P(None, 'fsdp')", "P('fsdp')", "P()"]
    by_specs = sv.reshard(layers, None, P(None, "tensor"), to_mesh=SERVES, rename=dict([patterns]), **PODS)
    assert by_specs == moved


def test_layers_of_different_shardings_say_what_they_need():
    layers = {"blocks": [{"w": given(MESH, spec, 64, 32)} for spec in [P("fsdp"), P()] * 4]}
    rename = {"['blocks'][*]['w']": "['w']"}
    both = r"\['blocks'\]\[0\]\['w'\] is P\('fsdp'\) on fsdp=16\S* and \['blocks'\]\[1\]\['w'\] is P\(\) on fsdp=16\S*"
    with pytest.raises(SpecError, match=rf"{both}.* dimension 0 counts the layers; shard only its other dimensions"):
        sv.reshard(layers, None, {"w": given(SERVES, P("tensor"), 8, 64, 32)}, rename=rename)
    scaled = {"q": given(SERVES, P(), 8, 64, 32, dtype="int8"), "s": given(SERVES, P(), 8, 64, 1)}
    with pytest.raises(ShardvizError, match=rf"{both} give layers that have or get scales one sharding"):
        sv.reshard(layers, None, scaled, rename={"['blocks'][*]['w']": ("['q']", "['s']")})
    pinned = {"blocks": [layers["blocks"][0], {"w": given(MESH, P("fsdp"), 64, 32, memory="pinned_host")}]}
    with pytest.raises(ShardvizError, match=r"in device memory, .* in pinned_host memory; layers of one stacked array"):
        sv.reshard(pinned, None, {"w": given(SERVES, P(), 2, 64, 32)}, rename=rename)


def test_scales_go_with_their_numbers_and_only_one_of_both_forms_moves():
    wide, numbers = given(MESH, P("fsdp"), 1024, 512), given(SERVES, P("tensor"), 1024, 512, dtype="int8")
    scales = given(SERVES, P("tensor"), 1024, 1, dtype="float32")
    names = "['q']", "['s']"
    moved = sv.reshard({"w": wide}, None, {"q": numbers, "s": scales}, rename={"['w']": names}, **PODS)
    piecewise = {way.cast: way.seconds for way in moved.ways if way.name == "piece by piece"}
    rate = 3.125e9 * 8  # each of 8 devices receives an eighth
    assert piecewise == {
        "before": pytest.approx((1024 * 512 + 1024 * 4) / rate),
        "after": pytest.approx(1024 * 512 * 2 / rate),
    }
    assert moved.moved_bytes == 1024 * 512 + 1024 * 4
    assert [(leaf.scales, leaf.before, leaf.before_bytes) for leaf in moved.leaves][1] == ("made", "P('fsdp')", 0)
    back = sv.reshard({"q": numbers, "s": scales}, None, {"w": wide}, rename={names: "['w']"}, **BACK)
    assert back.moved_bytes == 1024 * 512 + 1024 * 4 and back.leaves[1].scales == "used"


def test_the_all_reduce_of_scales_is_counted():
    """A scale a column, of rows that 16 chips share: 4 bytes a column, before the move; after it, columns are whole."""
    wide, names = given(MESH, P("fsdp"), 1024, 1 << 20), ("['q']", "['s']")
    after = {"q": given(SERVES, P(None, "tensor"), 1024, 1 << 20, dtype="int8")}
    ways = {}
    for spec in (P("tensor"), P()):
        scales = given(SERVES, spec, 1 << 20, dtype="float32")
        moved = sv.reshard({"w": wide}, None, after | {"s": scales}, rename={"['w']": names}, **PODS)
        ways[spec] = {way.cast: way for way in moved.ways if way.name == "piece by piece"}
    reduced = sv.collective_seconds("all-reduce", 4 << 20, "fsdp", {"fsdp": 16}, "tpu v5e:4x4")
    (first, _), (other, gathered) = ((ways[spec]["before"], ways[spec]["after"]) for spec in (P("tensor"), P()))
    assert first.seconds == pytest.approx(((1024 << 20) + (4 << 20)) / 8 / 3.125e9 + reduced.seconds)
    assert f"all-reduce of scales over fsdp: 1 x ({reduced.formula})" in first.formula
    assert other.seconds == pytest.approx(((1024 << 20) / 8 + (4 << 20)) / 3.125e9 + reduced.seconds)
    spread = sv.collective_seconds("all-gather", 4 << 20, "tensor", {"tensor": 8}, "tpu v5e:2x4")
    assert gathered.seconds == pytest.approx((1024 << 21) / 8 / 3.125e9 + spread.seconds)
    assert "all-reduce" not in gathered.formula and "all-gather of scales over tensor" in gathered.formula


@pytest.mark.parametrize("ends", [("pinned_host", None), (None, "pinned_host")])
def test_a_hosts_memory_is_left_and_reached_over_each_devices_own_pcie_link(ends):
    """Half a million bytes of each device at 15 GB/s, and the bytes between devices as without the host."""
    on = lambda spec, memory: given(MESH, spec, 1024, 4096, memory=memory)
    tree, after = {"w": on(P("fsdp"), ends[0])}, {"w": on(P(None, "fsdp"), ends[1])}
    moved = sv.reshard(tree, None, after, target=PODS["target"])
    inside = sv.reshard({"w": on(P("fsdp"), None)}, None, {"w": on(P(None, "fsdp"), None)}, target=PODS["target"])
    shard = 1024 * 4096 * 2 / 16
    pcie = next(link for link in moved.links if link.kind == "PCIe")
    assert (pcie.nbytes, pcie.seconds) == (shard * 16, shard / 1.5e10)
    assert ("from" if ends[0] else "to") + " the host / 15.0 GB/s" in pcie.formula
    assert moved.pairs == inside.pairs
    direct, alone = (next(w for w in m.ways if w.name == "piece by piece") for m in (moved, inside))
    assert direct.seconds == pytest.approx(alone.seconds + pcie.seconds)
    still = sv.reshard(tree, None, {"w": on(P("fsdp"), ends[1])}, target=PODS["target"])
    assert still.ways[0].seconds == pcie.seconds and still.moved_bytes == 0


RENAMED = {
    "a shape that is no stack": (
        {"['b'][*]": "['w']"},
        (4, 8, 4),
        r"\['b'\]\[\*\] → \['w'\]: 3 layers .*before, an array \[4, 8, 4\] .*expected \[3, 8, 4\]",
    ),
    "scales that do not fit": ({"['v']": ("['w']", "['s']")}, (8, 4), r"float32\[8, 4\] as int8 with scales \[3\]"),
    "a name that is no number": ({"['*']": "['w']"}, (3, 8, 4), "'v', which is no number"),
    "two stars": ({"['b'][*]": "['w'][*][*]"}, (3, 8, 4), r"one \* on the side that has the layers"),
    "three paths": ({"['v']": ("['w']", "['s']", "['t']")}, (8, 4), "a path on each side, or two on one"),
}


@pytest.mark.parametrize("wrong", RENAMED)
def test_wrong_patterns_name_both_sides_and_what_to_give(wrong):
    rename, shape, message = RENAMED[wrong]
    tree = {"b": [array(8, 4, dtype="float32")] * 3, "v": array(8, 4, dtype="float32")}
    after = {"w": given(SERVES, P(), *shape, dtype="int8"), "s": given(SERVES, P(), 3, dtype="float32")}
    with pytest.raises(ShardvizError, match=message):
        sv.reshard(tree, P(), after, mesh={"x": 4}, rename=rename)


WRONG = {
    "a size that does not divide": (
        ({"w": array(6, 8)}, P("x"), P(None, "x")),
        SpecError,
        r"\['w'\] \[6, 8\], before .*dimension 0 of size 6 does not divide by 4 .*pad it to 8",
    ),
    "a spec too few": (
        ({"a": array(8), "b": array(8)}, {"a": P()}, P()),
        ShardvizError,
        r"\['b'\], before: the arrays",
    ),
    "a spec too many": (({"a": array(8)}, P(), {"a": P(), "z": P()}), ShardvizError, r"\['z'\], after: the arrays are"),
    "an axis that is not there": (({"w": array(8)}, P("x"), P("y")), SpecError, r"\['w'\] \[8\], after .*no axis 'y'"),
    "no array": (({"w": 3}, P(), P()), ShardvizError, r"\['w'\]: expected an array or a jax.ShapeDtypeStruct, not int"),
    "nothing": (({}, P(), P()), ShardvizError, "it has no arrays"),
    "no sharding": (({"w": array(8)}, None, P()), ShardvizError, r"\['w'\], before: the array has no sharding"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_trees_name_the_array_and_both_sides(wrong):
    given, kind, message = WRONG[wrong]
    with pytest.raises(kind, match=message):
        sv.reshard(*given, mesh={"x": 4})


def test_wrong_meshes_and_machines():
    tree = {"w": array(8)}
    with pytest.raises(MeshError, match=r"\['w'\] \[8\], before .*: a spec alone does not say how many devices"):
        sv.reshard(tree, P("x"), P())
    with pytest.raises(TargetError, match="give target as well"):
        sv.reshard(tree, P(), P(), mesh={"x": 8}, to_target="tpu v5e:2x4")
    with pytest.raises(TargetError, match="8 devices for meshes of 8 and 4"):
        sv.reshard(tree, P(), P(), mesh={"x": 8}, to_mesh={"y": 4}, apart=True, target="tpu v5e:2x4")
    with pytest.raises(ShardvizError, match="rename: no array before has the path"):
        sv.reshard(tree, P(), P(), mesh={"x": 8}, rename={"['v']": "['w']"})
    shapes = {"w": jax.ShapeDtypeStruct((4,), "float32", sharding=jax.sharding.NamedSharding(sv.mesh(x=2), P()))}
    with pytest.raises(ShardvizError, match=r"\['w'\]: shape \(8,\) before, \(4,\) after"):
        sv.reshard(tree, P(), shapes, mesh={"x": 8})
