"""pmapped functions: what is said of them against JAX's own pmap, compiled and run with as many simulated devices."""

import inspect
import json
import re
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.extend.mlir.passmanager import PassManager

import shardviz as sv
from shardviz import _jax
from shardviz.notation import DeviceMesh, Spec
from tests.ask.counting import count
from tests.raw import array
from tests.tracing import pmap_examples as pmaps
from tests.truth import counted, filled_once

pytestmark = pytest.mark.slow

CASES = [(name, n) for n in pmaps.SIZES for name in pmaps.examples(2)]


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return filled_once(tmp_path_factory, Path(__file__).with_name("pmap_truth.py"), devices=64)


@pytest.fixture(scope="module")
def explored():
    kept = {}

    def explore(name, n):
        if (name, n) not in kept:
            fn, args, kwargs = pmaps.pmapped(name, n)
            program = sv.trace(fn, *args, **kwargs)
            kept[name, n] = program, program.partition(program.plan())
        return kept[name, n]

    return explore


@pytest.mark.parametrize(("name", "n"), CASES)
def test_collectives_are_those_of_jaxs_own_pmap(explored, truth, name, n):
    _, report = explored(name, n)
    found = counted(report)
    text = (truth / f"{name}@{n}.partitioned.txt").read_text().replace("_internal_pmap_axis_name", "i")
    assert found == count(text, report.mesh.shape, 1)
    assert {c.origin for c in report.collectives} <= {"user"} and bool(report.collectives) == (name != "plain")


@pytest.mark.parametrize(("name", "n"), CASES)
def test_outputs_are_cut_as_jax_cuts_them_and_what_it_computes_is_what_one_device_computes(explored, truth, name, n):
    _, report = explored(name, n)
    facts = json.loads((truth / f"{name}@{n}.json").read_text())
    assert facts["apart"] < 1e-3
    for output, (spec, shape, shard) in zip(report.outputs, facts["outputs"], strict=True):
        theirs = Spec(tuple(tuple("i" if a.startswith("_") else a for a in dim) for dim in spec))
        assert output.spec.same_as(theirs, report.mesh), output.name
        assert (list(output.shape), list(output.shard_shape)) == (shape, shard), output.name


def operations(text):
    """How often each operation that has a use stands in a module, and how its manual computations are cut."""
    with _jax.mlir_context():
        module = ir.Module.parse(text.replace("_internal_pmap_axis_name", "i"))
        PassManager.parse("builtin.module(canonicalize)").run(module.operation)  # JAX's own jit leaves out dead code
        text = str(module)
    cuts = re.findall(r"(in_shardings=\[.*?\]) (out_shardings=\[.*?\]) manual_axes=(\{.*?\})", text)
    return Counter(re.findall(r"(?:stablehlo|chlo)\.\w+", re.sub(r"stablehlo\.mesh = ", "", text))), cuts


@pytest.mark.parametrize(("name", "n"), CASES)
def test_the_program_is_the_one_that_jaxs_own_pmap_lowers(explored, truth, name, n):
    program, _ = explored(name, n)
    ours = operations(program.texts(program.plan())["stablehlo"])
    assert ours == operations((truth / f"{name}@{n}.stablehlo.txt").read_text())
    assert len(ours[1]) == 1


@pytest.mark.parametrize(("name", "n"), CASES)
def test_shardy_predicts_what_the_function_itself_says(explored, name, n):
    program, report = explored(name, n)
    propagated = program.propagate(program.plan())
    said = lambda r: Counter((c.kind, c.axes, c.dtype, c.origin) for c in r.collectives)
    assert said(propagated) == said(report)
    assert [o.spec for o in propagated.outputs] == [o.spec for o in report.outputs]


def test_arguments_are_named_donated_and_mapped_as_pmap_was_told(explored):
    program, report = explored("shifted", 8)
    assert [(v.name, str(v.spec), v.shard_shape) for v in report.arguments] == [
        ("tree['a']", "P(None, 'ring')", (3, 1)),
        ("tree['b']", "P(None, None, 'ring')", (2, 3, 1)),
        ("scale['s']", "P()", ()),
        ("bias", "P('ring')", (1,)),
    ]
    program, _ = explored("train_step", 8)
    assert [a.donated for a in program.arguments] == [True] * 6 + [False] * 2
    jitted = jax.pmap(lambda a, b, c: c, static_broadcasted_argnums=0, donate_argnums=(1, 2))
    assert [a.donated for a in sv.trace(jitted, "x", array(2), array(2)).arguments] == [True, True]


def test_what_it_is_today_is_noted(explored):
    _, report = explored("shifted", 8)
    (note,) = [d.text for d in report.diagnostics if d.rule == "pmap"]
    assert "pmap over 'ring' is today the jit of a shard_map over the mesh ring=8" in note
    assert sv.Report.from_json(report.to_json()) == report


def test_the_mesh_is_as_long_as_the_mapped_dimension():
    fn = jax.pmap(lambda w, x: x @ w, axis_name="batch", in_axes=(None, 1))
    program = sv.trace(fn, array(4, 4), array(3, 8, 4))
    assert program.plan().mesh == DeviceMesh.of("batch=8")
    for mesh, message in [
        ({"batch": 4}, r"x: its mapped dimension 1 is 8, and the mesh batch=4 has 4 along 'batch': more slices than"),
        ({"batch": 16}, "fewer slices than devices.*mesh={'batch': 8}, or arguments whose mapped dimension is 16"),
        ({"data": 8}, "is a pmap over 'batch', and the mesh data=8 has no axis of that name; use mesh={'batch': 8}"),
    ]:
        with pytest.raises(sv.errors.MeshError, match=message):
            program.partition(sv.Plan(mesh))
    wide = program.partition(sv.Plan({"batch": 8, "model": 2}))
    assert wide.collectives == ()


@pytest.mark.parametrize(
    ("make", "args", "message"),
    [
        (lambda f: jax.pmap(f, in_axes=None), (array(2), array(2)), "at least one argument with a mapped dimension"),
        (jax.pmap, (array(2, 3), array(4, 3)), "y: its mapped dimension is 4, and that of x is 2"),
        (jax.pmap, (array(2, 3), array()), r"y: in_axes maps its dimension 0, and it has shape \(\)"),
        (lambda f: jax.pmap(f, in_axes=(0, -1)), (array(2), array(2, 3)), "y: in_axes maps its dimension -1.*from 0"),
        (lambda f: jax.pmap(f, in_axes=(0, 0, 0)), (array(2), array(2)), r"in_axes=\(0, 0, 0\) is no pytree prefix"),
        (lambda f: jax.pmap(f, in_axes=(0, {"a": 0})), (array(2), array(2)), "is no pytree prefix"),
        (
            lambda f: jax.pmap(f, out_axes=(0, 0)),
            (array(2), array(2)),
            "out_axes=.0, 0. is no pytree prefix of the result",
        ),
        (lambda f: jax.pmap(f, out_axes=3), (array(2), array(2)), r"mapped dimension at 3 of a result with shape \(\)"),
        (lambda f: jax.pmap(f, axis_size=3), (array(2), array(2)), "x: its mapped dimension is 2, and axis_size=3"),
        (lambda f: jax.pmap(f, axis_name=7), (array(2), array(2)), "its axis_name is 7; to be explored"),
        (
            lambda f: jax.pmap(f, devices=jax.devices()[:1]),
            (array(2), array(2)),
            "1 devices for a mapped dimension of 2",
        ),
        (lambda f: jax.pmap(f, static_broadcasted_argnums=2), (array(2), array(2)), "called with 2 positional"),
        (jax.pmap, (array(2), "adam"), "argument 1 is a str.*static"),
        (jax.pmap, (array(0), array(0)), "its mapped dimension is 0"),
        (lambda f: jax.pmap(jax.pmap(f)), (array(2, 3), array(2, 3)), "calls a pmapped function inside a pmap"),
    ],
)
def test_what_pmap_cannot_do_is_said_with_the_arguments_name(make, args, message):
    with pytest.raises(sv.errors.ShardvizError, match=message):
        sv.trace(make(lambda x, y: x + y), *args)


def test_options_are_pmaps_own():
    with pytest.raises(sv.errors.TraceError, match="static_broadcasted_argnums and donate_argnums of its own"):
        sv.trace(jax.pmap(lambda x: x), array(2), donate_argnums=0)


def test_named_devices_are_the_meshs():
    fn = jax.pmap(lambda x: x + 1, axis_name="a", devices=jax.devices()[:1])
    assert sv.trace(fn, array(1, 4)).plan().mesh.ids().tolist() == [jax.devices()[0].id]


def test_a_function_that_calls_a_pmapped_one_and_its_gradient():
    fn = jax.pmap(lambda w, x: jax.lax.psum(x @ w, "batch"), axis_name="batch", in_axes=(None, 0))
    outer = lambda w, x: fn(w, x)[0].sum()
    for step, kinds in ((outer, {"all-reduce"}), (jax.grad(outer), {"all-reduce"})):
        report = sv.analyze(step, array(4, 4), array(8, 4), mesh={"batch": 8})
        assert {c.kind for c in report.collectives} == kinds
        assert report.mesh == DeviceMesh.of("batch=8")


def test_a_pmap_inside_a_function_needs_a_mesh_as_long_as_its_mapped_dimension():
    fn = jax.pmap(lambda x: x - jax.lax.pmean(x, "batch"), axis_name="batch")
    program = sv.trace(lambda x: fn(x) * 2, array(8, 4))  # no mesh yet
    assert [c.count for c in program.propagate(sv.Plan({"batch": 8})).collectives] == [1]
    with pytest.raises(
        sv.errors.TraceError, match=r"a pmap inside maps a dimension of 8, and of the mesh \('batch'=4\) no axis"
    ):
        program.propagate(sv.Plan({"batch": 4}))


def test_it_opens_in_the_explorer_with_no_mesh_named(explored):
    fn, args, kwargs = pmaps.pmapped("normalised", 8)
    explorer = sv.explore(fn, *args, **kwargs, level="propagated")
    assert explorer.plan.mesh == DeviceMesh.of("batch=8")
    assert Counter(c.kind for c in explorer.report.collectives) == {"all-reduce": 1, "all-gather": 1}


def test_the_lines_are_the_persons(explored):
    _, report = explored("train_step", 8)
    lines, first = inspect.getsourcelines(pmaps.train_step)
    for c in report.collectives:
        assert Path(c.source.file).name == "pmap_examples.py"
        assert "pmean" in lines[c.source.line - first]


def test_nothing_runs_and_a_pmap_afterwards_is_as_before():
    fn = jax.pmap(lambda x: x * 2, axis_name="a")
    sv.trace(fn, array(8, 3)).propagate(sv.Plan({"a": 8}))
    np.testing.assert_array_equal(fn(np.ones((1, 3), np.float32)), 2 * np.ones((1, 3)))


def test_a_pmap_inside_without_an_axis_name_is_asked_for_one():
    def step(w, x):
        return jax.pmap(lambda x: x @ w)(x).sum()

    with pytest.raises(sv.errors.TraceError, match=r"a nested pmap has no axis_name.* axis_name= 'i'"):
        sv.trace(step, array(4, 4), array(8, 2, 4)).propagate(sv.Plan("i=8"))
