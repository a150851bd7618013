"""Products whose factors disagree on how their sum is cut: level propagated moves what the partitioner moves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv

MESH = "data=4,model=2"
BOTH = ("data", "model")
PRODUCTS = {
    "fewer pieces on the left": ("bd,bf->df", P("data"), P(BOTH), P()),
    "fewer pieces on the right": ("bd,bf->df", P(BOTH), P("data"), P()),
    "other axes": ("bd,bf->df", P("data"), P("model"), P()),
    "a result that is cut": ("bd,bf->df", P("data"), P(BOTH), P(None, "model")),
    "a result that is cut likewise": ("bd,bf->df", P("data"), P(BOTH), P("data")),
    "a result that is cut as the right": ("bd,bf->df", P("data"), P(BOTH), P(None, BOTH)),
    "two summed dimensions": ("btd,btf->df", P("data"), P(BOTH), P()),
    "agreeing": ("bd,bf->df", P(BOTH), P(BOTH), P()),
    "as many pieces": ("bd,bf->df", P(BOTH), P(("model", "data")), P()),
    "another dimension is cut": ("bd,bf->df", P(BOTH), P("data", "model"), P()),
    "few rows, cut as what the weight sums over": ("rd,df->rf", P("data"), P("data", "model"), P("data", "model")),
    "a weight that is cut along the rows' axis and another": ("rd,df->rf", P("data"), P(BOTH), P("data")),
    "the weight on the left": ("fd,rd->fr", P("model", "data"), P("data"), P("model", "data")),
    "nothing is contested": ("rd,df->rf", P("data", "model"), P("model"), P("data")),
}
SIZES = {"r": 8, "d": 512, "f": 512}


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_moved_and_multiplied_is_the_partitioners(name):
    letters, *ins, out = PRODUCTS[name]
    sizes = SIZES if "r" in letters else {}
    shapes = ([sizes.get(letter, 64) for letter in side] for side in letters.split("->")[0].split(","))
    arrays = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    program = sv.trace(lambda a, b: jnp.einsum(letters, a, b), *arrays)
    plan = sv.Plan(MESH, tuple(ins), out)
    foretold, partitioned = program.propagate(plan), program.partition(plan)
    assert foretold.cost.dot_flops == partitioned.cost.dot_flops
    moved = [
        sorted((c.kind, set(c.axes), c.operand_bytes) for c in report.collectives if c.kind != "collective-permute")
        for report in (foretold, partitioned)
    ]
    assert moved[0] == moved[1]
