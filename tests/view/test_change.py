"""Before and after: what moves, in the collectives' names and in each device's bytes."""

import numpy as np
import pytest

from shardviz.errors import ShardvizError
from shardviz.view.show import ShownChange, show
from tests.view.sanitizer import read, words

MESH = "data=4,model=2"


def test_an_all_to_all():
    shown = show((8, 8), ("data", None), "data=4", after=(None, "data"), dtype="float32")
    assert isinstance(shown, ShownChange)
    text = shown.text()
    assert text.startswith("before\n  float32, 64 B per device\n  [8, 8] P('data', None) · shard [2, 8]")
    assert text.endswith(
        "resharding, P('data', None) → P(None, 'data'): 1 collective\n"
        "     step        over  spec after it    received, at most  what it does\n"
        "  1  all-to-all  data  P(None, 'data')               48 B  dimension 0 is no\n"
        "                                                           longer sharded,\n"
        "                                                           dimension 1 is\n"
        "                                                           sharded\n"
        "\n"
        "  devices  keeps  receives  drops\n"
        "  0-3       16 B      48 B   48 B"
    )
    page = words(shown.html())
    assert "resharding, P('data', None) → P(None, 'data'): 1 collective" in page
    assert "1 all-to-all data [·, data] 48 B dimension 0 is no longer sharded, dimension 1 is sharded" in page
    assert "12 elements" in read(shown.html()).titles
    assert "devices keeps receives drops 0-3 16 B 48 B 48 B" in page


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ((), ("data",), "no collective, 1 local slice"),
        (("data",), (), "1 all-gather data P(None, None) 48 elements dimension 0 is no longer sharded"),
        (("data",), ("data",), "nothing"),
        ("{devices=[1,1,4,2]<=[8] last_tile_dims={unreduced,replicated}}", (), "1 all-reduce data"),
        ("{maximal device=5}", (), "collective-broadcast"),
        (("data", None), ("model", None), "devices"),
    ],
)
def test_what_moves(before, after, wanted):
    shown = show((8, 8), before, MESH, after=after)
    assert wanted in " ".join(shown.text(120).split())
    read(shown.html())


def test_devices_that_keep_different_amounts_are_told_apart():
    text = " ".join(show((10, 7), ("data",), "data=4", after=(), dtype="float32").text().split())
    assert "devices keeps receives drops 3 28 B 252 B 0 B 0-2 84 B 196 B 0 B" in text


def test_a_sharding_that_does_not_divide_is_said():
    shown = show((17, 8), (), "data=8", after=("data",), dtype="float32")
    text = " ".join(shown.text().split())
    assert "after: JAX refuses this for an argument: dimension 0 is 17" in text
    pytest.importorskip("matplotlib")
    captions = " ".join(t.get_text() for t in shown.plot().texts).replace("\n", " ")
    assert "(16 or 24 would be)" in captions and "all-gather" not in captions


def test_2048_devices_stay_small():
    shown = show((8192, 4096), ("data", "model"), "data=64,model=32", after=("model", "data"), dtype="bfloat16")
    assert len(shown.html()) < 150_000
    assert len(shown.text().splitlines()) < 220


def test_a_tree_and_another_mesh_are_refused():
    with pytest.raises(ShardvizError, match="not a tree"):
        show({"w": np.ones(8)}, None, MESH, after=())
    with pytest.raises(ShardvizError, match="expected a shape"):
        show("w", None, MESH, after=())


def test_an_array_changes_from_its_own_sharding():
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
    P = jax.sharding.PartitionSpec
    array = jax.ShapeDtypeStruct((64, 64), "bfloat16", sharding=jax.sharding.NamedSharding(mesh, P("data")))
    by_spec, by_sharding = show(array, after=P()), show(array, after=jax.sharding.NamedSharding(mesh, P()))
    assert "1  all-gather  data" in by_spec.text()
    assert by_spec.text() == by_sharding.text()
