"""TPU slices with no TPU: against what libtpu says of the same programs in a full compile."""

import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import processes
from shardviz.ask.targeting import resolve_target
from shardviz.costs.machine import Machine
from shardviz.notation import DeviceMesh
from shardviz.records.amounts import format_bytes
from shardviz.records.collectives import runs_as
from tests.ask.stated import stated
from tests.ask.tpu_truth import PROGRAMS
from tests.truth import answers_of
from tests.watched import memory_of_children

pytestmark = pytest.mark.tpu

GIB = 2**30
MAIN, VMEM = 0, 1


@functools.cache
def truth(target, name, mesh):
    """What JAX's own full compile says, on the same devices in the same order."""
    ids = resolve_target(target, DeviceMesh.of(mesh)).topology.device_ids
    said = answers_of(
        Path(__file__).with_name("tpu_truth.py"), target.removeprefix("tpu "), name, ",".join(map(str, ids))
    )
    return json.loads(said.splitlines()[-1])


def program(name, mesh):
    fn, args, in_specs, out_specs, donated = PROGRAMS[name]
    return sv.trace(fn, *args, donate_argnums=donated), sv.Plan(mesh, in_specs, out_specs)


@pytest.fixture(scope="module")
def step():
    before = dict(os.environ)
    traced, plan = program("step", "data=4,model=2")
    levels = []
    report = traced.submit(
        plan, "compiled", target="tpu v5p:2x2x2", on_report=lambda r: levels.append(r.level)
    ).result()
    assert dict(os.environ) == before  # nothing of the target is in the kernel
    assert "libtpu.so" not in Path("/proc/self/maps").read_text()
    assert levels == ["partitioned", "compiled"]
    return report


def check_memory(ours, facts):
    """A plan, read before there is machine code, against `memory_analysis()` and the heaps of a full compile."""
    theirs = facts["memory"]
    assert (ours.arguments, ours.outputs) == (theirs["argument_size_in_bytes"], theirs["output_size_in_bytes"])
    assert ours.aliased == theirs["alias_size_in_bytes"]
    always = ours.arguments + ours.outputs - ours.aliased + ours.constants
    heaps = {int(space): always + most for space, most in facts["heaps"].items()}
    assert ours.peak == heaps[MAIN]
    # what is stated is the peak of whichever memory has the largest; where that is VMEM, it is not main memory's
    assert theirs["peak_memory_in_bytes"] == max(heaps.values())
    assert theirs["peak_memory_in_bytes"] == ours.peak or heaps[VMEM] > ours.peak
    if "total_allocation_bytes" in theirs:  # since jax 0.11
        assert ours.needed == theirs["total_allocation_bytes"]
        small = theirs["indefinite_allocations"] - always  # what a thread keeps to itself
        assert ours.temporaries == theirs["total_allocation_bytes"] - theirs["indefinite_allocations"]
        assert ours.needed == always + small + ours.temporaries
    assert ours.peak <= ours.set_aside + ours.constants <= ours.needed
    if gap := theirs["temp_size_in_bytes"]:  # jax 0.10 says 0 of little
        assert ours.temporaries < gap < 2 * ours.temporaries + ours.on_chip  # with the gaps between them once more


def test_memory_is_what_the_full_compile_says(step):
    facts = truth("tpu v5p:2x2x2", "step", "data=4,model=2")
    ours = step.memory
    check_memory(ours, facts)
    assert ours.peak == facts["memory"]["peak_memory_in_bytes"]
    assert ours.aliased == 2 * 6 * 512 * 2048 * 2 // 8
    assert ours.fits and ours.headroom == ours.hbm - ours.needed


@pytest.mark.parametrize(("target", "name"), [("tpu v5e:2x4", "step"), ("tpu v6e:2x4", "wide")])
def test_other_chips_have_the_memory_of_the_full_compile(target, name):
    traced, plan = program(name, "data=4,model=2")
    facts, memory = truth(target, name, "data=4,model=2"), traced.compile(plan, target=target).memory
    check_memory(memory, facts)
    assert (memory.peak == facts["memory"]["peak_memory_in_bytes"]) == (target != "tpu v5e:2x4")  # all in VMEM there


@pytest.mark.parametrize("target", ["tpu v2:2x2", "tpu v4:2x2x1", "tpu tpu7x:2x2x1", "tpu v5e:2x2*2", "tpu v5e:1x1"])
def test_every_kind_of_topology_is_compiled_for(target):
    def product(x, w):
        return jax.nn.relu(x @ w).sum(0)

    devices = Machine.of(target).size
    traced = sv.trace(product, *(jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16) for _ in "xw"))
    plan = sv.Plan(f"data={devices}", (P("data", None), P("data", None)))
    memory, (theirs,) = traced.compile(plan, target=target).memory, stated((traced, plan, target))
    assert theirs["flops"] >= 2 * 1024**3 / devices
    assert memory.arguments == theirs["argument_size_in_bytes"] == 2 * 2 * 1024**2 // devices
    assert memory.peak <= theirs["peak_memory_in_bytes"]


def test_the_report_says_the_machine_and_survives_json(step):
    assert (step.target, step.level, step.memory.target) == ("tpu v5p:2x2x2", "compiled", "tpu v5p:2x2x2")
    assert sv.Report.from_json(step.to_json()) == step
    assert "it fits: " in repr(step) and "Final HLO" in repr(step)


def test_the_heaviest_values_at_the_peak_are_named_with_their_lines(step):
    alive = step.memory.alive_at_peak
    assert [a.bytes for a in alive] == sorted((a.bytes for a in alive), reverse=True)
    assert sum(a.bytes for a in alive) <= step.memory.peak
    arguments = {a.name: a for a in alive if a.kind == "argument"}
    assert set(arguments) <= {a.name for a in step.arguments} and arguments
    for name, value in arguments.items():
        assert value.shape == step.value(name).shard_shape
    assert any(a.source and a.source.short.startswith("tpu_truth.py:") for a in alive if a.kind == "temporary")


def test_collectives_are_those_of_the_optimised_program_and_matched(step):
    by_name = {c.name: c for c in step.collectives}
    for run in step.target_collectives:
        for name in run.stands_for:
            assert by_name[name].axes == run.collective.axes
            if "split" not in run.how:
                assert by_name[name].count == run.collective.count == 6  # one in each layer
    scattered = [run for run in step.target_collectives if run.collective.kind == "reduce-scatter"]
    assert scattered and all("turned" in run.how for run in scattered)
    for run in scattered:  # each of four devices along `data` keeps a quarter
        assert run.collective.result_bytes * 4 == run.collective.operand_bytes
    assert [c.name for c in step.collectives if not runs_as(c.name, step.target_collectives)] == []


@pytest.mark.long
def test_what_a_chip_needs_is_less_than_temp_size_in_bytes():
    """libtpu compiles a program whose arguments and `temp_size_in_bytes` exceed the chip's memory: gaps count twice."""
    traced, plan = program("rematted", "data=2,model=2")
    memory = traced.compile(plan, target="tpu v5e:2x2").memory
    facts = truth("tpu v5e:2x2", "rematted", "data=2,model=2")
    check_memory(memory, facts)
    theirs = facts["memory"]
    assert memory.needed < memory.hbm < theirs["argument_size_in_bytes"] + theirs["temp_size_in_bytes"]


def test_a_program_that_does_not_fit_is_an_answer_with_the_compilers_own_numbers():
    traced, plan = program("large", "data=2,model=2")
    report = traced.compile(plan, target="tpu v5e:2x2")
    theirs = truth("tpu v5e:2x2", "large", "data=2,model=2")["refused"]
    needed, there_is = map(float, re.search(r"\(([\d.]+)G\) exceeds available HBM \(([\d.]+)G\)", theirs).groups())
    memory = report.memory
    assert report.level == "compiled" and memory.fits is False and memory.headroom < 0
    assert (round(memory.needed / GIB, 2), round(memory.hbm / GIB, 2)) == (needed, there_is)
    (finding,) = [d for d in report.diagnostics if d.rule == "does-not-fit"]
    assert finding.severity == "error" and "The largest at the peak: " in finding.text
    assert memory.alive_at_peak[0].bytes == 131072 * 131072 * 2 // 4
    assert sv.Report.from_json(report.to_json()) == report
    assert "DOES NOT FIT" in repr(report) and "DOES NOT FIT" in report._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("target", ["tpu v2:2x2", "tpu v3:2x2", "tpu v4:2x2x1", "tpu v6e:2x2", "tpu tpu7x:2x2x1"])
def test_the_memory_that_a_chip_has_is_what_its_compiler_says(target):
    machine = Machine.of(target)

    def grown(x):
        return x + 1, x * 2

    traced = sv.trace(grown, jax.ShapeDtypeStruct((machine.size * 2**18, 2**18), jnp.bfloat16))
    memory = traced.compile(sv.Plan(f"data={machine.size}", P("data"), P("data")), target=target).memory
    assert memory.fits is False and 3 * 2**37 <= memory.needed < 3 * 2**37 + 2**20
    # the refusal's own number, unless that is the chip's but for its rounding; versions differ by 0.01 GiB
    assert abs(memory.hbm - machine.chip.hbm_usable_bytes / machine.chip.devices_per_chip) <= 0.02 * GIB


def test_a_program_is_lowered_for_the_target():
    def other(x):
        return jax.lax.platform_dependent(x, cpu=lambda x: x + 1, tpu=lambda x: jax.nn.silu(x @ x))

    traced = sv.trace(other, jax.ShapeDtypeStruct((128, 128), jnp.float32))
    plan = sv.Plan("data=4", P("data", None))
    on_cpu, on_tpu = (traced.partition(plan, target=target).cost.dot_flops for target in ("cpu", "tpu v5e:2x2"))
    assert (on_cpu, on_tpu) == (0, 2 * 128**3 / 4)


def test_slices_know_their_axes():
    """Two slices of four chips: `data` runs between them and within."""
    traced, plan = program("step", "data=4,model=2")
    report = traced.compile(plan, target="tpu v5e:2x2*2")
    axes = {run.collective.axes for run in report.target_collectives}
    assert None not in axes and ("model",) in axes and (("data", 2, 2),) in axes


def test_the_cost_has_what_goes_between_slices():
    """libtpu makes sends and receives of it; the time cannot be less than the shard takes through a chip's DCN."""
    rows, columns = 2880, 2560
    x, w = jax.ShapeDtypeStruct((rows, 512), jnp.bfloat16), jax.ShapeDtypeStruct((512, columns), jnp.bfloat16)
    plan = sv.Plan(sv.mesh(data=2, model=4), in_specs=(P("data", "model"), P("model", None)), out_specs=P())
    report = sv.trace(lambda x, w: jnp.tanh(x @ w), x, w).compile(plan, target="tpu v5e:2x2*2")
    assert "data" not in {axis for t in report.target_collectives for axis in t.collective.axes or ()}
    cost = sv.cost(report, report.target)
    dcn = cost.machine.chip.needs("dcn_bytes_per_s")
    other_half = rows * columns * 2 / 2
    assert cost.step.communication > other_half / (4 * dcn) and "data" in {m.key[0] for m in cost.by("axes")}


def test_gathers_of_little_run_as_all_reduces_and_are_recognised():
    """Over 64 devices a shard is smaller than a tile, so that the compiler adds up padded shards."""
    traced, plan = program("step", "data=64,model=1")
    report = traced.compile(plan, target="tpu v6e:8x8")
    by_name = {c.name: c for c in report.collectives}
    found = [name for run in report.target_collectives for name in run.stands_for]
    assert sorted(found) == sorted(by_name)
    for run in report.target_collectives:
        assert run.collective.kind == "all-reduce" and "turned" in run.how
        gathers = [by_name[name] for name in run.stands_for if by_name[name].kind == "all-gather"]
        sums = [by_name[name] for name in run.stands_for if by_name[name].kind == "all-reduce"]
        whole = sum(c.result_bytes for c in gathers) + sum(c.operand_bytes for c in sums)
        assert gathers and whole == run.collective.operand_bytes


def test_the_compiler_is_told_which_ends_of_a_slice_are_joined():
    """On a whole v6e pod, where both axes wrap around, libtpu keeps the gathers that it adds up on a part of one."""
    traced, plan = program("step", "data=256,model=1")
    report = traced.compile(plan, target="tpu v6e:16x16")
    kinds = {c.name: c.kind for c in report.collectives}
    assert all({kinds[name] for name in run.stands_for} == {run.collective.kind} for run in report.target_collectives)


@pytest.mark.parametrize(
    ("target", "mesh"), [("tpu v5p:8x8x8", "data=64,model=8"), ("tpu v6e:16x16", "data=32,model=8")]
)
def test_the_70b_step_is_answered_in_little_memory(target, mesh):
    example = sv.gallery.llama("70b", mesh=mesh)
    processes.shutdown()  # a fresh one, whose memory is this compile's
    with memory_of_children() as seen:
        report = example.program.compile(example.plan, target=target)
    assert max(seen) < 3e9
    memory = report.memory
    assert (report.target, report.level) == (target, "compiled") and report.target_collectives
    assert memory.arguments >= sum(v.bytes_per_device for v in report.arguments)
    assert memory.fits == (memory.headroom >= 0) and memory.arguments < memory.peak
    said = [d.text for d in report.diagnostics if d.rule == "does-not-fit"]
    assert len(said) == (not memory.fits)
    if said:  # and by how much
        assert f"{format_bytes(-memory.headroom)} too much" in said[0]


def test_nothing_of_the_target_is_in_the_kernel():
    said = json.loads(answers_of(Path(__file__).with_name("untouched.py"), "tpu v5e:2x2").splitlines()[-1])
    assert said == {"planned": True, "environment": True, "backends": False, "loaded": []}


def test_two_kernels_compile_at_once():
    code = (
        "import shardviz as sv; from tests.ask.test_tpu import program; t, p = program('step', 'data=2,model=2'); "
        "print(t.compile(p, target='tpu v5e:2x2').memory.fits)"
    )
    root = Path(__file__).resolve().parents[2]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    about = [each.communicate(timeout=120) for each in both]
    assert [out.strip() for out, _ in about] == ["True", "True"], about


@pytest.mark.parametrize(
    ("fn", "shapes", "dtype", "moved"),
    [
        (lambda x, w: x @ w, ((8192, 8192), (8192, 8192)), jnp.bfloat16, 3 * 8192 * 8192 * 2),
        (lambda x: x + 1, ((4096, 4096),), jnp.float32, 2 * 4096 * 4096 * 4),
        (lambda x: x * 2 + 1, ((8192, 3),), jnp.float32, 2 * 8192 * 4 * 4),  # three numbers are stored as four
    ],
    ids=["product", "sum", "padded"],
)
def test_hbm_traffic_is_what_the_compiler_says_where_nothing_is_in_vmem(fn, shapes, dtype, moved):
    traced = sv.trace(fn, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    cost = traced.compile(sv.Plan("data=4", (P(),) * len(shapes), P()), target="tpu v5e:2x2").cost
    assert cost.hbm_bytes == cost.once_hbm_bytes == moved


def test_hbm_traffic_of_a_step(step):
    """All arguments are read and all results written; what stays in VMEM is not counted."""
    cost, memory = step.cost, step.memory
    assert cost.hbm_bytes >= memory.arguments + memory.outputs
    assert 3 * cost.once_hbm_bytes < cost.hbm_bytes < 6 * cost.once_hbm_bytes  # most of it in loops of 6 trips
    product = 2 * 1024 * 512 * 2048 / 8
    assert {t.key: t.dot_flops for t in cost.by("phase")} == {
        "forward": 6 * 2 * product, "backward": 6 * 4 * product, "update": 0.0,
    }  # fmt: skip
    assert "tpu_truth.py" in {t.key.short.partition(":")[0] for t in cost.by("source") if t.key}
    spent = sv.cost(step, "tpu v5p:2x2x2")
    assert spent.hbm_exact and spent.hbm_bytes == cost.hbm_bytes and "HBM traffic: forward" in spent.text()
