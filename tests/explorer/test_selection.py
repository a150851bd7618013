"""Which value of another level an intermediate is: on values made by hand, and on real programs."""

import random
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from shardviz.explorer.selection import counterpart
from shardviz.gallery import mlp
from shardviz.notation import Spec
from shardviz.page import explore
from shardviz.records import Frame, Value

LINE = Frame("model.py", 7, "block")


def value(name, op="add", scope="jit(f)/jvp()", shape=(8, 4), source=LINE, **more):
    return Value(
        name=name,
        shape=shape,
        dtype="float32",
        spec=more.pop("spec", None),
        op=op,
        name_stack=f"{scope}/{op}",
        source=source,
        **more,
    )


def test_a_name_that_means_another_value_is_not_taken():
    here, there = [value("add.0")], [value("add.0", op="mul"), value("add.9")]
    assert counterpart(here[0], here, there).name == "add.9"


@pytest.mark.parametrize(
    "other",
    [
        value("a", shape=(4, 8)),
        replace(value("a"), dtype="bfloat16"),
        value("a", scope="jit(f)/transpose(jvp())"),
        value("a", op="sub"),
        value("a", source=Frame("model.py", 8, "block")),
    ],
)
def test_what_differs_in_anything_that_both_know_is_another_value(other):
    assert counterpart(value("a"), [value("a")], [other]) is None


def test_an_operation_that_a_pass_put_in_may_have_no_line_and_name():
    one = replace(value("maximum.0", op="maximum", source=None), name_stack="jit(f)/jvp()/jit(relu)/")
    other = value("max.8", op="max", scope="jit(f)/jvp()/jit(relu)")
    assert counterpart(one, [one], [other]).name == "max.8"


def test_of_several_alike_the_order_of_their_numbers_tells_whatever_the_order_of_the_list():
    here = [value(f"dot_general.{i}") for i in range(12)]
    there = [value(f"add.{100 + i}") for i in range(12)]
    shuffled = random.Random(0).sample(there, 12)
    for mine, its in zip(here, there, strict=True):
        assert counterpart(mine, here, shuffled).name == its.name


def test_a_variable_of_the_source_tells_values_apart_that_are_alike():
    here = [value("a.0"), value("a.1", label="y"), value("a.2")]
    there = [value("b.0", label="y"), value("b.1"), value("b.2")]
    match = counterpart(here[1], here, there)
    assert (match.name, match.alike) == ("b.0", 1)


def test_it_says_whether_those_that_are_alike_are_cut_alike():
    here = [value("a.0"), value("a.1")]
    cut = [value(f"b.{i}", spec=Spec.of((axis, None))) for i, axis in enumerate(("data", "data"))]
    assert not counterpart(here[0], here, cut).differ
    match = counterpart(here[1], here, [cut[0], replace(cut[1], spec=Spec.of(("model", None)))])
    assert match.differ and (match.name, match.place, match.alike) == ("b.1", 2, 2)


def test_a_function_lowered_apart_has_lost_its_line_and_its_name_on_the_stack():
    one = value("negate.0", op="neg", source=None)
    inner, elsewhere = (
        value("neg.1", op="neg", scope="jit(f)/jvp()/jit(silu)"),
        value("neg.2", op="neg", scope="jit(f)"),
    )
    assert counterpart(one, [one], [elsewhere, inner]).name == "neg.1"
    assert counterpart(inner, [inner], [one]).name == "negate.0"
    assert counterpart(one, [one], [value("neg.3", op="neg", scope="jit(f)/transpose(jvp())/jit(silu)")]) is None
    assert counterpart(value("a.0", op="neg"), [], [inner, elsewhere]) is None, "with a line the whole stack counts"


# On real programs.


def step(x, w1, w2):
    h = jnp.tanh(x @ w1)
    gate = jnp.exp(-h)
    y = (h * gate) @ w2
    loss = jnp.sum(y * y)
    return loss


def test_each_variable_of_a_real_program_is_itself_at_both_levels():
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    grad = jax.value_and_grad(step, argnums=(1, 2))
    specs = (P("data"), P(None, "model"), P("model"))
    explorer = explore(
        grad, array(64, 32), array(32, 128), array(128, 32), mesh={"data": 2, "model": 4}, in_specs=specs
    )
    labels = ("h", "gate", "y")
    names = {label: next(v.name for v in explorer.report.intermediates if v.label == label) for label in labels}
    here = explorer.report.intermediates
    explorer.wait(timeout=60)
    for label, name in names.items():
        chosen = next(v for v in here if v.name == name)
        match = counterpart(chosen, here, explorer.report.intermediates)
        assert explorer.report.value(match.name).label == label


CUTS = (("data", None), (None, "data"), ("model", None), (None, "model"), ("data", "model"), ("model", "data"))


def chain(x):
    for cut in CUTS:
        here = P(*cut)
        x = jax.lax.with_sharding_constraint(x, here)
        x = jax.lax.with_sharding_constraint(jnp.tanh(x), here)
    return x


def test_values_that_only_their_order_tells_apart_are_put_right():
    """Each `tanh` is alike in line, operation and shape; the constraints about it say which it is."""
    explorer = explore(chain, jax.ShapeDtypeStruct((64, 64), jnp.float32), mesh={"data": 2, "model": 4})
    here = explorer.report.intermediates
    there = explorer.wait(timeout=60).intermediates
    chosen = [v for v in here if v.op == "tanh"]
    assert [v.spec for v in chosen] == [Spec.of(cut) for cut in CUTS]
    matches = [counterpart(v, here, there) for v in chosen]
    assert [m.alike for m in matches[:-1]] == [len(CUTS)] * (len(CUTS) - 1), "the last one is the variable x"
    assert [explorer.report.value(m.name).spec for m in matches] == [Spec.of(cut) for cut in CUTS]


def test_nearly_all_values_of_a_train_step_are_found():
    explorer = explore(mlp((64, 128, 128, 32), batch=64))
    here = explorer.report.intermediates
    there = explorer.wait(timeout=60).intermediates
    found = [match for v in here if (match := counterpart(v, here, there)) is not None]
    assert len(found) > 0.9 * len(here)
    for v in here:
        assert counterpart(v, here, here, names=True).name == counterpart(v, here, here).name == v.name
