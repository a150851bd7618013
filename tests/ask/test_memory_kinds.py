"""Arrays on the host, and arguments that no result needs: in plans, programs and reports, and when edited."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.extend.mlir import ir
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import _jax
from shardviz.ask.targeting import resolve_target
from shardviz.errors import SpecError
from shardviz.explorer.explorer import ExplorerState
from shardviz.judge.report import Report
from shardviz.notation import DeviceMesh
from shardviz.propagate.lower import edited_bytecode
from shardviz.records import HostMemory
from tests.ask.memory_truth import ARRAY, PROGRAMS, SIDE, counted
from tests.truth import answers_of

MESH = sv.mesh(data=8)
HOST = NamedSharding(MESH, P("data"), memory_kind="pinned_host")
SHARD = SIDE * SIDE * 4 // 8
TRUTH = Path(__file__).with_name("memory_truth.py")


def planned(name):
    """A program of the truth's, and its plan: NamedShardings where something is on the host."""
    fn, ins, outs, donated = PROGRAMS[name]
    program = sv.trace(fn, ARRAY, ARRAY, ARRAY, donate_argnums=donated)
    specs = tuple(HOST if i in ins else P("data") for i in range(3))
    results = tuple(HOST if i in outs else P("data") for i in range(1 if "unused" in name else 2))
    return program, sv.Plan(MESH, specs, results if len(results) > 1 else results[0])


@pytest.fixture(scope="module")
def raw():
    return json.loads(answers_of(TRUTH, "lowered").splitlines()[-1])


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_compiled_says_of_memories_what_jax_says(name, raw):
    program, plan = planned(name)
    bound = program.bind(plan)
    lowered = program._lowerings.lower(plan)
    module = _jax.module_from(edited_bytecode(lowered, bound))
    with module.context, ir.Location.unknown():
        found = counted(module.operation.get_asm())
    ins, outs, placed, sizes = raw[name]
    assert found == [ins, outs, placed]
    memory = program.compile(plan, target="cpu").memory
    assert memory is not None and memory.host is None
    ours = (memory.arguments, memory.outputs, memory.aliased, memory.temporaries)
    assert ours == tuple(sizes[n] for n in ("argument", "output", "alias", "temp"))


@pytest.fixture(scope="module")
def on_tpu():
    ids = resolve_target("tpu v5e:2x4", DeviceMesh.of("data=8")).topology.device_ids
    return json.loads(answers_of(TRUTH, "tpu", "v5e:2x4", ",".join(map(str, ids))).splitlines()[-1])


@pytest.mark.tpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_tpu_takes_of_each_memory_what_jax_says(name, on_tpu):
    program, plan = planned(name)
    report = program.compile(plan, target="tpu v5e:2x4")
    memory, said = report.memory, on_tpu[name]
    assert memory is not None and memory.fits
    parts = ("argument", "output", "alias")
    assert (memory.arguments, memory.outputs, memory.aliased) == tuple(said[f"{p}_size_in_bytes"] for p in parts)
    host = tuple(said[f"host_{p}_size_in_bytes"] for p in (*parts, "temp"))
    found = memory.host or HostMemory()
    assert host[:3] == (found.arguments, found.outputs, found.aliased)
    if name != "donated":  # XLA is left to pair donated arguments with results, and puts a copy more between them
        assert host[3] == found.temporaries
    assert memory.on_chip < 2 * 128 * 2**20, "the host's memory is none of the chip's own"
    if name == "on the host":
        assert (memory.arguments, found.arguments) == (2 * SHARD, SHARD) == (67_108_864, 33_554_432)
        assert "in the host's memory for each device: 101 MB" in report.text()
    if "unused" in name:
        assert memory.arguments == 2 * SHARD
    assert Report.from_json(report.to_json()) == report


@pytest.mark.cuda
def test_a_gpu_takes_of_each_memory_what_a_tpu_does():
    program, plan = planned("on the host")
    memory = program.compile(plan, target="gpu h100:1x8").memory
    assert memory is not None and memory.host is not None
    assert (memory.arguments, memory.host.arguments, memory.host.outputs) == (2 * SHARD, SHARD, SHARD)


@pytest.mark.tpu
def test_an_unused_argument_does_not_keep_a_program_off_its_target():
    """20 GB of state that nothing uses, on chips of 16: JAX compiles it, since it leaves the state out."""
    state = jax.ShapeDtypeStruct((5 * 2**30,), jnp.float32)
    program = sv.trace(lambda w, state: w * 2, ARRAY, state)
    plan = sv.Plan(MESH, (P("data"), None))
    for report in (program.propagate(plan), program.compile(plan, target="tpu v5e:2x4")):
        needs = sv.cost(report, "tpu v5e:2x4").needs
        assert needs.fits is not False and needs.unused == {"state": state.size * 4}
        assert "not beside its unused arguments, 21.5 GB" in needs.verdict
        assert "no result needs state (21.5 GB)" in report.text() + sv.cost(report, "tpu v5e:2x4").text()


# Unused arguments are those that JAX drops.


@pytest.mark.long
@settings(max_examples=25)
@given(st.lists(st.sampled_from(["used", "unused", "multiplied by nothing kept", "in a loop"]), min_size=1, max_size=6))
def test_unused_arguments_are_those_that_jax_leaves_out(roles):
    def fn(*arrays):
        total = jnp.zeros((8,), jnp.float32)
        for role, x in zip(roles, arrays, strict=True):
            if role == "used":
                total = total + x
            elif role == "multiplied by nothing kept":
                _ = jax.jit(lambda x: (x * 2, x + 1))(x)
            elif role == "in a loop":
                total = jax.lax.fori_loop(0, 3, lambda _, t, x=x: t + x, total)
        return total

    array = jax.ShapeDtypeStruct((8,), jnp.float32)
    arrays = [array] * len(roles)
    kept = jax.jit(fn).lower(*arrays)._lowering.compile_args["kept_var_idx"]
    report = sv.trace(fn, *arrays).propagate(sv.Plan(MESH))
    assert [v.unused for v in report.arguments] == [i not in kept for i in range(len(roles))]
    report = sv.trace(jax.jit(fn, keep_unused=True), *arrays).propagate(sv.Plan(MESH))
    assert not any(v.unused for v in report.arguments)


# Plans.


def test_a_memory_may_be_said_in_a_sharding_or_by_path_and_stays_when_specs_change():
    program, plan = planned("on the host")
    assert program.bind(plan).in_memory == {"m": "pinned_host"}
    assert program.bind(plan).out_memory == {"result[1]": "pinned_host"}
    by_path = sv.Plan(MESH, P("data"), P("data")).with_memory({"m": "pinned_host"})
    by_path = by_path.with_memory("result[1]", "pinned_host", output=True)
    assert program.bind(by_path) == program.bind(plan)
    for start in (plan, by_path):
        moved = (
            start.with_spec("m", P(None, "data")).rename_axis("data", "x").with_spec("result[1]", P("x"), output=True)
        )
        assert program.bind(moved).in_memory == {"m": "pinned_host"}
        assert program.bind(moved).out_memory == {"result[1]": "pinned_host"}
        assert program.bind(moved.without_axis("x").with_mesh({"y": 4})).in_memory == {"m": "pinned_host"}
    back = plan.with_memory("m", "device").with_memory("result[1]", "device", output=True)
    assert program.bind(back) == program.bind(sv.Plan(MESH, P("data"), P("data")))
    ruled = sv.Plan(MESH, P("data"), P("data"), rules=[("m", HOST)])
    assert program.bind(ruled).in_memory == {"m": "pinned_host"}
    assert len({plan, by_path, back, ruled, moved}) == 5


def test_code_that_makes_the_plan_says_the_memories():
    program, plan = planned("on the host")
    written = {}
    exec(program.plan_code(plan), written)
    assert program.bind(written["plan"]) == program.bind(plan)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: sv.Plan(MESH).with_memory("m", "hbm"),
            "m: memory kind 'hbm': expected one of 'device', 'pinned_host'",
        ),
        (lambda: planned("on the host")[1].with_memory("result[1]", "", output=True), "result.1.: memory kind ''"),
    ],
)
def test_a_memory_that_jax_does_not_know_is_refused(make, words):
    with pytest.raises(SpecError, match=words):
        make()


def test_a_memory_of_no_argument_is_refused():
    program, plan = planned("on the host")
    with pytest.raises(SpecError, match="has no argument mm; it has w, m, g"):
        program.bind(plan.with_memory("mm", "pinned_host"))


def test_what_a_function_brings_and_leaves_on_the_host_is_there():
    def fn(w, m):
        on_device = jax.device_put(m, jax.memory.Space.Device)
        return w + on_device, jax.device_put(on_device * 2, jax.memory.Space.Host)

    wrapped = jax.jit(fn, in_shardings=(NamedSharding(MESH, P("data")), HOST))
    program = sv.trace(wrapped, ARRAY, ARRAY)
    report = program.propagate(program.plan())
    assert [v.memory_kind for v in report.arguments] == ["device", "pinned_host"]
    assert [v.memory_kind for v in report.outputs] == ["device", "pinned_host"]
    assert "1 on its host" not in report.text() and "33.6 MB on its host" in report.text()
    assert sv.cost(report, "tpu v5e:2x4").needs.parts["arguments"] == SHARD
    own = sv.trace(fn, ARRAY, jax.ShapeDtypeStruct(ARRAY.shape, ARRAY.dtype, sharding=HOST))
    assert own.bind(own.plan()).in_memory == {"m": "pinned_host"}


# The explorer.


def test_edits_keep_memories_and_undo_knows_them():
    program, plan = planned("on the host")
    state = ExplorerState(program, plan, level="propagated")
    assert state.set_spec("m", "P(None, 'data')")
    assert (
        state.report.value("m").memory_kind == "pinned_host" and str(state.report.value("m").spec) == "P(None, 'data')"
    )
    assert state.set_memory("m", "device") and not state.report.value("m").on_host
    assert state.set_memory("result[1]", "unpinned_host", output=True)
    assert state.report.value("result[1]").memory_kind == "unpinned_host"
    assert state.undo() and state.undo() and state.report.value("m").on_host
    assert not state.set_memory("m", "moon") and "'moon'" in state.error["message"]
    assert state.report.value("m").on_host and len(state.past) == 1
