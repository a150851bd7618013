"""Where Shardy puts in no collective and XLA's partitioner does, level `propagated` names the operation."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from tests.diagnose.programs import s

IMAGES = ("NHWC", "HWIO", "NHWC")


def convolved(images, kernel):
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=IMAGES)


def pooled(window, padding):
    return lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (window, 1), (2, 1), padding)


ROWS = ((s(64, 64),), (P("data"),))
PROGRAMS = {
    "convolution": (convolved, (s(8, 64, 64, 16), s(3, 3, 16, 32)), (P("data", "model"), P())),
    "pointwise convolution": (convolved, (s(8, 64, 64, 16), s(1, 1, 16, 32)), (P("data", "model"), P())),
    "cumsum": (lambda x: jnp.cumsum(x, 0), *ROWS),
    "pool": (pooled(2, "VALID"), *ROWS),
    "pool of windows that overlap": (pooled(3, "SAME"), *ROWS),
    "slice": (lambda x: x[1:33] * 2, *ROWS),
    "slice of another dimension": (lambda x: x[:, 1:33] * 2, *ROWS),
    "roll": (lambda x: jnp.roll(x, 1, 0), *ROWS),
    "flip": (lambda x: x[::-1], *ROWS),
    "top_k": (lambda x: jax.lax.top_k(x, 5), (s(64, 1024),), (P(None, "model"),)),
    "top_k of rows": (lambda x: jax.lax.top_k(x, 5), (s(64, 1024),), (P("data"),)),
    "sort": (lambda x: jnp.sort(x, 0), *ROWS),
    "scatter": (lambda x, i: x.at[i].add(1.0), (s(64, 64), s(8, dtype=jnp.int32)), (P("data"), P())),
    "product": (lambda x, y: x @ y, (s(64, 64), s(64, 64)), (P("data", "model"), P("model"))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_said_where_and_only_where_a_collective_is_not_foreseen(name):
    fn, arguments, specs = PROGRAMS[name]
    program, plan = sv.trace(fn, *arguments), sv.Plan(sv.mesh(data=4, model=2), in_specs=specs)
    propagated, partitioned = program.propagate(plan), program.partition(plan)
    notes = [f for f in propagated.findings if f.rule == "unforeseen"]
    assert bool(notes) == (len(partitioned.collectives) > 0 and not propagated.collectives)
    for note in notes:
        assert note.source is not None and note.source.file == __file__
        over = {axis for collective in partitioned.collectives for axis in collective.axes or ()}
        assert over == set(note.axes)
    assert not [f for f in partitioned.findings if f.rule == "unforeseen"]
