"""What XLA's partitioner makes whole for a product: what is said of the propagated module is what it does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.layouts.uneven import shard_shape
from shardviz.program import propagate
from shardviz.program.made_whole import made_whole

MESH = "data=4,model=2"
PRODUCTS = {
    # einsum, shapes, specs, what is made whole on each device, what XLA moves it by
    "both are summed by an axis that is to cut the result": (
        "bd,df->bf",
        ((64, 8), (8, 1024)),
        (P(None, "data"), P("data", "model"), P("data", "model")),
        [(64, 512)],
        ("all-reduce", 64 * 512),
    ),
    "one is summed by an axis that cuts the other and the result": (
        "bv,bd->vd",
        ((64, 512), (64, 32)),
        (P("data", "model"), P(None, "data"), P("model", "data")),
        [(64, 256)],
        ("all-gather", 64 // 4 * 256),
    ),
    "one is gathered by Shardy too": (
        "bd,df->bf",
        ((64, 32), (32, 16)),
        (P("data"), P("data", "model"), P("data", "model")),
        [],
        ("all-gather", 32 // 4 * 8),
    ),
    "nothing is contested": (
        "bd,df->bf",
        ((64, 32), (32, 16)),
        (P("data", "model"), P("model"), P("data")),
        [],
        ("all-reduce", 16 * 16),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_made_whole_is_what_the_partitioner_moves(name):
    letters, shapes, (*ins, out), expected, (kind, elements) = PRODUCTS[name]
    program = sv.trace(lambda a, b: jnp.einsum(letters, a, b), *(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes))
    plan = sv.Plan(MESH, tuple(ins), out)
    lowered, bound = program._lowerings.lower(plan), program.bind(plan)
    graph = propagate.propagate(lowered, bound).graph
    with lowered.entered():
        products = [op for block in graph.blocks.values() for op in block.operations if op.kind == "dot"]
        wholes = [each for op in products for each in made_whole(graph, op)]
    assert [shard_shape(value.shape, spec, bound.mesh) for value, spec in wholes] == expected
    moved = [(c.kind, c.axes, c.operand_bytes / 4) for c in program.partition(plan).collectives]
    axis = "model" if name == "nothing is contested" else "data"
    assert (kind, (axis,), elements) in moved
