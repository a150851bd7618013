"""What becomes of flax's logical axis names in a dry run of a script that uses them."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys

import jax
import pytest

from shardviz.records.runs import NO_AXIS, NO_MESH, NO_RULE, NO_RULES, RULED_OUT, SIZE_ONE, TAKEN, RunRecord

pytest.importorskip("flax", reason="no flax: pip install 'shardviz[flax]'")


def ran(folder, script):
    """The record of a dry run, and what it printed."""
    (folder / "make.py").write_text(script)
    words = ["run", "--target", "tpu v5e:2x4", "--out", "run.json", "--", "make.py"]
    command = [sys.executable, "-m", "shardviz.cli", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return RunRecord.from_json((folder / "run.json").read_text()), done.stdout


LINEN = """
import jax, jax.numpy as jnp
from flax import linen as nn
from flax.linen import spmd
from jax.sharding import AxisType
mesh = jax.make_mesh((8, 1), ("data", "one"), axis_types=(AxisType.Auto,) * 2)
@jax.jit
def step(x):
    x = nn.with_logical_constraint(x, ("batch", "length", "embed"), mesh=mesh)
    x = nn.with_logical_constraint(x, ("unmeshed", None, None))
    return nn.with_logical_constraint(x, ("batch", "heads", "nobody"), mesh=mesh)
with nn.logical_axis_rules((("batch", "data"), ("embed", None), ("heads", "one"), ("mlp", "gone"), ("length", "data"))):
    step(jnp.zeros((64, 64, 4096)))
    nn.logical_to_mesh_axes(("mlp",))
jax.jit(lambda x: nn.with_logical_constraint(x, ("unruled", None, None), mesh=mesh))(jnp.zeros((8, 8, 8)))
"""


def test_each_name_has_its_mesh_axes_or_the_reason_for_none(tmp_path):
    run, text = ran(tmp_path, LINEN)
    assert {rule.name: (rule.axes, rule.why) for rule in run.rules} == {
        "batch": (("data",), ""),
        "length": ((), TAKEN),
        "embed": ((), RULED_OUT),
        "heads": (("one",), SIZE_ONE),
        "mlp": (("gone",), NO_AXIS),
        "nobody": ((), NO_RULE),
        "unmeshed": ((), NO_MESH),
        "unruled": ((), NO_RULES),
    }
    nobody = next(n for n, line in enumerate(LINEN.splitlines(), 1) if "nobody" in line)
    assert {(r.source.file.rpartition("/")[2], r.source.line) for r in run.rules if r.name == "nobody"} == {
        ("make.py", nobody)
    }
    names = text[text.index("Logical axis names") :]
    assert names.index("nobody") < names.index("batch") and NO_RULE in names
    assert [(f.id, f.severity, f.source.line - nobody) for f in run.findings] == [
        ("constraint-without-effect:mesh", "warning", -1),
        ("constraint-without-effect:mlp", "warning", 3),
        ("constraint-without-effect:rules", "warning", 4),
        ("name-without-rule:nobody", "warning", 0),
        ("constraint-without-effect:size-1", "note", 0),
        ("constraint-without-effect:taken", "note", -2),
    ]
    assert all(finding.suggestions for finding in run.findings) and "Findings: 4 warnings, 2 notes" in text


@pytest.mark.slow
def test_a_check_of_a_script_fails_for_a_name_that_has_no_longer_a_rule(tmp_path):
    def at(*command):
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    (tmp_path / "make.py").write_text(
        LINEN.replace("nobody", "heads2").replace('("mlp", ', '("heads2", None), ("mlp", ')
    )
    (tmp_path / "pyproject.toml").write_text(
        '[tool.shardviz.steps.make]\nrun = "make.py"\nprogram = "step"\ntarget = "tpu v5e:2x4"\nlevel = "propagated"'
    )
    for words in ("init -q", "add .", "-c user.name=a -c user.email=b commit -qm base"):
        at("git", *words.split())
    (tmp_path / "make.py").write_text(LINEN)
    done = at(sys.executable, "-m", "shardviz.cli", "check", "--base", "HEAD", "--json")
    assert done.returncode == 1, done.stderr
    failures = json.loads(done.stdout)["steps"][0]["failures"]
    assert [failure["rule"] for failure in failures] == ["new:name-without-rule:nobody"]


def test_a_script_among_installed_packages_has_its_own_line_not_that_of_flax(tmp_path):
    import flax.linen  # noqa: F401

    import shardviz as sv

    (tmp_path / "site-packages").mkdir()
    script = tmp_path / "site-packages" / "train.py"
    script.write_text("import flax.linen as nn\nnn.logical_to_mesh_axes(('batch', None), (('heads', 'model'),))")
    with sv.dry_run() as run:
        runpy.run_path(str(script))
    assert [rule.source.short for rule in run.record.rules] == ["train.py:2"]


def test_constraints_are_left_out_on_purpose_where_there_is_no_mesh():
    from flax import linen as nn

    import shardviz as sv

    with sv.dry_run(small=0) as run:
        jax.jit(lambda x: nn.with_logical_constraint(x, ("batch",)))(jax.numpy.ones(8))
    assert run.record.rules == run.record.findings == ()


def test_flax_is_as_before_when_the_run_has_ended():
    from flax.linen import spmd

    import shardviz as sv

    theirs = spmd._logical_to_mesh_axes
    with sv.dry_run():
        assert spmd._logical_to_mesh_axes is not theirs
    assert spmd._logical_to_mesh_axes is theirs


NNX = """
import jax, jax.numpy as jnp
from flax import nnx
from jax.sharding import AxisType
mesh = jax.make_mesh((8,), ("model",), axis_types=(AxisType.Auto,))
with jax.set_mesh(mesh):
    @nnx.jit
    def make():
        rules = (("embed", None), ("mlp", "model"))
        init = nnx.with_partitioning(nnx.initializers.zeros_init(), ("embed", "mlp"), sharding_rules=rules)
        return nnx.Linear(4096, 4096, kernel_init=init, rngs=nnx.Rngs(0))
    make()
"""


def test_rules_that_a_call_is_given_stand_alone_and_keywords_are_taken():
    from flax import linen as nn
    from flax.linen import spmd

    import shardviz as sv

    with nn.logical_axis_rules((("heads", "model"),)), sv.dry_run() as run:
        spmd._logical_to_mesh_axes(array_dim_names=("heads",), rules=(("batch", "data"),))
    assert [(rule.name, rule.why) for rule in run.record.rules] == [("heads", NO_RULE)]


def test_names_of_nnx_are_seen_too(tmp_path):
    run, _ = ran(tmp_path, NNX)
    assert {(rule.name, rule.axes, rule.why) for rule in run.rules} == {
        ("mlp", ("model",), ""),
        ("embed", (), RULED_OUT),
    }
