"""Tracing: names, static and donated arguments, constraints over other meshes,
and errors that show the person's line.
"""

import dataclasses
import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import define_prng_impl
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.errors import SpecError, TraceError
from shardviz.notation import Spec
from shardviz.records.phases import phase
from tests.raw import array

F32 = jnp.float32


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
        SpecError,
        match=rf"with_sharding_constraint at test_trace.py:{line}.*dimension 0 is 6, which is not divisible by",
    ):
        program.bind(sv.Plan({"data": 4, "x": 2}))
    with pytest.raises(TraceError, match="on the mesh rows=2"):
        program.bind(sv.Plan({"rows": 2}))


def test_a_function_that_raises_shows_its_own_line_and_keeps_its_traceback():
    def step(x):
        return jnp.dot(x, jnp.ones((3, 3)))

    with pytest.raises(TraceError) as error:
        sv.trace(step, array(4, 4))
    line = step.__code__.co_firstlineno + 1
    assert f"step raised TypeError at test_trace.py:{line} (step) while it was traced" in str(error.value)
    assert isinstance(error.value.__cause__, TypeError)


@pytest.mark.parametrize("ask", [sv.trace, sv.analyze, sv.explore])
def test_a_keyword_that_the_function_does_not_have_is_named(ask):
    def step(w, x):
        return w @ x

    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    with pytest.raises(TraceError, match=r"levle='x': step has no argument of this name, .*; step has w, x$"):
        ask(step, shape, shape, levle="x")


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("adam", "argument 1 is a str, 'adam': expected an array, a jax.ShapeDtypeStruct or a number"),
        ({"a": [object]}, "argument 1['a'][0] is a type"),
    ],
)
def test_what_is_no_array(argument, message):
    with pytest.raises(TraceError) as error:
        sv.trace(lambda x, y: x, array(2), argument)
    assert message in str(error.value) and "static_argnums" in str(error.value)


def test_a_dict_whose_keys_have_no_order():
    with pytest.raises(TraceError, match=r"argument 0 cannot be flattened: .*give each dict keys of one type"):
        sv.trace(lambda x: x, {0: array(2), "a": array(2)})


def test_what_is_no_function():
    with pytest.raises(TraceError, match="expected a function, not 3"):
        sv.trace(3)


def test_a_function_that_needs_a_mesh_says_so_until_a_plan_comes():
    program = sv.trace(lambda x: jax.lax.with_sharding_constraint(x, P("data")), array(4))
    with pytest.raises(TraceError, match="traced when a plan says over which mesh"):
        _ = program.arguments
    program.bind(sv.Plan("data=2"))
    assert [a.name for a in program.arguments] == ["x"]


def test_a_mesh_among_the_arguments_is_sent_to_the_plan():
    with pytest.raises(TraceError, match=r"mesh is a AbstractMesh.*A mesh is part of the plan: sv.Plan\(mesh"):
        sv.trace(lambda x: x, array(4), mesh=sv.mesh(data=2))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (lambda x: x if x.sum() > 0 else -x, "jax.lax.cond.*static_argnums"),
        (lambda x: np.sin(np.asarray(x)), "Use jax.numpy in place of numpy"),
        (lambda x: jnp.zeros(int(x.sum())), "static_argnums or static_argnames, or leave its value an array"),
    ],
)
def test_python_that_depends_on_data_names_its_line_and_says_what_to_do(body, words):
    with pytest.raises(TraceError, match=rf"(?s)at test_trace.py:\d+.*{words}"):
        sv.trace(body, array(8))


def test_an_operation_that_cannot_be_lowered_names_its_line_and_says_what_to_do():
    pallas = pytest.importorskip("jax.experimental.pallas")

    def double(x):
        def kernel(source, target):
            target[...] = source[...] * 2

        return pallas.pallas_call(kernel, out_shape=array(8, 128))(x)

    program = sv.trace(double, array(8, 128))
    for level in (program.propagate, program.partition):
        with pytest.raises(TraceError, match=r"double: .* at test_trace.py:\d+ \(double\) for cpu.*interpret=True"):
            level(sv.Plan("x=2"))


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_a_mesh_of_another_size_around_the_call_is_no_hindrance(kind):
    own = jax.make_mesh((1, 1), ("data", "model"), axis_types=(AxisType[kind],) * 2)
    plan = sv.Plan(f"data=4:{kind},model=2:{kind}", (P("data"), P(None, "model")))

    def inside(x, w):
        return jax.lax.psum((x @ w).sum(), ("data", "model"))

    def step(x, w):
        return jax.shard_map(inside, in_specs=(P("data"), P(None, "model")), out_specs=P())(x, w)

    def seen():
        program = sv.trace(step, array(8, 8), array(8, 8))
        report = program.partition(plan)
        sv.explore(step, array(8, 8), array(8, 8), plan=plan)
        return program.plan().mesh.size, [(c.kind, c.axes, c.operand_bytes) for c in report.collectives]

    with jax.set_mesh(own):
        size, under = seen()
        assert jax.sharding.get_mesh() == own
        assert jax.jit(lambda x: x * 2)(jnp.ones(2)).sharding.mesh == own
    assert size == 1
    assert under == [
        (c.kind, c.axes, c.operand_bytes) for c in sv.trace(step, array(8, 8), array(8, 8)).partition(plan).collectives
    ]


def test_methods_that_jit_has_wrapped_keep_their_object():
    class Model:
        scale = 2.0

        @functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
        def loss(self, w, x):
            return jnp.sum(x @ w) * self.scale

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass
    class Weights:
        w: jax.Array

        @jax.jit
        def apply(self, x):
            return x @ self.w

    program = sv.trace(Model().loss, array(8, 4), array(2, 8))
    assert [(a.name, a.donated) for a in program.arguments] == [("w", False), ("x", True)]
    program = sv.trace(Weights(array(8, 4)).apply, array(2, 8))
    assert [a.name for a in program.arguments] == ["self.w", "x"]


def test_a_partial_function_goes_by_the_name_of_what_it_is_of():
    assert sv.trace(functools.partial(jnp.multiply, 2.0), array(8)).name == "multiply"


def test_phases_of_nested_functions_are_those_that_the_compiler_sees():
    inner = jax.jit(lambda x, w: jax.nn.silu(x @ w) @ w.T)

    def loss(w, x):
        y, _ = jax.lax.scan(lambda x, w: (jax.checkpoint(inner)(x, w), None), x, w)
        return jnp.mean(jax.jit(jnp.tanh)(y) ** 2)

    def step(w, x):
        return w - 0.1 * jax.grad(loss)(w, x)

    program = sv.trace(step, array(3, 8, 16), array(4, 8))
    plan = sv.Plan("data=2,model=2", (P(None, None, "model"), P("data")))
    reports = program.propagate(plan), program.partition(plan)
    found = [Counter((c.kind, c.axes, c.phase, c.count) for c in r.collectives) for r in reports]
    assert found[0] == found[1] and {phase for _, _, phase, _ in found[0]} == {"forward", "backward"}
    silu = [{phase(v.name_stack) for v in r.intermediates if "jit(silu)" in v.name_stack} for r in reports]
    assert silu[0] == silu[1] == {"forward", "backward", "rematerialised"}


def test_a_value_that_leaked_out_of_another_trace_is_named_with_its_line():
    box = []

    def keeps(x):
        box.append(jnp.sin(x))
        return x

    sv.trace(keeps, jax.ShapeDtypeStruct((8, 4), jnp.float32))
    line = keeps.__code__.co_firstlineno + 1
    for fn in (lambda x: x + box[0].sum(), lambda x: box[0], lambda x: {"a": x, "b": box[0]}):
        with pytest.raises(TraceError, match=rf"float32\[8,4\].* at test_trace.py:{line} .*leaked") as caught:
            sv.trace(fn, jax.ShapeDtypeStruct((8, 4), jnp.float32))
        assert "as an argument" in str(caught.value)


def test_an_exception_that_cannot_say_what_it_is_is_a_trace_error_like_any_other():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def fails(x):
        raise Mute

    x = jax.ShapeDtypeStruct((8, 4), jnp.float32)
    for ask in (sv.trace, sv.explore):
        with pytest.raises(TraceError, match=r"fails raised Mute at test_trace.py:\d+ .*Mute.__str__ raises") as caught:
            ask(fails, x)
        assert isinstance(caught.value.__cause__, Mute)


def test_each_call_of_the_function_is_told():
    calls = []

    def f(x, w):
        calls.append(1)
        h = jnp.sin(x)
        return h @ w

    def told() -> int:
        assert program.traces == len(calls)
        return program.traces

    program = sv.trace(f, jax.ShapeDtypeStruct((8, 4), jnp.float32), jax.ShapeDtypeStruct((4, 8), jnp.float32))
    assert told() == 1
    first = sv.Plan("a=2", in_specs=(P("a"), P()))
    program.propagate(first)
    once = told()
    for plan in (sv.Plan("a=4", in_specs=(P("a"), P())), sv.Plan("a=2", in_specs=(P(), P("a"))), first):
        program.propagate(plan)
    assert told() == once, "another size or spec needs no other trace"
    program.propagate(sv.Plan("b=2", in_specs=(P("b"), P())))
    assert told() == once + 1
    program.propagate(first.constrain("h", P("a")))
    assert told() == once + 3
    program.propagate(first.constrain("h", P(None, "a")))
    assert told() == once + 3


def test_a_key_of_ones_own_generator_has_its_own_size():
    one = define_prng_impl(
        key_shape=(3,),
        seed=lambda seed: jnp.full(3, seed, "uint32"),
        split=lambda key, shape: jnp.broadcast_to(key, (*shape, 3)),
        random_bits=lambda key, width, shape: jnp.broadcast_to(key[0], shape),
        fold_in=lambda key, data: key + data,
        tag="one",
    )
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0, impl=one), 8))
    draw = lambda keys, x: (keys, x + jax.vmap(lambda key: jax.random.uniform(key))(keys))
    report = sv.trace(draw, keys, array(8)).propagate(sv.Plan({"data": 4}, P("data")))
    again = sv.Report.from_json(report.to_json())
    for value in (*report.arguments[:1], *again.outputs[:1]):
        assert value.dtype.startswith("key<one>") and value.bytes_per_device == 2 * 12
    assert not [f for f in again.findings if f.severity == "error"]
