"""A person's project in a folder of its own, and the command run in it: in this process, or in one of its own."""

from __future__ import annotations

import json
import linecache
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shardviz.cli import main

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P

def loss(params, x):
    h = jnp.tanh(x @ params["up"])
    return jnp.mean(h @ params["down"])

def train_step(params, x):
    value, grads = jax.value_and_grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

def arguments():
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    return {"up": array(1024, 4096), "down": array(4096, 1024)}, array(512, 1024)

def params():
    return arguments()[0]

specs = ({"up": P("data", "model"), "down": P("model", None)}, P("data"))

def make(batch):
    params, x = arguments()
    return train_step, (params, jax.ShapeDtypeStruct((batch, 1024), jnp.float32)), {"in_specs": specs}

def broken():
    raise RuntimeError("no data here")
"""

CONFIGURATION = """
[tool.shardviz.steps.train]
function = "stranger:train_step"
args = "stranger:arguments"
mesh = { data = 2, model = 4 }
in_specs = "stranger:specs"
donate = [0]
target = "tpu v5p:2x2x2"
"""


@dataclass(frozen=True)
class Ran:
    """What a run of the command gave."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.out)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and a configuration, which is the working folder."""
    (tmp_path / "stranger.py").write_text(MODEL)
    (tmp_path / "pyproject.toml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """Runs the command in this process, on 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*words: str) -> Ran:
        for name in ("stranger", "other"):  # as in a new process, which has what the file says now
            sys.modules.pop(name, None)
        linecache.clearcache()
        capsys.readouterr()
        code = main(words)
        return Ran(code, *capsys.readouterr())

    return command


def environment(**more: str) -> dict[str, str]:
    """The environment of a command in a process of its own."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **more}


def command(*words: str) -> list[str]:
    """The command line of a process of its own, which takes Ctrl-C."""
    start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    return [sys.executable, "-c", start + "from shardviz.cli import main; sys.exit(main(sys.argv[1:]))", *words]


def committed(folder: Path) -> None:
    """Makes a folder a repository of git, with a branch `main` of one commit."""
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")


def git(folder: Path, *words: str) -> str:
    """What git says in a folder."""
    who = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.org")
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()
