"""flax.nnx: a train step explored, against what flax says when it compiles and runs it with that many devices."""

import gc
import json
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec
from tests.ask.counting import count

pytest.importorskip("flax")
nnx = pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")

from tests.tracing import nnx_truth as decoder  # noqa: E402
from tests.truth import answers_of, counted  # noqa: E402

pytestmark = pytest.mark.slow

BATCH = (jax.ShapeDtypeStruct(decoder.X, jnp.float32), jax.ShapeDtypeStruct(decoder.Y, jnp.float32))
CASES = [(way, mesh) for mesh in decoder.MESHES for way in decoder.WAYS]


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    """What flax says, from a process of its own."""
    folder = tmp_path_factory.mktemp("nnx")
    flags = {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=64 --xla_backend_optimization_level=0",
        "JAX_PLATFORMS": "cpu",
    }
    answers_of(decoder.__file__, folder, **flags)
    return lambda name: json.loads((folder / f"{name}.json").read_text())


def abstract():
    with nnx.use_eager_sharding(False):
        return nnx.eval_shape(decoder.make)


@pytest.fixture(scope="module")
def reports():
    kept = {}

    def report(way, mesh):
        key = way, tuple(mesh.items())
        if key not in kept:
            on = sv.mesh(mesh)
            program = sv.trace(decoder.wrapped(way, lambda spec: NamedSharding(on, spec)), *abstract(), *BATCH)
            plan = program.plan(on)
            if way == "metadata":
                plan = plan.with_spec("x", P("data")).with_spec("y", P("data"))
            kept[key] = program.partition(plan)
        return kept[key]

    return report


def name(way, mesh):
    return f"{way}@{mesh['data']}x{mesh['model']}"


@pytest.mark.long
@pytest.mark.parametrize(("way", "mesh"), CASES)
def test_new_values_are_cut_as_flax_cuts_them(reports, truth, way, mesh):
    report, facts = reports(way, mesh), truth(name(way, mesh))["specs"]
    assert len(report.outputs) > 30
    for output in report.outputs:
        expected = Spec(tuple(map(tuple, facts[output.name.removeprefix("updated.")])))
        assert output.spec.same_as(expected, report.mesh), (output.name, str(output.spec), str(expected))
    if (
        way != "metadata"
    ):  # there all variables were on the mesh beforehand; here only those are that the step gave back
        assert {o.name.removeprefix("updated.") for o in report.outputs} == facts.keys()


@pytest.mark.long
@pytest.mark.parametrize(("way", "mesh"), CASES)
def test_collectives_are_those_of_flaxs_own_compile(reports, truth, way, mesh):
    report = reports(way, mesh)
    found = counted(report)
    assert found == count(truth(name(way, mesh))["snapshot"], report.mesh.shape, 1)
    assert found or (way == "tree mode" and mesh["data"] == 1)


@pytest.mark.long
@pytest.mark.parametrize(("way", "mesh"), CASES)
def test_the_sharded_step_gives_the_values_of_one_device(truth, way, mesh):
    alone, sharded = truth("alone"), truth(name(way, mesh))["values"]
    assert alone.keys() == sharded.keys()
    for key, values in alone.items():
        np.testing.assert_allclose(sharded[key], values, rtol=2e-3, atol=2e-4, err_msg=key)


class Mlp(nnx.Module):
    def __init__(self, rngs):
        self.linear1 = nnx.Linear(8, 16, rngs=rngs, use_bias=False)
        self.linear2 = nnx.Linear(16, 8, rngs=rngs, use_bias=False)

    def __call__(self, x):
        return self.linear2(nnx.relu(self.linear1(x)))

    @nnx.jit
    def jitted(self, x):
        return self(x)

    def half(self, x):
        return self.linear1(x)


MESH = {"data": 2, "model": 4}
SMALL = jax.ShapeDtypeStruct((16, 8), jnp.float32)
KERNELS = ["model.linear1.kernel", "model.linear2.kernel"]


def mlp():
    return nnx.eval_shape(lambda: Mlp(nnx.Rngs(0)))


def names(program):
    return [a.name for a in program.arguments]


def outputs(program, plan=None):
    return [o.name for o in program.outputs(plan or sv.Plan(MESH))]


def bound(program, plan):
    return {name: str(spec.canonical()) for name, spec in program.bind(plan).in_specs.items()}


def apply(model, x):
    return model(x)


@pytest.mark.parametrize(
    "trace",
    [
        lambda: sv.trace(apply, mlp(), SMALL),
        lambda: sv.trace(nnx.jit(apply), Mlp(nnx.Rngs(0)), SMALL),
        lambda: sv.trace(nnx.jit(apply, graph=False), mlp(), SMALL),
        lambda: sv.trace(jax.jit(apply), mlp(), SMALL),
        lambda: sv.trace(apply, lambda: Mlp(nnx.Rngs(0)), SMALL),
        lambda: sv.trace(mlp(), SMALL),
        lambda: sv.trace(mlp().jitted, SMALL),
        lambda: sv.trace(mlp().half, SMALL),
        lambda: sv.trace(lambda model, x: nnx.merge(*model)(x), nnx.split(mlp()), SMALL),
    ],
)
def test_a_model_may_come_in_many_ways(trace):
    program = trace()
    assert [n.replace("[1]", "") for n in names(program)] == [*KERNELS, "x"]
    assert outputs(program) == ["result"]


def test_a_maker_that_raises_is_said():
    with pytest.raises(sv.errors.TraceError, match=r"makes a model.*ZeroDivisionError.*static_argnums"):
        sv.trace(apply, lambda: 1 // 0, SMALL)
    assert names(sv.trace(lambda f, x: f() * x, lambda: 2, SMALL, static_argnums=0)) == ["x"]


def test_names_are_what_a_person_types():
    model, optimizer = abstract()
    program = sv.trace(decoder.train_step, model, optimizer, *BATCH)
    found = names(program)
    assert len(set(found)) == len(found)
    for argument in program.arguments:
        space = {"model": model, "optimizer": optimizer, "x": BATCH[0], "y": BATCH[1]}
        held = eval(argument.name, space)
        assert held.shape == argument.shape, argument.name
    new = outputs(program, sv.Plan({"data": 1, "model": 2}))
    assert {n.removeprefix("updated.") for n in new} <= {*found, "result"}
    assert "updated.model.layers[0].seen" in new and "updated.optimizer.step" in new
    assert "updated.model.layers[0].mlp.drop.rngs.key" not in new  # a key is only read, its counter goes on


def test_parts_that_two_objects_share_are_one_argument():
    model = mlp()
    assert names(sv.trace(lambda a, b, x: a(x).sum() + b(x).sum(), model, model.linear1, SMALL)) == [
        "a.linear1.kernel",
        "a.linear2.kernel",
        "x",
    ]


def test_of_objects_that_are_made_together_a_shared_part_is_the_firsts():
    @nnx.jit
    def make():
        model = mlp()
        return model, Keeps(model.linear1)

    with sv.dry_run(small=0) as run:
        model, _ = make()
    assert [array.name for array in run["make"].recorded.results] == [
        "result[0].linear1.kernel",
        "result[0].linear2.kernel",
        "result[1].scale",
    ]
    assert model.linear1.kernel.shape == (8, 16)


def test_a_dry_run_names_what_a_function_of_nnx_jit_returns_and_changes():
    def step(model, x, *, scale):
        model.linear1.kernel[...] *= 2
        return {"loss": model(x).sum() * scale}

    def alone(x, *, scale):
        return x * scale

    for modes in ({}, {"graph": False}):
        with sv.dry_run(small=0) as run:
            nnx.jit(step, **modes)(mlp(), SMALL, scale=jnp.ones(()))
            nnx.jit(alone, **modes)(SMALL, scale=jnp.ones(()))
        found = {array.name.removesuffix(".value") for array in run["step"].recorded.results}
        assert found >= {"result['loss']", "updated.model.linear1.kernel"}
        assert found <= {"result['loss']", "updated.model.linear1.kernel", "updated.model.linear2.kernel"}
        assert [array.name for array in run["alone"].recorded.results] == ["result"]


class Keeps(nnx.Pytree):
    def __init__(self, part):
        self.part, self.scale = nnx.data(part), nnx.data(nnx.Variable(jnp.ones(3)))


def test_states_random_keys_and_what_is_made_inside():
    graphdef, state = nnx.split(mlp())
    program = sv.trace(lambda g, state: nnx.state(nnx.merge(g, state)), graphdef, state)
    assert names(program) == ["state.linear1.kernel", "state.linear2.kernel"]
    assert outputs(program) == ["result.linear1.kernel", "result.linear2.kernel"]
    program = sv.trace(lambda rngs: rngs.params(), nnx.Rngs(0))
    assert names(program) == ["rngs.default.count", "rngs.default.key"]
    assert outputs(program) == ["result", "updated.rngs.default.count"]
    gradient = sv.trace(lambda model, x: nnx.grad(lambda m: m(x).sum())(model), mlp(), SMALL)
    assert outputs(gradient) == ["result.linear1.kernel", "result.linear2.kernel"]

    class Keeps(nnx.Module):
        def __init__(self):
            self.pair = nnx.Variable({"a": jnp.ones(3), "b": jnp.ones(2)})

        def __call__(self, x):
            self.hidden = nnx.Intermediate(x * 2)
            return x

    program = sv.trace(Keeps(), SMALL)
    assert names(program)[:2] == ["model.pair.a", "model.pair.b"]
    assert outputs(program) == ["result", "updated.model.hidden"]


def test_what_jax_jit_alone_would_drop_does_not_come_out():
    def count(rngs, x):
        return x + rngs.params.uniform(x.shape)

    assert outputs(sv.trace(jax.jit(count), nnx.Rngs(params=0), SMALL)) == ["result"]
    assert outputs(sv.trace(nnx.jit(count), nnx.Rngs(params=0), SMALL)) == ["result", "updated.rngs.params.count"]


def test_donated_variables_come_out_and_say_so():
    program = sv.trace(nnx.jit(apply, donate_argnames="model"), mlp(), SMALL)
    assert [a.donated for a in program.arguments] == [True, True, False]
    assert outputs(program) == ["result", "updated.model.linear1.kernel", "updated.model.linear2.kernel"]


def test_nothing_keeps_a_model_alive():
    model = Mlp(nnx.Rngs(0))
    gone = weakref.ref(model.linear1.kernel.get_value())
    program = sv.trace(apply, model, SMALL)
    del model
    gc.collect()
    assert gone() is None and len(program.arguments) == 3


def ends_with(*suffix):
    return lambda path, value: path[-len(suffix) :] == suffix


STATE = {"linear1": {"kernel": P(None, "model")}, "linear2": {"kernel": P("model", None)}}
SHARDINGS = {
    "mapping": lambda: {ends_with("linear1", "kernel"): P(None, "model"), ...: P("model")},
    "iterable": lambda: [(ends_with("linear1", "kernel"), P(None, "model")), (nnx.Param, P("model")), (..., P("data"))],
    "state": lambda: nnx.State(STATE),
}


@pytest.mark.parametrize("kind", SHARDINGS)
def test_a_state_sharding_is_a_plan(kind):
    sharding = nnx.StateSharding(SHARDINGS[kind]())
    expected = {KERNELS[0]: "P(None, 'model')", KERNELS[1]: "P('model')", "x": "P('data')"}
    given = sv.trace(apply, mlp(), SMALL)
    assert bound(given, sv.Plan(MESH, in_specs=(sharding, P("data")))) == expected
    assert bound(given, sv.Plan(MESH, rules=sharding.__class__({...: P()}))) == dict.fromkeys(expected, "P()")
    with jax.sharding.use_abstract_mesh(sv.mesh(MESH)):
        brought = sv.trace(nnx.jit(apply, in_shardings=(sharding, P("data"))), mlp(), SMALL)
    assert bound(brought, brought.plan()) == expected
    moved = brought.plan().with_spec(KERNELS[0], P("data"))
    out = brought.bind(moved).out_specs
    assert str(out["updated.model.linear1.kernel"]) == "P('data', None)"  # nnx.jit gives it back as it took it
    assert out["result"] is None


def test_a_tree_of_specs_in_the_models_shape_is_a_plan():
    given = sv.trace(apply, mlp(), SMALL)
    for tree in (nnx.State(STATE), nnx.get_partition_spec(nnx.state(mlp()))):
        specs = bound(given, sv.Plan(MESH, in_specs=(tree, None)))
        assert specs[KERNELS[0]] == ("P(None, 'model')" if tree == nnx.State(STATE) else "P()")
    with pytest.raises(sv.errors.SpecError, match=r"in_specs must be a pytree prefix of the arguments: .*linear2"):
        given.bind(sv.Plan(MESH, in_specs=(nnx.State({"linear1": STATE["linear1"]}), None)))


def test_a_state_sharding_that_forgets_a_variable_is_refused_as_flax_refuses_it():
    forgets = nnx.StateSharding({ends_with("linear1", "kernel"): P(None, "model")})
    with pytest.raises(sv.errors.SpecError, match=r"model.linear2.kernel: it matches no filter of the StateSharding"):
        sv.trace(apply, mlp(), SMALL).bind(sv.Plan(MESH, in_specs=(forgets, None)))
    with pytest.raises(ValueError):
        nnx.jit(apply, in_shardings=(forgets, None))(Mlp(nnx.Rngs(0)), jnp.ones((16, 8)))


def test_out_shardings_of_a_model_that_is_made():
    cut = nnx.StateSharding({ends_with("linear1", "kernel"): P("data"), ...: P(None, "model")})
    program = sv.trace(nnx.jit(lambda key: Mlp(nnx.Rngs(key)), out_shardings=cut), jax.random.key(0))
    report = program.partition(program.plan(MESH))
    assert [(o.name, str(o.spec.canonical())) for o in report.outputs] == [
        ("result.linear1.kernel", "P('data')"),
        ("result.linear2.kernel", "P(None, 'model')"),
    ]


def linear(**metadata):
    init = nnx.with_partitioning(nnx.initializers.ones_init(), ("embed", "mlp"), **metadata)
    with nnx.use_eager_sharding(False):
        return nnx.eval_shape(lambda: nnx.Linear(8, 16, rngs=nnx.Rngs(0), kernel_init=init))


def test_logical_names_become_mesh_axes_by_flaxs_rules():
    plan = sv.Plan(MESH)
    with nnx.logical_axis_rules([("embed", "data"), ("mlp", "model")]):
        around = sv.trace(linear(), SMALL)
    assert bound(around, plan)["model.kernel"] == "P('data', 'model')"
    own = sv.trace(linear(sharding_rules=(("embed", None), ("mlp", "model"))), SMALL)
    assert bound(own, plan)["model.kernel"] == "P(None, 'model')"
    with pytest.raises(sv.errors.SpecError, match=r"'model.kernel' .*no axis 'embed'.*flax.nnx.logical_axis_rules"):
        sv.trace(linear(), SMALL).bind(plan)


def test_a_shard_map_of_a_model_brings_its_specs():
    specs = nnx.StateSharding({ends_with("linear1", "kernel"): P(None, "model"), ...: P("model")})

    @nnx.shard_map(mesh=sv.mesh(MESH), in_specs=(specs, P("data")), out_specs=P("data"))
    def f(model, x):
        return jax.lax.psum(model(x), "model")

    program = sv.trace(f, mlp(), SMALL)
    plan = program.plan()
    assert bound(program, plan) == {KERNELS[0]: "P(None, 'model')", KERNELS[1]: "P('model')", "x": "P('data')"}
    report = program.partition(plan)
    assert [(c.kind, c.axes, c.origin) for c in report.collectives] == [("all-reduce", ("model",), "user")]
    assert str(report.value("result").spec.canonical()) == "P('data')"


def test_stages_of_nnx_jit_are_refused_as_jaxs_are():
    jitted = nnx.jit(apply)
    for stage in (jitted.trace(mlp(), SMALL), jitted.lower(mlp(), SMALL), jitted.lower(mlp(), SMALL).compile()):
        with pytest.raises(sv.errors.TraceError, match=r"a jax\.stages\..* give the function"):
            sv.trace(stage)


def test_rules_reach_the_optimizers_state_too():
    program = sv.trace(decoder.train_step, *abstract(), *BATCH)
    plan = sv.Plan(MESH, rules=[(sv.Rules.path_ends_with("kernel"), P("data", "model"))])
    kernels = [name for name in names(program) if name.endswith("kernel")]
    assert len(kernels) == 3 * 6
    table = program.rules_table(plan)
    assert list(table.rows[0].wins) == kernels
    specs = bound(program, plan)
    assert all((specs[n] == "P('data', 'model')") == n.endswith("kernel") for n in names(program))
    space = {}
    exec(program.plan_code(plan), space)
    assert program.bind(space["plan"]) == program.bind(plan)


def descend(state, x):
    """A step of gradient descent on a state."""
    graph = nnx.split(mlp())[0]
    grads = jax.grad(lambda state: jnp.mean(nnx.merge(graph, state)(x) ** 2))(state)
    return jax.tree.map(lambda p, g: p - 0.1 * g, state, grads)


FIVE_STEPS = """
state = nnx.split(Mlp(nnx.Rngs(0)))[1]
step = jitted(state, x)
with jax.set_mesh(mesh):
    placed, first = jax.device_put(state, step.lower(state, x).compile().input_shardings[0][0]), None
    before = jax.tree.leaves(placed)
    for _ in range(5):
        placed = step(placed, x)
        first = first or jax.tree.leaves(placed)
same = [a.sharding == b.sharding for a, b in zip(first, jax.tree.leaves(placed))]
print(step._cache_size(), all(same), all(a.is_deleted() for a in before))
"""


def test_the_code_for_a_state_donates_it_gives_it_back_as_it_was_and_compiles_once(tmp_path):
    """Rows of one kernel are sharded; without `out_shardings` the other would come back by its columns."""
    state = nnx.split(mlp())[1]
    program = sv.trace(descend, state, SMALL, donate_argnums=(0,))
    plan = sv.Plan(MESH).with_spec({"state.linear1.kernel": P(None, "model")})
    assert program.propagate(plan).findings.of("comes-back-otherwise")
    assert len(outputs(program)) == len(jax.tree.leaves(state))
    begin = "import jax\njax.config.update('jax_num_cpu_devices', 8)\nfrom flax import nnx\n"
    begin += f"from tests.tracing.test_nnx import Mlp, descend\nx = jax.numpy.ones({SMALL.shape})\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + program.code(plan) + FIVE_STEPS], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["1", "True", "True"], done.stderr[-2000:]


WITHOUT = """
import sys
class Blocked:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("flax", "optax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
import jax.numpy as jnp, shardviz as sv
program = sv.trace(lambda w, x: {"y": x @ w}, jnp.ones((8, 8)), jnp.ones((4, 8)))
plan = sv.Plan({"data": 4}, rules=[(sv.Rules.path_ends_with(), ("data",))])
print(program.propagate(plan).value("result['y']").spec)
from shardviz.tracing.trees import load
try:
    load()
except sv.errors.ShardvizError as error:
    print(error)
"""


def test_without_flax_nothing_breaks_and_the_extra_is_named():
    assert answers_of("-c", WITHOUT).splitlines() == [
        "P('data', None)",
        "this needs flax, which is not installed here; pip install 'shardviz[flax]' installs it",
    ]


def test_a_plain_function_does_not_load_flax():
    code = "import sys, jax.numpy as jnp, shardviz as sv; sv.trace(jnp.sin, jnp.ones(3)); print('flax' in sys.modules)"
    assert answers_of("-c", code).strip() == "False"
