"""The schedule of an HLO module: what is begun where, what is waited for where, and what each instruction does."""

from __future__ import annotations

import jax
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.compiler.module import parse
from shardviz.compiler.schedule import is_scheduled, schedule_of
from shardviz.records.schedule import Schedule

HEAD = "HloModule m, is_scheduled=true\n"
SUM = """
%sum (p: f32[], q: f32[]) -> f32[] {
  %p = f32[] parameter(0)
  %q = f32[] parameter(1)
  ROOT %s = f32[] add(%p, %q)
}
"""


def scheduled(text: str) -> Schedule:
    """Of computations behind `SUM`, in a module that says that it is scheduled."""
    module = parse(HEAD + SUM + text)
    assert is_scheduled(module)
    return schedule_of(module)


def told(entries: Schedule) -> list[str]:
    return [f"{entry.kind} {entry.name}" for entry in entries]


def test_pairs_begin_and_end_where_they_stand():
    entries = scheduled("""
ENTRY %main (a: f32[8,128], b: f32[128,128]) -> f32[32,128] {
  %a = f32[8,128]{1,0} parameter(0)
  %b = f32[128,128]{1,0} parameter(1)
  %g = (f32[8,128]{1,0}, f32[32,128]{1,0}) all-gather-start(%a), replica_groups={{0,1,2,3}}, dimensions={0}
  %c = (f32[128,128]{1,0:S(1)}, f32[128,128]{1,0}, u32[]{:S(2)}) copy-start(%b)
  %dot = f32[8,128]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %d = f32[128,128]{1,0:S(1)} copy-done(%c)
  %h = f32[32,128]{1,0} all-gather-done(%g)
  ROOT %r = f32[32,128]{1,0} dot(%h, %d), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}""")
    assert told(entries) == ["begin g", "begin c", "work dot", "end c", "end g", "work r"]
    gather, copy, dot, _, _, last = entries
    assert gather.collective == "g" and not copy.collective and copy.hbm_bytes == 4 * 128 * 128
    assert dot.flops == {"float32": 2.0 * 8 * 128 * 128} and dot.hbm_bytes == 4 * (8 * 128 * 2 + 128 * 128)
    assert last.hbm_bytes == 4 * 2 * 32 * 128  # what lies in VMEM, S(1), does not touch HBM


def test_what_blocks_is_begun_and_ended_at_once_a_fusion_of_it_too():
    entries = scheduled("""
%scattered (x: f32[64], i: s32[]) -> f32[16] {
  %x = f32[64]{0} parameter(0)
  %i = s32[] parameter(1)
  %all-reduce.1 = f32[64]{0} all-reduce(%x), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%sum
  ROOT %d = f32[16]{0} dynamic-slice(%all-reduce.1, %i), dynamic_slice_sizes={16}
}
ENTRY %main (a: f32[64], i: s32[]) -> f32[16] {
  %a = f32[64]{0} parameter(0)
  %i = s32[] parameter(1)
  %all-reduce.2 = f32[64]{0} all-reduce(%a), channel_id=2, replica_groups={{0,1,2,3}}, to_apply=%sum
  ROOT %f = f32[16]{0} fusion(%all-reduce.2, %i), kind=kCustom, calls=%scattered
}""")
    assert told(entries)[:4] == ["begin all-reduce.2", "end all-reduce.2", "begin all-reduce.1", "end all-reduce.1"]


CHAIN = """
%begins (p: f32[8]) -> (f32[8], f32[32]) {
  %p = f32[8]{0} parameter(0)
  %g.1 = f32[32]{0} all-gather(%p), channel_id=7, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %s = (f32[8]{0}, f32[32]{0}) custom-call(%g.1), custom_call_target="AsyncCollectiveStart"
}
%goes_on (p: f32[8], a: f32[64,64]) -> (f32[64,64], f32[32]) {
  %p = f32[8]{0} parameter(0)
  %a = f32[64,64]{1,0} parameter(1)
  %dot = f32[64,64]{1,0} dot(%a, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %g.2 = f32[32]{0} all-gather(%p), channel_id=7, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %t = (f32[64,64]{1,0}, f32[32]{0}) tuple(%dot, %g.2)
}
%ends (p: f32[8]) -> f32[32] {
  %p = f32[8]{0} parameter(0)
  %g.3 = f32[32]{0} all-gather(%p), channel_id=7, dimensions={0}, frontend_attributes={chain_id="0"}
  ROOT %e = f32[32]{0} custom-call(%p, %g.3), custom_call_target="AsyncCollectiveDone"
}
ENTRY %main (b: f32[8], a: f32[64,64]) -> f32[32] {
  %b = f32[8]{0} parameter(0)
  %a = f32[64,64]{1,0} parameter(1)
  %one = (f32[8]{0}, f32[32]{0}) fusion(%b), kind=kCustom, output_to_operand_aliasing={{0}: (0, {})}, calls=%begins
  %two = (f32[64,64]{1,0}, f32[32]{0}) fusion(%b, %a), kind=kOutput, calls=%goes_on
  ROOT %three = f32[32]{0} fusion(%b), kind=kCustom, calls=%ends
}"""


LISTED = """HloModule m
%body (c: (f32[256], f32[1024,256], s32[])) -> (f32[256], f32[1024,256], s32[]) {
  %c = (f32[256]{0}, f32[1024,256]{1,0}, s32[]) parameter(0)
  %h = f32[256]{0} get-tuple-element(%c), index=0
  %w = f32[1024,256]{1,0} get-tuple-element(%c), index=1
  %n = s32[] get-tuple-element(%c), index=2
  %up = f32[1024]{0} dot(%w, %h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %down = f32[256]{0} dot(%up, %w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  ROOT %t = (f32[256]{0}, f32[1024,256]{1,0}, s32[]) tuple(%down, %w, %n)
}
%condition (c: (f32[256], f32[1024,256], s32[])) -> pred[] {
  %c = (f32[256]{0}, f32[1024,256]{1,0}, s32[]) parameter(0)
  %n = s32[] get-tuple-element(%c), index=2
  %eight = s32[] constant(8)
  ROOT %less = pred[] compare(%n, %eight), direction=LT
}
ENTRY %main (w: f32[1024,256], x: f32[256], n: s32[]) -> (f32[256], f32[1024,256]) {
  %w = f32[1024,256]{1,0} parameter(0)
  %x = f32[256]{0} parameter(1)
  %n = s32[] parameter(2)
  %first = f32[1024]{0} dot(%w, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %h = f32[256]{0} dot(%first, %w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  %t = (f32[256]{0}, f32[1024,256]{1,0}, s32[]) tuple(%h, %w, %n)
  %while = (f32[256]{0}, f32[1024,256]{1,0}, s32[]) while(%t), condition=%condition, body=%body
  %y = f32[256]{0} get-tuple-element(%while), index=0
  %new = f32[1024,256]{1,0} dot(%first, %y), lhs_contracting_dims={}, rhs_contracting_dims={}
  ROOT %out = (f32[256]{0}, f32[1024,256]{1,0}) tuple(%y, %new)
}"""


@pytest.mark.parametrize("donated", [False, True])
def test_a_listed_program_says_what_is_held_meanwhile(donated):
    """In KiB: `first` 4 and `up` 4; the results from the begin: 1, where `h` and what the loop hands on lie too, and
    `new` 1024, unless in `w`'s place."""
    entries = schedule_of(parse(LISTED), donated=[1024.0 * 1024] if donated else [])
    (loop,) = (entry for entry in entries if entry.kind == "loop")
    held = {entry.name: (entry.alive_bytes or 0) / 1024 for entry in (*entries, *loop.body)}
    new = 0 if donated else 1024
    sizes = {"first": 5, "h": 5, "while": 5, "up": 9, "down": 9, "new": 5}
    assert held == {name: size + new for name, size in sizes.items()}


def test_a_chain_of_fusions_is_one_collective_beside_the_products():
    entries = scheduled(CHAIN)
    begin, work, *rest = entries
    assert (begin.kind, begin.collective) == ("begin", "g.1")
    assert (work.name, work.flops) == ("two", {"float32": 2.0 * 64**3})
    assert told(tuple(rest))[-1] == "end g.1"
    assert sum(entry.kind == "begin" for entry in entries) == 1


def test_what_a_call_has_the_sparse_cores_run_is_begun_and_ended_beside_the_rest():
    """As libtpu writes it for tpu7x: a collective in what is called by what is begun."""
    entries = scheduled("""
%called (p: bf16[8,128]) -> bf16[32,128] {
  %p = bf16[8,128]{1,0} parameter(0)
  ROOT %g = bf16[32,128]{1,0} all-gather(%p), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}
}, execution_thread="sparsecore"
%beside (q: bf16[8,128]) -> bf16[32,128] {
  %q = bf16[8,128]{1,0} parameter(0)
  ROOT %c = bf16[32,128]{1,0} call(%q), to_apply=%called
}, execution_thread="sparsecore"
ENTRY %main (a: bf16[8,128], b: bf16[128,128]) -> bf16[32,128] {
  %a = bf16[8,128]{1,0} parameter(0)
  %b = bf16[128,128]{1,0} parameter(1)
  %place = s32[]{:S(2)} custom-call(), custom_call_target="PrepareAsyncCallStart"
  %token = token[] custom-call(%place), custom_call_target="PrepareAsyncCallDone"
  %s = ((bf16[8,128]{1,0}), bf16[32,128]{1,0}) async-start(%a), async_execution_thread="sparsecore", calls=%beside
  %dot = bf16[8,128]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %d = bf16[32,128]{1,0} async-done(%s)
  ROOT %r = bf16[32,128]{1,0} dot(%d, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}""")
    assert told([e for e in entries if e.flops or e.kind != "work"]) == ["begin s", "work dot", "end s", "work r"]
    assert [e.collective for e in entries if e.collective] == ["g"] and not any(e.opaque for e in entries)


def test_copies_to_the_host_say_where_they_go():
    kept, fetched, *ends = scheduled("""
%kept (h: f32[8,64], x: f32[1,64], i: s32[]) -> f32[8,64] {
  %h = f32[8,64]{1,0:S(5)} parameter(0)
  %x = f32[1,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %u = f32[8,64]{1,0:S(5)} dynamic-update-slice(%h, %x, %i, %i)
}
ENTRY %main (h: f32[8,64], x: f32[1,64], i: s32[]) -> f32[8,64] {
  %h = f32[8,64]{1,0:S(5)} parameter(0)
  %x = f32[1,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %s = ((f32[8,64]{1,0:S(5)}, f32[1,64]{1,0}, s32[]), f32[8,64]{1,0:S(5)}, u32[]) async-start(%h, %x, %i), calls=%kept
  %c = (f32[8,64]{1,0}, f32[8,64]{1,0:S(5)}, u32[]{:S(2)}) copy-start(%h)
  %e = f32[8,64]{1,0} copy-done(%c)
  ROOT %d = f32[8,64]{1,0:S(5)} async-done(%s)
}""")
    assert (kept.host_bytes, kept.to_host) == (4 * 64, True)
    assert (fetched.host_bytes, fetched.to_host) == (4 * 8 * 64, False)
    assert told(tuple(ends)) == ["end c", "end s"]


def test_transfers_between_slices_are_one_each():
    named = (
        'frontend_attributes={_xla_host_transfer_rendezvous="all-reduce.1_0",_xla_megascale_transfer_type="ALL_REDUCE"}'
    )
    entries = scheduled(f"""
ENTRY %main (a: f32[64]) -> f32[64] {{
  %a = f32[64]{{0}} parameter(0)
  %t = token[] after-all()
  %send.1 = (f32[64]{{0}}, u32[], token[]) send(%a, %t), channel_id=1, is_host_transfer=true, {named}
  %recv.1 = (f32[64]{{0}}, u32[], token[]) recv(%t), channel_id=2, is_host_transfer=true, {named}
  %send-done.1 = token[] send-done(%send.1), channel_id=1, is_host_transfer=true
  %recv-done.1 = (f32[64]{{0}}, token[]) recv-done(%recv.1), channel_id=2, is_host_transfer=true
  ROOT %r = f32[64]{{0}} get-tuple-element(%recv-done.1), index=0
}}""")
    assert told(entries) == ["begin all-reduce.1_0", "end all-reduce.1_0", "end all-reduce.1_0"]
    assert (entries[0].between, entries[0].sent_bytes) == ("ALL_REDUCE", 256.0)


LOOP = """
%body (c: (s32[], f32[64,64])) -> (s32[], f32[64,64]) {
  %c = (s32[], f32[64,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[64,64]{1,0} get-tuple-element(%c), index=1
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  %y = f32[64,64]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[64,64]{1,0}) tuple(%j, %y)
}
%condition (c: (s32[], f32[64,64])) -> pred[] {
  %c = (s32[], f32[64,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(12)
  ROOT %l = pred[] compare(%i, %n), direction=LT
}
ENTRY %main (a: f32[64,64], START) -> (s32[], f32[64,64]) {
  %a = f32[64,64]{1,0} parameter(0)
  %zero = s32[] FIRST
  %t = (s32[], f32[64,64]{1,0}) tuple(%zero, %a)
  ROOT %w = (s32[], f32[64,64]{1,0}) while(%t), condition=%condition, body=%body
}"""


@pytest.mark.parametrize(("first", "trips"), [("constant(0)", 12), ("parameter(1)", None)])
def test_loops_have_their_trips(first: str, trips: int | None):
    (loop,) = scheduled(LOOP.replace("START", "z: s32[]").replace("FIRST", first))
    assert (loop.kind, loop.name, loop.trips) == ("loop", "w", trips)
    dots = [entry for entry in loop.body if entry.flops]
    assert [dot.name for dot in dots] == ["y"]
    assert loop.total[0] == (trips or 1) * 2.0 * 64**3


def test_a_conditional_does_what_its_heaviest_branch_does():
    entries = scheduled("""
%light (x: f32[64,64]) -> f32[64,64] {
  ROOT %x = f32[64,64]{1,0} parameter(0)
}
%heavy (y: f32[64,64]) -> f32[64,64] {
  %y = f32[64,64]{1,0} parameter(0)
  ROOT %dot = f32[64,64]{1,0} dot(%y, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY %main (p: s32[], a: f32[64,64]) -> f32[64,64] {
  %p = s32[] parameter(0)
  %a = f32[64,64]{1,0} parameter(1)
  ROOT %c = f32[64,64]{1,0} conditional(%p, %a, %a), branch_computations={%light, %heavy}
}""")
    assert told(entries) == ["work dot"]


def test_a_program_without_a_schedule_is_listed():
    """Begun when the operand is there, waited for where the result is needed."""
    module = parse(
        "HloModule m\n"
        + SUM
        + """
ENTRY %main (a: f32[64,64], w: f32[16,64]) -> f32[64,64] {
  %a = f32[64,64]{1,0} parameter(0)
  %w = f32[16,64]{1,0} parameter(1)
  %t = f32[64,64]{1,0} tanh(%a)
  %one = f32[64,64]{1,0} dot(%t, %a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %g = f32[64,64]{1,0} all-gather(%w), replica_groups={{0,1,2,3}}, dimensions={0}
  %h = f32[64,64]{1,0} all-reduce(%g), replica_groups={{0,1,2,3}}, to_apply=%sum
  %two = f32[64,64]{1,0} dot(%one, %h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %r = f32[64,64]{1,0} all-reduce(%two), replica_groups={{0,1,2,3}}, to_apply=%sum
}"""
    )
    entries = schedule_of(module)
    assert told(entries) == ["begin g", "begin h", "work one", "end h", "work two", "begin r", "end g", "end r"]
    assert entries[1].after == ("g",)


def listed_of(*lines: str) -> Schedule:
    """Of lines of HLO with parameters `a` and `b`, f32[64,64]: 16,384 bytes each."""
    body = "".join(f"  {line}\n" for line in lines)
    return schedule_of(
        parse(f"""HloModule m
{SUM}
ENTRY %main (a: f32[64,64], b: f32[64,64]) -> f32[64,64] {{
  %a = f32[64,64]{{1,0}} parameter(0)
  %b = f32[64,64]{{1,0}} parameter(1)
{body}}}""")
    )


SIZE = 4.0 * 64 * 64
DOT = "dot({}, {}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
SHAPE = "f32[64,64]{1,0}"


def bytes_of(*lines: str) -> list[float]:
    """In arrays."""
    return [entry.hbm_bytes / SIZE for entry in listed_of(*lines) if entry.kind == "work"]


def test_what_is_computed_element_by_element_is_fused():
    product = f"%p = {SHAPE} {DOT.format('%a', '%b')}"
    assert bytes_of(f"%t = {SHAPE} tanh(%a)", f"ROOT %u = {SHAPE} add(%t, %b)") == [3.0]
    assert bytes_of(f"%t = {SHAPE} tanh(%a)", f"ROOT %u = {SHAPE} {DOT.format('%t', '%b')}") == [3.0]
    # a product writes what is made of it alone; with another array that array is read too
    assert bytes_of(product, f"ROOT %t = {SHAPE} tanh(%p)") == [3.0]
    assert bytes_of(product, f"%t = {SHAPE} tanh(%p)", f"ROOT %q = {SHAPE} {DOT.format('%t', '%b')}") == [3.0, 3.0]
    # a sum for two products, which give none of their operands: to compute it again reads less than to write it apart
    total = (f"%s = {SHAPE} add(%a, %b)", f"%s2 = {SHAPE} multiply(%s, %s)")
    twice = (f"%one = {SHAPE} {DOT.format('%s2', '%b')}", f"ROOT %two = {SHAPE} {DOT.format('%s2', '%one')}")
    assert bytes_of(*total, *twice) == [3.0, 4.0]


@pytest.mark.tpu
@pytest.mark.parametrize("target", ["tpu v5e:2x2", "tpu v5p:2x2x1"])
def test_a_sum_for_two_products_is_computed_twice_or_written_as_by_the_compiler(target):
    """It is written where it is of more than three arrays."""

    def step(b, *arrays):
        total = sum(arrays[1:], arrays[0])
        square = total * total
        return square @ (square @ b)

    for count in (1, 2, 3, 4):
        array = jax.ShapeDtypeStruct((8192, 8192), "bfloat16")  # beyond what VMEM keeps
        program, plan = sv.trace(step, *[array] * (count + 1)), sv.Plan({"x": 4}, (P(),) * (count + 1))
        levels = program.propagate(plan, target), program.compile(plan, target)
        listed, compiled = ([entry.hbm_bytes for entry in report.schedule] for report in levels)
        assert listed == compiled and len(listed) == (3 if count > 3 else 2), count


def test_a_reduction_of_what_a_fusion_makes_is_that_fusions():
    reduced = (
        f"%p = {SHAPE} {DOT.format('%a', '%b')}",
        "%zero = f32[] constant(0)",
        "%r = f32[64]{0} reduce(%p, %zero), dimensions={1}, to_apply=%sum",
        "%w = f32[64,64]{1,0} broadcast(%r), dimensions={0}",
        f"ROOT %u = {SHAPE} divide(%p, %w)",
    )
    vector = 1 / 64
    assert bytes_of(*reduced) == [3.0 + vector, 2.0 + vector]  # what needs the whole sum is a fusion behind it


def test_collectives_are_joined_as_the_compilers_passes_do():
    over = "replica_groups={{0,1,2,3}}"
    sums = [f"%{name} = {SHAPE} all-reduce(%{of}), {over}, to_apply=%sum" for name, of in (("x", "a"), ("y", "b"))]
    assert told(listed_of(*sums, f"ROOT %z = {SHAPE} add(%x, %y)")) == ["begin y", "end y"]
    assert told(listed_of(*sums, f"ROOT %z = {SHAPE} multiply(%x, %y)")).count("begin x") == 1
    again = f"%y = {SHAPE} all-reduce(%a), {over}, to_apply=%sum"
    assert told(listed_of(sums[0], again, f"ROOT %z = {SHAPE} multiply(%x, %y)"))[0] == "begin x"
    assert not any(entry.name == "y" for entry in listed_of(sums[0], again, f"ROOT %z = {SHAPE} multiply(%x, %y)"))
    cut = "ROOT %c = f32[16,64]{1,0} slice(%x), slice={[0:16], [0:64]}"
    assert [entry.slices for entry in listed_of(sums[0], cut) if entry.kind == "begin"] == [4]


def test_a_fusion_that_is_begun_and_ended_copies_its_part_beside_the_rest():
    module = parse("""HloModule m, is_scheduled=true

%part (p: f32[64,128], i: s32[]) -> f32[1,128] {
  %p = f32[64,128]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice = f32[1,128]{1,0} dynamic-slice(%p, %i, %zero), dynamic_slice_sizes={1,128}
}

ENTRY %main (a: f32[64,128], n: s32[]) -> f32[1,128] {
  %a = f32[64,128]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %begun = ((f32[64,128]{1,0}, s32[]), f32[1,128]{1,0}, u32[]) fusion-start(%a, %n), kind=kLoop, calls=%part
  %ended = f32[1,128]{1,0} fusion-done(%begun)
  ROOT %twice = f32[1,128]{1,0} add(%ended, %ended)
}""")
    begun, ended, work = schedule_of(module)
    assert [(e.kind, e.name) for e in (begun, ended, work)] == [("begin", "begun"), ("end", "begun"), ("work", "twice")]
    assert begun.hbm_bytes == 512 + 4 + 512  # the slice and its index are read, the slice is written
