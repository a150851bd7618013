"""Dimensions that do not divide, and the copies that JAX makes of them without a word."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from shardviz.errors import SpecError
from shardviz.layouts import layout, silent_copies, uneven
from shardviz.notation import DeviceMesh
from shardviz.notation.record import Sharding
from shardviz.notation.tiling import Tiling

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
    found = silent_copies((17, 1000), ("data", None), {"data": 8}, "float32")
    assert found is not None
    assert found.asked.shard_shape == (3, 1000) and found.made.shard_shape == (17, 1000)
    assert found.wasted_bytes == 7 * 17 * 1000 * 4
    (dimension,) = found.dimensions
    assert (dimension.smaller, dimension.larger) == (16, 24)
    for words in ("'data'=8", "68000 bytes per device instead of 12000", "476000 bytes", "16 or 24 would divide"):
        assert words in str(found)


def test_every_dimension_that_does_not_divide_is_named():
    text = str(silent_copies((9, 7), ("x", "y"), {"x": 2, "y": 4}, "float32"))
    assert "dimension 0 is 9, which is not divisible by 'x'=2, " in text
    assert "dimension 1 is 7, which is not divisible by 'y'=4" in text
    assert "8 or 10, and 4 or 8 would divide" in text and "IndivisibleError" not in text


@pytest.mark.parametrize(("mesh", "spec", "shape", "shard"), FALLBACKS)
def test_what_becomes_of_a_result(mesh, spec, shape, shard):
    found = silent_copies(shape, spec, dict(mesh), "float32")
    assert found is not None and found.made.shard_shape == shard


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
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for (mesh, spec, shape, shard), theirs in zip(FALLBACKS, json.loads(done.stdout), strict=True):
        ours = silent_copies(shape, spec, dict(mesh), "float32")
        assert ours is not None
        assert theirs == list(shard) or (theirs == "IndivisibleError" and ours.breaks), (mesh, spec, shape)


def test_nothing_is_said_where_all_divides():
    assert silent_copies((16, 4), ("x",), {"x": 8}, "float32") is None
    assert uneven(layout((16, 4), ("x",), {"x": 8})) == ()


def test_below_a_size_less_than_the_ways_only_nothing_would_divide():
    (dimension,) = uneven(layout((3,), ("x",), {"x": 8}))
    assert (dimension.smaller, dimension.larger) == (0, 8)


def test_a_sharding_with_no_spec_is_refused_with_its_reason():
    mesh = DeviceMesh.of({"x": 4})
    odd = Sharding.from_tiling(Tiling((4,), (), (0, 2, 3, 1)), mesh)
    assert silent_copies((8,), odd, None, "float32") is None
    with pytest.raises(SpecError, match="no axes"):
        silent_copies((9,), odd, None, "float32")
