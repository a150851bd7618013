"""A value inside the function constrained from the explorer: taken, refused at its place, and undone."""

from jax.sharding import PartitionSpec as P

from shardviz.explorer.edits import ConstrainValue, read
from shardviz.explorer.explorer import ExplorerState
from shardviz.gallery import mlp


def test_a_value_of_any_level_is_constrained_and_the_constraint_taken_away():
    example = mlp()
    state = ExplorerState(example.program, example.plan, level="partitioned")
    state.wait("partitioned")
    assert state.level == "partitioned"
    product = next(v for v in state.report.intermediates if v.op == "dot_general" and v.label == "")
    assert state.constrain(product.name, "P(None, 'data')")
    (constraint,) = state.bound.constraints
    assert (constraint.name, str(constraint)) == (
        'x @ layer["w"]',
        f"""x @ layer["w"] at {product.source.short} to P(None, 'data')""",
    )
    assert state.plan == example.plan.constrain(product_of(example, product), P(None, "data"))
    assert not state.constrain(constraint.name, "P('nowhere')", line=product.source.short)
    assert state.error is not None
    assert (state.error["place"], "no axis 'nowhere'" in state.error["message"]) == ("value", True)
    assert state.constrain('x @ layer["w"]', None)
    assert state.bound.constraints == ()
    assert state.undo()
    assert state.bound.constraints == (constraint,)
    state.stop()


def product_of(example, product):
    """The same value as Shardy's level has it, with its columns."""
    report = example.program.propagate(example.plan)
    return next(v for v in report.intermediates if (v.source, v.op) == (product.source, "dot_general"))


def test_the_page_may_ask_for_it():
    sent = {"op": "constrain", "name": "h", "spec": "P('data')", "line": "model.py:3"}
    assert read(sent) == ConstrainValue("h", "P('data')", line="model.py:3")
