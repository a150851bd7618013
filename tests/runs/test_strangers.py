"""Programs of others, as `docs/strangers.py` runs them: those that are installed here, each by its name."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
CLONES = Path(os.environ["SHARDVIZ_CLONES"]) if "SHARDVIZ_CLONES" in os.environ else None
"""A folder of clones, `owner/name`, with which all programs run."""
SAMPLE = ("maxtext llama3.1-8b", "maxtext gemma2-9b", "maxtext train_compile")
"""The programs that run without clones, as in CI: their packages can be installed there, and they end soon. Mixtral's
products are of tokamax, which CI has not."""


def loaded():
    spec = importlib.util.spec_from_file_location("strangers", DOCS / "strangers.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["strangers"] = module  # its dataclass asks for it
    spec.loader.exec_module(module)
    return module


strangers = loaded()
STORED = json.loads((DOCS / "strangers.json").read_text())


@pytest.mark.long
@pytest.mark.parametrize("name", strangers.STRANGERS)
def test_a_program_gives_the_report_that_the_page_says(name):
    if CLONES is None and name not in SAMPLE:
        pytest.skip(f"{name} is not in the sample: SHARDVIZ_CLONES=FOLDER runs all")
    try:
        outcome = strangers.tried(name, CLONES, False)
    except LookupError as error:
        pytest.skip(str(error))
    assert outcome.get("asked") == STORED[name].get("asked"), outcome
    assert outcome.get("step") == pytest.approx(STORED[name].get("step"), rel=0.1)


def test_the_page_is_what_was_stored():
    assert (DOCS / "strangers.md").read_text() == strangers.page(STORED), "python docs/strangers.py writes it"
    assert set(STORED) <= set(strangers.STRANGERS)


def test_what_programs_say_of_themselves_is_escaped_on_the_page():
    outcome = {"code": 1, "ended": "ValueError: <b>|", "seconds": 1.0, "programs": 1, "several": 1, "jax": "0"}
    (row,) = (r for r in strangers.page({"flax-lm1b": outcome}).splitlines() if r.startswith("| flax-lm1b |"))
    assert "&lt;b&gt;" in row and row.count("|") == 11


def test_what_is_missing_is_named():
    stranger = strangers.Stranger(source="google/flax", words="python x.py", needs=("no_such_module",))
    with pytest.raises(LookupError, match="not installed here: no_such_module"):
        strangers.installed(stranger, None)
    with pytest.raises(LookupError, match="no clone of google/flax here"):
        strangers.installed(strangers.Stranger(source="google/flax", words="python x.py"), None)


def test_a_program_runs_in_a_process_of_its_own_and_is_asked(monkeypatch, tmp_path):
    script = """
import jax, jax.numpy as jnp, missing_one
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
x = jax.device_put(jnp.ones((8, 8)), NamedSharding(mesh, P("data")))
step = jax.jit(lambda x: x @ x)
for _ in range(missing_one.steps().count or 9):
    x = step(x)
"""
    (tmp_path / "them" / "theirs").mkdir(parents=True)
    (tmp_path / "them" / "theirs" / "train.py").write_text(script)
    table = '[their]\nsource = "them/theirs"\nwords = "python {here}/train.py"\ntarget = "8"\nstubs = ["missing_one"]\n'
    table += "before = 'import missing_one; missing_one.steps = lambda: types.SimpleNamespace(count=5)'\n"
    (tmp_path / "strangers.toml").write_text(table)
    (tmp_path / "strangers.py").write_text((DOCS / "strangers.py").read_text())
    monkeypatch.setattr(strangers, "__file__", str(tmp_path / "strangers.py"))
    monkeypatch.setattr(strangers, "STRANGERS", strangers.strangers())
    monkeypatch.setattr(strangers, "installed", lambda *_: "1")
    monkeypatch.setenv("PYTHONPATH", str(DOCS.parent))
    outcome = strangers.tried("their", tmp_path, False)
    assert (outcome["asked"], outcome["ended"], outcome["unread"]) == ("<lambda>", "steady", {})
