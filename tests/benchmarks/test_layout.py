"""What it costs to know where the bytes are, and the bounds that it must keep."""

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import PartitionSpec as P

import shardviz as sv
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


def test_a_70b_trainer_on_256_chips_hands_its_weights_to_64_others_in_a_second(benchmark):
    """The seven matrices of each of 80 layers, not stacked: 560 arrays."""
    shapes = {"wq": (8192, 8192), "wk": (8192, 1024), "wv": (8192, 1024), "gate": (8192, 28672), "up": (8192, 28672)}
    rows = {"wo": (8192, 8192), "down": (28672, 8192)}
    layer = {name: jax.ShapeDtypeStruct(shape, "bfloat16") for name, shape in (shapes | rows).items()}
    specs = {name: P("tensor") if name in rows else P(None, "tensor") for name in layer}
    params, after = ({f"layer_{n}": each for n in range(80)} for each in (layer, specs))
    meshes = {"mesh": {"fsdp": 256}, "to_mesh": {"replica": 8, "tensor": 8}}
    machines = {"target": "tpu v5p:4x8x8", "to_target": "tpu v5p:4x4x4"}
    moved = benchmark(lambda: sv.reshard(params, P("fsdp"), after, **meshes, **machines))
    assert len(moved.leaves) == 560 and moved.ways[0].seconds
    assert benchmark.stats.stats.median <= 1.0
