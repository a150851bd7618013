"""Collectives against a plain-text scan of the partitioner's snapshot."""

import collections
import math
import re

import numpy as np
import pytest

from shardviz.compiler import collectives, parse
from shardviz.notation import DeviceMesh

pytestmark = pytest.mark.slow

BITS = {"pred": 8, "bf16": 16, "f32": 32, "s32": 32, "u32": 32, "f16": 16, "f64": 64, "s8": 8, "u8": 8}
LINE = re.compile(
    r"%([\w.\-]+) = (\S+?)\[([\d,]*)\]\S* (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)\("
)


def test_kinds_shapes_and_bytes_equal_a_scan_of_the_text(compiled):
    found = {c.name: c for c in compiled.collectives}
    scanned = LINE.findall(compiled.text("after"))
    assert set(found) == {name for name, *_ in scanned}
    for name, dtype, dims, kind in scanned:
        collective = found[name]
        shape = tuple(int(d) for d in dims.split(",") if d)
        nbytes = math.prod(shape) * BITS[dtype] // 8
        assert (collective.kind, collective.shape, collective.result_bytes) == (kind, shape, nbytes)
        factor = {"all-gather": 1 / collective.group_size, "reduce-scatter": collective.group_size}.get(kind, 1)
        assert collective.operand_bytes == nbytes * factor


def test_axes_span_groups_of_their_size(compiled):
    for collective in compiled.collectives:
        assert collective.axes is not None
        sizes = [compiled.mesh.shape[a] if isinstance(a, str) else a[2] for a in collective.axes]
        assert math.prod(sizes) == collective.group_size


def test_the_optimised_module_is_read_too(compiled):
    """CPU's own passes combine, split and rename; what stays is that each is a known kind on known axes."""
    scanned = re.findall(
        r" (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(",
        compiled.text("optimized"),
    )
    found = collectives(compiled.optimized, compiled.mesh, compiled.before)
    assert collections.Counter(c.kind for c in found) == collections.Counter(scanned)
    assert all(c.result_bytes > 0 and c.axes is not None for c in found)


def test_who_made_it(all_compiled):
    def origins(name):
        return [(c.kind, c.origin) for c in all_compiled[name].collectives]

    assert origins("shard_map") == [
        ("all-reduce", "user"), ("all-gather", "user"), ("collective-permute", "user"), ("reduce-scatter", "user"),
        ("all-to-all", "user"), ("all-reduce", "partitioner"),
    ]  # fmt: skip
    assert origins("partly_manual") == [("all-gather", "partitioner"), ("all-reduce", "user")]
    assert {origin for name in ("mlp_float32", "llama", "three_axes") for _, origin in origins(name)} == {"partitioner"}


def test_who_made_it_without_the_module_before(all_compiled):
    program = all_compiled["shard_map"]
    assert [c.origin for c in collectives(program.after, program.mesh)] == ["user"] * 5 + ["partitioner"]


def test_arguments_can_be_named(all_compiled):
    program = all_compiled["resharded"]
    found = collectives(program.after, program.mesh, program.before, arguments=["mine"])
    assert {c.operand for c in found} == {"mine"}


MESH = DeviceMesh.of({"data": 2, "model": 4})
ASYNC = """HloModule m, num_partitions=8
%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}
%wrapped (p: f32[8,4]) -> f32[2,4] {
  %p = f32[8,4]{1,0} parameter(0)
  ROOT %rs = f32[2,4]{1,0} reduce-scatter(%p), replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%add
}
ENTRY %main (a: f32[8,4], b: bf16[2]) -> f32[2,4] {
  %a = f32[8,4]{1,0} parameter(0), metadata={op_name="a"}
  %b = bf16[2]{0} parameter(1), metadata={op_name="b"}
  %ags = (f32[8,4]{1,0}, f32[16,4]{1,0}) all-gather-start(%a), replica_groups=[4,2]<=[2,4]T(1,0), dimensions={0}
  %agd = f32[16,4]{1,0} all-gather-done(%ags)
  %cps = (f32[8,4]{1,0}, f32[8,4]{1,0}, u32[], u32[]) collective-permute-start(%a), source_target_pairs={{0,4},{4,0}}
  %cpd = f32[8,4]{1,0} collective-permute-done(%cps)
  %ars = (f32[8,4]{1,0}, bf16[2]{0}) all-reduce-start(%cpd, %b), replica_groups={}, to_apply=%add
  %ard = (f32[8,4]{1,0}, bf16[2]{0}) all-reduce-done(%ars)
  %part = f32[8,4]{1,0} get-tuple-element(%ard), index=0
  %rss = ((f32[8,4]{1,0}), f32[2,4]{1,0}) async-start(%part), calls=%wrapped
  ROOT %rsd = f32[2,4]{1,0} async-done(%rss)
}
"""


def test_asynchronous_pairs_count_once():
    found = collectives(parse(ASYNC), MESH)
    assert [(c.kind, c.axes, c.operand_bytes, c.result_bytes, c.operand) for c in found] == [
        ("all-gather", ("data",), 128, 256, "a"),
        ("collective-permute", ("data",), 128, 128, "a"),
        ("all-reduce", ("data", "model"), 132, 132, "a"),
        ("reduce-scatter", ("model",), 128, 32, "ard"),
    ]
    assert found[2].shape == (8, 4)
    assert np.all([c.count == 1 for c in found])
