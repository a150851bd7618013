"""Explicit axes: shardings in types, what JAX refuses and what fixes it. Manual ones are a shard_map's."""

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import paint
from shardviz.errors import MeshError, ShardingTypeError, SpecError
from shardviz.notation import DeviceMesh, Spec
from shardviz.view.document import Document
from shardviz.view.values import values_table

EXPLICIT = "data=2:Explicit,model=4:Explicit"
MIXED = "data=2,model=4:Explicit"
SQUARE = jax.ShapeDtypeStruct((16, 16), jnp.float32)


def abstract(mesh):
    mesh = DeviceMesh.of(mesh)
    return AbstractMesh(mesh.sizes, mesh.names, axis_types=tuple(AxisType[t] for t in mesh.types))


def types_of(fn, mesh, specs):
    """The specs in the types of a function's results, as JAX infers them."""
    mesh = abstract(mesh)
    arrays = [jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh, s)) for s in specs]
    with jax.sharding.use_abstract_mesh(mesh):
        return [x.sharding.spec for x in jax.tree.leaves(jax.eval_shape(fn, *arrays))]


def levels(program, plan):
    return program.propagate(plan), program.partition(plan)


FUNCTIONS = {
    "product": lambda x, y: x @ y,
    "transposed": lambda x, y: (x.T, jnp.sin(y)),
    "reduced": lambda x, y: (x.sum(0), y.max(1)),
    "reshard": lambda x, y: (jax.sharding.reshard(x, P("model", "data")) * 2, y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("mesh", [EXPLICIT, "data=8:Explicit,model=8:Explicit", "data=1:Explicit,model=2:Explicit"])
def test_outputs_are_cut_as_their_types_say(name, mesh):
    specs = (P("data", None), P(None, "model"))
    program = sv.trace(FUNCTIONS[name], SQUARE, SQUARE)
    wanted = types_of(FUNCTIONS[name], mesh, specs)
    for report in levels(program, sv.Plan(mesh, specs)):
        assert len(report.outputs) == len(wanted)
        for output, spec in zip(report.outputs, wanted, strict=True):
            assert output.spec.same_as(Spec.of(spec, len(output.shape)), report.mesh), (report.level, output)
        assert not report.diagnostics


@pytest.mark.parametrize(("mesh", "spec"), [(EXPLICIT, P("data", "model")), (MIXED, P(None, "model"))])
def test_values_carry_the_spec_in_their_type(mesh, spec):
    program = sv.trace(lambda x, y: jnp.sin(x @ y), SQUARE, SQUARE)
    wanted = Spec.of(spec)
    for report in levels(program, sv.Plan(mesh, (P("data"), P(None, "model")))):
        rows = [v for v in report.intermediates if v.op in ("dot_general", "sin")]
        assert rows and all(v.fixed is not None and v.fixed.same_as(wanted, report.mesh) for v in rows), report.level
        assert all(
            "fixed by type" in painted(Document(blocks=(values_table(rows),))) for painted in (paint.text, paint.html)
        )
        assert sv.Report.from_json(report.to_json()) == report
    for value in program.propagate(sv.Plan("data=2,model=4", (P("data"), P(None, "model")))).intermediates:
        assert value.fixed is None


def test_auto_axes_beside_explicit_ones_are_the_compilers():
    program = sv.trace(lambda x, y: x @ y, SQUARE, SQUARE)
    for report in levels(program, sv.Plan(MIXED, (P("data"), P(None, "model")))):
        assert report.outputs[0].spec.same_as(Spec.of(P("data", "model")), report.mesh)
        assert report.plan.out_specs == {"result": None}


def test_a_product_that_is_ambiguous_is_refused_with_its_line_and_what_to_do():
    def fn(x, y):
        return x @ y

    program = sv.trace(fn, SQUARE, SQUARE)
    plan = sv.Plan(EXPLICIT, (P("data", "model"), P("model", None)))
    line = fn.__code__.co_firstlineno + 1
    what_to_do = rf"test_axis_types.py:{line} .*ambiguous.*Give the operation out_sharding="
    with pytest.raises(ShardingTypeError, match=what_to_do):
        program.propagate(plan)
    fixed = plan.with_spec("y", P(None, "model")).with_spec("x", P("data"))
    assert program.propagate(fixed).outputs[0].spec.same_as(Spec.of(P("data", "model")), fixed.mesh)
    with pytest.raises(ShardingTypeError):
        program.bind(plan)


def test_a_function_that_only_explicit_axes_can_trace():
    def fn(params, x):
        return jnp.einsum("ij,jk->ik", x, params["w"], out_sharding=P("data", None))

    program = sv.trace(fn, {"w": SQUARE}, SQUARE)
    plan = sv.Plan(EXPLICIT, ({"w": P("model")}, P("data", "model")))
    for report in levels(program, plan):
        assert [a.name for a in report.arguments] == ["params['w']", "x"]
        assert [(c.kind, c.axes) for c in report.collectives] == [("all-reduce", ("model",))]
    edited = plan.with_spec("params['w']", P(None)).with_spec("x", P("data"))
    assert program.propagate(edited).collectives == ()


def test_arguments_own_shardings_and_mesh_are_the_plan():
    mesh = abstract(EXPLICIT)
    x = jax.ShapeDtypeStruct((16, 16), jnp.float32, sharding=NamedSharding(mesh, P("data", "model")))
    program = sv.trace(lambda x: jnp.sin(x).T, x)
    plan = program.plan()
    assert plan.mesh == DeviceMesh.of(EXPLICIT)
    assert program.propagate(plan).outputs[0].spec.same_as(Spec.of(P("model", "data")), plan.mesh)


def test_an_explicit_shard_map_infers_its_specs():
    fn = jax.shard_map(lambda x: jax.lax.psum(x, "model"), out_specs=P("data"))
    program = sv.trace(fn, SQUARE)
    for report in levels(program, sv.Plan(EXPLICIT, P("data", "model"))):
        (found,) = report.collectives
        assert (found.kind, found.axes, found.origin, found.operand_bytes) == ("all-reduce", ("model",), "user", 128)
        assert report.outputs[0].spec.same_as(Spec.of(P("data")), report.mesh)


def test_manual_axes_are_a_shard_maps():
    program = sv.trace(lambda x: x * 2, SQUARE)
    with pytest.raises(MeshError, match=r"'model' is Manual.*only inside a shard_map.*make the axis Auto or Explicit"):
        program.propagate(sv.Plan("data=2,model=4:Manual"))


def test_part_of_an_explicit_axis_cannot_be_in_a_type():
    program = sv.trace(lambda x: x * 2, SQUARE)
    with pytest.raises(SpecError, match="part of the Explicit mesh axis 'model'"):
        program.propagate(sv.Plan(EXPLICIT, Spec(((("model", 1, 2),), ()))))


def test_a_result_that_is_a_partial_sum_by_its_type_stays_one():
    def fn(x, y):
        z = jnp.einsum("ij,jk->ik", x, y, out_sharding=P("data", None, unreduced={"model"}))
        return z, jax.sharding.reshard(z, P("data", None))

    specs = (P("data", "model"), P("model", None))
    wanted = [Spec((("data",), ()), ("model",)), Spec((("data",), ()))]
    assert [Spec.of(s) for s in types_of(fn, EXPLICIT, specs)] == wanted
    for report in levels(sv.trace(fn, SQUARE, SQUARE), sv.Plan(EXPLICIT, specs)):
        assert all(o.spec.same_as(w, report.mesh) for o, w in zip(report.outputs, wanted, strict=True)), report.level


def projected(w, x):
    return jnp.sum(jnp.tanh(x @ w))


REDUCED = (P(None, None, reduced={"data"}), P("data", None))


@pytest.mark.parametrize("mesh", [EXPLICIT, "data=8:Explicit,model=2:Explicit"])
def test_the_gradient_by_what_is_reduced_is_a_partial_sum_as_jax_says(mesh):
    """JAX's own gradient is the other implementation: its type, and its module, which has no all-reduce."""
    wanted = types_of(jax.grad(projected), mesh, REDUCED)
    assert wanted[0].unreduced == {"data"}
    program, plan = sv.trace(jax.grad(projected), SQUARE, SQUARE), sv.Plan(mesh, REDUCED)
    bound = program.bind(plan)
    assert str(bound.in_specs["w"]) == "P(None, None, reduced={'data'})"
    for report in levels(program, plan):
        assert report.outputs[0].spec.unreduced == ("data",)
        assert not report.collectives, report.collectives
    whole = sv.Plan(mesh, (P(), P("data", None)))
    assert [c.kind for c in program.propagate(whole).collectives] == ["all-reduce"]


def test_reduced_axes_stay_where_a_plan_is_edited_written_and_read():
    plan = sv.Plan(EXPLICIT, REDUCED)
    assert "reduced={'data'}" in sv.trace(projected, SQUARE, SQUARE).plan_code(plan)
    renamed = plan.rename_axis("data", "batch")
    assert renamed.in_specs[0].reduced == ("batch",) and plan.without_axis("data").in_specs[0].reduced == ()
    assert Spec.of(REDUCED[0]) != Spec.of(P(None, None)) and Spec.of(REDUCED[0]).same_as(Spec.of(P()), plan.mesh)
    report = sv.trace(projected, SQUARE, SQUARE).propagate(plan)
    assert sv.Report.from_json(report.to_json()).arguments[0].spec == report.arguments[0].spec


@pytest.mark.parametrize(
    ("mesh", "spec", "why"),
    [
        ("data=2,model=4", P(None, reduced={"data"}), "'data' is not an Explicit axis"),
        (EXPLICIT, P(None, reduced={"x"}), "'x' is not an Explicit axis"),
        (EXPLICIT, Spec((("data",), ()), (), ("data",)), "'data' is used by the spec already"),
    ],
)
def test_reduced_axes_that_cannot_be_are_refused(mesh, spec, why):
    with pytest.raises(SpecError, match=rf"'w' .*{why}.*leave it out"):
        sv.trace(lambda w: w * 2, SQUARE).bind(sv.Plan(mesh, spec))
