"""Dimensions that do not divide, and the copies that JAX makes of them without a word."""

import json

import pytest

from shardviz.errors import SpecError
from shardviz.layouts import fallback, indivisible, layout, uneven
from shardviz.notation import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.tiling import Tiling
from tests.truth import answers_of

# (mesh, spec, shape) and what a jitted function's constrained result becomes: asked of JAX below.
FALLBACKS = [
    ((("x", 8),), ("x",), (17, 4), (17, 4)),
    ((("x", 4), ("y", 2)), ("x", "y"), (17, 4), (17, 2)),
    ((("x", 4), ("y", 2)), (("x", "y"),), (20, 4), (5, 4)),
    ((("x", 4), ("y", 2)), (("x", "y"), None), (6, 4), (6, 4)),
    ((("x", 2), ("y", 4)), (("x", "y"),), (18, 4), (9, 4)),
    ((("x", 2), ("y", 4)), (("x", "y"),), (20, 4), (10, 4)),
    ((("x", 8),), ("x",), (2, 4), (2, 4)),
    ((("x", 2), ("y", 2), ("z", 2)), (("x", "y", "z"),), (12, 4), (3, 4)),
    ((("x", 2), ("y", 2), ("z", 2)), (("z", "x"), "y"), (6, 5), (3, 5)),
]


def test_17_rows_over_8_devices():
    asked = layout((17, 1000), ("data", None), {"data": 8})
    assert asked.shard_shape == (3, 1000) and fallback(asked).shard_shape == (17, 1000)
    (dimension,) = uneven(asked)
    assert (dimension.dimension, dimension.tiles, dimension.smaller, dimension.larger) == (0, 8, 16, 24)


def test_every_dimension_that_does_not_divide_is_named():
    asked = layout((9, 7), ("x", "y"), {"x": 2, "y": 4})
    assert [(it.dimension, it.smaller, it.larger) for it in uneven(asked)] == [(0, 8, 10), (1, 4, 8)]
    assert not indivisible(asked, fallback(asked))


@pytest.mark.parametrize(("mesh", "spec", "shape", "shard"), FALLBACKS)
def test_what_becomes_of_a_result(mesh, spec, shape, shard):
    assert fallback(layout(shape, spec, dict(mesh))).shard_shape == shard


def test_what_becomes_of_a_result_is_jaxs():
    script = f"""
import json, jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
found = []
for mesh, spec, shape, _ in {FALLBACKS!r}:
    devices = np.array(jax.devices()).reshape([size for _, size in mesh])
    sharding = NamedSharding(Mesh(devices, [name for name, _ in mesh]), P(*spec))
    f = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, sharding))
    try:
        found.append(f(np.ones(shape, np.float32)).addressable_shards[0].data.shape)
    except ValueError as error:
        found.append(type(error).__name__)
print(json.dumps(found))
"""
    answers = json.loads(answers_of("-c", script, devices=8))
    for (mesh, spec, shape, shard), theirs in zip(FALLBACKS, answers, strict=True):
        asked = layout(shape, spec, dict(mesh))
        stops = indivisible(asked, fallback(asked))
        assert theirs == list(shard) or (theirs == "IndivisibleError" and stops), (mesh, spec, shape)


def test_nothing_is_said_where_all_divides():
    cut = layout((16, 4), ("x",), {"x": 8})
    assert uneven(cut) == () and fallback(cut).spec == cut.spec


def test_below_a_size_less_than_the_ways_only_nothing_would_divide():
    (dimension,) = uneven(layout((3,), ("x",), {"x": 8}))
    assert (dimension.smaller, dimension.larger) == (0, 8)


def test_a_sharding_with_no_spec_is_refused_with_its_reason():
    mesh = DeviceMesh.of({"x": 4})
    odd = Sharding.from_tiling(Tiling((4,), (), (0, 2, 3, 1)), mesh)
    with pytest.raises(SpecError, match="no axes"):
        fallback(layout((9,), odd))
