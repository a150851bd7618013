"""What JAX's own functions do has the line that calls them, though JAX lowers some of them without any line."""

import runpy

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import shardviz as sv

SHAPE, WEIGHT = jax.ShapeDtypeStruct((64, 1024), jnp.float32), jax.ShapeDtypeStruct((1024, 512), jnp.float32)
COLUMNS = sv.Plan("a=4", (P(None, "a"),))


def running(x):
    first = jnp.cumsum(x, axis=1)
    return jnp.cumsum(jnp.sin(first), axis=1)


def windowed(x):
    sines = jnp.sin(x)
    return lax.reduce_window(sines, 0.0, lax.add, (1, 9), (1, 1), "SAME")


def sliced(x):
    return jnp.sin(x[:, 5:777])


def product(x, w):
    sines = jnp.sin(x)
    return jnp.einsum("bd,df->bf", sines, w)


@pytest.mark.parametrize("target", ["cpu", pytest.param("tpu v5p:2x2x1", marks=pytest.mark.tpu)])
@pytest.mark.parametrize(
    ("function", "shapes", "plan", "lines"),
    [
        (running, (SHAPE,), COLUMNS, {1, 2}),
        (windowed, (SHAPE,), COLUMNS, {2}),
        (sliced, (SHAPE,), COLUMNS, {1}),
        (product, (SHAPE, WEIGHT), sv.Plan("a=4", (P("a", None), P("a", None)), P("a", None)), {2}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_every_collective_has_the_line_of_the_call(function, shapes, plan, lines, target):
    program = sv.trace(function, *shapes)
    partitioned, compiled = program.partition(plan, target), program.compile(plan, target)
    optimised = [each.collective for each in compiled.target_collectives]
    first = function.__code__.co_firstlineno
    for found in (partitioned.collectives, compiled.collectives, optimised):
        assert all(c.source is not None for c in found)
        assert {(c.source.file, c.source.line - first) for c in found} == {(__file__, line) for line in lines}


def test_a_program_that_is_all_a_librarys_has_the_librarys_lines_whoever_asks(tmp_path):
    """Of collectives on one line of a library, which makes every layer's product, each is told why it is there."""
    library = tmp_path / "site-packages" / "layers.py"
    library.parent.mkdir()
    net = "product = lambda x, w: x @ w\ndef net(x, *ws):\n    for w in ws: x = product(x, w)\n    return x"
    library.write_text(net)
    weights = [jax.ShapeDtypeStruct((1024, 1024), jnp.float32)] * 3
    program = sv.trace(runpy.run_path(str(library))["net"], SHAPE, *weights)
    plan = sv.Plan("a=4", (P("a"),) * 4)
    for report in (program.propagate(plan), program.partition(plan)):
        assert {c.source.short for c in report.collectives} == {"layers.py:1"}
        assert [program.why(plan, c).collective.operand for c in report.collectives] == ["ws[0]", "ws[1]", "ws[2]"]
