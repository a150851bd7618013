"""pjit of 2021: a tutorial's code explored as today's `jax.jit` partitions it, and each of its rules."""

import json
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, use_abstract_mesh
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.compat.pjit import FROM_GDA, pjit
from shardviz.errors import MeshError, ShardvizError, SpecError, TraceError
from shardviz.notation import DeviceMesh, Spec
from tests.ask.counting import count
from tests.compat import tutorial_2021 as tutorial
from tests.raw import array
from tests.truth import answers_of, counted

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pjit")
    answers_of(Path(__file__).with_name("pjit_truth.py"), folder, devices=8)
    return json.loads((folder / "specs.json").read_text()), (folder / "partitioned.txt").read_text()


@pytest.fixture(scope="module")
def step():
    """The tutorial's step, explored with shapes only and the mesh named."""
    state = jax.eval_shape(lambda: tutorial.init(0))
    batch = jax.eval_shape(tutorial.batch)
    return sv.trace(tutorial.p_train_step, state, batch, 0.05)


def test_the_tutorial_is_explored_on_the_mesh_that_a_plan_names(truth, step):
    specs, text = truth
    report = step.partition(sv.Plan("data=4,model=2"))
    found = counted(report)
    assert found == count(text, report.mesh.shape, 1)
    assert found
    for output, spec in zip(report.outputs, specs, strict=True):
        assert output.spec.same_as(Spec(tuple(map(tuple, spec))), report.mesh), output.name


def test_its_resources_are_the_plan_and_none_is_replicated(step):
    report = step.propagate(sv.Plan("data=8,model=8"))
    assert {v.name: str(v.spec) for v in report.arguments if "velocity" not in v.name} == {
        "state['params']['dense1']['bias']": "P('model')",
        "state['params']['dense1']['kernel']": "P(None, 'model')",
        "state['params']['dense2']['bias']": "P(None)",
        "state['params']['dense2']['kernel']": "P('model', None)",
        "state['step']": "P()",
        "batch[0]": "P('data', None)",
        "batch[1]": "P('data', None)",
    }
    assert [a.donated for a in step.arguments] == [True] * 9 + [False] * 2
    everything_replicated = pjit(lambda x: x * 2, P("data"), None)
    assert str(sv.analyze(everything_replicated, array(8), mesh="data=4").outputs[0].spec) == "P(None)"


def test_a_plan_may_say_otherwise(step):
    plan = step.plan("data=4,model=2").with_spec("batch[0]", P("model"))
    assert str(step.bind(plan).in_specs["batch[0]"]) == "P('model', None)"
    with pytest.raises(SpecError, match="dimension 0 is 32, which is not divisible by 'data'=5"):
        step.bind(step.plan("data=5,model=2"))


def test_the_mesh_of_the_call_site_is_the_plans_unless_one_is_named():
    fn = pjit(lambda x: x * 2, P("data"), P("data"))
    mesh = Mesh(np.array(jax.devices()[:1]), ("data",))
    with jax.set_mesh(mesh):
        assert sv.trace(fn, array(8)).plan().mesh == DeviceMesh.of("data=1")
    with use_abstract_mesh(MESH):
        assert sv.trace(fn, array(8)).plan().mesh == DeviceMesh.of("data=4,model=2")
    own = NamedSharding(MESH, P("data"))
    assert sv.trace(fn, array(8, sharding=own)).plan().mesh == DeviceMesh.of("data=4,model=2")
    with pytest.raises(MeshError, match="no mesh is given"):
        sv.trace(fn, array(8)).plan()


def test_from_gda_is_the_arguments_own_sharding_when_explored():
    fn = pjit(lambda x, y: x @ y, (FROM_GDA, None), None)
    x = array(8, 8, sharding=NamedSharding(MESH, P(None, "model")))
    report = sv.analyze(fn, x, array(8, 8), mesh=MESH)
    assert [str(v.spec) for v in report.arguments] == ["P(None, 'model')", "P(None, None)"]
    assert {c.axes for c in report.collectives} == {("model",)}
    with pytest.raises(SpecError, match="y is FROM_GDA, the array's own sharding, but the array has none"):
        sv.trace(pjit(lambda x, y: x, FROM_GDA, None), x, array(8, 8))
    with pytest.raises(SpecError, match=r"x is partitioned as P\(None, 'model'\) over data=4,model=2 already"):
        sv.trace(pjit(lambda x: x, P("data"), None), x)


def test_pjits_inside_are_explored_on_the_plans_mesh():
    inner = pjit(lambda x: x * 2, P("data"), P("model"))
    for outer in (pjit(lambda x: inner(x) + 1, P("data"), None), lambda x: inner(x) + 1):
        program = sv.trace(outer, array(8, 8))
        for mesh in ("data=2,model=4", "data=4,model=2"):
            assert {c.kind for c in program.partition(program.plan(mesh)).collectives}, mesh


# Its rules, each with its error; none needs a device

RULES = [
    (lambda: pjit(3, None, None), (), "expected a function, not 3"),
    (
        lambda: pjit(abs, "data", None),
        (),
        r"in_axis_resources: expected a PartitionSpec, FROM_GDA or None .replicated.",
    ),
    (lambda: pjit(abs, ({"a": 3},), None), (), r"in_axis_resources\[0\]\['a'\]: expected"),
    (lambda: pjit(abs, None, FROM_GDA), (), "out_axis_resources: expected a PartitionSpec or None"),
    (lambda: pjit(abs, P("data", "data"), None), (), "'data' is there more than once"),
    (lambda: pjit(abs, None, (P(("data", "model"), "model"),)), (), r"out_axis_resources\[0\].*'model' is there more"),
    (lambda: pjit(abs, None, None, 0, (0, 1)), (), "argument 0 cannot be both static and donated"),
    (lambda: pjit(abs, None, None, -1), (), "static_argnums must be whole numbers of 0 or more"),
    (lambda: pjit(abs, None, None, (), 1), (array(4),), r"donate_argnums=\(1,\), but was called with 1 arguments"),
    (
        lambda: pjit(lambda a: a, P("z"), None),
        (array(4),),
        "'a' P.'z'.: the mesh has no axis 'z'; it has 'data', 'model'",
    ),
    (lambda: pjit(lambda a: a[:3], None, P("data")), (array(4),), "'result' P.'data'.: dimension 0 is 3, which is not"),
    (
        lambda: pjit(lambda a: {"b": a}, None, {"c": None}),
        (array(4),),
        "must be a pytree prefix of the result: .* lacks ..b..",
    ),
    (
        lambda: pjit(lambda a, b: a, (None,), None),
        (array(4), array(4)),
        "in_axis_resources must be a pytree prefix of the arg",
    ),
    (lambda: pjit(lambda a: a, {"k": None}, None), ({"k": array(4)},), r"is a dict; .* write \(resources,\)"),
    (
        lambda: pjit(lambda a: a, FROM_GDA, None),
        (array(4),),
        "a is FROM_GDA, the array's own sharding, but the array has none",
    ),
    (lambda: pjit(lambda a: a, None, None), ("adam",), "argument.* is a str"),
]


@pytest.mark.parametrize(("make", "args", "message"), RULES)
def test_a_broken_rule_names_the_argument_where_it_is_explored(make, args, message):
    with pytest.raises(ShardvizError, match=message):
        program = sv.trace(make(), *args)
        program.bind(program.plan(MESH))


def test_arguments_are_positional_and_lists_are_tuples():
    fn = pjit(lambda a, b: a + b, [P("data"), None], None)
    assert str(sv.analyze(fn, array(4), array(4), mesh=MESH).arguments[0].spec) == "P('data')"
    with pytest.raises(TraceError, match=r"positional arguments only.* b by name"):
        sv.trace(fn, array(4), b=array(4))
    with pytest.raises(TraceError, match="static_argnums and donate_argnums of its own"):
        sv.trace(fn, array(4), array(4), donate_argnums=0)


def test_it_is_not_run_and_the_code_that_is_says_the_same(step):
    with pytest.raises(TraceError, match=r"this pjit of train_step cannot run, only be explored; .*code\(plan\)"):
        tutorial.p_train_step(*step._call.args)
    assert "jax.jit(" in step.code(sv.Plan("data=4,model=2"))


def test_inside_another_function_its_resources_hold():
    """What `jax.jit` inside of it, with the same shardings, comes to."""
    inner = pjit(lambda x, y: {"z": x @ y}, (P("data"), P(None, "model")), {"z": P("model")}, keep_unused=True)
    named = lambda *spec: NamedSharding(MESH, P(*spec))
    shardings = {"in_shardings": (named("data"), named(None, "model")), "out_shardings": {"z": named("model")}}
    jitted = jax.jit(lambda x, y: {"z": x @ y}, **shardings)
    ours, theirs = (
        sv.trace(lambda x, y, f=f: f(x, y)["z"] * 2, array(8, 16), array(16, 8)).partition(sv.Plan(MESH))
        for f in (inner, jitted)
    )
    assert [(c.kind, c.axes, c.total_bytes) for c in ours.collectives] == [
        (c.kind, c.axes, c.total_bytes) for c in theirs.collectives
    ]
    assert ours.collectives and ours.outputs == theirs.outputs


def test_it_may_be_a_method():
    class Model:
        def __init__(self, factor):
            self.factor = factor

        @partial(pjit, in_axis_resources=P("data"), out_axis_resources=None, static_argnums=0)
        def scale(self, a):
            return a * self.factor

    report = sv.analyze(lambda a: Model(3.0).scale(a), array(8), mesh=MESH)
    assert {(c.kind, c.axes) for c in report.collectives} == {("all-gather", ("data",))}
