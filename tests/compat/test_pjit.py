"""pjit of 2021: a tutorial's code run with 8 simulated devices and explored with none, and each of its rules."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
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
from tests.truth import answers_of, counted

MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pjit")
    script = Path(__file__).with_name("pjit_truth.py")
    answers_of(script, folder)
    return json.loads((folder / "facts.json").read_text()), (folder / "partitioned.txt").read_text()


@pytest.fixture(scope="module")
def step():
    """The tutorial's step, explored with shapes only and the mesh named."""
    state = jax.eval_shape(lambda: tutorial.init(0))
    batch = jax.eval_shape(lambda: next(iter(tutorial.batches(1))))
    return sv.trace(tutorial.p_train_step, state, batch, 0.05)


def array(*shape, sharding=None):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding)


# What it does where there are devices


def test_old_code_runs_and_gives_what_one_device_gives(truth):
    facts, _ = truth
    alone, sharded = facts["losses"]
    np.testing.assert_allclose(sharded, alone, rtol=1e-5)
    assert sharded[-1] < 0.7 * sharded[0] and facts["apart"] < 1e-5


def test_calling_again_compiles_once_wherever_the_arrays_were(truth):
    facts, _ = truth
    assert (facts["traces"], facts["traced"]) == (1, 1)


def test_arguments_and_results_are_placed_as_their_resources_say(truth):
    facts, _ = truth
    specs = jax.tree.leaves(
        {**tutorial.state_spec, "params": tutorial.param_spec}, is_leaf=lambda s: s is None or isinstance(s, P)
    )
    found = [Spec(tuple(map(tuple, s))) for s in facts["specs"]]
    assert [s.canonical() for s in found] == [Spec.of(s).canonical() for s in specs]
    assert facts["elsewhere"] == facts["set_mesh"] == facts["under jit"] == "P('model',)"


def test_an_array_that_is_partitioned_already_must_agree_or_be_from_gda(truth):
    facts, _ = truth
    assert facts["from gda"] == facts["agreeing"] == "P('data',)"
    assert facts["mismatch"].startswith(
        "SpecError: in_axis_resources: a is partitioned as P('model') over data=4,model=2 already"
    )
    assert "use FROM_GDA" in facts["mismatch"]
    assert facts["from gda without"].startswith("SpecError: in_axis_resources: a is FROM_GDA")


def test_inside_another_and_inside_transforms(truth):
    facts, _ = truth
    x = np.arange(64).reshape(8, 8)
    np.testing.assert_array_equal(facts["nested"], 2 * x + 1)
    np.testing.assert_array_equal(facts["gradient"], np.full((8, 8), 2))
    assert (
        facts["another mesh inside"].startswith("MeshError") and "cannot change inside" in facts["another mesh inside"]
    )


def test_the_mesh_is_that_of_the_call(truth):
    facts, _ = truth
    assert facts["no mesh"].startswith("MeshError: pjit of <lambda> needs a mesh where it is called")
    assert facts["other mesh"].startswith("SpecError: 'a' P('data'): the mesh has no axis 'data'; it has 'all'")


def test_donated_buffers_are_given_away(truth):
    facts, _ = truth
    assert facts["donated is gone"]
    state = sum(x.size * 4 for x in jax.tree.leaves(jax.eval_shape(lambda: tutorial.init(0))))
    assert state / 8 < facts["aliased"] <= state


# The same code explored, with no devices


def test_the_tutorial_is_explored_on_the_mesh_that_a_plan_names(truth, step):
    facts, text = truth
    report = step.partition(sv.Plan("data=4,model=2"))
    found = counted(report)
    assert found == count(text, report.mesh.shape, 1)
    assert found
    for output, spec in zip(report.outputs, [*facts["specs"], []], strict=True):
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
    with pytest.raises(SpecError, match="y is FROM_GDA, the sharding that it has, but it has none"):
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
    (lambda: pjit(lambda a: a, P(None, "data"), None), (array(4),), "2 entries for an array of rank 1, shape .4,."),
    (
        lambda: pjit(lambda a: a, P("data"), None),
        ({"k": array(6)},),
        r"a\['k'\]'? P\('data'\): dimension 0 is 6, which is not",
    ),
    (
        lambda: pjit(lambda a: a, P(("data", "model")), None),
        (array(12),),
        "12, which is not divisible by 'data'=4 x 'model'=2",
    ),
    (lambda: pjit(lambda a: a[:3], None, P("data")), (array(4),), "'result' P.'data'.: dimension 0 is 3, which is not"),
    (
        lambda: pjit(lambda a: (a, a), None, (None, P(None, "z"))),
        (array(4, 4),),
        r"\[1\]'? P.None, 'z'.: the mesh has no axis 'z'",
    ),
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
        "a is FROM_GDA, the sharding that it has, but it has none",
    ),
    (lambda: pjit(lambda a: a, None, None), ("adam",), "argument.* is a str"),
]


@pytest.mark.parametrize(("make", "args", "message"), RULES)
def test_a_broken_rule_names_the_argument_where_it_is_called(make, args, message):
    with pytest.raises(ShardvizError, match=message), use_abstract_mesh(MESH):
        make().trace(*args)


@pytest.mark.parametrize(("make", "args", "message"), RULES)
def test_a_broken_rule_names_the_argument_where_it_is_explored(make, args, message):
    with pytest.raises(ShardvizError, match=message):
        program = sv.trace(make(), *args)
        program.bind(program.plan(MESH))


def test_arguments_are_positional_and_lists_are_tuples():
    fn = pjit(lambda a, b: a + b, [P("data"), None], None)
    with use_abstract_mesh(MESH):
        with pytest.raises(TraceError, match=r"positional arguments only.* b by name"):
            fn.trace(array(4), b=array(4))
        assert fn.trace(array(4), array(4)).out_info.shape == (4,)
    with pytest.raises(TraceError, match="positional arguments only"):
        sv.trace(fn, array(4), b=array(4))
    with pytest.raises(TraceError, match="static_argnums and donate_argnums of its own"):
        sv.trace(fn, array(4), array(4), donate_argnums=0)


def test_meshes_that_it_cannot_run_on():
    fn = pjit(lambda a: a * 2, P("data"), None)
    with pytest.raises(MeshError, match="needs a mesh where it is called, and there is none"):
        fn(np.ones(4))
    with use_abstract_mesh(MESH), pytest.raises(MeshError, match="has no devices to run on"):
        fn(np.ones(4))
    explicit = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(explicit), pytest.raises(MeshError, match="axes that are not Auto"):
        fn(np.ones(4))


class Client:
    def process_index(self):
        return 0


class Device:
    """A device of another process."""

    platform = device_kind = "cpu"
    client = Client()

    def __init__(self, number):
        self.id, self.process_index = number, number // 2


def test_several_processes_local_views_are_told_of():
    fn = pjit(lambda a: a * 2, P("data"), None)
    mesh = DeviceMesh(("data",), (4,), (), (), (0, 0, 1, 1))
    far = Mesh(np.array([Device(i) for i in range(4)]), ("data",))
    assert DeviceMesh.of(far).process_ids == mesh.process_ids
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shardviz._jax.context_mesh", lambda: far)
        with pytest.raises(MeshError, match=r"spans several processes.*make_array_from_process_local_data"):
            fn(np.ones(8, np.float32))
        report = sv.analyze(fn, array(8))
    (note,) = [d.text for d in report.diagnostics if d.rule == "pjit-local-views"]
    assert note.startswith("the mesh spans 2 processes and all shapes here are global ones")


def test_it_may_be_a_method_and_is_lowered_from_arrays_of_any_device(truth):
    facts, _ = truth
    assert facts["method"] == [3.0, 6.0] and facts["lowered from device 3"] == "P('data',)"


def test_it_looks_like_the_function():
    def step(state, batch):
        """Doc."""

    fn = pjit(step, None, None)
    assert (fn.__name__, fn.__doc__, fn.__wrapped__) == ("step", "Doc.", step)
    assert repr(FROM_GDA) == "FROM_GDA"
