"""What JAX itself says about thousands of random shardings, asked once a session, on simulated devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardviz.notation import DeviceMesh, Spec


@dataclass(frozen=True)
class Answers:
    """Cases, and JAX's answers end to end."""

    cases: dict[str, list[dict[str, Any]]]
    bounds: np.ndarray
    replicas: np.ndarray
    tiles: np.ndarray
    counts: np.ndarray
    assigned: np.ndarray


def given(case: dict[str, Any]) -> tuple[tuple[int, ...], Spec, DeviceMesh]:
    """A case's shape, spec and mesh as `layout` takes them."""
    mesh = DeviceMesh(tuple(case["names"]), tuple(case["sizes"]), (), tuple(case["devices"]))
    return tuple(case["shape"]), Spec(tuple(tuple(dim) for dim in case["dims"])), mesh


@pytest.fixture(scope="session")
def jax_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    folder = tmp_path_factory.mktemp("jax_answers")
    script = Path(__file__).with_name("jax_answers.py")
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, str(script), str(folder)], capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    with np.load(folder / "answers.npz") as arrays:
        return Answers(json.loads((folder / "cases.json").read_text()), **{name: arrays[name] for name in arrays.files})
