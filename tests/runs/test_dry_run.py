"""A dry run in this process, whose JAX has one device: what it computes, what it leaves behind, what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import psutil
import pytest
from flax import nnx

import shardviz as sv
from shardviz.ask import targeting
from shardviz.compiler.targets import TargetStatus
from shardviz.records.runs import RunRecord

SHAPE = 50_000, 20_000  # 4 GB


def test_large_programs_take_no_memory():
    before = psutil.Process().memory_info().rss
    with sv.dry_run() as run:
        weights = jax.random.normal(jax.random.key(0), SHAPE)
        total = jax.jit(lambda w: (w @ w.T).sum())(weights)
    assert (weights.shape, weights.dtype) == (SHAPE, jnp.float32)
    assert float(total) == 0.0
    assert psutil.Process().memory_info().rss - before < 500e6
    assert [p.name for p in run.programs][-1] == "<lambda>"
    assert run.programs[-1].arguments[0].bytes_per_device == 4 * SHAPE[0] * SHAPE[1]


def test_what_was_called_dry_is_real_again_and_the_other_way_round():
    @jax.jit
    def double(x):
        return x @ jnp.full((8, 8), 0.25)

    x = jnp.ones(8)
    values = []
    for dry in (True, True, False, False, True, False):
        if dry:
            with sv.dry_run(small=0) as run:
                values.append(double(x)[0])
            assert run.programs[0].name == "double"
        else:
            values.append(double(x)[0])
    assert [float(v) for v in values] == [0, 0, 2, 2, 0, 2]


def test_all_is_undone_after_an_exception():
    def seams():
        from shardviz._jax import dispatch

        return [owner.__dict__[name] for owner, name, _ in dispatch._seams()]

    before = seams()
    with pytest.raises(ZeroDivisionError), sv.dry_run() as run:
        jnp.ones(SHAPE)
        1 / 0  # noqa: B018
    assert seams() == before
    assert run.record.ended == "ZeroDivisionError: division by zero"
    assert len(run.programs) == 1


def test_small_programs_of_one_device_really_run():
    with sv.dry_run() as run:
        counter = jnp.int32(0)
        while counter < 5:
            counter = counter + 1
    assert int(counter) == 5
    assert run.programs == ()


def test_what_follows_from_small_known_values_has_its_value_and_nothing_else():
    step = jax.jit(lambda count, w, loss: (count + 1, w @ w, loss + count), donate_argnums=0)
    with sv.dry_run(small=0) as run:
        count, w, loss = jnp.int32(0), jnp.ones((8, 8)), jnp.float32(0)
        for _ in range(3):
            count, w, mean = step(count, w, loss)
            loss = w.sum()
        assert (int(count), np.asarray(count), float(mean), float(count * 2)) == (
            3,
            3,
            0,
            6,
        )  # no mean without the loss
        if loss > 0:
            raise AssertionError
    (note,) = run.record.notes
    assert note.text == "bool[] is read as 0 for a decision: a dry run does not compute its value"
    assert note.source is not None and note.source.file == __file__


def test_a_donated_array_is_deleted_where_a_result_takes_its_memory():
    x = jnp.ones(8)
    with sv.dry_run(small=0):
        jax.jit(lambda x: x + 1, donate_argnums=0)(x)
        with pytest.raises(RuntimeError, match="deleted"):
            jnp.sin(x)


def test_a_donated_array_of_zeros_is_deleted_and_the_one_that_takes_its_memory_is_not():
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    with sv.dry_run(small=0):
        first = jnp.zeros((64, 64)) + 1
        before, second = len(jax.live_arrays()), step(first)
        third = step(second)
        assert [each.is_deleted() for each in (first, second, third)] == [True, True, False]
        assert (second.shape, second.sharding, len(jax.live_arrays())) == (third.shape, third.sharding, before)
        with pytest.raises(RuntimeError, match="deleted"):
            second.block_until_ready()
        assert not np.asarray(third).any()


def test_a_lambda_that_a_line_compiles_again_and_again_is_one_program():
    with sv.dry_run(small=0) as run:
        for factor in (2, 2, 3):
            jax.jit(lambda x, factor=factor: x * factor)(np.ones((64, 64), np.float32))
    assert [(step.name, step.recorded.calls) for step in run] == [("<lambda>", 2), ("<lambda>", 1)]


def test_reading_a_large_array_is_refused_with_its_line():
    with sv.dry_run():
        weights = jnp.ones(SHAPE)
        with pytest.raises(sv.errors.ShardvizError, match=r"test_dry_run\.py:\d+ reads the values of float32\[50000"):
            weights.tolist()
    assert weights[:2, :2].tolist() == [[0, 0], [0, 0]]


def test_the_block_ends_when_a_step_brings_nothing_new():
    step = jax.jit(lambda x: x + 1)
    with sv.dry_run(small=0, steps=3) as run:
        x = jnp.ones(8)
        for _ in range(1000):
            x = step(x)
    assert run.record.ended == "the script ended"  # one device: nothing says that this is the step
    assert run["<lambda>"].record.calls == 1000


@pytest.mark.parametrize("machine", [None, "tpu v5e:1x1"])
def test_an_argument_that_no_result_needs_stays_in_memory(machine):
    with sv.dry_run(machine) as run:
        weights, x = jnp.ones(SHAPE), jnp.ones(SHAPE[0])
        jax.jit(lambda w, x: x + 1)(weights, x)
    record, call, own = run.record, run.calls[-1], 4 * SHAPE[0]
    assert [array.unused for array in record.programs[-1].arguments] == [True, False]
    assert (call.argument_bytes, call.live_bytes >= 4e9 + own) == (own, True)
    assert call.live_bytes + own <= record.needs_at(call) < call.live_bytes + 3 * own
    assert sum(held.nbytes for held in record.held) == record.needs_at(record.peak)


def test_a_compiled_program_is_asked_without_a_compile():
    with sv.dry_run(small=0) as run:
        compiled = jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((64, 64), "float32")).compile()
        assert compiled.memory_analysis().argument_size_in_bytes == 64 * 64 * 4
        assert compiled(jnp.ones((64, 64))).shape == (64, 64)
    assert run["<lambda>"].record.ahead


def test_a_program_of_one_device_is_explored_as_any_other():
    with sv.dry_run("tpu v5e:1x1", small=0) as run:
        jax.jit(lambda x: x @ x.T)(jnp.ones((4096, 4096)))
    step = run.longest
    assert (step.name, step.record.devices, str(step.plan.mesh)) == ("<lambda>", 1, "device=1")
    assert step.record.seconds > 2 * 4096**3 / 197e12  # a v5e has 197 TFLOP/s
    report = step.program.propagate(step.program.plan({"data": 8}, (jax.P("data"),)))
    assert (str(report.outputs[0].spec), report.cost.dot_flops) == ("P('data', None)", 2 * 4096**3 / 8)


def test_an_array_that_a_program_closes_over_is_read_in_a_dry_run_too():
    with sv.dry_run("tpu v5e:1x1", small=0) as run:
        rows = jnp.ones((4096, 64))
        step = jax.jit(lambda b: jnp.tanh(jnp.ones((4096, 64)) @ b) + rows @ b)
        step(jnp.ones(64))
    program, plan = run["<lambda>"].made
    read = sum(entry.hbm_bytes for entry in program.propagate(plan, "tpu v5e:1x1").schedule)
    assert read > rows.nbytes  # of the ones that it makes itself, nothing


def test_a_run_round_trips_through_json_and_says_what_it_has():
    with sv.dry_run(small=0) as run:
        jax.jit(lambda tree: tree["w"].sum())({"w": jnp.ones((4, 8))})
    assert RunRecord.from_json(run.to_json()) == run.record
    assert [a.name for a in run["<lambda>"].record.arguments] == ["tree['w']"]
    with pytest.raises(sv.errors.ShardvizError, match=r"no program of the run has this name; it has .*<lambda>"):
        run["step"]
    with pytest.raises(sv.errors.ShardvizError, match="damaged"):
        RunRecord.from_json(run.to_json().replace('"calls"', '"cals"'))


def test_a_machine_with_more_devices_than_jax_has_started_with():
    jax.devices()
    refused = pytest.raises(sv.errors.MeshError, match="64 devices, JAX has started with 1 here")
    with refused, sv.dry_run("tpu v5p:4x4x4"):
        raise AssertionError("the block runs")


def test_settings_that_would_change_the_devices_are_left_out_and_noted():
    with sv.dry_run() as run:
        jax.config.update("jax_num_cpu_devices", 4)
        jax.distributed.initialize()
    assert [note.text.split(" is left out")[0] for note in run.notes] == [
        "jax.config.update('jax_num_cpu_devices', 4)",
        "jax.distributed.initialize",
    ]


ON_8 = """
import functools, json
import jax, jax.numpy as jnp, numpy as np
import shardviz as sv
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from shardviz.ask import program as asking
from shardviz.plan import lowerings
from shardviz.runs import run as runs
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
calls = {"lower": [], "sketch": [], "result_specs": []}
def counted(owner, name):
    theirs = getattr(owner, name)
    setattr(owner, name, lambda *a, **k: calls[name].append(a) or theirs(*a, **k))
counted(lowerings, "lower"), counted(runs, "sketch"), counted(runs, "result_specs")
count = lambda: {name: len(each) for name, each in calls.items()}
def update(factor, x):
    return factor * x
@jax.jit
def init():
    return jax.lax.with_sharding_constraint(jnp.ones((64, 64)), NamedSharding(mesh, P("data"))), jnp.zeros((64, 64))
@jax.jit
def step(w, m):
    return w - m, m + w
put = lambda *spec: jax.device_put(jnp.ones((64, 64)), NamedSharding(mesh, P(*spec)))
out = {}
with sv.dry_run("tpu v5e:2x4") as run:
    jax.pmap(functools.partial(update, 2))(np.ones((8, 4), np.float32))
    init()
    out["settled"] = count()
    w, m = step(put("data"), put())
    out["first"] = count()
    step(w, m)
    out["second"] = count()
out["names"] = [each.name for each in run]
out["specs"] = [[str(r.spec) for r in each.recorded.results] for each in run]
out["recorded"] = count()
out["seconds"] = [p.seconds is not None for p in run.programs]
out["asked"] = count()
with sv.dry_run("tpu v5p:4x2x1"):
    out["coords"] = [list(device.coords) for device in jax.devices()]
    out["cores"] = [device.num_cores for device in jax.devices()]
    used = lambda: np.array([device.memory_stats()["bytes_in_use"] for device in jax.devices()])
    before, (first, whole), again = used(), init(), init()
    out["used"] = (used() - before).tolist()
    first.delete()
    out["deleted"] = [each.is_deleted() for each in (first, whole, *again)]
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def on_8():
    """What a run on 8 devices did, and how much it asked for that."""
    done = subprocess.run([sys.executable, "-c", ON_8], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_a_pmapped_function_has_its_own_name(on_8):
    assert on_8["names"] == ["update", "init", "step", "step"]


def test_results_that_constraints_settle_take_no_lowering(on_8):
    assert on_8["settled"] == {"lower": 0, "sketch": 0, "result_specs": 0}
    assert on_8["specs"][1] == ["P('data')", "P()"]


def test_a_step_with_other_shardings_is_lowered_once(on_8):
    assert on_8["first"] == {"lower": 1, "sketch": 0, "result_specs": 1}
    assert on_8["second"] == {"lower": 1, "sketch": 0, "result_specs": 2}
    assert on_8["specs"][2:] == [["P('data')"] * 2] * 2


def test_what_a_call_takes_is_estimated_when_it_is_asked(on_8):
    assert on_8["recorded"] == on_8["second"]
    assert on_8["seconds"] == [True] * 4
    assert on_8["asked"]["sketch"] == 4


def test_a_device_is_where_the_one_with_its_id_is(on_8):
    """JAX counts a TPU slice's devices x first, though a host has a square of them."""
    assert on_8["coords"] == [[number % 4, number // 4, 0] for number in range(8)]


def test_a_v5p_shows_the_two_cores_that_a_pallas_kernel_asks_for(on_8):
    assert on_8["cores"] == [2] * 8


def test_a_device_says_how_much_of_its_memory_is_in_use(on_8):
    assert on_8["used"] == [2 * 64 * 64 * 4 * 9 // 8] * 8


def test_equal_arrays_of_zeros_are_deleted_one_by_one(on_8):
    assert on_8["deleted"] == [True, False, False, False]


def test_a_tpus_program_is_lowered_for_it_where_no_compiler_is(monkeypatch):
    """A CPU's lowering of `jax.random` has every round of threefry as arrays of their own."""
    missing = [TargetStatus(name=name, ready=False, missing="it is not here") for name in ("cpu", "tpu", "gpu")]
    monkeypatch.setattr(targeting, "targets", lambda: missing)
    program = sv.trace(lambda key: jax.random.normal(key, (1 << 14, 1 << 14)), jax.random.key(0))
    plan = program.plan({"data": 1})
    needs = sv.cost(program.propagate(plan, "tpu v5e:1x1"), "tpu v5e:1x1").needs.total
    assert needs < 3 * 4 * (1 << 28)
    assert program.partition(plan, "tpu v5e:1x1").level == "partitioned"  # on simulated devices


def test_the_arrays_of_nnx_objects_have_the_names_that_a_trace_gives_them():
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(8, 8, rngs=rngs), nnx.BatchNorm(8, rngs=rngs))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, batch):
        loss, grads = nnx.value_and_grad(lambda m: (m(batch["x"]) ** 2).mean())(model)
        optimizer.update(model, grads)
        return loss

    batch = {"x": jnp.ones((4, 8))}
    traced = sv.trace(step, model, optimizer, batch)
    with sv.dry_run(small=0) as run:
        step(model, optimizer, batch)
    record, report = run["step"].record, traced.propagate(sv.Plan("data=2"))
    assert [a.name for a in record.arguments] == [v.name for v in report.arguments]
    assert {r.name for r in record.results if "updated" in r.name} == {
        v.name for v in report.outputs if "updated" in v.name
    }
    ours = run["step"].program.propagate(sv.Plan("data=2"))
    becoming = [[(v.name, v.becomes) for v in each.arguments if v.shape] for each in (ours, report)]
    assert becoming[0] == becoming[1]  # of scalars, such as a count, the path of an argument is not enough
