"""Tracing: names, static and donated arguments, constraints over other meshes,
and errors that show the person's line.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.notation import Spec

F32 = jnp.float32


def array(*shape, dtype=F32):
    return jax.ShapeDtypeStruct(shape, dtype)


def test_names_are_tree_paths():
    def step(params, mode, x, *rest, scale, **more):
        return {"y": x @ params["layers"][0] * scale, "rest": rest}

    program = sv.trace(
        step,
        {"layers": [array(4, 4)]},
        "train",
        array(2, 4),
        array(3),
        scale=2.0,
        extra=array(5),
        static_argnums=1,
        static_argnames="scale",
        donate_argnums=0,
    )
    assert [(a.name, a.shape, a.donated) for a in program.arguments] == [
        ("params['layers'][0]", (4, 4), True),
        ("x", (2, 4), False),
        ("rest[0]", (3,), False),
        ("more['extra']", (5,), False),
    ]
    assert [o.name for o in program.outputs(sv.Plan("x=2"))] == ["result['rest'][0]", "result['y']"]


def test_a_jitted_function_keeps_its_own_static_and_donated_arguments():
    jitted = jax.jit(lambda x, flag: x * 2 if flag else x, static_argnums=1, donate_argnums=0)
    program = sv.trace(jitted, array(4, 4), True)
    assert [(a.shape, a.donated) for a in program.arguments] == [((4, 4), True)]


def test_arrays_of_any_kind_are_taken_and_none_is_kept():
    program = sv.trace(
        lambda a, b, c, d: a + b + c + d, np.ones((2, 2), np.float32), jnp.ones((2, 2)), array(2, 2), 1.0
    )
    assert [(a.shape, a.dtype) for a in program.arguments] == [((2, 2), "float32")] * 3 + [((), "float32")]


def test_unused_arguments_stay():
    program = sv.trace(lambda a, b: a, array(4), array(8))
    report = program.partition(sv.Plan("x=2", (P("x"), P("x"))))
    assert [v.shard_shape for v in report.arguments] == [(2,), (4,)]


def test_a_change_of_plan_does_not_trace_again():
    calls = []

    def step(x, w):
        calls.append(None)
        return jax.lax.with_sharding_constraint(x @ w, P("data"))

    program = sv.trace(step, array(8, 8), array(8, 8))
    plan = sv.Plan({"data": 2, "model": 2}, (P("data"), None))
    program.propagate(plan)
    traced = len(calls)
    for other in (
        plan.with_spec("w", P(None, "model")),
        plan.with_mesh("data=4,model=8"),
        plan.with_out_spec("result", P("data")),
    ):
        program.propagate(other)
    assert len(calls) == traced


@pytest.mark.parametrize("size", [1, 8])
def test_a_constraint_over_a_concrete_mesh_is_explored_on_another_by_axis_name(size):
    concrete = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))

    @jax.jit
    def inner(x):
        return jax.lax.with_sharding_constraint(x * 2, NamedSharding(concrete, P("data", "model")))

    def step(x):
        return jax.lax.scan(lambda c, _: (inner(c), None), x, None, length=3)[0]

    report = sv.trace(step, array(16, 16)).propagate(sv.Plan({"data": size, "model": 2}))
    assert report.outputs[0].spec.same_as(Spec.of(P("data", "model")), report.mesh)
    assert report.outputs[0].shard_shape == (16 // size, 8)


def test_a_constraint_that_does_not_fit_names_its_line():
    def step(x):
        return jax.lax.with_sharding_constraint(x, P("data"))

    program = sv.trace(step, array(6, 2))
    line = step.__code__.co_firstlineno + 1
    program.bind(sv.Plan({"data": 2, "x": 2}))
    with pytest.raises(
        sv.SpecError,
        match=rf"with_sharding_constraint at test_trace.py:{line}.*dimension 0 is 6 and does not divide by 'data'=4",
    ):
        program.bind(sv.Plan({"data": 4, "x": 2}))
    with pytest.raises(sv.TraceError, match="on the mesh rows=2"):
        program.bind(sv.Plan({"rows": 2}))


def test_a_function_that_raises_shows_its_own_line_and_keeps_its_traceback():
    def step(x):
        return jnp.dot(x, jnp.ones((3, 3)))

    with pytest.raises(sv.TraceError) as error:
        sv.trace(step, array(4, 4))
    line = step.__code__.co_firstlineno + 1
    assert f"step raised TypeError at test_trace.py:{line} (step) while it was traced" in str(error.value)
    assert isinstance(error.value.__cause__, TypeError)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("adam", "argument 1 is a str, 'adam': expected an array, a jax.ShapeDtypeStruct or a number"),
        ({"a": [object]}, "argument 1['a'][0] is a type"),
    ],
)
def test_what_is_no_array(argument, message):
    with pytest.raises(sv.TraceError) as error:
        sv.trace(lambda x, y: x, array(2), argument)
    assert message in str(error.value) and "static_argnums" in str(error.value)


def test_what_is_no_function():
    with pytest.raises(sv.TraceError, match="expected a function, not 3"):
        sv.trace(3)


def test_a_function_that_needs_a_mesh_says_so_until_a_plan_comes():
    program = sv.trace(lambda x: jax.lax.with_sharding_constraint(x, P("data")), array(4))
    with pytest.raises(sv.TraceError, match="traced when a plan says which mesh"):
        _ = program.arguments
    program.bind(sv.Plan("data=2"))
    assert [a.name for a in program.arguments] == ["x"]
