"""About how much memory a program takes, as its propagated schedule tells."""

from __future__ import annotations

import math

import jax
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.program import sketch
from shardviz.ask.targeting import resolve_target
from shardviz.layouts import itemsize
from shardviz.program.propagated import padding
from tests.programs import unet


def test_what_a_chips_own_memory_has_room_for_is_not_counted():
    """A product's result and that of the next: 4 MB on each of two devices, or 4 GB."""
    shapes = lambda rows: ((rows, 64), (64, 1024))  # noqa: E731
    plan = sv.Plan({"data": 2}, edits={"x": P("data")})
    for rows in (2**12, 2**22):
        arrays = (jax.ShapeDtypeStruct(shape, "bfloat16") for shape in shapes(rows))
        program = sv.trace(lambda x, w: (x @ w) @ w.T, *arrays)
        everything, estimate = (sketch(program, plan, vmem_bytes=room)[1] for room in (0, 48 * 2**20))
        assert everything.arguments == estimate.arguments == rows * 64 + 2 * 64 * 1024
        assert everything.made == rows * (1024 + 64)
        assert estimate.made == max(0, everything.made - 48 * 2**20)


@pytest.mark.long
@pytest.mark.tpu
def test_images_are_padded_to_a_tpus_tiles_as_its_compiler_pads_them():
    """Of few channels they take many times their bytes."""
    program = unet(64, 256, 64, 128)
    plan = program.presets("data=4,model=2")["fsdp"]
    memory = program.compile(plan, "tpu v5e:2x4").memory
    assert memory is not None
    images = {a.shape: a for a in memory.alive_at_peak if a.kind == "temporary" and len(a.shape) == 4}
    narrow = [a for shape, a in images.items() if shape[0] == 8 and shape[3] < 64]
    assert {a.shape[3] for a in narrow} == {3, 24}
    for a in narrow:
        assert a.bytes == math.prod(a.shape) * itemsize(a.dtype) * padding((a.shape[0], a.shape[3]))
    target = resolve_target("tpu v5e:2x4", plan.mesh).lowered_for
    assert sketch(program, plan, target)[1].made > 1.3 * sketch(program, plan)[1].made
