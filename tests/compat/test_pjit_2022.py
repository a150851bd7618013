"""Old programs are explored with only their import lines changed; and what pjit took in 2022."""

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.compat.pjit import pjit
from tests.raw import array

OLD = """
from jax.experimental import PartitionSpec as P
from jax.experimental.maps import Mesh, mesh
from jax.experimental.pjit import FROM_GDA, PartitionSpec, pjit, with_sharding_constraint

def layer(params, x, scale=1):
    h = with_sharding_constraint(jnp.maximum(x @ params["in"], 0), P("data", "model"))
    return h @ params["out"] * scale

step = pjit(
    layer,
    in_axis_resources=({"in": P(None, "model"), "out": P("model", None)}, P("data", None)),
    out_axis_resources=P(),
)
"""


def test_an_old_program_with_only_its_import_lines_changed():
    new = re.sub(r"^from jax\.experimental", "from shardviz.compat", OLD, flags=re.MULTILINE)
    changed = [line for line, other in zip(new.splitlines(), OLD.splitlines(), strict=True) if line != other]
    assert changed and all(line.startswith("from shardviz.compat") for line in changed)
    space = {"jnp": jnp}
    exec(new, space)
    params, x = {"in": array(8, 16), "out": array(16, 8)}, array(4, 8)
    report = sv.analyze(space["step"], params, x, mesh="data=2,model=4")
    assert {c.axes for c in report.collectives if c.kind == "all-reduce"} == {("model",)}
    assert [str(o.spec) for o in report.outputs] == ["P(None, None)"]


MESH = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def f(x, w, *, act="relu"):
    y = x @ w
    return getattr(jax.nn, act)(y)


def test_omitted_resources_are_the_arguments_own_and_the_compilers():
    fn = pjit(f, static_argnames="act")
    x, w = array(8, 16, sharding=NamedSharding(MESH, P("data"))), array(16, 8)
    for args, kwargs in (((x, w), {}), ((x,), {"w": w}), ((x,), {"w": w, "act": "tanh"}), ((x, w), {"act": "tanh"})):
        report = sv.analyze(fn, *args, **kwargs)
        assert [str(a.spec) for a in report.arguments] == ["P('data', None)", "P(None, None)"]
        assert str(report.outputs[0].spec) == "P('data', None)" and not report.collectives


def test_named_shardings_bring_their_mesh():
    named = lambda *spec: NamedSharding(MESH, P(*spec))
    for words in (("in_shardings", "out_shardings"), ("in_axis_resources", "out_axis_resources")):
        given = dict(zip(words, ((named("data"), None), named(None, "model")), strict=True))
        fn = pjit(f, **given)
        report = sv.analyze(fn, array(8, 16), array(16, 8))
        assert str(report.mesh) == "data=4,model=2"
        assert [str(v.spec) for v in (*report.arguments, *report.outputs)] == [
            "P('data', None)",
            "P(None, None)",
            "P(None, 'model')",
        ]


def test_new_names_mean_what_the_old_ones_do():
    args = array(8, 16), array(16, 8)
    old = sv.trace(pjit(f, (P("data"), None), P("data")), *args)
    new = sv.trace(pjit(f, in_shardings=(P("data"), None), out_shardings=P("data"), keep_unused=True), *args)
    assert old.bind(old.plan(MESH)) == new.bind(new.plan(MESH))
    with pytest.raises(sv.errors.TraceError, match="give one of them"):
        pjit(f, None, in_shardings=None)
    with pytest.raises(sv.errors.TraceError, match="give one of them"):
        pjit(f, None, None, out_shardings=None)


def test_keep_unused_is_kept():
    for keep in (False, True):
        report = sv.analyze(pjit(lambda x, y: x, None, None, keep_unused=keep), array(8), array(4), mesh=MESH)
        assert [a.unused for a in report.arguments] == [False, not keep]
