"""What `shardviz check --base` takes for a step of real size, of which both revisions are partitioned."""

from __future__ import annotations

import time
from pathlib import Path

from shardviz.cli import main
from shardviz.gallery import llama as gallery
from tests.cli.conftest import git

PROJECT = """
[tool.shardviz.steps.train]
function = "stranger:large"
target = "tpu v5p:4x4x4"
"""
LINE = 'x = x + g @ p["w2"]'
GATHERED = 'w2 = jax.lax.with_sharding_constraint(p["w2"], P())\n    x = x + g @ w2'


def test_a_gathered_weight_of_a_70b_step_is_found_in_a_minute(tmp_path, monkeypatch, capsys):
    model = Path(gallery.__code__.co_filename).read_text() + '\n\nlarge = llama("70b")\n'
    (tmp_path / "stranger.py").write_text(model)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    assert LINE in model
    (tmp_path / "stranger.py").write_text(model.replace(LINE, GATHERED))
    monkeypatch.chdir(tmp_path)
    start = time.perf_counter()
    assert main(["check", "--base", "main"]) == 1
    seconds = time.perf_counter() - start
    told = capsys.readouterr().out
    assert "gathered:params['layers']['w2']" in told and "stranger.py:" in told
    print(f"check --base main, both reports partitioned: {seconds:.1f} s")
    assert seconds < 60
