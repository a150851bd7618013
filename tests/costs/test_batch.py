"""Tokens and samples guessed from arguments: what they are for real programs, and when nothing is guessed."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

import shardviz as sv
from shardviz import gallery
from shardviz.costs.batch import batch_of
from shardviz.costs.step_cost import cost_of
from shardviz.errors import ShardvizError
from shardviz.judge.report import Report
from shardviz.records import Cost
from tests.collectives import held, report_of

pytestmark = pytest.mark.slow


def report(*arguments: tuple[str, str, tuple[int, ...]], donated: tuple[str, ...] = ()) -> Report:
    """Of arguments (name, dtype, shape); those whose names begin with one of `donated` are donated."""
    given = bool(donated)
    values = [held(*argument, 1.0, donated=given and argument[0].startswith(donated)) for argument in arguments]
    return report_of("a=8", values, cost=Cost(dot_flops=1e12))


def guess(*arguments: tuple[str, str, tuple[int, ...]], donated: tuple[str, ...] = ()) -> tuple[float, str] | None:
    found = batch_of(report(*arguments, donated=donated))
    return None if found is None else (found.count, found.what)


MODEL = (("params['w1']", "float32", (512, 256)), ("params['w2']", "float32", (256, 512)))


@pytest.mark.parametrize(("name", "what"), [
    ("llama", "tokens"), ("gpt_2021", "tokens"), ("decoder", "tokens"), ("resnet", "samples"), ("mlp", "samples"),
    ("moe", "samples"),
])  # fmt: skip
def test_what_the_gallerys_models_take_in(name, what):
    if name == "decoder":
        pytest.importorskip("flax")
        pytest.importorskip("optax")
    example = getattr(gallery, name)()
    found = batch_of(example.program.propagate(example.plan))
    assert found is not None and (found.count, found.what) == (example.tokens, what)


@pytest.mark.parametrize("name", ["ring", "pipeline"])
def test_floats_of_three_dimensions_may_be_anything(name):
    """Batch x length x features in one, microbatches x batch x features in the other."""
    example = getattr(gallery, name)()
    assert batch_of(example.program.propagate(example.plan)) is None


@pytest.mark.parametrize(("arguments", "expected"), [
    # steps, keys and the batch
    ([("step", "int32", ()), ("key", "uint32", (2,)), ("tokens", "int32", (8, 128))], (1024, "tokens")),
    ([("step", "int32", ()), ("key", "uint32", (2,)), ("keys", "uint32", (64, 4))], None),
    ([("rng", "key<fry>", ()), ("rngs", "key<fry>", (64, 64))], None),
    # of several the one that is named so, else the largest
    ([("tables", "int32", (8, 4096)), ("tokens", "int32", (8, 1))], (8, "tokens")),
    ([("batch['input_ids']", "int32", (8, 128)), ("batch['lengths']", "int32", (8,))], (1024, "tokens")),
    ([("x", "int64", (8, 128)), ("y", "int64", (8, 64))], (1024, "tokens")),
    ([("batch['tokens']", "uint16", (4, 8, 128))], (4096, "tokens")),
    # images
    ([("images", "float32", (32, 64, 64, 3)), ("labels", "int32", (32,))], (32, "samples")),
    ([("images", "uint8", (32, 64, 64, 3)), ("labels", "int32", (32,))], (32, "samples")),
    ([("images", "uint8", (32, 64, 64, 3))], (32, "samples")),
    ([("images", "float32", (8, 4, 64, 64, 3)), ("labels", "int32", (8, 4))], (32, "samples")),
    ([("x", "float32", (32, 100)), ("y", "float32", (32,)), ("rate", "float32", ())], (32, "samples")),
    # not all of one mind
    ([("x", "float32", (32, 100)), ("y", "float32", (64, 100))], None),
    ([("x", "float32", (32, 10, 100))], None),
    ([("noise", "float32", (32,))], None),
    ([], None),
])  # fmt: skip
def test_beside_a_model(arguments, expected):
    assert guess(*MODEL, *arguments) == guess(*arguments, *MODEL) == expected
    donated = guess(*MODEL, *arguments, ("momentum", "float32", (9,)), donated=("params", "momentum"))
    assert donated == expected


def test_a_models_own_tables_and_what_is_donated_are_no_batch():
    quantised = (("params['w']", "int8", (512, 512)), ("params['codes']", "int32", (512, 512)))
    assert guess(*quantised, ("x", "float32", (8, 512))) == (8, "samples")
    assert guess(*MODEL, ("cache", "int32", (8, 4096)), donated=("cache",)) is None
    assert guess(("tokens", "int32", (8, 128))) == (1024, "tokens")  # all there is is no model


def test_two_matrices_are_no_model_and_its_batch():
    assert guess(("x", "float32", (64, 128)), ("w", "float32", (128, 32))) is None
    assert guess(("x", "float32", (64, 128)), ("w", "float32", (128, 32)), donated=("w",)) == (64, "samples")


def test_moments_are_no_batch():
    """Layers stacked for a scan: every array of parameters and moments begins with their number."""
    params = tuple((f"params['{name}']", "float32", (80, *shape)) for name, shape in (("w", (8, 8, 8)), ("b", (8,))))
    moments = tuple((f"{m}.{name}", dtype, shape) for m in ("mu", "nu") for name, dtype, shape in params)
    assert guess(*params, *moments) is None
    assert guess(*params, *moments, ("x", "float32", (32, 8))) == (32, "samples")


def test_a_batch_may_be_larger_than_the_model():
    batch = (("batch['image']", "float32", (256, 224, 224, 3)), ("batch['label']", "int32", (256,)))
    three = (*MODEL, ("params['w3']", "float32", (512, 4)))
    assert guess(*three, *batch) == guess(*batch, *three) == (256, "samples")
    assert guess(*three, batch[0]) == (256, "samples")


SHAPES = st.lists(st.integers(1, 64), max_size=4).map(tuple)
DTYPES = st.sampled_from(("float32", "bfloat16", "int32", "uint32", "int8", "uint8", "bool", "complex64"))
NAMES = st.sampled_from(("params['a']", "params['b']", "tokens", "x", "y", "key", "state.m", "state.v"))


@given(st.lists(st.tuples(NAMES, DTYPES, SHAPES), max_size=6, unique_by=lambda a: a[0]), st.booleans())
def test_laws_of_any_arguments(arguments, donate):
    found = batch_of(report(*arguments, donated=("params", "state") if donate else ()))
    if found is None:
        return
    name = found.source.rsplit(" ", 1)[-1]
    (_, dtype, shape), *_ = (a for a in arguments if a[0] == name)
    assert shape and dtype not in ("bool", "complex64", "int8")
    assert found.count % shape[0] == 0 and found.what in ("tokens", "samples")
    assert not (donate and name.startswith(("params", "state")))


def test_a_cost_says_where_the_number_is_from():
    made = report(*MODEL, ("tokens", "int32", (8, 128)))
    guessed = cost_of(made, "gpu h100:1x8")
    assert (guessed.step.tokens, guessed.tokens_are, guessed.tokens_from) == (
        1024,
        "tokens",
        "8 x 128, from argument tokens",
    )
    assert "; 1,024 in a step (8 x 128, from argument tokens)" in guessed.text(200)
    assert "1,024 in a step (8 x 128, from argument tokens)" in guessed.html()
    told = cost_of(made, "gpu h100:1x8", tokens=77)
    assert (told.step.tokens, told.tokens_from) == (77, "given") and "; 77 in a step (given)" in told.text(200)
    assert told.tokens_per_s_per_chip == pytest.approx(77 / told.step.seconds / 8)
    off = cost_of(made, "gpu h100:1x8", tokens=False)
    assert (off.tokens_per_s, off.tokens_from) == (None, "") and "in a step (" not in off.text(200)
    assert cost_of(made, "gpu h100:1x8", tokens=0).step.tokens == 0
    with pytest.raises(ShardvizError, match="tokens=True: give their number"):
        cost_of(made, "gpu h100:1x8", tokens=True)
    pictures = report(*MODEL, ("images", "float32", (32, 64, 64, 3)))
    assert "samples: " in cost_of(pictures, "gpu h100:1x8").text(200)
    evil = report(*MODEL, ("<b>tokens", "int32", (8, 128)))
    assert "<b>tokens" not in cost_of(evil, "gpu h100:1x8").html()


def test_donated_arguments_are_in_every_level_and_in_json():
    f32 = jnp.float32
    step = jax.jit(lambda w, x: (w - x.sum(), x @ w), donate_argnums=0)
    program = sv.trace(step, jax.ShapeDtypeStruct((64, 64), f32), jax.ShapeDtypeStruct((8, 64), f32))
    plan = sv.Plan({"a": 8}, (P(), P("a")))
    for found in (program.propagate(plan), program.partition(plan)):
        assert [(v.name, v.donated) for v in found.arguments] == [("w", True), ("x", False)]
        assert not any(v.donated for v in found.outputs)
        again = Report.from_json(found.to_json())
        assert again == found and batch_of(again) == batch_of(found) is not None


def test_what_was_written_before_values_said_donated_still_reads():
    made = report(*MODEL, ("tokens", "int32", (8, 128)))
    old = made.to_json().replace(', "donated": false', "")
    assert old != made.to_json() and Report.from_json(old) == made
    assert dataclasses.replace(made.arguments[0], donated=True) != made.arguments[0]


def test_the_group_sizes_of_a_ragged_product_are_no_samples():
    weights = ("params['up']", "bfloat16", (8, 64, 32)), ("params['down']", "bfloat16", (8, 32, 64))
    rows = ("x", "bfloat16", (4096, 64))
    found = batch_of(report(*weights, rows, ("group_sizes", "int32", (8,))))
    assert found == batch_of(report(*weights, rows))
    assert found is not None
    assert (found.count, found.what) == (4096, "samples")
    labels = batch_of(report(*weights, rows, ("labels", "int32", (4096,))))
    assert labels is not None
    assert labels.source == "argument labels"
