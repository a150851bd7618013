"""Plans: prefixes as `jax.jit` takes them, pjit's rules, and messages that say what to do."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import MeshError, ShardvizError, SpecError
from shardviz.notation import Spec

MESH = {"data": 2, "model": 4}


def step(params, x):
    return {"y": x @ params["w"] + params["b"]}


def program():
    params = {"w": jax.ShapeDtypeStruct((16, 1000), jnp.float32), "b": jax.ShapeDtypeStruct((1000,), jnp.float32)}
    return sv.trace(step, params, jax.ShapeDtypeStruct((6, 16), jnp.float32))


@pytest.mark.parametrize(
    ("in_specs", "expected"),
    [
        (None, {"params['b']": "P(None)", "params['w']": "P(None, None)", "x": "P(None, None)"}),
        (P(), {"params['b']": "P(None)", "params['w']": "P(None, None)", "x": "P(None, None)"}),
        ((P("model"), None), {"params['b']": "P('model')", "params['w']": "P('model', None)", "x": "P(None, None)"}),
        (
            ({"w": P(None, ("data", "model")), "b": None}, P("data")),
            {"params['b']": "P(None)", "params['w']": "P(None, ('data', 'model'))", "x": "P('data', None)"},
        ),
    ],
)
def test_a_prefix_covers_its_subtree(in_specs, expected):
    bound = program().bind(sv.Plan(MESH, in_specs))
    assert {name: str(spec) for name, spec in bound.in_specs.items()} == expected
    assert bound.out_specs == {"result['y']": None}


@pytest.mark.parametrize(
    ("in_specs", "message"),
    [
        (
            ({"w": P("data", "data"), "b": None}, None),
            "params['w'] P('data', 'data'): axis 'data' shards dimensions 0 and 1; an axis can shard an array only "
            "once, so take it from one of them",
        ),
        (
            ({"w": P("pipe"), "b": None}, None),
            "params['w'] P('pipe'): the mesh has no axis 'pipe'; it has 'data', 'model'. Use one of these, "
            "or add 'pipe' to the mesh",
        ),
        (
            ({"w": None, "b": P(None, "model")}, None),
            "params['b'] P(None, 'model'): 2 entries for an array of rank 1, shape (1000,); leave out 1",
        ),
        (
            (None, P("model")),
            "'x' P('model'): dimension 0 is 6, which is not divisible by 'model'=4; padding to 8 adds 33 %",
        ),
        (
            (None, P(("data", "model"))),
            "'x' P(('data', 'model')): dimension 0 is 6, which is not divisible by 'data'=2 x 'model'=4 = 8; "
            "padding to 8 adds 33 %",
        ),
        (
            ({"w": None}, None),
            "in_specs must be a pytree prefix of the arguments: in_specs[0] (params) lacks ['b']; "
            "give it a spec, or None",
        ),
        (
            ({"w": None, "b": None, "c": None}, None),
            "in_specs must be a pytree prefix of the arguments: in_specs[0] (params) has ['c'], "
            "which the function does not have; "
            "it has ['b'], ['w']",
        ),
        (
            (None, [P("data")]),
            "in_specs must be a pytree prefix of the arguments: in_specs[1] (x) is a list "
            "where the function has a single array",
        ),
        ((None,), "in_specs must be a pytree prefix of the arguments: in_specs lacks [1] (x); give it a spec, or None"),
        ((None, "data"), "in_specs[1]: expected a PartitionSpec or None, not 'data'"),
        ((None, P(3)), "P(3,): an entry must be None, an axis name or a tuple of axis names, not 3"),
    ],
)
def test_pjits_rules_say_which_argument_and_what_would_do(in_specs, message):
    with pytest.raises(SpecError) as error:
        program().bind(sv.Plan(MESH, in_specs))
    assert str(error.value).replace("PartitionSpec(3,)", "P(3,)").replace("P(3):", "P(3,):") == message


@pytest.mark.parametrize("spec", [P(P.UNCONSTRAINED, "data"), P("data", P.UNCONSTRAINED)])
def test_a_dimension_left_open_is_refused_where_jax_refuses_it_and_the_reason_is_said(spec):
    """`jax.jit` takes `P.UNCONSTRAINED` in neither `in_shardings` nor `out_shardings`."""
    place = spec.index(P.UNCONSTRAINED)
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, spec)
    with pytest.raises(ValueError, match="Unconstrained dims are not allowed when passed to in_shardings"):
        jax.jit(lambda x: x, in_shardings=sharding)(jnp.ones((2, 2)))
    with pytest.raises(ValueError, match="Unconstrained dims are not allowed when passed to out_shardings"):
        jax.jit(lambda x: x, out_shardings=sharding)(jnp.ones((2, 2)))
    plan = sv.Plan(MESH)
    for make in (
        lambda: sv.Plan(MESH, ({"w": spec, "b": None}, None)),
        lambda: sv.Plan(MESH, out_specs={"y": spec}),
        lambda: plan.with_spec("params['w']", spec),
        lambda: plan.with_spec("result['y']", spec, output=True),
        lambda: plan.with_rules([("*", spec)]),
    ):
        with pytest.raises(SpecError, match=f"dimension {place} is P.UNCONSTRAINED.*jax.jit refuses it.*Write None"):
            make()


def test_edits_go_before_prefixes_and_unknown_paths_are_refused():
    plan = sv.Plan(MESH, P()).with_spec("params['w']", P("data"))
    assert program().bind(plan).in_specs["params['w']"] == Spec((("data",), ()))
    with pytest.raises(SpecError, match=r"no argument params\['v'\]; it has params\['b'\], params\['w'\]"):
        program().bind(plan.with_spec("params['v']", P()))


def test_several_arrays_in_one_call_are_one_after_another_and_can_be_taken_back():
    plan, ins, outs = sv.Plan(MESH, P()), {"x": P("data"), "params['w']": P(None, "model")}, {"result['y']": P("data")}
    several, single = plan.with_spec(ins).with_spec(outs, output=True), plan
    for output, specs in ((False, ins), (True, outs)):
        for name, spec in specs.items():
            single = single.with_spec(name, spec, output=output)
    assert several == single == sv.Plan(MESH, P(), edits=ins, out_edits=outs)
    assert several.without_spec(*ins).without_spec(*outs, output=True) == plan
    kinds = plan.with_memory({"x": "pinned_host", "params['w']": "device"})
    assert kinds == plan.with_memory("params['w']", "device").with_memory("x", "pinned_host")
    assert program().bind(kinds).in_memory == {"x": "pinned_host"}


def test_an_output_is_taken_back_with_what_a_dimension_said_of_it():
    plan = sv.Plan(MESH, P()).with_spec("result['y']", P(None, "model"), output=True)
    for dimension in ("x:0", PROGRAM.dimensions.named("x:0")):
        sharded = plan.with_dimension(dimension, "data")
        assert str(PROGRAM.bind(sharded).out_specs["result['y']"]) == "P('data', 'model')"
        back = PROGRAM.bind(sharded.without_spec("result['y']", output=True))
        assert back.out_specs["result['y']"] is None and str(back.in_specs["x"]) == "P('data', None)"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan: plan.with_spec("w"), r"with_spec\('w'\): expected a tree path and what holds there"),
        (lambda plan: plan.with_spec({"w": P()}, P()), r"or a mapping of these, with_spec\({'x': P\('data'\)}\)"),
        (lambda plan: plan.with_spec({3: P()}, output=True), r"with_spec\({3: P\(\)}\): expected a tree path"),
        (lambda plan: plan.with_memory("w"), r"with_memory\('w'\): .* with_memory\('x', 'pinned_host'\)"),
        (lambda plan: plan.without_spec({"w"}), r"without_spec\({'w'},\): expected tree paths"),
        (lambda plan: plan.with_variant(donated=3), "with_variant.donated=3.: expected donated='state', names of"),
        (lambda plan: plan.with_variant(lengths={"emb": (3, 4)}), "expected lengths={'emb:0': .50257, 50304.}, an arg"),
        (lambda plan: plan.with_variant(lengths={"emb:0": (3, 0)}), "an argument's dimension, its length and the new"),
        (lambda plan: plan.with_variant(checkpoint=3), "checkpoint=3.: expected checkpoint='dots_saveable', the name"),
        (lambda plan: plan.with_variant(constraints={"m.py:3": P()}), "a line and its spec, and another spec or None"),
        (lambda plan: plan.with_variant(constraints={("m.py:3", P()): 3}), "expected a PartitionSpec .* not 3"),
        (lambda plan: plan.with_variant(constraints={("m.py:3", P()): P(unreduced={"x"})}), "without partial sums"),
    ],
)
def test_what_cannot_be_said_of_a_plan_is_refused_with_what_can(change, message):
    with pytest.raises(ShardvizError, match=message):
        change(sv.Plan(MESH))


def test_plans_are_values():
    plan = sv.Plan(MESH, ({"w": P("data"), "b": None}, None))
    same = sv.Plan(sv.mesh(data=2, model=4), ({"b": None, "w": P("data")}, None))
    assert plan == same and hash(plan) == hash(same)
    assert plan != plan.with_spec("x", P("data"))
    assert plan.rename_axis("data", "batch").rename_axis("batch", "data") == plan


def test_renaming_and_removing_an_axis_reach_every_spec():
    plan = sv.Plan(
        MESH, ({"w": P("data", "model"), "b": None}, None), {"y": P("data")}, edits={"x": P(("model", "data"))}
    )
    renamed = program().bind(plan.with_spec("x", P("data")).rename_axis("data", "batch"))
    assert str(renamed.in_specs["params['w']"]) == "P('batch', 'model')" and renamed.mesh.names == ("batch", "model")
    removed = program().bind(plan.without_axis("model"))
    assert str(removed.in_specs["params['w']"]) == "P('data', None)" and str(removed.in_specs["x"]) == "P('data', None)"
    with pytest.raises(MeshError, match="no axis 'pipe'"):
        plan.without_axis("pipe")


@pytest.mark.parametrize("example", [sv.gallery.llama("8b"), sv.gallery.mlp()], ids=["llama", "mlp"])
def test_the_code_of_a_gallery_plan_is_short_and_makes_the_plan(example):
    text = example.program.plan_code(example.plan)
    names: dict = {}
    exec(text, names)
    assert example.program.bind(names["plan"]) == example.program.bind(example.plan)
    assert text.count("'wq'") <= 1 and len(text.splitlines()) <= 40


def test_the_code_of_arguments_that_are_no_plain_trees():
    import dataclasses

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Params:
        w: object
        b: object

    params = Params(jax.ShapeDtypeStruct((16, 8), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.float32))
    traced = sv.trace(
        lambda p, *, scale: Params(p.w * scale, p.b), params, scale=jax.ShapeDtypeStruct((16, 8), jnp.float32)
    )
    plan = sv.Plan(
        {"class": 2, "a b": 4}, edits={"p.w": P("class"), "scale": P("a b")}, out_edits={"result.w": P("a b")}
    )
    names: dict = {}
    exec(traced.plan_code(plan), names)
    assert traced.bind(names["plan"]) == traced.bind(plan)
    assert str(traced.bind(plan).in_specs["p.w"]) == "P('class', None)"


def test_a_part_of_an_axis_cuts_an_array_once():
    part = ("model", 1, 2)
    with pytest.raises(SpecError, match=r"axis 'model:\(1\)2' is used twice by dimension 0") as caught:
        program().bind(sv.Plan(MESH).with_spec("x", Spec(((part, part), ()))))
    assert caught.value.argument == "x"


def memories(plan):
    return {each.path: each.value for each in plan.overrides if each.part == "memory"}


ARRAYS = st.sampled_from(["params['b']", "params['w']", "x"])
AXES = st.lists(st.sampled_from(["data", "model"]), max_size=2, unique=True).map(tuple)
EDITS = st.one_of(
    st.tuples(st.just("spec"), ARRAYS, st.sampled_from([P(), P("data"), P("model")])),
    st.tuples(st.just("dimension"), st.sampled_from(["x:0", "x:1", "params['w']:1"]), AXES),
    st.tuples(st.just("memory"), ARRAYS, st.sampled_from(["device", "pinned_host"])),
    st.tuples(st.just("forget"), ARRAYS, st.none()),
    st.tuples(st.just("rule"), st.sampled_from(["*w*", "x", "*"]), st.sampled_from([P(), P("data")])),
)
PROGRAM = program()


@settings(max_examples=200)
@given(st.lists(EDITS, max_size=8))
def test_the_newest_edit_of_an_array_is_on_top_and_a_dimension_by_name_is_that_dimension(edits):
    named = known = sv.Plan({"data": 2, "model": 1}, P())
    newest: dict = {}
    for kind, what, value in edits:
        newest.pop(what, None)
        if kind == "spec":
            named, known, newest[what] = named.with_spec(what, value), known.with_spec(what, value), value
        elif kind == "dimension":
            newest.clear()
            named, known = (
                plan.with_dimension(dimension, value)
                for plan, dimension in ((named, what), (known, PROGRAM.dimensions.named(what)))
            )
        elif kind == "memory":
            named, known = named.with_memory(what, value), known.with_memory(what, value)
        elif kind == "forget":
            named, known = named.without_spec(what), known.without_spec(what)
        else:
            named, known = named.with_rules([(what, value)]), known.with_rules([(what, value)])
    assert PROGRAM._settled(named) == known and hash(PROGRAM._settled(named)) == hash(known)
    again, memory = (
        sv.Plan(known.mesh, P(), edits=known.edits, rules=known.rules, dim_edits=known.dim_edits),
        memories(known),
    )
    assert again.with_memory(memory) == known
    bound = PROGRAM.bind(known)
    assert PROGRAM.bind(named) == bound
    assert all(bound.in_specs[name].canonical() == Spec.of(spec) for name, spec in newest.items())
    assert bound.in_memory == {name: kind for name, kind in memory.items() if kind != "device"}
