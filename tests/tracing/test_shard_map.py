"""shard_map: hand-written collectives at both levels, per-device values, and the person's function left as it was."""

import json
from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import paint
from shardviz.notation import DeviceMesh, Spec
from shardviz.records.report import values_of
from shardviz.view.document import Document
from shardviz.view.values import values_table
from tests.ask.counting import count
from tests.tracing import manual_programs as programs
from tests.truth import answers_of, counted, filled_once

pytestmark = pytest.mark.slow

MESH = {"data": 2, "model": 4}
SQUARE = jax.ShapeDtypeStruct((16, 16), jnp.float32)
CASES = [(n, w, d) for n in programs.NAMES for w in programs.PASSES for d in programs.MESHES]


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return filled_once(tmp_path_factory, Path(programs.__file__).with_name("manual_truth.py"), devices=64)


@pytest.fixture(scope="module")
def reports():
    kept = {}

    def both(name, which, devices):
        if (name, which, devices) not in kept:
            kinds = tuple(kind.name for kind in programs.types(name))
            plan = sv.Plan(DeviceMesh(("data", "model"), programs.MESHES[devices], kinds), programs.SPECS[name])
            program = sv.trace(programs.function(name, which), *programs.arguments(name))
            kept[name, which, devices] = program.propagate(plan), program.partition(plan, timeout=120)
        return kept[name, which, devices]

    return both


def moved(report):
    total = Counter()
    for c in report.collectives:
        total[c.kind, frozenset(c.axes), c.origin] += c.count * c.operand_bytes
    return total


@pytest.mark.parametrize(("name", "which", "devices"), CASES)
def test_collectives_are_those_of_raw_jax(reports, truth, name, which, devices):
    report = reports(name, which, devices)[1]
    text = (truth / f"{name}.{which}@{devices}.partitioned.txt").read_text()
    steps = programs.MESHES[devices][1]
    assert counted(report) == count(text, report.mesh.shape, steps)
    assert counted(report) == count(report.stages["partitioned"], report.mesh.shape, steps)


@pytest.mark.parametrize(("name", "which", "devices"), CASES)
def test_output_specs_are_jaxs_and_the_program_is_right(reports, truth, name, which, devices):
    facts = json.loads((truth / f"{name}.{which}@{devices}.json").read_text())
    assert facts["error"] < 1e-5
    for report in reports(name, which, devices):
        assert len(report.outputs) == len(facts["output_specs"])
        for output, spec in zip(report.outputs, facts["output_specs"], strict=True):
            assert output.spec.same_as(Spec(tuple(map(tuple, spec))), report.mesh), (report.level, output)


@pytest.mark.parametrize(("name", "which", "devices"), [c for c in CASES if "mlp" not in c[0]])
def test_what_the_program_says_is_the_users_at_both_levels(reports, name, which, devices):
    propagated, partitioned = reports(name, which, devices)
    ours, theirs = ({k: v for k, v in moved(r).items() if k[2] == "user"} for r in (propagated, partitioned))
    assert ours and ours == theirs
    if name in ("psum-matmul", "ring", "dispatch") and which == "forward":
        assert moved(propagated) == moved(partitioned)
        assert {c.origin for c in partitioned.collectives} == {"user"}
        assert partitioned.level_differences == ()


def test_the_rings_steps_are_counted(reports):
    for report in reports("ring", "forward", 8):
        (permute,) = report.collectives
        assert (permute.kind, permute.axes, permute.count, permute.origin) == (
            "collective-permute",
            ("model",),
            4,
            "user",
        )
        assert permute.operand_bytes == (64 // 2) * (64 // 4) * 4
        assert Path(permute.source.file).name == "manual_programs.py"


BODY = {
    "all-reduce model": (lambda a: lax.psum(a, "model"), 128, 128),
    "all-reduce data model": (lambda a: lax.pmax(a, ("data", "model")), 128, 128),
    "all-reduce model data": (lambda a: lax.psum(a, ("model", "data")), 128, 128),
    "all-gather data": (lambda a: lax.all_gather(a, "data"), 128, 256),
    "all-gather model": (lambda a: lax.all_gather(a, "model", axis=1, tiled=True), 128, 512),
    "reduce-scatter data": (lambda a: lax.psum_scatter(a, "data", tiled=True), 128, 64),
    "all-to-all model": (lambda a: lax.all_to_all(a, "model", 0, 1, tiled=True), 128, 128),
    "collective-permute model": (lambda a: lax.ppermute(a, "model", [(i, (i + 1) % 4) for i in range(4)]), 128, 128),
    "collective-permute data": (lambda a: lax.pshuffle(a, "data", [1, 0]), 128, 128),
}


@pytest.mark.parametrize("what", BODY)
def test_every_collective_at_both_levels(what):
    body, ins, outs = BODY[what]
    fn = jax.shard_map(body, in_specs=P("data", "model"), out_specs=P(), check_vma=False)
    program = sv.trace(fn, SQUARE)
    plan = program.plan(MESH)
    kind, *axes = what.split()
    for report in (program.propagate(plan), program.partition(plan)):
        (found,) = report.collectives
        assert (found.kind, found.axes, found.origin, found.count) == (kind, tuple(axes), "user", 1), report.level
        assert (found.operand_bytes, found.result_bytes, found.operand) == (ins, outs, "a")
        assert found.group_size == int(np.prod([MESH[a] for a in axes]))
        assert found.source.line == body.__code__.co_firstlineno
    assert not report.diagnostics


def test_a_ragged_all_to_all():
    def body(x, out, offsets, sizes):
        return lax.ragged_all_to_all(x, out, offsets, sizes, offsets, sizes, axis_name="model")

    integers = jax.ShapeDtypeStruct((16,), jnp.int32)
    specs = (P("model"), P("model"), P("model"), P("model"))
    fn = jax.shard_map(body, in_specs=specs, out_specs=P("model"), check_vma=False)
    program = sv.trace(fn, SQUARE, SQUARE, integers, integers)
    (found,) = program.propagate(program.plan(MESH)).collectives
    assert (found.kind, found.axes, found.origin) == ("ragged-all-to-all", ("model",), "user")


def test_inside_values_are_each_devices_own():
    fn = jax.shard_map(lambda a: jnp.sin(a) * 2, in_specs=P("data", "model"), out_specs=P("data", "model"))
    program = sv.trace(fn, SQUARE)
    plan = program.plan(MESH)
    for report in (program.propagate(plan), program.partition(plan)):
        (sine,) = [v for v in report.intermediates if v.op == "sin"]
        assert (sine.shape, sine.shard_shape, sine.bytes_per_device) == ((8, 4), (8, 4), 128)
        assert (sine.manual, sine.spec) == (("data", "model"), None)
        shown = repr(sv.show(sine, mesh=report.mesh))
        assert "manual: devices along data, model hold separate arrays" in " ".join(shown.split()), shown
        assert "per device over data, model" in paint.text(Document(blocks=(values_table([sine]),)))
        assert "per device over data, model" in paint.html(Document(blocks=(values_table([sine]),)))
        assert sv.Report.from_json(report.to_json()) == report
        assert "P()" not in str(sine)


def test_a_partly_manual_value_has_a_spec_over_the_other_axes():
    part = jax.shard_map(jnp.sin, in_specs=P(None, "model"), out_specs=P(None, "model"), axis_names={"model"})
    program = sv.trace(lambda a: part(a) * 2, SQUARE)
    plan = sv.Plan(MESH, P("data"))
    for report in (program.propagate(plan), program.partition(plan)):
        (sine,) = [v for v in report.intermediates if v.op == "sin"]
        assert (sine.shape, sine.shard_shape, sine.manual) == ((16, 4), (8, 4), ("model",))
        assert sine.spec.same_as(Spec.of(P("data")), report.mesh)


def test_a_shard_map_brings_its_specs_and_its_mesh():
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    specs = (P("data", "model"), P("model"))
    fn = jax.shard_map(lambda x, w: lax.psum(x @ w, "model"), mesh=mesh, in_specs=specs, out_specs=P("data"))
    for given in (fn, jax.jit(fn), lambda x, w: fn(x, w)):
        program = sv.trace(given, SQUARE, SQUARE)
        plan = program.plan()
        assert plan.mesh == DeviceMesh.of(MESH)
        bound = program.bind(plan)
        for spec, expected in zip(
            (*bound.in_specs.values(), *bound.out_specs.values()), (*specs, P("data")), strict=True
        ):
            assert spec.same_as(Spec.of(expected), plan.mesh)
        assert {c.origin for c in program.propagate(plan).collectives} == {"user"}
    assert sv.trace(fn, SQUARE, SQUARE)._call.kind == "shard_map"


@pytest.mark.parametrize("mesh", [{"data": 1, "model": 2}, {"data": 8, "model": 8}, {"model": 4, "data": 2, "pod": 2}])
def test_a_shard_map_of_another_size_is_explored_on_any_mesh(mesh):
    own = jax.sharding.AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    fn = jax.shard_map(lambda x: lax.psum(x, "model"), mesh=own, in_specs=P("data", "model"), out_specs=P("data"))
    array = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    program = sv.trace(lambda x: fn(x) * 2, array)
    for report in (program.propagate(sv.Plan(mesh)), program.partition(sv.Plan(mesh))):
        (found,) = [c for c in report.collectives if c.origin == "user"]
        assert (found.kind, found.axes) == ("all-reduce", ("model",))
        assert found.operand_bytes == 64 * 64 * 4 / (mesh["data"] * mesh["model"])
        assert {v.manual for v in report.intermediates if v.manual} == {
            tuple(n for n in mesh if mesh[n] > 1 and n != "pod")
        }


def test_an_axis_missing_from_the_plan_is_named_with_the_line():
    own = jax.sharding.AbstractMesh((2,), ("stage",), axis_types=(AxisType.Auto,))
    fn = jax.shard_map(lambda x: lax.psum(x, "stage"), mesh=own, in_specs=P("stage"), out_specs=P())

    def step(x):
        return fn(x) + 1

    line = step.__code__.co_firstlineno + 1
    with pytest.raises(sv.errors.TraceError, match=rf"test_shard_map.py:{line} .*axis 'stage'.*'data', 'model'"):
        sv.trace(step, SQUARE).propagate(sv.Plan(MESH))


def test_nested_shard_maps():
    def inner(x):
        return lax.psum(x, "model")

    def outer(x):
        part = jax.shard_map(inner, in_specs=P(None, "model"), out_specs=P(), axis_names={"model"})
        return lax.psum(part(x), "data")

    fn = jax.shard_map(outer, in_specs=P("data"), out_specs=P(), axis_names={"data"})
    program = sv.trace(fn, SQUARE)
    plan = program.plan(MESH)
    for report in (program.propagate(plan), program.partition(plan)):
        assert {(c.kind, c.axes, c.operand_bytes, c.origin) for c in report.collectives} == {
            ("all-reduce", ("model",), 128, "user"),
            ("all-reduce", ("data",), 8 * 4 * 4, "user"),
        }


AFTERWARDS = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, Mesh, PartitionSpec as P
import shardviz as sv

def mesh(*sizes):
    devices = np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes)
    return Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto,) * 2)

x = np.arange(64.0, dtype=np.float32).reshape(8, 8)
body = lambda a: jax.lax.psum(a, "model")
specs = dict(in_specs=P("data", "model"), out_specs=P("data"))
own = jax.shard_map(body, mesh=mesh(2, 4), **specs)
free = {sizes: jax.shard_map(lambda a: body(a), **specs) for sizes in ((4, 2), (2, 4), (1, 8))}
inner = jax.jit(jax.shard_map(body, mesh=mesh(2, 4), **specs))
step = lambda a: inner(a) + 1

for fn in (own, *free.values(), step):
    for sizes in ({"data": 4, "model": 2}, {"data": 2, "model": 4}, {"data": 2, "model": 4, "pod": 2}):
        sv.trace(fn, x).propagate(sv.Plan(sizes))
np.testing.assert_array_equal(own(x), x.reshape(8, 4, 2).sum(1))
np.testing.assert_array_equal(step(x), x.reshape(8, 4, 2).sum(1) + 1)
with jax.set_mesh(mesh(2, 4)):
    np.testing.assert_array_equal(own(x), x.reshape(8, 4, 2).sum(1))
    np.testing.assert_array_equal(step(x), x.reshape(8, 4, 2).sum(1) + 1)
    np.testing.assert_array_equal(jax.jit(step)(x), x.reshape(8, 4, 2).sum(1) + 1)
for (m, n), fn in free.items():
    with jax.set_mesh(mesh(m, n)):
        np.testing.assert_array_equal(fn(x), x.reshape(8, n, 8 // n).sum(1))
print("ran")
"""


def test_the_persons_function_runs_afterwards_as_before():
    assert answers_of("-c", AFTERWARDS, devices=8) == "ran\n"


def test_what_does_not_divide_is_said_with_the_argument_and_the_axis():
    fn = jax.shard_map(lambda x: x, in_specs=P("data", "model"), out_specs=P("data", "model"))
    with pytest.raises(
        sv.errors.TraceError,
        match=r"not evenly divisible.*float32\[6,6\].*axis 'data' \(of size 2\)|axis 'model' \(of size 4\)",
    ):
        sv.trace(fn, jax.ShapeDtypeStruct((6, 6), jnp.float32)).propagate(sv.Plan(MESH))


def test_what_no_result_needs_has_no_say():
    """JAX leaves it out before it lowers; a constraint in it would steer the propagation."""

    def fn(x):
        jax.lax.with_sharding_constraint(x * 2, P("model"))
        return x + 1

    for report in (lambda p, plan: (p.propagate(plan), p.partition(plan)))(sv.trace(fn, SQUARE), sv.Plan(MESH)):
        assert report.outputs[0].shard_shape == (16, 16) and report.collectives == ()
        assert {v.op for v in report.intermediates} <= {"add"}


def test_no_source_is_offered_where_its_axis_is_manual_already():
    """The gradient of a partly manual function has values inside it that `model` cannot shard: `why` answers there."""
    program = sv.trace(programs.function("partial-auto", "grad"), *programs.arguments("partial-auto"))
    plan = program.plan(MESH, in_specs=programs.SPECS["partial-auto"])
    names = {value.name for value in values_of(program.propagate(plan))}
    assert len(names) > 8 and all(program.why(plan, name, axis="model").axes for name in names)
