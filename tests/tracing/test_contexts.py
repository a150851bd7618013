"""A program is explored under what stands around its call, as it would run there."""

import contextlib
import functools
import json
import threading
import warnings
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding

import shardviz as sv
from shardviz import _jax
from tests.tracing import context_programs as programs
from tests.truth import answers_of

MESH = {"data": 2, "model": 4}
ARRAY = jax.ShapeDtypeStruct(programs.SHAPE, jnp.float32)


@pytest.fixture(scope="module")
def truth():
    return json.loads(answers_of(Path(programs.__file__).with_name("context_truth.py"), devices=8))


@contextlib.contextmanager
def standing(context):
    """A mesh of one device in the places of a context: the plan's is of eight."""
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("data", "model"))
    with contextlib.ExitStack() as stack, nn.logical_axis_rules(programs.RULES), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `with mesh:` is deprecated
        if "with" in programs.PLACES[context]:
            stack.enter_context(mesh)
        if "set_mesh" in programs.PLACES[context]:
            stack.enter_context(jax.set_mesh(mesh))
        yield


def placed():
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    return [jax.ShapeDtypeStruct(programs.SHAPE, jnp.float32, sharding=NamedSharding(mesh, s)) for s in programs.SPECS]


@functools.cache
def explored(name, context, given):
    """The report, or the error, of a function whose mesh is given or is that of its arguments' shardings."""
    with standing(context):
        args = (ARRAY, ARRAY) if given else placed()
        program = sv.trace(getattr(programs, name), *args)
        try:
            plan = sv.Plan(MESH, programs.SPECS) if given else program.plan()
        except sv.errors.TraceError as error:
            return error
    return program.partition(plan)  # after the context has been left


@pytest.mark.parametrize("context", programs.PLACES)
@pytest.mark.parametrize("name", programs.NAMES)
def test_a_program_is_what_runs_where_it_is_called(truth, name, context):
    expected = truth[name][context]
    found = explored(name, context, given=False)
    if isinstance(expected, str):
        assert isinstance(found, sv.errors.TraceError) and "jax.set_mesh(mesh)" in str(found) and "mesh=" in str(found)
    else:
        assert [list(axes) for axes in found.outputs[0].spec.dims] == expected


@pytest.mark.parametrize("name", programs.NAMES)
def test_a_mesh_that_is_given_stands_where_any_code_looks(truth, name):
    found = explored(name, "none", given=True)
    assert [list(axes) for axes in found.outputs[0].spec.dims] == truth[name]["both"]
    with standing("none"):
        report = sv.analyze(getattr(programs, name), ARRAY, ARRAY, mesh=MESH, in_specs=programs.SPECS)
    assert report.outputs == found.outputs


def test_a_mesh_that_only_shardings_bring_is_no_mesh_around_the_call():
    program = sv.trace(programs.bare, *placed())
    fix = r"under\s`with jax.set_mesh\(mesh\):`, or give mesh="
    with pytest.raises(sv.errors.TraceError, match=rf"requires a non-empty mesh(.|\n)*{fix}"):
        program.plan()
    with pytest.raises(sv.errors.TraceError, match="requires a non-empty mesh"):
        sv.analyze(programs.bare, *placed())
    assert program.propagate(sv.Plan(MESH)).outputs[0].spec.axes == ()


def test_a_variant_of_a_program_stands_where_the_program_does():
    for given in (False, True):
        program = sv.trace(programs.abstract, *((ARRAY, ARRAY) if given else placed()))
        variant = program._with(sv.Plan(MESH).with_variant(donated="x").variant)
        variant.propagate(sv.Plan(MESH, programs.SPECS))
        assert bool(variant.constraints) == given


def test_settings_and_rules_of_the_call_hold_for_later_traces():
    with jax.default_matmul_precision("float32"), nn.logical_axis_rules(programs.RULES):
        program = sv.trace(programs.by_rules, ARRAY, ARRAY)
    texts = {}
    on_another = lambda: texts.update(program.texts(sv.Plan(MESH, programs.SPECS)))
    thread = threading.Thread(target=on_another)
    thread.start()
    thread.join()
    assert "HIGHEST" in texts["stablehlo"] and "sdy.sharding_constraint" in texts["stablehlo"]
    assert not nn.get_logical_axis_rules()


def test_what_is_around_is_as_it_was_after_a_trace():
    before = _jax.settings(), _jax.filled_places()
    with standing("both"):
        within = _jax.settings(), _jax.filled_places()
        sv.analyze(programs.t5x_like, ARRAY, ARRAY, mesh=MESH, in_specs=programs.SPECS)
        assert (_jax.settings(), _jax.filled_places()) == within and len(within[1]) == 2
    assert (_jax.settings(), _jax.filled_places()) == before
