"""What a report costs on a machine: against sums and arithmetic done another way, and laws."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardviz import gallery
from shardviz.costs.chips import chip
from shardviz.costs.collective import collective_seconds
from shardviz.costs.machine import Machine
from shardviz.costs.step_cost import StepCost, cost_of
from shardviz.errors import MeshError, ShardvizError, TargetError
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.records import Collective, Cost, Frame, Memory, TargetCollective, Work
from tests.collectives import collective, held, report_of

TOKENS = 512 * 4096


@pytest.fixture(scope="module")
def llama() -> Report:
    """The train step of the 70B model on 512 devices, as partitioned."""
    example = gallery.llama("70b", batch=512, mesh="data=64,model=8")
    return example.program.partition(example.plan)


@pytest.fixture(scope="module")
def cost(llama: Report) -> StepCost:
    return cost_of(llama, "tpu v5p:8x8x8", tokens=TOKENS, model_flops=6 * 70.6e9 * TOKENS)


def whole(c: Collective, size: int) -> float:
    """V, by the kind: what the group gathers, reduces or exchanges."""
    return {
        "all-gather": c.result_bytes,
        "all-reduce": c.operand_bytes,
        "reduce-scatter": c.operand_bytes,
        "all-to-all": c.operand_bytes * size,
    }[c.kind]


def test_communication_is_the_sum_over_the_reports_collectives(llama: Report, cost: StepCost):
    by_hand, runs = 0.0, {c.name: cost.timed.timing.runs[c.name] for c in cost.collectives if c.seconds}
    assert runs.keys() < {c.name for c in llama.collectives}, "all-reduces that are only added up are one"
    for c in runs.values():
        if c.kind != "collective-permute":
            assert c.axes is not None and c.count is not None
            size = math.prod(llama.mesh.shape[a] if isinstance(a, str) else a[2] for a in c.axes)
            one = collective_seconds(c.kind, whole(c, size), c.axes, llama.mesh, "tpu v5p:8x8x8")
            by_hand += c.count * one.seconds
    permutes = [c for c in cost.collectives if c.kind == "collective-permute"]
    sent = sum(c.count * c.seconds for c in permutes if c.count and c.seconds)
    assert sent < by_hand / 1000 and not cost.unknown
    by_hand += sent
    assert cost.step.communication == pytest.approx(by_hand)
    for key in ("axes", "source", "kind"):
        assert sum(m.seconds for m in cost.by(key)) == pytest.approx(by_hand)


def test_the_all_reduces_of_the_layers_by_hand(cost: StepCost):
    """bf16[8, 4096, 8192] in and out of each matrix cut over model: a ring of 8 along x, both ways."""
    nbytes = 512 // 64 * 4096 * 8192 * 2
    each = 2 * nbytes * 7 / 8 / (2 * 9e10)
    large = [c for c in cost.collectives if c.kind == "all-reduce" and c.axes == ("model",) and c.count == 80]
    assert large and all(c.operand_bytes == nbytes and c.seconds in (0, pytest.approx(each)) for c in large)
    large = [c for c in large if c.seconds]
    assert "2 x V x 7/8 / W = 2 x 537 MB x 7/8 / (2 x 90.0 GB/s); ring of 8 along x" in (large[0].formula or "")


def test_bounds_utilisation_and_tokens(cost: StepCost):
    compute, memory, moved = cost.step.compute, cost.step.memory, cost.step.communication
    assert cost.upper is not None and cost.lower == max(compute, memory, moved)
    assert cost.upper == max(compute, memory) + moved or cost.upper == cost.seconds > max(compute, memory) + moved
    assert cost.seconds == cost.step.seconds == pytest.approx(cost.timeline.seconds) and cost.seconds > cost.lower
    assert cost.mfu == pytest.approx(6 * 70.6e9 * TOKENS / (512 * 4.59e14) / cost.seconds)
    assert cost.busy == pytest.approx(cost.step.at_peak / cost.seconds) and cost.step.at_peak < compute
    assert cost.tokens_per_s_per_chip == pytest.approx(TOKENS / cost.seconds / 512)


def test_the_foretold_program_has_the_same_products(cost: StepCost):
    example = gallery.llama("70b", batch=512, mesh="data=64,model=8")
    propagated = cost_of(example.program.propagate(example.plan), "tpu v5p:8x8x8", model_flops=1e18)
    assert propagated.flops == pytest.approx(cost.flops) and propagated.step.compute == pytest.approx(cost.step.compute)
    assert propagated.step.memory == pytest.approx(cost.step.memory, rel=0.01)
    assert propagated.bound == "compute" and propagated.lower == propagated.step.compute
    assert propagated.levels["FLOPs"] == "matrix products as Shardy shards them"
    assert propagated.step.tokens == TOKENS and propagated.tokens_from == "512 x 4096, from argument tokens"
    assert propagated.mfu == pytest.approx(1e18 / (512 * 4.59e14) / propagated.step.seconds)


def test_what_a_level_has_not_is_left_out_and_said(llama: Report, cost: StepCost):
    notation = dataclasses.replace(llama, cost=None, level="notation", schedule=())
    bare = cost_of(notation, "tpu v5p:8x8x8", model_flops=1e18)
    assert (bare.flops, bare.seconds, bare.upper, bare.mfu, bare.tokens_per_s) == (None,) * 5
    assert bare.lower == bare.step.communication > 0
    assert bare.levels["FLOPs"] == "not counted at this level"
    assert not cost.needs.complete and cost.needs.margin and not bare.needs.margin and bare.needs.fits is None
    assert cost.needs.text.startswith("about ") and bare.needs.text.startswith("≥ ")
    arguments = sum(v.bytes_per_device or 0 for v in llama.arguments)
    assert cost.needs.parts["arguments"] == arguments
    outputs = sum(v.bytes_per_device or 0 for v in llama.outputs)
    assert (
        bare.hbm_bytes == arguments + outputs and not bare.hbm_exact and bare.levels["HBM traffic"] == "a lower bound"
    )
    assert not cost.hbm_exact and "at least" not in cost.text().split("HBM traffic")[1].split("communication")[0]


def test_the_machine_is_the_reports_own_if_none_is_named(llama: Report):
    for_tpus = dataclasses.replace(llama, target="tpu v5p:8x8x8")
    assert cost_of(for_tpus).text() == cost_of(for_tpus, "tpu v5p:8x8x8").text()
    with pytest.raises(TargetError, match="'cpu' has no"):
        cost_of(llama)


def test_a_mesh_of_another_size_gets_what_would_fit(llama: Report):
    with pytest.raises(MeshError, match="512 devices and the target tpu v5p:4x4x4 has 64") as caught:
        cost_of(llama, "tpu v5p:4x4x4")
    assert str(caught.value).endswith("a target that would do: tpu v5p:8x8x8")
    for target in ("tpu v5e:4x4", "gpu h100:2x8", "tpu v6e:4x4", "tpu tpu7x:4x4x4", "gpu gb200:2x72"):
        with pytest.raises(MeshError) as caught:
            cost_of(llama, target)
        _, would, other = str(caught.value).partition("a target that would do: ")
        if would:  # and it does
            assert Machine.of(other).size == 512 and cost_of(llama, other).lower > 0
        else:  # 512 is no multiple of 72, and a slice of v5e or v6e has at most 256
            assert target in ("tpu v5e:4x4", "tpu v6e:4x4", "gpu gb200:2x72")


def test_bad_input_is_named(llama: Report):
    with pytest.raises(TargetError, match="simulated devices have no links and no speed"):
        cost_of(llama, "cpu")
    with pytest.raises(ShardvizError, match=r"report=dict.*expected a Report"):
        cost_of({}, "tpu v5p:8x8x8")  # type: ignore[arg-type]
    with pytest.raises(ShardvizError, match="tokens: expected 0 or more, not -1"):
        cost_of(llama, "tpu v5p:8x8x8", tokens=-1)
    with pytest.raises(ShardvizError, match=r"cannot be summed by 'size'.*'axes', 'source', 'kind'"):
        cost_of(llama, "tpu v5p:8x8x8").by("size")


def test_more_devices_along_data_never_take_longer_to_compute():
    times, args = [], []
    for size in (1, 2, 4, 8):
        example = gallery.mlp(mesh={"data": size, "model": 1})
        found = cost_of(example.program.partition(example.plan), f"gpu h100:1x{size}")
        times.append(found.step.compute)
        args.append(found.needs.parts["arguments"])
    assert times == sorted(times, reverse=True) and times[-1] < times[0] / 4
    assert args == sorted(args, reverse=True)


# ---------------------------------------------------------------- reports made up

MESHES = ("a=4,b=16", "a=8,b=8", "a=2,b=4,c=8", "a=64,b=1")
FRAMES = (None, Frame("m.py", 3, "f"), Frame("m.py", 5, "f"))


@st.composite
def collectives(draw: st.DrawFn, mesh: DeviceMesh) -> Collective:
    axes = tuple(draw(st.permutations(mesh.names))[: draw(st.integers(1, len(mesh.names)))])
    kind = draw(st.sampled_from(("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")))
    size = math.prod(mesh.shape[a] for a in axes)
    nbytes = float(draw(st.integers(0, 10**9)))
    result = {"all-gather": nbytes * size, "reduce-scatter": nbytes / size}.get(kind, nbytes)
    count = draw(st.sampled_from((1, 3, 80, None)))
    source = draw(st.sampled_from(FRAMES))
    return collective(kind, axes, nbytes, result, count, dtype="bfloat16", source=source, name=f"{kind}.1")


@st.composite
def reports(draw: st.DrawFn) -> Report:
    mesh = DeviceMesh.of(draw(st.sampled_from(MESHES)))
    moved = tuple(draw(st.lists(collectives(mesh), max_size=6)))
    w = held("w", "bfloat16", (64, 64), draw(st.integers(1, 10**11)))
    flops = float(draw(st.integers(0, 10**16)))
    return report_of(mesh, (w,), (w,), collectives=moved, cost=Cost(dot_flops=flops))


TARGETS = st.sampled_from(("tpu v5p:4x4x4", "tpu v5e:8x8", "tpu v4:4x4x4", "gpu h100:8x8", "gpu b200:8x8"))


@settings(max_examples=40)
@given(reports(), TARGETS)
def test_laws_of_any_report(report: Report, target: str):
    found = cost_of(report, target, model_flops=report.cost.dot_flops * 64)
    assert found.upper is not None and (not found.lower or 0 <= found.mfu <= 1 + 1e-9)
    assert found.lower <= found.upper <= 2 * found.lower * (1 + 1e-12)
    assert found.lower == max(found.step.compute, found.step.memory, found.step.communication)
    known = [c for c in found.collectives if c.count is not None and c.seconds is not None]
    assert found.step.communication == pytest.approx(sum(c.count * c.seconds for c in known))  # type: ignore[operator]
    assert len(found.unknown) == len(report.collectives) - len(known)
    for key in ("axes", "source", "kind"):
        rows = found.by(key)
        assert sum(m.seconds for m in rows) == pytest.approx(found.step.communication)
        assert sum(m.operations for m in rows) == len(report.collectives)
        assert sum(m.untimed for m in rows) == len(found.unknown)
        assert all(sum(part.seconds for part in m.parts) == pytest.approx(m.seconds) for m in rows)
    fast = dataclasses.replace(found.machine.chip, name="fast", flops_per_s={"bfloat16": 1e18})
    faster = cost_of(report, dataclasses.replace(found.machine, chip=fast))
    assert faster.lower <= found.lower and faster.upper <= found.upper  # type: ignore[operator]


def made_up(**more: Any) -> Report:
    w = held("w", "float32", (64, 64), 4e9)
    return report_of("a=8", (w,), (w,), **{"cost": Cost(dot_flops=1e12)} | more)


def test_memory_is_said_as_far_as_it_is_known():
    too_much = dataclasses.replace(made_up(), arguments=(held("w", "float32", (1,), 1.2e11),))
    needs = cost_of(too_much, "gpu h100:1x8").needs
    assert (needs.fits, needs.complete) == (False, False) and "arguments alone" in needs.verdict
    planned = made_up(
        memory=Memory(
            arguments=10**9, outputs=10**9, aliased=10**9, temporaries=5 * 10**9, peak=6 * 10**9, needed=7 * 10**9
        )
    )
    needs = cost_of(planned, "gpu h100:1x8").needs
    assert (needs.total, needs.fits, needs.complete, needs.plan_of) == (7e9, True, True, "cpu")
    assert dict(needs.parts) == {"arguments": 1e9, "temporaries": 5e9, "constants and other": 1e9}
    own = dataclasses.replace(planned, target="gpu h100:1x8", memory=dataclasses.replace(planned.memory, fits=False))  # type: ignore[type-var]
    needs = cost_of(own, "gpu h100:1x8").needs
    assert needs.fits is False and needs.verdict == "the compiler's own plan"


def test_each_element_type_at_its_own_rate():
    """A chip without a rate for one counts it as it does most of the others."""
    rows = tuple(
        Work(phase="forward", source=None, module="", dtype=dtype, dot_flops=n * 1e12)
        for dtype, n in (("bfloat16", 3), ("int8", 4), ("int32", 1))
    )
    report = made_up(cost=Cost(dot_flops=8e12, work=rows))
    h100 = chip("h100")
    found = cost_of(report, "gpu h100:1x8")
    each = 3e12 / h100.flops("bfloat16") + (4e12 + 1e12) / h100.flops("int8")
    assert found.step.compute == pytest.approx(each)
    assert (found.flops, found.dtype) == (8e12, "int8")
    only = dataclasses.replace(report, cost=Cost(dot_flops=1e12, work=rows[2:]))
    assert cost_of(only, "gpu h100:1x8").dtype == "float32", "as most bytes of the arguments"
    assert cost_of(only, "gpu h100:1x8").levels["rates"] == "h100 has none for int32: counted as float32"
    assert found.levels["rates"] == "h100 has none for int32: counted as int8"


def test_traffic_of_the_targets_program_is_taken_where_it_is_known():
    counted = made_up(target="gpu h100:1x8", cost=Cost(dot_flops=1e12, hbm_bytes=6.7e12))
    found = cost_of(counted, "gpu h100:1x8")
    assert (found.hbm_bytes, found.hbm_exact, found.bound) == (6.7e12, True, "memory")
    assert found.levels["HBM traffic"] == "optimised program of the compiler for gpu h100:1x8"
    other = cost_of(counted, "gpu h200:1x8")
    assert other.hbm_bytes == 8e9 and not other.hbm_exact and other.levels["HBM traffic"] == "a lower bound"


def test_the_share_of_a_gpus_memory_that_jax_takes_is_said():
    usable = chip("h100").needs("hbm_usable_bytes")
    for part, over in ((0.5, False), (0.8, True), (1.1, False)):
        needed = int(part * usable)
        report = made_up(
            memory=Memory(arguments=needed, outputs=0, aliased=0, temporaries=0, peak=needed, needed=needed)
        )
        found = cost_of(report, "gpu h100:1x8")
        assert found.needs.fits == (part < 1)
        assert ("unless XLA_PYTHON_CLIENT_MEM_FRACTION" in found.needs.verdict) == over
        assert "JAX takes 75% of a GPU's memory (63.7 GB) unless XLA_PYTHON_CLIENT_MEM_FRACTION" in found.needs.source
        assert "JAX takes 75% of a GPU&#x27;s memory" in found.html()
        assert "JAX takes 75%" in " ".join(found.text().split())
    assert "XLA_PYTHON" not in cost_of(report, "tpu v5e:4x2").text()


GATHER = collective("all-gather", ("a",), 1e9, 8e9, name="all-gather.1")


def test_a_report_of_the_target_counts_what_the_target_runs():
    half = TargetCollective(
        collective=dataclasses.replace(GATHER, dtype="bfloat16", operand_bytes=5e8, result_bytes=4e9)
    )
    report = made_up(collectives=(GATHER,), target="gpu h100:1x8", target_collectives=(half,))
    run = cost_of(report, "gpu h100:1x8")
    assert run.as_run and run.basis == "as run"
    assert run.partitioned_seconds == pytest.approx(2 * run.step.communication)
    assert not cost_of(report, "tpu v5e:4x2").as_run


def test_a_program_of_which_the_target_runs_no_collectives_has_none():
    report = made_up(collectives=(GATHER,), target="gpu h100:1x8", level="compiled")
    found = cost_of(report, "gpu h100:1x8")
    assert found.step.communication == 0 and not found.collectives and found.partitioned_seconds and found.as_run


def test_what_goes_between_slices_is_not_lost():
    """The optimised program for several slices sends and receives between them: its collectives are not all."""
    within = collective("all-reduce", (("a", 2, 4),), 1e9, name="all-reduce.1")
    across = collective("all-gather", (("a", 1, 2),), 1e9, 2e9, name="all-gather.1")
    own: dict[str, Any] = {"target": "tpu v5e:2x2*2", "target_collectives": (TargetCollective(collective=within),)}
    both, alone = made_up(collectives=(within, across), **own), made_up(collectives=(within,), **own)
    found = cost_of(both, "tpu v5e:2x2*2")
    assert not found.as_run and len(found.collectives) == 2
    assert found.step.communication >= 1e9 / chip("v5e").needs("dcn_bytes_per_s")
    assert "between slices" in found.levels["collectives"] and "between slices" in " ".join(found.text().split())
    assert cost_of(alone, "tpu v5e:2x2*2").as_run, "nothing goes between them"


def test_loops_of_unknown_trip_count_are_said_with_every_number_that_takes_them_once():
    counted = dataclasses.replace(
        made_up(target="gpu h100:1x8"), cost=Cost(dot_flops=1e12, unknown_loops=2, hbm_bytes=6.7e12)
    )
    found = cost_of(counted, "gpu h100:1x8")
    assert all("unknown trip count, counted once: 2" in found.levels[what] for what in ("FLOPs", "HBM traffic"))
    assert "2 loops of unknown trip count counted once" in " ".join(found.text().split())


def test_two_devices_a_chip_share_its_numbers():
    found = cost_of(made_up(), "tpu tpu7x:2x2x1", tokens=800.0)
    assert found.step.compute == pytest.approx(1e12 / (2.307e15 / 2))
    assert found.tokens_per_s is not None and found.tokens_per_s_per_chip is not None
    assert found.tokens_per_s == pytest.approx(4 * found.tokens_per_s_per_chip)
