"""Presets are what their names say, on programs that nobody annotated; their cost is that of their reports."""

import math

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz.ask.program import update_arguments
from shardviz.errors import MeshError, ShardvizError
from shardviz.explorer.explorer import ExplorerState
from shardviz.plan.plan import is_by_name

pytestmark = pytest.mark.slow


def mlp(params, x):
    for w1, w2 in params:
        x = x + jnp.tanh(x @ w1) @ w2
    return x


def shapes(layers=3, d=64, ff=256, batch=32):
    array = lambda *s: jax.ShapeDtypeStruct(s, "bfloat16")
    return [(array(d, ff), array(ff, d))] * layers, array(batch, d)


def step(params, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean(mlp(p, x) ** 2))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def test_tensor_parallel_is_megatrons_column_then_row():
    program = sv.trace(mlp, *shapes())
    report = program.propagate(program.presets({"data": 2, "model": 4})["tensor parallel"])
    assert {str(v.spec.canonical()) for v in report.arguments[:-1:2]} == {"P(None, 'model')"}
    assert {str(v.spec.canonical()) for v in report.arguments[1:-1:2]} == {"P('model')"}
    assert [(c.kind, c.axes) for c in report.collectives] == [("all-reduce", ("model",))] * 3  # one a layer, forward


def test_what_is_cut_is_what_the_name_says():
    program = sv.trace(step, *shapes())
    found = program.presets({"data": 2, "model": 4})
    assert list(found) == ["data parallel", "fsdp", "tensor parallel", "fsdp + tensor parallel", "2-D tensor parallel"]
    whole = sum(v.bytes_per_device for v in program.propagate(sv.Plan({"data": 1})).arguments)
    held = {row.name: sum(v.bytes_per_device for v in row.report.arguments) for row in found.rows}
    assert held["fsdp"] == whole / 8 and held["fsdp + tensor parallel"] < whole / 4
    data = {v.name: v.spec for v in found.rows[0].report.arguments}
    assert str(data.pop("x").canonical()) == "P(('data', 'model'))" and all(not spec.axes for spec in data.values())
    kinds = {c.kind for c in found.rows[0].report.collectives}
    assert kinds == {"all-reduce"}  # gradients and the loss


def adam(params, moments, x):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean(mlp(p, x) ** 2))(params)
    moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, moments), moments, loss


def specs(values):
    return {v.name: str(v.spec.canonical()) for v in values if v.spec is not None and v.spec.axes}


def test_zero_stages_are_told_apart_by_what_is_cut():
    params, x = shapes(batch=4096)  # far more rows than gradients have: these are what is summed
    program = sv.trace(adam, params, params, x)
    found = program.presets({"data": 8})
    assert list(found) == ["data parallel", "zero-1", "zero-2", "fsdp", "tensor parallel"]
    reports = {name: row.report for row in found.rows for name in (row.name, *row.also)}
    cut = {name: {n.partition("[")[0] for n in specs(r.arguments)} for name, r in reports.items()}
    assert cut["data parallel"] == {"x"}
    assert cut["zero-1"] == cut["zero-2"] == {"x", "moments"}
    assert cut["fsdp"] == {"x", "moments", "params"}
    two = specs(reports["zero-2"].outputs)  # what comes out goes in again: it lies as what came in
    assert all(name.startswith("result[1]") for name in two) and len(two) == 6
    assert two["result[1][0][0]"] == specs(reports["zero-2"].arguments)["moments[0][0]"] == "P(None, 'data')"
    gathers = [c for c in reports["zero-2"].collectives if c.kind == "all-gather"]
    assert len(gathers) == 6 and {c.phase for c in gathers} == {"update"}  # the new parameters, from their parts
    assert not [c for c in reports["data parallel"].collectives if c.kind == "all-gather"]


def returning(params, moments, x):
    grads = jax.grad(lambda p: jnp.mean(mlp(p, x) ** 2))(params)
    moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, moments), moments, grads


def test_gradients_that_come_out_are_whole_at_stage_1_and_cut_at_stage_2():
    params, x = shapes(batch=4096)
    found = sv.trace(returning, params, params, x).presets({"data": 8})
    outs = {row.name: {n.partition("]")[0] for n in specs(row.report.outputs)} for row in found.rows}
    assert outs["zero-1"] == {"result[1"} and outs["zero-2"] == {"result[1", "result[2"}


def summed_and_gathered(report, parameters):
    """Bytes of the backward pass's gradients and of the update's new parameters, as a device has them whole; and what
    else there is, but for sums of single numbers."""
    once = [(c, c.count or 1) for c in report.collectives if c.operand_bytes > 64]
    sums = [
        c.operand_bytes * n for c, n in once if c.kind in ("all-reduce", "reduce-scatter") and c.phase == "backward"
    ]
    news = [c for c, _ in once if c.kind == "all-gather" and c.phase == "update"]
    whole = sum(c.operand_bytes * math.prod(report.plan.mesh.shape[a] for a in c.axes) for c in news)
    other = [(c.kind, c.phase) for c, _ in once if c not in news and (c.kind, c.phase) != ("all-reduce", "backward")]
    return sum(sums) / parameters, whole / parameters, other


def test_zero_1_and_2_sum_gradients_and_gather_updated_parameters():
    """ZeRO's paper, section 7: gradients are reduced and new parameters gathered, each as many bytes as there are
    parameters; stage 3 gathers parameters on the way forward and back in the gather's place."""
    params, x = shapes(batch=4096)
    small = sv.trace(adam, params, params, x), {"data": 8}, 6 * 64 * 256 * 2
    large = sv.gallery.llama("70b").program, {"data": 64}, None
    for program, mesh, size in (small, large):
        rows = {name: row for row in program.presets(mesh).rows for name in (row.name, *row.also)}
        size = size or sum(math.prod(a.shape) * 2 for a in program.arguments if a.name.startswith("params"))
        for name in ("zero-1", "zero-2"):
            assert summed_and_gathered(program.partition(rows[name].plan), size) == (1.0, 1.0, [])
        three = program.partition(rows["fsdp"].plan)
        sums, news, other = summed_and_gathered(three, size)
        assert (sums, news) == (1.0, 0.0) and {kind for kind, _ in other} == {"all-gather"}
        gathers = [c for c in three.collectives if c.kind == "all-gather" and c.phase == "forward"]
        assert sum(c.operand_bytes * c.count for c in gathers) * mesh["data"] == size


@pytest.mark.tpu
def test_zero_1s_line_keeps_gradients_whole_where_v5ps_compiler_would_sum_parts():
    """Its sentence says to write `with_sharding_constraint(grads, P())`; simulated devices sum whole ones anyway."""

    def adam_whole(params, moments, x):
        loss, grads = jax.value_and_grad(lambda p: jnp.mean(mlp(p, x) ** 2))(params)
        grads = jax.lax.with_sharding_constraint(grads, P())
        moments = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments, grads)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, moments), moments, loss

    params, x = shapes(layers=2, d=1024, ff=4096, batch=8192)
    plan = sv.trace(adam, params, params, x).presets({"data": 8})["zero-1"]
    summed = []
    for fn in (adam, adam_whole):
        program = sv.trace(fn, params, params, x)
        rows = (
            program.partition(plan).collectives,
            [t.collective for t in program.compile(plan, "tpu v5p:2x2x2").target_collectives],
        )
        summed += [sum(c.assumed_bytes for c in each if c.kind == "all-reduce") for each in rows]
    size = 4 * 1024 * 4096 * 2
    assert summed[0] == summed[2] and size <= summed[0] < 1.01 * size
    assert summed[1] < 1024 and summed[3] >= size


def test_zero_2_cuts_gradients_that_come_out():
    program = sv.trace(jax.value_and_grad(lambda p, x: jnp.mean(mlp(p, x) ** 2)), *shapes())
    report = program.propagate(program.presets({"data": 8})["zero-2"])
    assert set(specs(report.arguments)) == {"x"}
    assert set(specs(report.outputs)) == {f"result[1][{i}][{k}]" for i in range(3) for k in range(2)}
    # without a derivative there is nothing that would be summed or cut so
    forward = sv.trace(mlp, *shapes()).presets({"data": 8})
    assert "zero-2" not in forward and "gradient" not in forward.text()


def test_an_optimizers_state_is_what_only_the_update_uses():
    example = sv.gallery.decoder(layers=1, vocabulary=1024, d_model=64, d_ff=256, heads=4, length=32)
    (row,) = (r for r in example.program.presets({"data": 8}).rows if "zero-2" in (r.name, *r.also))
    cut = {str(m.path).split("[")[0] for m, axes in row.plan.dim_edits if m.role == "argument"}
    assert cut == {"tokens", "optimizer.opt_state"} and not row.trouble


def test_a_parameter_that_is_converted_before_the_derivative_is_no_optimizers_state():
    def step(w, m, x):
        g = jax.grad(lambda w: ((x.astype(jnp.bfloat16) @ w) ** 2).sum())(w.astype(jnp.bfloat16))
        m = 0.9 * m + g.astype(jnp.float32)
        return w - m, m

    square = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    assert update_arguments(sv.trace(step, square, square, square)) == {"m"}


def test_experts_are_found_and_cut():
    array = lambda *s: jax.ShapeDtypeStruct(s, "float32")

    def layer(p, x):
        routed = jnp.einsum("nd,ne->end", x, jax.nn.softmax(x @ p["router"]))
        hidden = jnp.tanh(jnp.einsum("end,edf->enf", routed, p["up"]))
        return jnp.einsum("enf,efd->nd", hidden, p["down"])

    params = {"router": array(64, 8), "up": array(8, 64, 256), "down": array(8, 256, 64)}
    program = sv.trace(layer, params, array(512, 64))
    found = program.presets({"data": 2, "model": 4})
    (row,) = [r for r in found.rows if r.name == "expert parallel"]
    assert specs(row.report.arguments) == {
        "p['down']": "P('model')", "p['router']": "P(None, 'model')", "p['up']": "P('model')", "x": "P('data')",
    }  # fmt: skip
    assert {(c.kind, c.axes) for c in row.report.collectives} == {("all-reduce", ("model",))}
    # where the function itself sends rows to their experts, every device has rows of its own
    (row,) = [r for r in sv.gallery.moe().program.presets({"data": 4, "expert": 8}).rows if r.name == "expert parallel"]
    assert specs(row.report.arguments)["x"] == "P(('data', 'expert'))"
    assert {c.kind for c in row.report.collectives} >= {"all-to-all"}


def test_two_and_three_axes():
    params, x = shapes(layers=2)
    program = sv.trace(adam, params, params, x)
    found = program.presets({"data": 2, "fsdp": 2, "model": 2})
    reports = {row.name: row.report for row in found.rows}
    assert not [row.trouble for row in found.rows if row.trouble]
    both = specs(reports["2-D tensor parallel"].arguments)
    assert both["params[0][0]"] == "P('fsdp', 'model')" and both["params[0][1]"] == "P('model', 'fsdp')"
    assert "8 of 8 matrices are sharded in two dimensions" in found.text()
    three = specs(reports["data + fsdp + tensor parallel"].arguments)
    assert three["params[0][0]"] == "P('fsdp', 'model')" and three["x"] == "P(('data', 'fsdp'))"
    assert "data + fsdp + tensor parallel" not in program.presets({"data": 2, "model": 2})


def test_data_parallel_alone_on_one_axis():
    found = sv.trace(step, *shapes()).presets({"x": 8})
    assert list(found) == ["data parallel", "fsdp", "tensor parallel"]


def test_what_does_not_divide_is_left_whole():
    program = sv.trace(step, *shapes(batch=30))
    (row,) = [r for r in program.presets({"a": 2, "b": 4}).rows if r.name == "data parallel"]
    assert str(row.report.value("x").spec.canonical()) == "P('a')" and not row.trouble


def test_with_a_target_the_shortest_step_that_may_fit_is_first():
    example = sv.gallery.llama("70b")
    found = example.program.presets(example.mesh, target="tpu v5p:4x4x4")
    rows = [row for row in found.rows if row.report is not None]
    assert found.rows[: len(rows)] == tuple(rows) and "is gathered at" in found.rows[-1].trouble  # 2-D tensor parallel
    order = [(not row.cost.needs.may_fit, row.cost.seconds) for row in rows]
    assert order == sorted(order) and rows[0].cost.needs.may_fit
    assert rows[-1].cost.needs.fits is False  # data parallel, or the sequence: the state alone is 282 GB
    for row in rows:
        assert row.cost.seconds == sv.cost(example.program.propagate(found[row.name]), "tpu v5p:4x4x4").seconds
    text = found.text()
    assert "out of memory" in text and "fsdp + tensor parallel" in text
    gallery = sv.cost(example.program.propagate(example.plan), "tpu v5p:4x4x4").seconds
    assert min(row.cost.seconds for row in rows if row.cost.needs.fits is not False) <= gallery


def test_a_mesh_is_needed():
    program = sv.trace(mlp, *shapes())
    with pytest.raises(MeshError, match="no mesh is given"):
        program.presets()
    with pytest.raises(ShardvizError, match="one axis or more"):
        program.presets({})


def test_a_dimension_by_its_name_is_its_arrays_in_an_explorer_and_for_a_search():
    program = sv.trace(mlp, *shapes())
    free = sv.Plan({"data": 2, "model": 4})
    wide = program.dimensions.named("params.0.0:1").name
    named = free.with_dimension("batch", "data").with_dimension(wide, "model")
    state = ExplorerState(program, named, level="propagated")
    assert not is_by_name(state.plan) and state.plan == program._settled(named)
    assert state.set_plan(free.with_dimension(wide, "data")) and not is_by_name(state.plan)
    assert state.add_card("mine", named) and state.deck.cards[-1].plan == program._settled(named)
    assert not state.set_plan(free.with_dimension("width", "data")) and "no dimension 'width'" in str(state.error)
    found = sv.search(program, "tpu v5e:2x4", plan=named, seconds=0.1, level="propagated")
    assert found.best is not None


def test_axes_of_size_one_change_no_preset():
    program = sv.gallery.mlp().program
    few, many = (program.presets({"data": 4, **ones, "model": 2}) for ones in ({}, {"stage": 1, "expert": 1}))
    steps = lambda presets: {r.name: (r.text, r.report and r.report.arguments) for r in presets.rows}
    assert steps(few) == steps(many)
