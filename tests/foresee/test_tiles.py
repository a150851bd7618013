"""How a TPU lays arrays in tiles, and what it copies for that: as libtpu lays and copies them."""

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.foresee.tiles import laid_for_rows
from shardviz.layouts import itemsize
from shardviz.processes.job import TPU_ENVIRONMENT
from tests.raw import array

TARGET, PLAN = "tpu v5e:2x2", sv.Plan("data=4")
SHAPES = [(32, 2048, 192), (2048, 9496), (32, 192, 2048), (4, 2048, 100), (2048, 64), (64, 2048), (100, 200)]
SHAPES += [(2048, 16, 64), (1024, 1, 128), (3, 5, 7), (512, 1), (2, 3, 1024, 96), (8192, 3, 64), (64, 8, 8, 64)]
SHAPES += [(1000, 129), (7, 129), (64, 4096, 2, 128), (201_088, 2880), (50_257, 768)]
_LAID = re.compile(r"(\w+)\[([\d,]+)\]{(\d+)")


@pytest.mark.tpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_arguments_lie_in_rows_where_libtpu_lays_them_in_rows(dtype):
    program = sv.trace(lambda *xs: [x + 1 for x in xs], *(array(*shape, dtype=dtype) for shape in SHAPES))
    text = program.compile(PLAN, TARGET).stages["optimized"]
    layout = re.search(r"entry_computation_layout={\((.*?)\)->", text)
    assert layout is not None
    laid = {tuple(map(int, shape.split(","))): int(last) for _, shape, last in _LAID.findall(layout[1])}
    assert laid.keys() == {*SHAPES}
    for shape, last in laid.items():
        assert (last == len(shape) - 1) == (laid_for_rows(shape, itemsize(dtype)) is None), shape


def rows(table, ids):
    return table[ids]


def tied(table, ids):
    return table[ids] @ table.T


def columns(table, ids):
    return table[:, ids]


def trained(table, ids, weights):
    return table - jax.grad(lambda table: jnp.sum(table[ids] @ weights, dtype=jnp.float32))(table)


_FORMATS = """
import jax, sys
from jax.experimental import topologies
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding
(device, *_) = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices
one = SingleDeviceSharding(device)
table, ids = jax.ShapeDtypeStruct((100_352, 2880), "bfloat16"), jax.ShapeDtypeStruct((64,), "int32")
for form in one, Format(Layout((0, 1)), one):
    compiled = jax.jit(lambda table, ids: table[ids], in_shardings=(form, one)).lower(table, ids).compile()
    print(" copy(" in compiled.as_text())
"""


@pytest.mark.tpu
def test_a_table_whose_format_is_that_of_its_rows_is_not_copied():
    """As the finding `laid-otherwise` says."""
    command, places = [sys.executable, "-c", _FORMATS], os.environ | TPU_ENVIRONMENT | {"JAX_PLATFORMS": "cpu"}
    printed = subprocess.run(command, env=places, capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["True", "False"]


IDS, TABLE = array(64, dtype="int32"), array(100_352, 2880, dtype="bfloat16")
GROUPS, LINES = array(4, dtype="int32"), array(1001, 2048, dtype="bfloat16")
READS = {
    "rows of 2880": (rows, TABLE, IDS),
    "rows of 2048": (rows, array(100_352, 2048, dtype="bfloat16"), IDS),
    "a tied table": (tied, TABLE, IDS),
    "columns": (columns, TABLE, IDS),
    "a table's gradient": (trained, TABLE, IDS, array(2880, 512, dtype="bfloat16")),
    "rows of heads": (rows, array(8192, 16, 64, dtype="bfloat16"), IDS),
    "groups in a kernel": (jax.lax.ragged_dot, array(24, 2048), array(4, 2048, 10_000), GROUPS),
    "groups under a mask": (
        jax.lax.ragged_dot,
        LINES,
        array(16, 2048, 2048, dtype="bfloat16"),
        array(16, dtype="int32"),
    ),
}


@pytest.mark.tpu
@pytest.mark.parametrize("name", READS)
def test_what_reads_rows_takes_as_long_as_libtpu_has_it(name):
    """A table that lies otherwise is copied as a whole, which takes a thousand times as long as its rows."""
    function, *args = READS[name]
    program = sv.trace(function, *args, donate_argnums=(0,) if function is trained else ())
    compiled = sv.cost(program.compile(PLAN, TARGET), TARGET)
    for report in (program.propagate(PLAN, TARGET), program.partition(PLAN, TARGET)):
        cost = sv.cost(report, TARGET)
        assert cost.step.seconds == pytest.approx(compiled.step.seconds, rel=0.05, abs=25e-6)
        assert cost.needs.total == pytest.approx(compiled.needs.total, rel=0.03)
