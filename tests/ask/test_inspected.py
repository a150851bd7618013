"""Variables are cut as `inspect_array_sharding` says, can be asked about by name, and no axis is explained that they
have not."""

import json

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.notation.spec import axis_name
from shardviz.records.groups import grouped
from tests.ask import inspected
from tests.ask.inspected import CASES, MESH
from tests.programs import adapted, decode, unet, vit
from tests.truth import answers_of


@pytest.fixture(scope="module")
def truth():
    """Case → variable → spec, as JAX has it."""
    return json.loads(answers_of(inspected.__file__, devices=8))


def asked(case):
    function, shapes, specs = CASES[case]
    return sv.trace(function, *[jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes]), sv.Plan(MESH, specs)


@pytest.mark.parametrize("case", CASES)
def test_every_variable_can_be_asked_about_and_is_cut_as_jax_says(truth, case):
    program, plan = asked(case)
    assert [n for n in truth[case] if n != "collectives"], "the case has variables"
    for name, cut in truth[case].items():
        if name == "collectives":
            continue
        why = program.why(plan, name)
        assert [[axis_name(a) for a in axes] for axes in why.value.spec.dims] == cut, name
        for axis in MESH:
            at = next((d for d, axes in enumerate(cut) if axis in axes), None)
            assert (why.axis(axis).dimension, bool(why.axis(axis).causes)) == (at, at is not None), (name, axis)
        assert f"{name} = " in why.text(), "the line is shown"


def test_what_is_computed_otherwise_says_both():
    program, plan = asked("convolutions")
    o = next(v for v in program.propagate(plan).intermediates if v.label == "o")
    assert (str(o.spec), str(o.computed)) == ("P(None, 'data', None, 'model')", "P(None, 'data', None, None)")
    assert all(v.computed is None for v in program.propagate(plan).intermediates if v is not o)
    assert "computed as P(None, 'data') and then resharded" in program.why(plan, "o").text()
    assert o.bytes_per_device == 8 * 16 * 16 * 16 * 4 / 8


def test_a_value_that_nothing_shards_can_be_asked_about():
    program, plan = asked("library, whole")
    assert not program.propagate(plan).intermediates
    (answer,) = program.why(plan, "act", axis="model").axes
    assert answer.dimension is None and not answer.stops


def test_a_value_that_no_axis_divides_says_so():
    program = sv.trace(lambda x: jnp.sin(x), jax.ShapeDtypeStruct((3, 5), jnp.float32))
    (answer,) = program.why(sv.Plan(MESH), "result", axis="model").axes
    assert answer.notes == ("none of its dimensions [3, 5] divides by model=2",)


def test_the_partitioner_makes_the_collectives_that_are_told(truth):
    program, plan = asked("argmax")
    kinds = [c.kind for c in program.propagate(plan).collectives]
    assert {kind: kinds.count(kind) for kind in kinds} == truth["argmax"]["collectives"]


def test_every_collective_of_the_partitioner_has_an_answer():
    """Those too that XLA's partitioner makes for one operation: Shardy has none there."""
    program, plan = asked("library")
    partitioned = program.partition(plan)
    ours = {(c.kind, c.axes, c.source) for c in program.propagate(plan).collectives}
    own = [c for c in partitioned.collectives if (c.kind, c.axes, c.source) not in ours]
    assert own, "the partitioner makes some of its own"
    for collective in partitioned.collectives:
        why = program.why(plan, collective)
        assert set(why.need.op) and {a.axis for a in why.axes} <= set(map(axis_name, collective.axes))
    assert any("XLA's partitioner communicates parts of it" in program.why(plan, c).need.words for c in own)


@pytest.mark.long
@pytest.mark.parametrize("preset", ["fsdp", "tensor parallel", "fsdp + tensor parallel"])
@pytest.mark.parametrize("make", [decode, vit, unet, adapted])
def test_every_value_is_cut_as_xlas_own_pass_leaves_it(make, preset):
    """XLA's dump before its partitioner has the sharding of each instruction; those of one line, operation, shape and
    call are compared with those that Shardy has in the kernel."""
    program = make(layers=1) if make in (decode, vit, adapted) else make()
    plan = program.presets(MESH)[preset]
    ours, xlas = (cuts(report) for report in (program.propagate(plan), program.partition(plan)))
    assert len(ours.keys() & xlas.keys()) >= 10
    for key in ours.keys() & xlas.keys():
        assert ours[key] == xlas[key], key


def cuts(report):
    """Where a value is made → the specs of those that are made there."""
    at = lambda v: (v.source and v.source.short, v.op, v.shape, v.dtype, v.name_stack)
    return {
        key: {str(v.spec.canonical()) for v in values}
        for key, values in grouped((at(v), v) for v in report.intermediates).items()
    }
