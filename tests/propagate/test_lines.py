"""The texts on the way to XLA and the partitioner's, and the source line of each of their lines."""

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.compiler.module import hlo_lines

P = jax.sharding.PartitionSpec


def step(w, x):
    h = jnp.tanh(x @ w["up"])
    return h @ w["down"]


PRODUCTS = step.__code__.co_firstlineno + 1, step.__code__.co_firstlineno + 2


@pytest.fixture(scope="module")
def program():
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    return sv.trace(step, {"up": array(16, 64), "down": array(64, 16)}, array(8, 16))


@pytest.fixture(scope="module")
def plan():
    return sv.Plan("data=2,model=2", in_specs=({"up": P(None, "model"), "down": P("model", None)}, P("data")))


@pytest.fixture(scope="module")
def stages(program, plan):
    return list(program.stages(plan))


def test_there_are_three_texts_and_they_are_the_programs(program, plan, stages):
    kinds = [("jaxpr", "jaxpr"), ("stablehlo", "mlir"), ("shardy", "mlir")]
    assert [(stage.name, stage.kind) for stage in stages] == kinds
    texts = program.texts(plan)
    assert [texts[name].count("sdy.all_reduce") for name, _ in kinds] == [0, 0, 1] and "loc(" not in texts["shardy"]


@pytest.mark.parametrize(("name", "operation"), [("jaxpr", "dot_general"), ("stablehlo", "dot_general")])
def test_a_line_leads_to_the_source_line_that_it_comes_from(stages, name, operation):
    stage = next(s for s in stages if s.name == name)
    found = {line.at for line in stage.lines if operation in line.text}
    assert found == {f"test_lines.py:{n}" for n in PRODUCTS}


def test_the_sum_that_shardy_puts_in_comes_from_the_product_that_needs_it(stages):
    (added,) = [line for line in stages[-1].lines if "sdy.all_reduce" in line.text]
    assert added.at == f"test_lines.py:{PRODUCTS[1]}" and "loc(" not in added.text


def test_what_the_partitioner_made_has_its_lines_without_its_tables(program, plan):
    lines = hlo_lines(program.partition(plan).stages["partitioned"])
    (added,) = [line for line in lines if " all-reduce(" in line.text]
    assert added.at == f"test_lines.py:{PRODUCTS[1]}"
    assert lines[-1].text == "}" and not any("metadata=" in x.text or "FileNames" in x.text for x in lines)


def test_an_operation_without_a_line_has_its_text_alone():
    program = sv.trace(lambda x: jnp.cumsum(x, 0), jax.ShapeDtypeStruct((8, 4), jnp.float32))
    (line,) = [x for x in program.texts(sv.Plan("data=2"))["jaxpr"].splitlines() if " = cumsum[" in x]
    assert line.endswith("= cumsum[axis=0 reverse=False] a")


def test_a_collective_names_the_constraint_that_it_follows():
    """Shardy hands a constraint's spec back to the product before it, and the reshard stands at the product's line."""

    def with_constraint(x, w, v):
        y = jnp.dot(x, w)
        z = jax.lax.with_sharding_constraint(y, P("data", None))
        return jnp.tanh(z) @ v

    def without(x, w, v):
        y = jnp.dot(x, w)
        return jnp.tanh(y) @ v

    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((64, 32), (32, 64), (64, 8))]

    def gathers(function, level):
        program = sv.trace(function, *arguments)
        plan = program.plan(mesh={"data": 2, "model": 4}, in_specs=(P("data"), P(None, "model"), P()))
        return getattr(program, level)(plan).collectives.where("all-gather")

    start = with_constraint.__code__.co_firstlineno
    for level in ("propagate", "partition", "compile"):
        (gather,) = gathers(with_constraint, level)
        assert gather.constraint is not None and gather.source is not None, level
        assert (gather.source.line, gather.constraint.line) == (start + 1, start + 2)
        assert f"for the constraint at {gather.constraint.short}" in gathers(with_constraint, level).listed()
    assert not any(c.constraint for c in gathers(without, "propagate"))
