"""`show` takes whatever has a sharding, and says what is missing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from shardviz.errors import ShardvizError, SpecError
from shardviz.records import Value
from shardviz.render import Shown, shard_map_html, shard_map_text, show
from tests.render.sample import MESH, report, value


def test_a_shape():
    shown = show((8192, 4096), ("data", "model"), MESH)
    assert isinstance(shown, Shown)
    assert repr(shown) == shown.text() == shard_map_text(shown.layout)
    assert shown.html() == shard_map_html(shown.layout)
    assert shown._repr_mimebundle_() == {"text/plain": shown.text(), "text/html": shown.html()}
    assert set(shown._repr_mimebundle_(exclude={"text/html"})) == {"text/plain"}


def test_a_size_and_a_list_are_shapes():
    assert show(16, ("data",), "data=4").layout.shard_shape == (4,)
    assert show([16, 2], ("data",), {"data": 4}).layout.shard_shape == (4, 2)


def test_no_spec_is_replicated():
    assert show((16,), mesh="data=4").layout.replicas == 4


def test_a_value_of_a_report():
    r = report()
    shown = show(r.value("params['wq']"), mesh=r.mesh)
    assert shown.text().startswith("params['wq']  bfloat16, 1.05 MB per device\n[8192, 4096]  P('data',")
    assert "params[&#x27;wq&#x27;]  bfloat16, 1.05 MB per device" in shown.html()


def test_a_spec_given_overrides_the_values_own():
    assert show(value("w", (64, 64), "float32", ("data",)), (None, "data"), MESH).layout.shard_shape == (64, 8)


def test_anything_with_a_named_sharding():
    array = SimpleNamespace(
        shape=(8, 6), dtype=SimpleNamespace(name="int4"), sharding=SimpleNamespace(spec=("x",), mesh={"x": 2})
    )
    shown = show(array)
    assert shown.layout.shard_shape == (4, 6)
    assert "int4, 12 B per device" in shown.text()


def test_a_jax_shape_and_a_jax_mesh():
    jax = pytest.importorskip("jax")
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(None, "model"))
    abstract = jax.ShapeDtypeStruct((8, 8), "bfloat16", sharding=sharding)
    assert show(abstract).layout.shard_shape == show((8, 8), sharding.spec, mesh).layout.shard_shape == (8, 2)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((8,),), ShardvizError, r"show\(\[8\]\): a shape alone does not say.*give a mesh"),
        ((report().value("x"),), ShardvizError, r"show\(x\): a report's value does not carry its mesh"),
        ((Value("y", (8,), "float32", None), None, MESH), SpecError, r"show\('y'\): no PartitionSpec.*spec=\('data'"),
        (("wq", None, MESH), ShardvizError, "expected a shape such as .*, not str wq"),
        (((8, "a"), None, MESH), ShardvizError, "expected a shape"),
        ((SimpleNamespace(shape=(8,), sharding=SimpleNamespace()),), ShardvizError, "SimpleNamespace, which has no"),
        (((8,), ("nowhere",), MESH), SpecError, "the mesh has no axis 'nowhere'"),
    ],
)
def test_what_is_missing_is_said(arguments, error, message):
    with pytest.raises(error, match=message):
        show(*arguments)
