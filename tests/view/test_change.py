"""Before and after: what moves, in the collectives' names and in each device's bytes."""

from types import SimpleNamespace

import pytest

from shardviz.errors import ShardvizError
from shardviz.view.show import ShownChange, show
from shardviz.view.subjects import picture
from tests.view.sanitizer import read, words

jax = pytest.importorskip("jax")
NamedSharding, P = jax.sharding.NamedSharding, jax.sharding.PartitionSpec
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


def test_other_devices_another_shape_and_no_array_are_refused():
    with pytest.raises(ShardvizError, match=r"an array \[8, 8\] and \[4, 8\] before and after; expected two arrays"):
        show((8, 8), ("data",), MESH, after=SimpleNamespace(shape=(4, 8), sharding=SimpleNamespace(spec=(), mesh=MESH)))
    with pytest.raises(ShardvizError, match="have different devices"):
        show((8, 8), ("data",), MESH, after=NamedSharding(jax.sharding.AbstractMesh((2,), ("data",)), P("data")))
    with pytest.raises(ShardvizError, match="expected a shape"):
        show("w", None, MESH, after=())


def test_an_array_changes_from_its_own_sharding():
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
    array = jax.ShapeDtypeStruct((64, 64), "bfloat16", sharding=NamedSharding(mesh, P("data")))
    by_spec, by_sharding = show(array, after=P()), show(array, after=NamedSharding(mesh, P()))
    assert "1  all-gather  data" in by_spec.text()
    assert by_spec.text() == by_sharding.text()
    by_array = show(array, after=jax.ShapeDtypeStruct((64, 64), "bfloat16", sharding=NamedSharding(mesh, P())))
    assert by_array.text() == by_spec.text()


def tree(mesh, embed, w):
    leaf = lambda shape, spec: jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))
    layers = [{"w": leaf((64, 64), w), "b": leaf((64,), P())} for _ in range(40)]
    return {"embed": leaf((1024, 64), embed), "layers": layers}


def test_a_tree_before_and_after():
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
    before = tree(mesh, P("data"), P(None, "model"))
    shown = show(before, after=tree(mesh, P("data"), P("model")))
    assert [(each.name, each.count) for each in shown.changed] == [("['layers'][*]['w']", 40)]
    assert [(each.name, each.count) for each in shown.same] == [("['embed']", 1), ("['layers'][*]['b']", 40)]
    own = shown.changed[0].one.moves
    assert own.receive.tolist() == show((64, 64), P(None, "model"), mesh, after=P("model")).moves.receive.tolist()
    text = shown.text()
    assert text.startswith("81 arrays: 40 changed, 41 unchanged\n")
    assert len(text.splitlines()) < 60
    assert "all-to-all model; at most 4.10 kB received" in shown.text(200)
    page = words(shown.html())
    assert "['layers'][*]['w'] 40 float32 [64, 64] P(None, 'model') → P('model', None)" in page
    assert "unchanged: ['embed'], ['layers'][*]['b'] ×40" in page
    assert [key.text for key in picture(shown).keys] == ["data = 4", "model = 2"]


def test_new_specs_for_a_tree_and_arrays_in_only_one():
    mesh = jax.sharding.AbstractMesh((4, 2), ("data", "model"))
    before = tree(mesh, P("data"), P(None, "model"))
    shown = show(before, after={"embed": None, "layers": P("model")})
    assert [(each.name, each.count) for each in shown.changed] == [
        ("['layers'][*]['b']", 40),
        ("['layers'][*]['w']", 40),
    ]
    other = {**before, "head": before["embed"]}
    assert show(before, after=other).only == ((), ("['head']",))
    assert "only before: ['head']" in show(other, after=before).text()
    assert "0 changed, 82 unchanged" in show(other, after=other).text()
    small = jax.sharding.AbstractMesh((2, 2), ("data", "model"))
    assert "to other devices: sv.reshard" in show(before, after=tree(small, P("data"), P())).text()
    shorter = {"embed": jax.ShapeDtypeStruct((512, 64), "float32", sharding=before["embed"].sharding)}
    assert "not one array: the shapes differ" in show(before, after=shorter).text(300)
