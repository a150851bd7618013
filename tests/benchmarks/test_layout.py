"""What it costs to know where the bytes are, and the bounds that it must keep."""

from __future__ import annotations

import numpy as np

from shardviz.layouts import layout
from shardviz.notation import DeviceMesh
from shardviz.stablehlo.resharding import moves

SHAPE = (4096, 4096, 64, 64)
SPEC = ("d", ("c", "a"), None, "b")
PERMUTED = tuple(np.random.default_rng(0).permutation(16384).tolist())
MESH = DeviceMesh(("a", "b", "c", "d"), (16, 16, 8, 8), (), PERMUTED)


def test_device_to_slice_of_16384_devices(benchmark, yardstick):
    cut = benchmark(layout, SHAPE, SPEC, MESH)
    assert cut.starts.shape == (16384, 4)
    assert benchmark.stats.stats.median <= 0.25 * yardstick()


def test_device_to_slice_of_16384_devices_from_hlo(benchmark, yardstick):
    text = "{devices=[16,4,1,2,128]<=[16384] last_tile_dim_replicate}"
    cut = benchmark(layout, SHAPE, text, MESH)
    assert cut.replicas == 128
    assert benchmark.stats.stats.median <= 1.0 * yardstick()


def test_moves_of_16384_devices(benchmark, yardstick):
    way = benchmark(moves, SHAPE, SPEC, ("a", ("d", "c"), "b", None), MESH)
    assert way.steps
    assert benchmark.stats.stats.median <= 1.0 * yardstick()
