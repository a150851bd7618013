"""The published reference cases, each re-derived from its definition and named with where it is published."""

import itertools
import math

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from jaxlib._hlo import HloSharding

import shardviz as sv
from shardviz.notation import DeviceMesh, Sharding
from shardviz.notation.scan import iota_of
from shardviz.notation.tiling import Tiling

# JAX, tests/pjit_test.py, UtilTest.testOpShardingRoundTrip: a mesh of 2 x 3 x 4 x 7 x 4 = 672 devices.
LARGE = DeviceMesh.of({"a": 2, "b": 3, "c": 4, "d": 7, "e": 4})
ROUND_TRIPS = [
    P("a", "b"), P("b", "a"), P("a", "b", "c", "d", "e"), P(("a", "b"), "c"), P(("c", "a"), None, "e"), P(None, "d"),
    P(("e", "d", "c", "b", "a")), P(("a", "c"), ("b", "e"), "d"), P("a", None, None, ("e", "c")), P(None, None),
]  # fmt: skip


@pytest.mark.parametrize("spec", ROUND_TRIPS, ids=str)
def test_jax_op_sharding_round_trip(spec):
    cut = sv.sharding(spec, LARGE, len(spec))
    for notation in ("proto", "hlo-v1", "hlo-v2", "hlo-v3", "sdy", "pmap", "short"):
        assert sv.sharding(cut.to(notation), LARGE, len(spec)).to("pspec") == spec, notation


def test_jax_op_sharding_partial_replication():
    """JAX, tests/pjit_test.py, UtilTest.test_op_sharding_partial_sharding: the same tiles, however the copies are said.

    [4, 1, 2] over 0..7 with copies last and the same with `last_tile_dims` mean one thing.
    """
    mesh = DeviceMesh.of({"x": 4, "y": 2})
    one = sv.sharding("{devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}", mesh)
    two = sv.sharding("{devices=[4,1,2]<=[8] last_tile_dims={replicated}}", mesh)
    # among copies the order says nothing
    three = sv.sharding("{devices=[4,1,2]1,0,3,2,5,4,7,6 last_tile_dim_replicate}", mesh)
    assert one.same_as(two) and two.same_as(three) and str(three) == "[x, ·]"
    # and between tiles it does
    assert not one.same_as(sv.sharding("{devices=[4,1,2]0,1,4,5,2,3,6,7 last_tile_dim_replicate}", mesh))


def test_jax_op_sharding_manual_and_replicated_subgroups():
    """JAX, tests/pjit_test.py, UtilTest, manual and replicated subgroups: their order says nothing.

    [1, 1, 2, 2] as {replicated, manual} over [0, 1, 2, 3] is [1, 1, 2, 2] as {manual, replicated} over [0, 2, 1, 3].
    """
    mesh = DeviceMesh.of({"r": 2, "m": 2})
    one = sv.sharding("{devices=[1,1,2,2]0,1,2,3 last_tile_dims={replicated, manual}}", mesh)
    two = sv.sharding("{devices=[1,1,2,2]0,2,1,3 last_tile_dims={manual, replicated}}", mesh)
    iota = sv.sharding("{devices=[1,1,2,2]<=[2,2]T(1,0) last_tile_dims={manual, replicated}}", mesh)
    assert one.same_as(two) and two.same_as(iota) and iota.manual == ("m",)
    other = sv.sharding("{devices=[1,1,2,2]0,1,2,3 last_tile_dims={manual, replicated}}", mesh)
    assert other.manual == ("r",) and not one.same_as(other)


def test_jax_semantic_replication():
    """JAX, tests/pjit_test.py, UtilTest.test_op_sharding_semantically_replicated: one tile is no cut."""
    mesh = DeviceMesh.of({"x": 4, "y": 2})
    texts = (
        "{devices=[1,1,8]<=[8] last_tile_dims={replicated}}",
        "{devices=[1,1,8]0,1,2,3,4,5,6,7 last_tile_dim_replicate}",
        "{devices=[1,1,4,2]<=[8] last_tile_dims={replicated, replicated}}",
        "{devices=[1,1,2,4]7,6,5,4,3,2,1,0 last_tile_dims={replicated, replicated}}",
        "{replicated}",
    )
    found = [sv.sharding(text, mesh, 2) for text in texts]
    assert all(x.same_as(y) for x, y in itertools.product(found, found))
    assert {x.to("hlo-v2") for x in found} == {"{replicated}"}


def test_jax_iota_permutations():
    """JAX, tests/pjit_test.py, UtilTest, its cases of iota tiles; XLA, hlo/ir/tile_assignment_test.cc.

    Every transposed iota of up to four dimensions is found again from its bare list of devices.
    """
    seen = 0
    for sizes in ((2, 3), (4, 2), (2, 2, 2), (2, 3, 5), (3, 2, 2, 2)):
        count = math.prod(sizes)
        for order in itertools.permutations(range(len(sizes))):
            listed = np.arange(count).reshape(sizes).transpose(order).ravel().tolist()
            found = iota_of(listed)
            assert found is not None
            assert np.arange(count).reshape(found[0]).transpose(found[1]).ravel().tolist() == listed
            assert len(found[0]) <= len(sizes)
            cut = Sharding.from_tiling(Tiling((count,), (), tuple(listed)), DeviceMesh(("x",), (count,)))
            theirs = HloSharding.from_string(cut.to("hlo-v2"))
            assert theirs.tile_assignment_devices() == listed
            seen += 1
    assert seen == 2 + 2 + 6 + 6 + 24


XLA_TILES = [  # XLA, hlo/ir/tile_assignment_test.cc and hlo_sharding_test.cc: text → devices by the definition of iota
    ("{devices=[4,2]<=[8]}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
    ("{devices=[4,2]<=[2,4]T(1,0)}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
    ("{devices=[2,4]<=[4,2]T(1,0)}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
    ("{devices=[2,2,2]<=[2,2,2]T(2,1,0)}", [[[0, 4], [2, 6]], [[1, 5], [3, 7]]]),
    ("{devices=[2,3]<=[3,2]T(1,0)}", [[0, 2, 4], [1, 3, 5]]),
]


@pytest.mark.parametrize(("text", "devices"), XLA_TILES)
def test_xla_tile_assignments(text, devices):
    cut = sv.sharding(text)
    assert cut.tiling().table().tolist() == devices
    assert sv.sharding(cut.to("hlo-v1"), cut.mesh).same_as(cut)
    assert cut.to("hlo-v2") == text


XLA_NAMED = [  # XLA, hlo_sharding_test.cc, V3 to V2: named axes → the tiles that they make
    ("{mesh['a'=2,'b'=2], [{'a'}, {'b'}]}", "{devices=[2,2]<=[4]}"),
    ("{mesh['a'=2,'b'=2], [{'b'}, {'a'}]}", "{devices=[2,2]<=[2,2]T(1,0)}"),
    ("{mesh['a'=2,'b'=2], [{'a', 'b'}, {}]}", "{devices=[4,1]<=[4]}"),
    ("{mesh['a'=2,'b'=2], [{'b', 'a'}, {}]}", "{devices=[4,1]<=[2,2]T(1,0)}"),
    ("{mesh['a'=2,'b'=2], [{'a'}, {}]}", "{devices=[2,1,2]<=[4] last_tile_dim_replicate}"),
    ("{mesh['a'=2,'b'=2], [{'b'}, {}]}", "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}"),
    ("{mesh['a'=2,'b'=4], [{'b':(1)2}, {'a'}]}", "{devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}"),
    ("{mesh['a'=2,'b'=2], [{'a'}, {}], unreduced={'b'}}", "{devices=[2,1,2]<=[4] last_tile_dims={unreduced}}"),
    ("{mesh['a'=2,'b'=2], [{'a'}, {}], manual={'b'}}", "{devices=[2,1,2]<=[4] last_tile_dims={manual}}"),
    ("{mesh['a'=2,'b'=2], [{}, {}]}", "{replicated}"),
]


@pytest.mark.parametrize(("named", "tiled"), XLA_NAMED)
def test_xla_named_to_tiled(named, tiled):
    cut = sv.sharding(named)
    assert cut.to("hlo-v2") == tiled
    assert sv.sharding(tiled, cut.mesh, 2).same_as(cut)


SHARDING_TEST = [  # JAX, tests/array_test.py, ShardingTest: mesh x=4,y=2, an (8, 4) array: spec → tiles, places
    (P("x", "y"), (4, 2), [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [3, 1]]),
    (P("x"), (4, 1), [[0, 0], [0, 0], [1, 0], [1, 0], [2, 0], [2, 0], [3, 0], [3, 0]]),
    (P("y"), (2, 1), [[0, 0], [1, 0]] * 4),
    (P(("x", "y")), (8, 1), [[i, 0] for i in range(8)]),
    (P(("y", "x")), (8, 1), [[0, 0], [4, 0], [1, 0], [5, 0], [2, 0], [6, 0], [3, 0], [7, 0]]),
    (P(None, "y"), (1, 2), [[0, 0], [0, 1]] * 4),
    (P("y", "x"), (2, 4), [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2], [0, 3], [1, 3]]),
    (P(), (1, 1), [[0, 0]] * 8),
    (P(None, ("x", "y")), (1, 8), [[0, i] for i in range(8)]),
]


@pytest.mark.parametrize(("spec", "tiles", "places"), SHARDING_TEST, ids=str)
def test_jax_sharding_test_tables(spec, tiles, places):
    cut = sv.sharding(spec, "x=4,y=2", 2)
    assert cut.tiles == tiles and cut.places().tolist() == places
    assert sv.sharding(cut.to("proto"), "x=4,y=2", 2).places().tolist() == places


def test_maximal_and_the_short_words_as_xla_has_them():
    """XLA, hlo_sharding_test.cc: what stands in the message for each."""
    mesh = DeviceMesh.of({"x": 4})
    for theirs in (HloSharding.replicate(), HloSharding.manual(), HloSharding.unknown(), HloSharding.unreduced()):
        cut = sv.sharding(theirs, mesh, 1)
        assert cut.to("hlo-v2") == str(theirs)
        assert sv.sharding(theirs.to_proto(), mesh, 1) == cut
        assert sv.sharding(cut.to("proto"), mesh, 1) == cut
    maximal = HloSharding.from_string("{maximal device=3}")
    cut = sv.sharding(maximal.to_proto(), mesh, 1)
    assert cut.maximal == 3 and cut.places().tolist() == [[-1], [-1], [-1], [0]]
    assert cut.to("proto").SerializeToString() == maximal.to_proto().SerializeToString()
