"""The texts on the way to XLA and the partitioner's, and the source line of each of their lines."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import shardviz as sv
from shardviz.compiler.lines import hlo_lines

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


def texts(stage):
    return [line.text for line in stage.lines if line.text.strip()]


def test_what_shardy_makes_is_the_text_that_a_report_has(program, plan, stages):
    assert [(stage.name, stage.kind) for stage in stages] == [
        ("jaxpr", "jaxpr"), ("stablehlo", "mlir"), ("shardy", "mlir")
    ]  # fmt: skip
    whole = program.propagate(plan, texts=True).stages["shardy"]
    assert texts(stages[-1]) == [line for line in whole.splitlines() if line.strip()]


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
