"""Two dry runs of one script under other plans: which programs differ, and in what."""

from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest

import shardviz as sv
from shardviz.cli import main
from shardviz.cli.schemas import schema_of
from shardviz.errors import ShardvizError
from shardviz.records.runs import RunRecord

TRAIN = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
rows, steps = sys.argv[1:]
mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
put = lambda shape, *spec: jax.device_put(np.zeros(shape, np.float32), NamedSharding(mesh, P(*spec)))
@jax.jit
def step(w, x):
    return w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
w, x = put((4096, 4096), rows or None, "model"), put((1024, 4096), "data")
for _ in range(int(steps)):
    w = step(w, x)
jax.jit(lambda x: jnp.sum(x))(x)
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The files of two runs, in the second of which the weights are sharded by `data` too."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(TRAIN)
    for name, words in (("replicated", ["", "2"]), ("sharded", ["data", "3"])):
        run = [
            "run",
            "--target",
            "tpu v5e:2x4",
            "--steps",
            "0",
            "-q",
            "--out",
            f"{name}.json",
            "--",
            "train.py",
            *words,
        ]
        done = subprocess.run([sys.executable, "-m", "shardviz.cli", *run], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def runs(saved):
    return {name: RunRecord.from_json((saved / f"{name}.json").read_text()) for name in ("replicated", "sharded")}


@pytest.mark.slow
def test_runs_are_compared_program_by_program(runs):
    both = sv.compare(runs)
    step, total = both.programs
    assert (step.name, step.same, total.same, both.same) == ("step", False, True, False)
    changed = {name: (old.spec, new.spec) for name, old, new in step.arrays}
    assert changed["argument w"] == ("P(None, 'model')", "P('data', 'model')")
    assert "argument x" not in changed
    text = str(both)
    assert "P(None, 'model')  P('data', 'model')" in text  # a person sees which array, and how
    assert "dry runs compared: replicated and sharded" in text and "2 → 3" in text and "1 program is the same" in text
    data = json.loads(both.to_json())
    assert [p["name"] for p in data["programs"]] == ["step"] and all(data["peak_bytes"])


def test_a_run_is_the_same_as_itself(runs):
    assert sv.compare(runs["sharded"], runs["sharded"]).same


def test_runs_and_reports_do_not_compare(runs):
    mlp = sv.gallery.mlp()
    with pytest.raises(ShardvizError, match="1 of 2 are dry runs; give two runs with two names, or reports alone"):
        sv.compare(runs["sharded"], mlp.program.propagate(mlp.plan))


def test_saved_runs_are_shown_and_compared_on_the_command_line(saved, capsys):
    assert main(["report", str(saved / "sharded.json")]) == 0
    assert "dry run on tpu v5e:2x4, 8 devices: 2 programs" in capsys.readouterr().out
    assert main(["compare", str(saved / "replicated.json"), str(saved / "sharded.json"), "--exit-code"]) == 1
    assert "Programs that differ" in capsys.readouterr().out
    assert main(["compare", str(saved / "replicated.json"), str(saved / "sharded.json"), "--json"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), schema_of("compare"))


def test_what_a_saved_run_cannot_be_asked_is_refused(saved, capsys):
    assert main(["report", str(saved / "sharded.json"), "--target", "tpu v5p:2x2x2", "--program", "step"]) == 2
    assert "--target, --program: " in capsys.readouterr().err
