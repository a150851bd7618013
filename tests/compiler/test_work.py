"""FLOPs and HBM bytes against what XLA's own HloCostAnalysis says of the same modules, and of small made ones."""

from __future__ import annotations

import pytest

from shardviz.compiler import count_bytes, count_flops, graph_of, parse
from shardviz.errors import ShardvizError
from shardviz.graph import heaviest_runs
from shardviz.records import Cost
from shardviz.records.work import joined

FLOAT32 = 1e-6  # XLA sums up in float32


def made(*lines, computations="", header="HloModule m"):
    """An entry computation of these instructions."""
    body = "\n".join(f"  {line}" for line in lines)
    return parse(f"{header}\n{computations}\nENTRY %main () -> f32[] {{\n{body}\n}}\n")


def pointers(module, size):
    """What XLA counts for tables of pointers: every element of every tuple that is made."""
    runs = heaviest_runs(graph_of(module), lambda block: 1.0, {}, fused=False)
    return size * sum(
        times * len(i.operands)
        for block, times in runs.items()
        for i in module.computations[block.name].instructions
        if i.opcode == "tuple"
    )


# FLOPs


@pytest.mark.parametrize("stage", ["after", "optimized"])
def test_flops_counted_once_are_xlas(compiled, stage):
    module = {"after": compiled.after, "optimized": compiled.optimized}[stage]
    assert count_flops(module).once_flops == pytest.approx(
        compiled.facts["walked"][stage]["cost"]["flops"], rel=FLOAT32
    )


def test_a_conditional_counts_its_heaviest_branch():
    branches = """
%light (a: f32[4,4]) -> f32[4,4] {
  %a = f32[4,4] parameter(0)
  ROOT %negate = f32[4,4] negate(%a)
}

%heavy (b: f32[4,4]) -> f32[4,4] {
  %b = f32[4,4] parameter(0)
  ROOT %dot = f32[4,4] dot(%b, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    module = made(
        "%p = pred[] parameter(0)",
        "%x = f32[4,4] parameter(1)",
        "ROOT %c = f32[4,4] conditional(%p, %x, %x), true_computation=%light, false_computation=%heavy",
        computations=branches,
    )
    counted = count_flops(module)
    assert (counted.dot_flops, counted.other_flops, counted.once_flops) == (128, 0, 128)
    assert count_bytes(module).bytes == 3 * 64


APPLIED = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%two (c: f32[], d: f32[]) -> f32[] {
  %c = f32[] parameter(0)
  %d = f32[] parameter(1)
  %m = f32[] multiply(%c, %d)
  ROOT %s = f32[] subtract(%m, %d)
}
"""


@pytest.mark.parametrize(("line", "flops"), [
    ("add(%x, %x)", 128),
    ("tanh(%x)", 0),  # transcendental: apart, for XLA too
    ("copy(%x)", 0),
    ("reduce(%x, %zero), dimensions={1}, to_apply=%add", 128 - 8),
    ("reduce(%x, %zero), dimensions={0,1}, to_apply=%two", 2 * 127),
    ("reduce-window(%x, %zero), window={size=1x4 stride=1x4}, to_apply=%add", 3 * 32),
    ("map(%x, %x), dimensions={0,1}, to_apply=%two", 2 * 128),
    ("all-reduce(%x), replica_groups={{0,1}}, to_apply=%add", 128),
    ("sort(%x), dimensions={1}, to_apply=%add", 128 * 7),
    ("fft(%x), fft_type=FFT, fft_length={16}", 8 * 4 * 128),
    ("triangular-solve(%x, %x), lower=true", 2 * 16 * 128),
    ("cholesky(%x)", 16 * 128 / 3),
])  # fmt: skip
def test_flops_of_one_instruction(line, flops):
    shape = {"reduce(%x, %zero), dimensions={1}": "f32[8]", "reduce(%x, %zero), dimensions={0,1}": "f32[]"}
    result = next((s for start, s in shape.items() if line.startswith(start)), "f32[8,16]")
    result = "f32[8,4]" if "window" in line else result
    module = made(
        "%x = f32[8,16] parameter(0)", "%zero = f32[] constant(0)", f"ROOT %y = {result} {line}", computations=APPLIED
    )
    assert count_flops(module).other_flops == flops


# bytes


def test_bytes_counted_once_are_xlas(compiled):
    """But for two things that move nothing: XLA counts a pointer for each element of a tuple, and all of an operand
    that a fusion slices behind a bitcast, or reads again for a broadcast.
    """
    theirs = compiled.facts["walked"]["optimized"]["cost"]["bytes"]
    ours = count_bytes(compiled.optimized).once + pointers(compiled.optimized, compiled.facts["pointer"])
    sliced = compiled.name in ("llama", "reverse_unrolled", "three_axes", "resharded")
    assert ours <= theirs * (1 + FLOAT32)
    assert ours == pytest.approx(theirs, rel=0.05 if sliced else FLOAT32)


FUSED = """
%sliced (a: f32[100,8], i: s32[]) -> f32[1,8] {
  %a = f32[100,8] parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %flat = f32[100,8] bitcast(%a)
  %slice = f32[1,8] dynamic-slice(%flat, %i, %zero), dynamic_slice_sizes={1,8}
  ROOT %twice = f32[1,8] add(%slice, %slice)
}

%updated (b: f32[100,8], u: f32[1,8], j: s32[]) -> f32[100,8] {
  %b = f32[100,8] parameter(0)
  %u = f32[1,8] parameter(1)
  %j = s32[] parameter(2)
  %nil = s32[] constant(0)
  ROOT %update = f32[100,8] dynamic-update-slice(%b, %u, %j, %nil)
}

%gathered (t: f32[100,8], n: s32[5,1]) -> f32[5,8] {
  %t = f32[100,8] parameter(0)
  %n = s32[5,1] parameter(1)
  ROOT %rows = f32[5,8] gather(%t, %n), offset_dims={1}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
}

%not_in_place (d: f32[100,8], v: f32[1,8], k: s32[]) -> f32[100,8] {
  %d = f32[100,8] parameter(0)
  %v = f32[1,8] parameter(1)
  %k = s32[] parameter(2)
  %non = s32[] constant(0)
  %new = f32[100,8] dynamic-update-slice(%d, %v, %k, %non)
  ROOT %less = f32[100,8] negate(%new)
}

%plus (l: f32[], r: f32[]) -> f32[] {
  %l = f32[] parameter(0)
  %r = f32[] parameter(1)
  ROOT %sum = f32[] add(%l, %r)
}

%scattered (f: f32[100,8], g: s32[5,1], h: f32[5,8]) -> f32[100,8] {
  %f = f32[100,8] parameter(0)
  %g = s32[5,1] parameter(1)
  %h = f32[5,8] parameter(2)
  ROOT %add.1 = f32[100,8] scatter(%f, %g, %h), to_apply=%plus
}

%table (e: f32[16]) -> f32[16] {
  %e = f32[16] parameter(0)
  %large = f32[16] constant({...})
  ROOT %times = f32[16] multiply(%e, %large)
}
"""
ROW, ARRAY = 8 * 4, 100 * 8 * 4


@pytest.mark.parametrize(("line", "size"), [
    ("f32[100,8] add(%x, %x)", 3 * ARRAY),
    ("f32[100,8] bitcast(%x)", 0),
    ("f32[100,8] copy(%x)", 2 * ARRAY),
    ("f32[1,8] slice(%x), slice={[0:1], [0:8]}", 2 * ROW),
    ("f32[1,8] dynamic-slice(%x, %i, %i), dynamic_slice_sizes={1,8}", 2 * ROW + 4),
    ("f32[100,8] dynamic-update-slice(%x, %row, %i, %i)", 2 * ROW + 4),
    ("f32[5,8] gather(%x, %n), slice_sizes={1,8}", 2 * 5 * ROW + 20),
    ("f32[1,8] fusion(%x, %i), kind=kLoop, calls=%sliced", 2 * ROW + 4),
    ("f32[100,8] fusion(%x, %row, %i), kind=kLoop, calls=%updated", 2 * ROW + 4),
    ("f32[5,8] fusion(%x, %n), kind=kLoop, calls=%gathered", 2 * 5 * ROW + 20),
    ("f32[100,8] fusion(%x, %n, %five), kind=kInput, calls=%scattered", 3 * 5 * ROW + 20),
    ("f32[100,8] scatter(%x, %n, %five), to_apply=%plus", 3 * 5 * ROW + 20),
    ("f32[100,8] fusion(%x, %row, %i), kind=kLoop, calls=%not_in_place", 2 * ARRAY + ROW + 4),
    ("f32[16] fusion(%short), kind=kLoop, calls=%table", 3 * 64),
    ("f32[200,8] all-gather(%x), replica_groups={{0,1}}, dimensions={0}", 3 * ARRAY),
    ('f32[100,8] custom-call(%x), custom_call_target="kernel"', 2 * ARRAY),
    ('f32[100,8] custom-call(), custom_call_target="AllocateBuffer"', 0),
    ('() custom-call(%x), custom_call_target="sink", custom_call_has_side_effect=true', ARRAY),
    ("f32[] dynamic-update-slice(%one, %one)", 8),
    ("(f32[100,8], u32[], token[]) send(%x, %token), channel_id=1", ARRAY),
    ("(f32[100,8], u32[], token[]) recv(%token), channel_id=1", ARRAY),
])  # fmt: skip
def test_bytes_of_one_instruction(line, size):
    module = made(
        "%x = f32[100,8] parameter(0)",
        "%i = s32[] parameter(1)",
        "%row = f32[1,8] parameter(2)",
        "%n = s32[5,1] parameter(3)",
        "%short = f32[16] parameter(4)",
        "%one = f32[] parameter(5)",
        "%token = token[] parameter(6)",
        "%five = f32[5,8] parameter(7)",
        f"ROOT %y = {line}",
        computations=FUSED,
    )
    assert count_bytes(module).bytes == size


def test_only_what_is_in_main_memory_counts():
    """From HBM to VMEM and back: each way one end; what is computed in VMEM is free."""
    module = made(
        "%x = f32[8,128]{1,0:T(8,128)} parameter(0)",
        "%begin = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)",
        "%in = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%begin)",
        "%twice = f32[8,128]{1,0:T(8,128)S(1)} add(%in, %in)",
        "%back = (f32[8,128]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)S(1)}, u32[]{:S(2)}) copy-start(%twice)",
        "ROOT %out = f32[8,128]{1,0:T(8,128)} copy-done(%back)",
    )
    assert count_bytes(module).bytes == 2 * 8 * 128 * 4
    (row,) = count_bytes(module).work
    assert row.dtype == "float32"


@pytest.mark.parametrize(("shape", "stored"), [
    ("f32[8,128]{1,0:T(8,128)}", 8 * 128 * 4),
    ("f32[3,8192]{1,0:T(4,128)}", 4 * 8192 * 4),
    ("f32[8192,3]{0,1:T(4,128)}", 4 * 8192 * 4),  # the first dimension is the minor one
    ("bf16[5,9,130]{2,1,0:T(8,128)(2,1)}", 5 * 16 * 256 * 2),
    ("f32[1000]{0:T(1024)}", 1024 * 4),
    ("f32[1000]{0}", 1000 * 4),
])  # fmt: skip
def test_tiles_are_stored_whole(shape, stored):
    assert count_bytes(made(f"%x = {shape} parameter(0)", f"ROOT %y = {shape} negate(%x)")).bytes == 2 * stored


def test_what_is_begun_and_ended_apart_counts_once():
    wrapped = """
%part (a: f32[64,8]) -> f32[16,8] {
  %a = f32[64,8] parameter(0)
  ROOT %slice = f32[16,8] slice(%a), slice={[0:16], [0:8]}
}
"""
    module = made(
        "%x = f32[64,8] parameter(0)",
        "%s = ((f32[64,8]), f32[16,8], s32[]) async-start(%x), calls=%part",
        "%d = f32[16,8] async-done(%s)",
        "%g = (f32[64,8], f32[128,8]) all-gather-start(%x), replica_groups={{0,1}}, dimensions={0}",
        "ROOT %e = f32[128,8] all-gather-done(%g)",
        computations=wrapped,
    )
    assert count_bytes(module).bytes == 2 * 16 * ROW + (64 + 128) * ROW


def test_a_collective_that_runs_beside_fusions_moves_once():
    """A TPU's compiler writes it into each fusion that it runs beside, and hands its buffers on."""
    chain = """
%begin (a: f32[64,8]) -> (f32[64,8], f32[128,8]) {
  %a = f32[64,8] parameter(0)
  %g1 = f32[128,8] all-gather(%a), dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %s = (f32[64,8], f32[128,8]) custom-call(%g1), custom_call_target="AsyncCollectiveStart"
}

%beside (b: f32[64,8], c: f32[128,8], x: f32[16,8]) -> (f32[16,8], f32[64,8], f32[128,8]) {
  %b = f32[64,8] parameter(0)
  %c = f32[128,8] parameter(1)
  %x = f32[16,8] parameter(2)
  %n = f32[16,8] negate(%x)
  %g2 = f32[128,8] all-gather(%b), dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %t = (f32[16,8], f32[64,8], f32[128,8]) tuple(%n, %b, %g2)
}

%end (d: f32[64,8], e: f32[128,8]) -> f32[128,8] {
  %d = f32[64,8] parameter(0)
  %e = f32[128,8] parameter(1)
  %g3 = f32[128,8] all-gather(%d), dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %r = f32[128,8] custom-call(%d, %e, %g3), custom_call_target="AsyncCollectiveDone"
}
"""
    module = made(
        "%p = f32[64,8] parameter(0)",
        "%q = f32[16,8] parameter(1)",
        "%one = (f32[64,8], f32[128,8]) fusion(%p), output_to_operand_aliasing={{0}: (0, {})}, calls=%begin",
        "%o0 = f32[64,8] get-tuple-element(%one), index=0",
        "%o1 = f32[128,8] get-tuple-element(%one), index=1",
        "%two = (f32[16,8], f32[64,8], f32[128,8]) fusion(%o0, %o1, %q), "
        "output_to_operand_aliasing={{1}: (0, {}), {2}: (1, {})}, calls=%beside",
        "%t1 = f32[64,8] get-tuple-element(%two), index=1",
        "%t2 = f32[128,8] get-tuple-element(%two), index=2",
        "ROOT %done = f32[128,8] fusion(%t1, %t2), output_to_operand_aliasing={{}: (1, {})}, calls=%end",
        computations=chain,
    )
    assert count_bytes(module).bytes == (64 + 128) * ROW + 2 * 16 * ROW


# rows


def test_rows_sum_up_to_the_totals(compiled):
    flops, moved = count_flops(compiled.after), count_bytes(compiled.optimized)
    work = joined(flops.work, moved.work)
    cost = Cost(dot_flops=flops.dot_flops, other_flops=flops.other_flops, hbm_bytes=moved.bytes, work=work)
    for key in ("phase", "source", "module", "dtype"):
        rows = cost.by(key)
        assert sum(r.dot_flops for r in rows) == pytest.approx(flops.dot_flops)
        assert sum(r.other_flops for r in rows) == pytest.approx(flops.other_flops)
        assert sum(r.hbm_bytes for r in rows) == pytest.approx(moved.bytes)
        assert [r.flops for r in rows] == sorted((r.flops for r in rows), reverse=True)
        assert len({r.key for r in rows}) == len(rows)
    assert len({(r.phase, r.source, r.module, r.dtype) for r in work}) == len(work)
    assert all(r.flops or r.hbm_bytes for r in work)


def test_work_is_summed_by_what_it_has():
    with pytest.raises(ShardvizError, match="by\\('axes'\\): expected one of 'phase', 'source', 'module', 'dtype'"):
        Cost(dot_flops=1.0).by("axes")
