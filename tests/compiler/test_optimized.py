"""The collectives of the optimised program, matched with the partitioner's: on CPU's own programs, and on made ones."""

import re

from shardviz import compiler as hlo
from shardviz.compiler import parse, target_collectives
from shardviz.graph import runs
from shardviz.notation import DeviceMesh

MESH = DeviceMesh.of("data=2,model=4")


def matched(compiled):
    args = compiled.collectives, compiled.after, compiled.before
    runs = target_collectives(compiled.optimized, compiled.mesh, *args)
    return {c.name: c for c in compiled.collectives}, runs


def test_every_collective_of_the_optimised_program_is_there_once(compiled):
    _, runs = matched(compiled)
    text = compiled.text("optimized")
    kinds = r"all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
    assert len(runs) == len(re.findall(rf" (?:{kinds})(?:-start)?\(", text))
    assert len({run.collective.name for run in runs}) == len(runs)


def test_what_is_matched_spans_the_same_axes_as_often(compiled):
    partitioned, runs = matched(compiled)
    for run in runs:
        for name in run.stands_for:
            like = partitioned[name]
            assert like.axes == run.collective.axes
            if not {"split", "moved"} & set(run.how):
                assert like.count == run.collective.count
            if "moved" in run.how and like.count is not None:
                assert run.collective.count is not None
                assert run.collective.count < like.count
        kinds = {partitioned[name].kind for name in run.stands_for}
        assert (kinds <= {run.collective.kind}) == ("turned" not in run.how)


def test_on_cpu_nothing_is_lost_that_moves_data(compiled):
    partitioned, runs = matched(compiled)
    found = {name for run in runs for name in run.stands_for}
    lost = [c for name, c in partitioned.items() if name not in found]
    twins = {(c.kind, c.axes, c.operand, c.source) for name, c in partitioned.items() if name in found}
    assert [c for c in lost if (c.kind, c.axes, c.operand, c.source) not in twins] == []


def test_cpu_adds_up_bfloat16_in_float32(all_compiled):
    partitioned, runs = matched(all_compiled["mlp_bfloat16"])
    sums = [run for run in runs if run.collective.kind == "all-reduce"]
    assert {run.collective.dtype for run in sums} == {"float32"}
    of_bfloat16 = [run for run in sums if "bfloat16" in {partitioned[name].dtype for name in run.stands_for}]
    assert of_bfloat16 and [run for run in sums if "converted" in run.how] == of_bfloat16


def test_a_gather_that_every_trip_repeats_is_moved_out_of_the_loop(all_compiled):
    partitioned, runs = matched(all_compiled["while_down"])
    moved = [run for run in runs if "moved" in run.how]
    assert [(partitioned[run.stands_for[0]].count, run.collective.count) for run in moved] == [(12, 1)]


def module(body, *more, devices=8):
    return parse("\n".join([f"HloModule m, num_partitions={devices}", *more, "ENTRY %main () -> f32[] {", *body, "}"]))


def run(after, optimized):
    return target_collectives(optimized, MESH, hlo.collectives(after, MESH), after)


GROUPS = "replica_groups=[2,4]<=[8], to_apply=%add"
AFTER = module(
    [
        "  %a = f32[64]{0} parameter(0)",
        "  %b = bf16[8,4]{1,0} parameter(1)",
        f'  %ar.1 = f32[64]{{0}} all-reduce(%a), channel_id=1, {GROUPS}, metadata={{op_name="jit(f)/p"}}',
        f'  %ar.2 = bf16[8,4]{{1,0}} all-reduce(%b), channel_id=2, {GROUPS}, metadata={{op_name="jit(f)/q"}}',
        "  ROOT %t = (f32[64]{0}, bf16[8,4]{1,0}) tuple(%ar.1, %ar.2)",
    ]
)


def test_combined_collectives_stand_for_all_that_went_in():
    (one,) = run(
        AFTER,
        module(
            [
                "  %a = f32[64]{0} parameter(0)",
                "  %b = bf16[32]{0} parameter(1)",
                f"  ROOT %both = (f32[64]{{0}}, bf16[32]{{0}}) all-reduce(%a, %b), channel_id=1, {GROUPS}",
            ]
        ),
    )
    assert one.stands_for == ("ar.1", "ar.2") and one.how == ("combined",)
    assert one.collective.operand_bytes == 64 * 4 + 32 * 2


def test_an_asynchronous_reduce_scatter_is_told_from_the_all_reduce_that_it_was():
    scatter = "replica_groups=[2,4]<=[8], dimensions={0}, to_apply=%add"
    first, second = run(
        AFTER,
        module(
            [
                "  %a = f32[64]{0} parameter(0)",
                "  %b = bf16[8,4]{1,0} parameter(1)",
                f"  %s = ((f32[64]{{0}}), f32[16]{{0}}) reduce-scatter-start(%a), channel_id=1, {scatter}",
                "  %d = f32[16]{0} reduce-scatter-done(%s)",
                f'  %r = bf16[8,4]{{1,0}} all-reduce(%b), channel_id=9, {GROUPS}, metadata={{op_name="jit(f)/q"}}',
                "  ROOT %t = (f32[16]{0}, bf16[8,4]{1,0}) tuple(%d, %r)",
            ]
        ),
    )
    assert (first.stands_for, first.how) == (("ar.1",), ("turned", "asynchronous"))
    assert (first.collective.kind, first.collective.result_bytes) == ("reduce-scatter", 64)
    assert (second.stands_for, second.how) == (("ar.2",), ())


def test_a_fusion_of_an_all_reduce_and_its_slice_is_a_reduce_scatter():
    fused = [
        "%all-reduce-scatter (p: f32[64]) -> f32[16] {",
        "  %p = f32[64]{0} parameter(0)",
        f"  %ar.7 = f32[64]{{0}} all-reduce(%p), channel_id=1, {GROUPS}",
        "  %zero = s32[] constant(0)",
        "  ROOT %cut = f32[16]{0} dynamic-slice(%ar.7, %zero), dynamic_slice_sizes={16}",
        "}",
    ]
    (one,) = run(
        AFTER,
        module(
            [
                "  %a = f32[64]{0} parameter(0)",
                "  ROOT %fusion.1 = f32[16]{0} fusion(%a), kind=kCustom, calls=%all-reduce-scatter",
            ],
            *fused,
        ),
    )
    assert (one.collective.kind, one.collective.shape, one.collective.result_bytes) == ("reduce-scatter", (16,), 64)
    assert (one.stands_for, one.how) == (("ar.1",), ("turned", "fused"))


def test_what_the_target_adds_stands_for_nothing():
    pairs = "source_target_pairs={{0,1},{1,0}}"
    optimized = module(
        ["  %c = f32[3]{0} parameter(0)", f"  ROOT %cp = f32[3]{{0}} collective-permute(%c), channel_id=5, {pairs}"]
    )
    (one,) = run(AFTER, optimized)
    assert (one.stands_for, one.how) == ((), ("added",))


def test_the_sum_of_two_all_reduces_may_be_one_of_a_sum():
    after = module(
        [
            "  %a = f32[64]{0} parameter(0)",
            "  %b = f32[64]{0} parameter(1)",
            f'  %ar.1 = f32[64]{{0}} all-reduce(%a), channel_id=1, {GROUPS}, metadata={{op_name="jit(f)/p"}}',
            f'  %ar.2 = f32[64]{{0}} all-reduce(%b), channel_id=2, {GROUPS}, metadata={{op_name="jit(f)/q"}}',
            "  ROOT %sum = f32[64]{0} add(%ar.1, %ar.2)",
        ]
    )
    optimized = module(
        [
            "  %a = f32[64]{0} parameter(0)",
            "  %b = f32[64]{0} parameter(1)",
            "  %sum = f32[64]{0} add(%a, %b)",
            f"  ROOT %ar.9 = f32[64]{{0}} all-reduce(%sum), channel_id=1, {GROUPS}",
        ]
    )
    (one,) = run(after, optimized)
    assert (one.stands_for, one.how) == (("ar.1", "ar.2"), ("combined",))


def test_within_a_slice_groups_are_counted_from_its_first_device():
    """Two slices of four devices: data=2*1 runs between them, model=4 within."""
    after = module(
        [
            "  %a = f32[64]{0} parameter(0)",
            "  ROOT %ar.1 = f32[64]{0} all-reduce(%a), channel_id=1, replica_groups=[2,4]<=[8], to_apply=%add",
        ]
    )
    partitioned = hlo.collectives(after, MESH)
    for groups in ("{{0,1,2,3}}", "[1,4]<=[4]"):
        line = f"  ROOT %ar.5 = f32[64]{{0}} all-reduce(%a), channel_id=1, replica_groups={groups}, to_apply=%add"
        optimized = module(["  %a = f32[64]{0} parameter(0)", line], devices=4)
        (one,) = target_collectives(optimized, MESH, partitioned, after, slices=(0, 0, 0, 0, 1, 1, 1, 1))
        assert (one.collective.axes, one.collective.group_size, one.stands_for) == (("model",), 4, ("ar.1",))


def test_a_loop_whose_body_is_written_out_twice_takes_half_the_trips():
    loop = module(
        [
            "  %zero = u32[] constant(0)",
            "  %t = (u32[]) tuple(%zero)",
            "  ROOT %w = (u32[]) while(%t), condition=%cond, body=%body",
        ],
        "%body (p: (u32[])) -> (u32[]) {",
        "  %p = (u32[]) parameter(0)",
        "  %i = u32[] get-tuple-element(%p), index=0",
        "  %one = u32[] constant(1)",
        "  %j = u32[] add(%i, %one)",
        "  %k = u32[] add(%one, %j)",
        "  ROOT %r = (u32[]) tuple(%k)",
        "}",
        "%cond (q: (u32[])) -> pred[] {",
        "  %q = (u32[]) parameter(0)",
        "  %n = u32[] get-tuple-element(%q), index=0",
        "  %four = u32[] constant(7)",
        "  ROOT %c = pred[] compare(%n, %four), direction=LT",
        "}",
    )
    graph = hlo.graph_of(loop)
    assert runs(graph)[graph.blocks["body"]].count == 4  # 0, 2, 4, 6


def test_small_arrays_laid_together_are_parts_and_one_that_was_laid_together_before_is_not():
    """A GPU's compiler concatenates what it combines; the program may have a concatenation of its own."""
    both = "  %both = f32[96]{0} concatenate(%a, %b), dimensions={0}"
    given = ["  %a = f32[64]{0} parameter(0)", "  %b = f32[32]{0} parameter(1)"]
    reduce = f"all-reduce(%both), channel_id=7, {GROUPS}"
    apart = module(
        [
            *given,
            f'  %ar.1 = f32[64]{{0}} all-reduce(%a), channel_id=7, {GROUPS}, metadata={{op_name="p"}}',
            f'  %ar.2 = f32[32]{{0}} all-reduce(%b), channel_id=7, {GROUPS}, metadata={{op_name="q"}}',
            f'  %ar.3 = f32[96]{{0}} all-reduce(%c), channel_id=7, {GROUPS}, metadata={{op_name="p"}}',
            "  %c = f32[96]{0} parameter(2)",
            "  ROOT %t = (f32[64]{0}, f32[32]{0}, f32[96]{0}) tuple(%ar.1, %ar.2, %ar.3)",
        ]
    )
    (one,) = run(apart, module([*given, both, f'  ROOT %r = f32[96]{{0}} {reduce}, metadata={{op_name="p"}}']))
    assert one.stands_for == ("ar.1", "ar.2")
    laid = module([*given, both, f"  ROOT %ar.1 = f32[96]{{0}} {reduce}"])
    (one,) = run(laid, module([*given, both, f"  ROOT %r = f32[96]{{0}} {reduce}"]))
    assert (one.stands_for, one.how) == (("ar.1",), ())


def test_an_all_reduce_of_an_all_reduce_becomes_one_over_the_axes_of_both():
    data, model, all_of = ("replica_groups=" + text for text in ("[4,2]<=[2,4]T(1,0)", "[2,4]<=[8]", "[1,8]<=[8]"))
    nested = module(
        [
            "  %a = f32[64]{0} parameter(0)",
            f"  %ar.1 = f32[64]{{0}} all-reduce(%a), channel_id=1, {data}, to_apply=%add",
            f"  ROOT %ar.2 = f32[64]{{0}} all-reduce(%ar.1), channel_id=2, {model}, to_apply=%add",
        ]
    )
    one_over_both = f"  ROOT %r = f32[64]{{0}} all-reduce(%a), channel_id=9, {all_of}, to_apply=%add"
    (one,) = run(nested, module(["  %a = f32[64]{0} parameter(0)", one_over_both]))
    assert one.stands_for == ("ar.1", "ar.2") and one.collective.axes == ("data", "model")
