"""The table of notations, in text and HTML."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding, SingleDeviceSharding
from jax.sharding import PartitionSpec as P

from shardviz.errors import MeshError, ShardvizError, SpecError
from shardviz.notation import NOTATIONS, Spec, pmap, rosetta
from shardviz.notation.read import sharding
from shardviz.records import Value
from shardviz.view.rosetta import NAMES
from shardviz.view.rosetta import rosetta as show_rosetta
from tests.view.sanitizer import words

MESH = "data=2,model=4"
CUT = sharding("[data, ·]", MESH)
PROTO = CUT.to("proto")  # whose text is another in every process


def test_every_notation_has_a_name_and_is_met_somewhere():
    assert set(NAMES) == set(NOTATIONS)


@pytest.mark.parametrize(
    "given",
    [
        *("P('data', None)", "[data, ·]", "A[I_data, J]", "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
        *("{mesh['data'=2,'model'=4], [{'data'}, {}]}", '#sdy.sharding<@mesh, [{"data"}, {}]>'),
        *(("data", None), ["data", None], P("data", None), Spec.of(("data", None)), CUT),
        *(PROTO, PROTO.SerializeToString()),
        NamedSharding(AbstractMesh((2, 4), ("data", "model")), P("data", None)),
        jax.ShapeDtypeStruct(
            (8, 8), "float32", sharding=NamedSharding(AbstractMesh((2, 4), ("data", "model")), P("data"))
        ),
        Value(name="w", shape=(8, 8), dtype="float32", spec=Spec.of(("data", None))),
        Value(
            name="dot.1",
            shape=(8, 8),
            dtype="float32",
            spec=None,
            sharding={"hlo": "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"},
        ),
    ],
    ids=lambda given: " ".join((type(given).__name__, *([] if given is PROTO else [str(given)])))[:50],
)
def test_anything_that_has_a_sharding_is_taken_and_says_the_same(given):
    shown = show_rosetta(given, MESH, 2)
    assert shown.rows == tuple(rosetta(CUT))
    bundle = shown._repr_mimebundle_()
    assert bundle == show_rosetta(given, MESH, 2)._repr_mimebundle_()
    assert bundle["text/plain"].startswith("[data, ·] on the mesh data=2,model=4, in every notation\n\nnotation")
    assert "[data, ·] on the mesh data=2 model=4, in every notation" in words(bundle["text/html"])


def test_what_brings_its_own_mesh_needs_none():
    devices = np.asarray(jax.devices()[:1]).reshape(1, 1)
    array = jax.device_put(np.zeros((4, 4)), NamedSharding(Mesh(devices, ("a", "b")), P("a", "b")))
    assert show_rosetta(array).sharding.mesh.names == ("a", "b")
    assert "on one device" in show_rosetta(SingleDeviceSharding(jax.devices()[0])).text()
    old = pmap.ShardingSpec((pmap.Chunked((2,)),), (pmap.ShardedAxis(0),))
    assert show_rosetta(old).sharding.mesh.size == 2


def test_a_value_that_is_not_known_to_be_cut_somehow_is_refused():
    with pytest.raises(SpecError, match=r"dot\.1: the report does not say how it is sharded"):
        show_rosetta(Value(name="dot.1", shape=(8,), dtype="float32", spec=None), MESH)
    with pytest.raises(MeshError):
        show_rosetta(Value(name="w", shape=(8,), dtype="float32", spec=Spec.of(("data",))))


@pytest.mark.parametrize(
    "given",
    [
        *("{maximal device=3}", "{devices=[8,1]0,3,1,2,4,7,5,6}", "{unknown}", "{manual}", "{devices=[4,2]<=[8]}"),
        *("P('data', unreduced={'model'})", '#sdy.sharding<@mesh, [{"data", ?}p1, {?}]>', "P(P.UNCONSTRAINED, 'data')"),
        *("{devices=[2,1,4]<=[8] last_tile_dims={manual}}", "P('data', None)", "P()"),
    ],
)
def test_every_notation_is_given_or_why_it_cannot_be(given):
    shown = show_rosetta(given, MESH, 2)
    assert str(shown.sharding).split()[0].strip("[],") in words(shown.html())
    text, page = " ".join(shown.text(400).split()), words(shown.html())
    for row in rosetta(sharding(given, MESH, 2)):
        wanted = row.text if row.text is not None else f"not possible: {row.why}"
        for place in (text, page):
            assert NAMES[row.notation][0] in place
            assert " ".join(wanted.split()) in place


def test_the_pieces_are_explained():
    text = show_rosetta("P('data', None)", MESH).text()
    assert re.search(r"^    None +a dimension that is not sharded$", text, re.M)
    assert "<=[8]" in text


def test_long_device_lists_are_cut_short():
    shown = show_rosetta(("a",), "a=2048")
    assert len(shown.html()) < 20_000 and "…" in shown.text()


def test_what_is_no_sharding_is_refused():
    with pytest.raises(ShardvizError):
        show_rosetta("{devices=[", MESH)
