"""`%%shard` in a notebook: the last call of a cell is explored, and never run."""

import sys

import jax
import jax.numpy as jnp
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import shardviz as sv


@pytest.fixture
def shell(monkeypatch):
    """An IPython with the extension loaded."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell puts its own there
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "shardviz")
    yield shell
    shell.reset(new_session=False)


CELL = """
seen = []
def step(w, x):
    seen.append(type(w))
    return jnp.sum(x @ w)
x = jax.ShapeDtypeStruct((64, 32), jnp.float32)
w = jax.ShapeDtypeStruct((32, 16), jnp.float32)
step(w, x=x)
"""


def test_the_last_call_is_explored_and_what_stands_before_it_is_run(shell):
    shell.push({"jax": jax, "jnp": jnp, "specs": None, "P": jax.sharding.PartitionSpec})
    line = "--mesh data=2,model=4 --in-specs \"(P(None,'model'),)\" --level propagated"
    explorer = shell.run_cell_magic("shard", line, CELL)
    assert isinstance(explorer, sv.page.Explorer)
    report = explorer.state.report
    assert report.mesh.shape == {"data": 2, "model": 4} and report.program == "step"
    assert {v.name: str(v.spec.canonical()) for v in report.arguments} == {"w": "P(None, 'model')", "x": "P()"}
    assert all(issubclass(kind, jax.core.Tracer) for kind in shell.user_ns["seen"]), "it was traced, not run"
    source = report.collectives[0].source
    assert source is not None and "x @ w" in source.text_in(report.source)


def test_what_is_no_call_is_explored_as_it_is(shell):
    shell.push({"example": sv.gallery.mlp()})
    explorer = shell.run_cell_magic("shard", "--level propagated", "example")
    assert explorer.state.report.program == "train_step"


@pytest.mark.parametrize("cell", ["x = 1", "def f(x):\n    return x\n"])
def test_a_cell_without_an_expression_at_its_end_is_told_what_is_wanted(shell, cell):
    with pytest.raises(UsageError, match="the last line of the cell must be a call to explore"):
        shell.run_cell_magic("shard", "--mesh data=2", cell)


def test_a_fault_in_the_cell_is_the_cells(shell):
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("shard", "--mesh data=2", "1 / 0\nlen([])")
