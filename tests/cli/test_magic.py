"""`%%shard` in a notebook: the last call of a cell is explored, and never run."""

import json
import sys

import jax
import jax.numpy as jnp
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import shardviz as sv
from shardviz.cli import main

pytestmark = pytest.mark.slow


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


def test_without_a_mesh_the_target_gives_one(shell):
    shell.push({"jax": jax, "jnp": jnp})
    explorer = shell.run_cell_magic("shard", "--target 'tpu v5e:2x4' --level propagated", CELL)
    assert explorer.state.report.mesh.shape == {"data": 2, "model": 4}


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


def test_a_cell_is_run_dry_as_a_whole(shell):
    shell.push({"jax": jax, "jnp": jnp})
    run = shell.run_cell_magic("dryrun", "--name dry", "x = jnp.ones((60_000, 30_000))\ny = x + 1")
    assert shell.user_ns["dry"] is run
    assert [p.name for p in run.programs][-1] == "add"
    assert shell.user_ns["y"].shape == (60_000, 30_000)


def test_a_script_is_run_dry_and_explored_in_a_notebook_that_run_open_writes(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "import sys, jax.numpy as jnp\nx = jnp.ones((60_000, 30_000))\ny = x + len(sys.argv)\nprint('done')"
    )
    opened = []

    def lab(_, command):
        opened.extend(word for word in command if "tree" in word)
        raise KeyboardInterrupt

    monkeypatch.setattr("os.execv", lab)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "")
    for _ in range(2):  # the second time the notebook is there
        assert main(["run", "--steps", "0", "--open", "--", "python", "train.py", "--layers", "2"]) == 130
    assert opened == ["--LabApp.default_url=/lab/tree/run_train_1.ipynb"] * 2
    cells = json.loads((tmp_path / "shardviz-notebooks" / "run_train_1.ipynb").read_text())["cells"]
    for cell in cells:
        ran = shell.run_cell(cell["source"])
        ran.raise_error()
    assert [p.name for p in shell.user_ns["run"].programs] == ["broadcast_in_dim", "add"]
    assert ran.result.run is shell.user_ns["run"]
    assert main(["run", "--open", "--json", "--", "train.py"]) == 2


def test_a_script_is_run_dry_as_the_help_says(shell, tmp_path, monkeypatch):
    """Without `--`, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import jax.numpy as jnp\nx = jnp.ones((60_000, 30_000))")
    run = shell.run_line_magic("dryrun", "python train.py --steps 4")
    assert shell.user_ns["run"] is run and [p.name for p in run.programs] == ["broadcast_in_dim"]
