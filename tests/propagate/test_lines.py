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
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)  # noqa: E731
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
