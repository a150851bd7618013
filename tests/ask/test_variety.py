"""Programs of every sort: loops, branches, callbacks, keys, odd types, odd trees.

Both levels answer, and agree or say so.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import shardviz as sv

pytestmark = pytest.mark.long

MESH = {"data": 2, "model": 4}
SQUARE = jax.ShapeDtypeStruct((16, 16), jnp.float32)


def both(fn, *args, in_specs=None, out_specs=None, mesh=MESH):
    program, plan = sv.trace(fn, *args), sv.Plan(mesh, in_specs, out_specs)
    return program.propagate(plan), program.compile(plan, timeout=120)


def moves(report):
    return {(c.kind, c.axes, c.count, c.conditional) for c in report.collectives}


CONTRACTED = (P("data", "model"), P("model"))


@pytest.mark.parametrize(
    ("fn", "count"),
    [
        (lambda x, y: lax.fori_loop(0, 7, lambda i, c: c @ y, x), 7),
        (lambda x, y: lax.fori_loop(3, 17, lambda i, c: c @ y, x), 14),
        (lambda x, y: lax.scan(lambda c, _: (c @ y, None), x, None, length=9)[0], 9),
        (
            lambda x, y: lax.scan(lambda c, _: (lax.fori_loop(0, 3, lambda i, d: d @ y, c), None), x, None, length=5)[
                0
            ],
            15,
        ),
        (lambda x, y: lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 2, c[1] @ y), (1, x))[1], 5),
        (lambda x, y: lax.while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] @ y), (6, x))[1], 6),
    ],
)
def test_trip_counts_are_multiplied_in_at_both_levels(fn, count):
    for report in both(fn, SQUARE, SQUARE, in_specs=CONTRACTED):
        assert moves(report) == {("all-reduce", ("model",), count, False)}, report.level
        assert not [d for d in report.diagnostics if d.rule == "unknown-loops"]


def test_a_loop_that_ends_on_data_has_no_count_and_says_so():
    def fn(x, y):
        return lax.while_loop(lambda c: c.sum() < 100.0, lambda c: c @ y, x)

    for report in both(fn, SQUARE, SQUARE, in_specs=CONTRACTED):
        assert ("all-reduce", ("model",), None, False) in moves(report)
        assert "unknown-loops" in {d.rule for d in report.diagnostics}
        assert "not known" in repr(report)


def test_a_branch_may_not_run():
    def fn(x, y):
        return lax.cond(x[0, 0] > 0, lambda a: a @ y, lambda a: a - 1.0, x)

    for report in both(fn, SQUARE, SQUARE, in_specs=CONTRACTED):
        assert ("all-reduce", ("model",), 1, True) in moves(report)


def test_nested_jits_and_library_calls_are_walked_into():
    report, _ = both(lambda x, y: jax.nn.relu(jax.jit(jnp.dot)(x, y)), SQUARE, SQUARE, in_specs=CONTRACTED)
    assert moves(report) == {("all-reduce", ("model",), 1, False)}
    assert {v.op for v in report.intermediates} >= {"dot_general", "max"}


def test_empty_branches_of_the_result_are_no_outputs():
    reports = both(
        lambda x, y: {"a": None, "b": x @ y, "c": ()}, SQUARE, SQUARE, out_specs={"a": None, "b": P("data"), "c": None}
    )
    for report in reports:
        assert [(o.name, o.shard_shape) for o in report.outputs] == [("result['b']", (8, 16))]


@pytest.mark.parametrize("out", [None, P("data")])
def test_prng_keys_have_one_dimension_more_than_jax_shows(out):
    key = jax.eval_shape(lambda: jax.random.key(0))
    cut = (8,) if out is None else (4,)
    for report in both(lambda k: jax.random.split(k, 8), key, out_specs=out):
        assert [(o.shape, o.shard_shape, o.bytes_per_device) for o in report.outputs] == [((8,), cut, 8.0 * cut[0])]


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("int4", 0.5), ("float8_e4m3fn", 1), ("bool", 1), ("bfloat16", 2), ("complex64", 8), ("uint8", 1), ("int32", 4)],
)
def test_bytes_of_every_type(dtype, size):
    array = jax.ShapeDtypeStruct((16, 16), jnp.dtype(dtype))
    for report in both(lambda x: (x, x[::2]), array, in_specs=(P("data", "model"),)):
        assert [(v.dtype, v.bytes_per_device) for v in (*report.arguments, *report.outputs)] == [
            (dtype, 32 * size),
            (dtype, 32 * size),
            (dtype, 16 * size),
        ]


@pytest.mark.parametrize(
    "look", [lambda x: jax.debug.print("x is {}", x), lambda x: jax.debug.inspect_array_sharding(x, callback=print)]
)
def test_a_debug_callback_is_left_out_and_said_to_be(look):
    def fn(x, y):
        look(x)
        return x @ y

    for report in both(fn, SQUARE, SQUARE, in_specs=CONTRACTED):
        (note,) = [d for d in report.diagnostics if d.rule == "callbacks-left-out"]
        assert note.source.line == look.__code__.co_firstlineno


def test_a_callback_for_a_value_is_refused_with_its_line():
    def fn(x):
        return jax.pure_callback(np.sin, SQUARE, x)

    line = fn.__code__.co_firstlineno + 1
    with pytest.raises(sv.errors.TraceError, match=rf"calls pure_callback at test_variety.py:{line}.*without it"):
        sv.trace(fn, SQUARE).propagate(sv.Plan(MESH))


def test_constants_and_scalars_and_empty_arrays():
    big = np.ones((16, 16), np.float32)
    empty = jax.ShapeDtypeStruct((0, 16), jnp.float32)
    scalar = jax.ShapeDtypeStruct((), jnp.float32)
    for report in both(
        lambda x, e, s: (x @ big * s, e * s), SQUARE, empty, scalar, in_specs=(P("data"), P("data"), None)
    ):
        assert [o.shard_shape for o in report.outputs] == [(8, 16), (0, 16)]


@pytest.mark.parametrize("name", ["data", "<i>q</i>", "a b", "a/b", "x:(2)4", "$x%"])
def test_axis_names_of_every_sort(name):
    for report in both(lambda x: (x @ x).sum(), SQUARE, in_specs=P(None, name), mesh={name: 2, "other": 2}):
        moved_over = {axis for c in report.collectives for axis in c.axes or ()}
        assert {name} <= moved_over <= {name, "other"}, report.level
        assert sv.Report.from_json(report.to_json()) == report
        assert "<i>q</i>" not in report._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize("name", ["it's", 'a"b', "a]{}, b", "a=2", "a\n"])
def test_an_axis_name_that_the_compilers_texts_cannot_hold(name):
    program, plan = sv.trace(lambda x: (x @ x).sum(), SQUARE), sv.Plan({name: 2}, P(None, name))
    assert program.propagate(plan).collectives[0].axes == (name,)
    with pytest.raises(sv.errors.CompileRefused, match="so rename the axis; level 'propagated' works all the same"):
        program.partition(plan)


def test_an_axis_name_that_the_compiler_cannot_bear():
    """Older XLA ends its process at a name that is not ASCII; Shardy in the kernel does not mind."""
    program = sv.trace(lambda x: (x @ x).sum(), SQUARE)
    plan = sv.Plan({"é": 2}, P(None, "é"))
    assert program.propagate(plan).collectives[0].axes == ("é",)
    error = program.submit(plan).exception(60)
    assert error is None or isinstance(error, sv.errors.CompileCrashed)


@pytest.mark.parametrize("mesh", [{}, {"x": 1}, {"x": 1, "y": 1}, {"x": 3}, {"x": 2, "y": 3, "z": 5, "w": 1}])
def test_meshes_of_every_sort(mesh):
    names = [n for n in mesh if 30 % mesh[n] == 0][:2]
    array = jax.ShapeDtypeStruct((30, 30), jnp.float32)
    for report in both(lambda x: (x @ x.T).sum(), array, in_specs=P(*names), mesh=mesh):
        assert report.outputs[0].shard_shape == ()
        assert all(c.count == 1 and c.group_size > 1 for c in report.collectives)


def test_no_arguments_and_no_results():
    for report in both(lambda: jnp.ones((8, 8)), out_specs=P("data")):
        assert report.arguments == () and report.outputs[0].shard_shape == (4, 8)
    for report in both(lambda x: (), SQUARE, in_specs=P("data")):
        assert report.outputs == ()


def test_what_shardy_made_is_valid(monkeypatch):
    """The verifier is left out between passes; here it runs at the end."""
    from shardviz.propagate import propagate as shardy

    example = sv.gallery.llama("8b")
    program, plan = example.program, example.plan
    lowered = program._lowerings.lower(plan)
    found = shardy.propagate(lowered, program.bind(plan))
    with lowered.module.context:
        assert found.module.verify()


def test_a_permuted_mesh_partitions_as_the_mesh_in_order():
    ids = tuple(np.random.default_rng(0).permutation(8).tolist())
    mesh = sv.notation.DeviceMesh(("data", "model"), (2, 4), (), ids)
    plain, permuted = (both(lambda x, y: x @ y, SQUARE, SQUARE, in_specs=CONTRACTED, mesh=m)[1] for m in (MESH, mesh))
    assert moves(plain) == moves(permuted) == {("all-reduce", ("model",), 1, False)}
